"""A share session without IO: its counter, its partitions, what refused acknowledgements cost; acquired records."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.errors import KafkaError
from kohort.client.queue.acquired import acquired_records
from kohort.client.queue.share_session import ACCEPT, GAP, RELEASE, RENEW, Ack, ShareSession
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.schemas.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kohort.wire.schemas.share_fetch import AcquiredRecords
from kohort.wire.schemas.share_fetch import PartitionData as FetchedPartition

A, B = b"a" * 16, b"b" * 16


class Acks:
    """Acknowledgements that note their outcomes."""

    def __init__(self, session: ShareSession) -> None:
        self.session = session
        self.outcomes: dict[tuple[bytes, int], int] = {}

    def add(self, topic: bytes, offset: int, kind: int = ACCEPT) -> None:
        self.session.add(Ack((topic, 0), offset, offset, kind, lambda error: self._note(topic, offset, error)))

    def _note(self, topic: bytes, offset: int, error: int) -> None:
        assert (topic, offset) not in self.outcomes
        self.outcomes[topic, offset] = error

    def exchange(self, errors: dict[bytes, int] | None = None, error: int = 0) -> Any:
        """Send a request, and get an answer with these errors of topics."""
        request, sent = self.session.acknowledge()
        rows = tuple(
            ShareAcknowledgeTopicResponse(
                topic_id=topic.topic_id,
                partitions=(PartitionData(partition_index=0, error_code=(errors or {}).get(topic.topic_id, 0)),),
            )
            for topic in request.topics
        )
        for ack, code in self.session.answered(sent, ShareAcknowledgeResponse(error_code=error, responses=rows)):
            ack.done(code)
        return request


def ranges(request: Any, topic: bytes = A) -> list[tuple[int, int, tuple[int, ...]]]:
    return [
        (batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for row in request.topics
        if row.topic_id == topic
        for batch in row.partitions[0].acknowledgement_batches
    ]


def opened() -> tuple[ShareSession, Acks]:
    session = ShareSession("g", "m")
    session.fetch([(A, 0), (B, 0)], 5, 100)
    return session, Acks(session)


def test_requests_are_numbered_and_name_only_what_changes() -> None:
    session = ShareSession("g", "m")
    first = session.fetch([(A, 0), (A, 1)], 5, 100)
    assert (first.share_session_epoch, first.topics[0].topic_id) == (0, A)
    assert [row.partition_index for row in first.topics[0].partitions] == [0, 1]
    second = session.fetch([(A, 1), (B, 0)], 5, 100)
    assert [row.topic_id for row in second.topics] == [B]
    assert [(row.topic_id, row.partitions) for row in second.forgotten_topics_data] == [(A, (0,))]
    third = session.fetch([(A, 1), (B, 0)], 5, 100)
    assert (third.share_session_epoch, third.topics, third.forgotten_topics_data) == (2, (), ())
    assert session.close()[0].share_session_epoch == -1
    assert session.fetch([(A, 1)], 5, 100).share_session_epoch == 0


def test_neighbours_are_one_range() -> None:
    _, acks = opened()
    for offset in (4, 2, 3):
        acks.add(A, offset)
    acks.add(A, 5, RELEASE)
    acks.add(A, 7)
    assert ranges(acks.exchange()) == [(2, 4, (ACCEPT,)), (5, 5, (RELEASE,)), (7, 7, (ACCEPT,))]
    assert set(acks.outcomes.values()) == {0}


def test_a_lock_that_was_lost_costs_only_its_own_record() -> None:
    session, acks = opened()
    for offset in (1, 2, 3):
        acks.add(A, offset)
    acks.add(B, 1)
    acks.exchange({A: 121})
    assert acks.outcomes == {(B, 1): 0}
    assert [ranges(acks.exchange({A: error})) for error in (0, 121, 0)] == [
        [(1, 1, (ACCEPT,))],
        [(2, 2, (ACCEPT,))],
        [(3, 3, (ACCEPT,))],
    ]
    assert acks.outcomes == {(B, 1): 0, (A, 1): 0, (A, 2): 121, (A, 3): 0}
    assert not session.has_acks


def test_renewals_have_requests_of_their_own() -> None:
    _, acks = opened()
    acks.add(A, 1, RENEW)
    acks.add(A, 2)
    first, second = acks.exchange(), acks.exchange()
    assert (first.is_renew_ack, ranges(first)) == (False, [(2, 2, (ACCEPT,))])
    assert (second.is_renew_ack, ranges(second)) == (True, [(1, 1, (RENEW,))])


@pytest.mark.parametrize("error", [122, 123])
def test_acknowledgements_survive_a_session_that_the_broker_does_not_have(error: int) -> None:
    session, acks = opened()
    acks.add(A, 1)
    acks.exchange(error=error)
    assert session.is_broken
    assert acks.outcomes == {}
    session.reopen()
    assert session.fetch([(A, 0)], 0, 0).share_session_epoch == 0
    assert acks.exchange().share_session_epoch == 1
    assert acks.outcomes == {(A, 1): 0}


def test_the_end_of_the_connection_fails_what_waits() -> None:
    session, acks = opened()
    acks.add(A, 1)
    acks.add(A, 2, RENEW)
    session.fail_all(122)
    assert acks.outcomes == {(A, 1): 122, (A, 2): 122}


def fetched(*acquired: tuple[int, int, int]) -> FetchedPartition:
    """Records 10, 11, 13 and 14, a marker at 15, record 16."""
    now = NewRecord(None, b"v", 1)
    data = (
        encode_batch([now, now, now, now], base_offset=10, offsets=(0, 1, 3, 4))
        + encode_batch([NewRecord(b"\0\0\0\1", b"", 1)], base_offset=15, is_control=True, is_transactional=True)
        + encode_batch([now], base_offset=16)
    )
    rows = tuple(AcquiredRecords(first_offset=a, last_offset=b, delivery_count=n) for a, b, n in acquired)
    return FetchedPartition(partition_index=0, records=data, acquired_records=rows)


def test_only_acquired_records_are_delivered_and_the_rest_is_gaps() -> None:
    found, gaps = acquired_records(fetched((11, 13, 2), (15, 16, 1)), "jobs-0")
    assert [(one.record.offset, one.deliveries) for one in found] == [(11, 2), (13, 2), (16, 1)]
    assert gaps == [(12, 12), (15, 15)]
    assert acquired_records(fetched(), "jobs-0") == ([], [])
    found, gaps = acquired_records(fetched((10, 10, 1), (20, 25, 1)), "jobs-0")
    assert ([one.record.offset for one in found], gaps) == ([10], [(20, 25)])


def test_damaged_records_are_an_error() -> None:
    row = fetched((10, 16, 1))
    assert row.records is not None
    broken = row.records[:-1] + b"\xff"
    damaged = FetchedPartition(partition_index=0, records=broken, acquired_records=row.acquired_records)
    with pytest.raises(KafkaError, match="cannot read the records of jobs-0"):
        acquired_records(damaged, "jobs-0")
    assert GAP == 0
