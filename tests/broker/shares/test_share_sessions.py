"""Share sessions, fetches and acknowledgements through the broker."""

from __future__ import annotations

import pytest
from share_driver import ACCEPT, REJECT, RELEASE, RENEW, Member, ranges, row, share_wire, share_world, values
from wire_driver import GROUP, SET, Wire

from kohort.storage.memory import MemoryStorage
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

INVALID, INVALID_STATE, NO_SESSION, BAD_EPOCH, FULL = 42, 121, 122, 123, 133


@pytest.mark.conformance("SH1")
def test_they_are_off_by_default() -> None:
    client = Wire().connect()
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert not {76, 77, 78, 79, *range(83, 88), 90, 91, 92} & {api.api_key for api in versions.api_keys}
    assert "share.version" not in {feature.name for feature in versions.supported_features}
    assert client.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "earliest"))[0] == 40
    member = Member(client.wire, "a", bytes(16))
    assert member.beat("t").error_code == 35
    assert member.fetch().error_code == 35
    assert member.acknowledge(epoch=1).error_code == 35


@pytest.mark.conformance("SH1")
def test_they_are_a_feature_when_they_are_on() -> None:
    client = share_wire().connect()
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert {76, 77, 78, 79, *range(83, 88), 90, 91, 92} <= {api.api_key for api in versions.api_keys}
    assert ("share.version", 0, 2) in [(f.name, f.min_version, f.max_version) for f in versions.supported_features]
    assert ("share.version", 2) in [(f.name, f.max_version_level) for f in versions.finalized_features]


@pytest.mark.conformance("SH15", "SH17", "SH20")
def test_the_first_answer_has_an_assignment_and_records_follow() -> None:
    _, _, [member, _] = share_world(3)
    again = member.beat()
    assert (again.error_code, again.assignment) == (0, None)
    answer = member.fetch()
    assert ranges(answer) == [(0, 2, 1)]
    assert values(answer) == [b"0", b"1", b"2"]
    assert answer.acquisition_lock_timeout_ms == 30_000


@pytest.mark.conformance("SH34")
def test_each_record_is_with_one_member_until_it_is_given_back() -> None:
    _, _, [a, b] = share_world(6)
    assert a.take(max_records=4) == [(0, 3, 1)]
    assert b.take() == [(4, 5, 1)]
    assert b.take(acks=[(4, 4, ACCEPT), (5, 5, RELEASE)]) == [(5, 5, 2)]
    assert a.ack((0, 1, ACCEPT), (2, 3, RELEASE, REJECT)) == 0
    assert b.take() == [(2, 2, 2)]


@pytest.mark.conformance("SH32", "SH69")
def test_acknowledgements_outlast_a_restart_and_locks_do_not() -> None:
    storage = MemoryStorage()
    wire, _, [a, _] = share_world(5, storage=storage)
    assert a.take() == [(0, 4, 1)]
    assert a.ack((0, 0, ACCEPT), (2, 2, REJECT), (3, 3, RELEASE)) == 0
    again = Wire(storage, group_share_enable=True)
    wire.broker.validate()
    topic_id = again.broker.state.catalog.topics["t"].topic_id
    a = Member(again, "a", topic_id)
    a.epoch = 2
    assert a.ack((1, 1, ACCEPT)) == NO_SESSION
    a.epoch = 0
    # 1 and 4 were delivered and not ended: that delivery is forgotten. 3 was given back.
    assert a.take() == [(1, 1, 1), (3, 3, 2), (4, 4, 1)]
    again.broker.validate()


@pytest.mark.conformance("SH57")
def test_a_closed_connection_gives_records_back() -> None:
    _, _, [a, b] = share_world(3)
    assert a.take() == [(0, 2, 1)]
    assert b.take() == []
    a.connection.close()
    assert b.take() == [(0, 2, 2)]


@pytest.mark.conformance("SH54", "SH57")
def test_the_end_of_an_older_connection_ends_nothing() -> None:
    """A session that was opened again belongs to the new connection (SH54, SH57)."""
    wire, _, [a, b] = share_world(3)
    assert a.take() == [(0, 2, 1)]
    former, a.connection, a.epoch = a.connection, wire.connect(), 0
    assert a.take() == []
    former.close()
    assert b.take() == []
    assert a.ack((0, 2, ACCEPT)) == 0


@pytest.mark.conformance("SH56")
def test_the_last_request_of_a_session_acknowledges_and_then_releases() -> None:
    _, _, [a, b] = share_world(3)
    assert a.take() == [(0, 2, 1)]
    assert a.ack((0, 0, ACCEPT), epoch=-1) == 0
    assert a.ack((1, 1, ACCEPT)) == NO_SESSION
    assert b.take() == [(1, 2, 2)]
    closing = b.fetch([(1, 1, ACCEPT)], share_session_epoch=-1)
    assert (row(closing).acknowledge_error_code, ranges(closing)) == (0, [])
    a.epoch = 0
    assert a.take() == [(2, 2, 3)]


@pytest.mark.conformance("SH54", "SH55")
def test_epochs_of_a_session() -> None:
    _, _, [a, _] = share_world(3)
    a.epoch = 1
    assert a.fetch().error_code == NO_SESSION
    assert a.ack((0, 0, ACCEPT), epoch=0) == BAD_EPOCH
    a.epoch = 0
    assert a.fetch(acks=[(0, 0, ACCEPT)]).error_code == INVALID, "nothing can be acknowledged when a session opens"
    assert a.take() == [(0, 2, 1)]
    assert a.ack((0, 0, ACCEPT), epoch=2) == BAD_EPOCH
    assert a.ack((0, 0, ACCEPT)) == 0
    assert a.fetch(share_session_epoch=1).error_code == BAD_EPOCH, "both APIs share the counter"
    assert a.take(acks=[(1, 1, ACCEPT)]) == []


@pytest.mark.conformance("SH55", "SH57")
def test_forgotten_partitions_keep_their_locks_and_are_not_fetched() -> None:
    wire, client, [a, b] = share_world(2)
    assert a.take() == [(0, 1, 1)]
    assert a.take(forgotten_topics_data=a.forget(0)) == []
    client.produce("t", "new")
    assert a.take() == []
    assert a.fetch(share_session_epoch=-1).error_code == 0
    assert b.take() == [(2, 2, 1)], "the records of a forgotten partition stay locked"
    wire.advance(30_000)
    assert b.take() == [(0, 2, 2)]


def test_a_partition_that_is_named_again_is_there_once() -> None:
    _, _, [a, _] = share_world(2)
    assert a.take() == [(0, 1, 1)]
    answer = a.fetch(acks=[(0, 1, ACCEPT)])
    assert len(answer.responses[0].partitions) == 1
    assert (row(answer).error_code, row(answer).acknowledge_error_code) == (0, 0)


@pytest.mark.conformance("SH55")
def test_partitions_without_news_are_left_out_but_for_the_first_answer() -> None:
    _, _, [a, _] = share_world(0)
    assert [one.partition_index for topic in a.fetch().responses for one in topic.partitions] == [0]
    assert a.fetch().responses == ()


@pytest.mark.conformance("SH58")
def test_a_full_broker_refuses_sessions_after_the_wait() -> None:
    wire, _, [a] = share_world(1, "a", group_share_max_share_sessions=1, group_share_max_size=1)
    b = Member(wire, "b", a.topic_id)
    assert a.take() == [(0, 0, 1)]
    b.send(max_wait_ms=500)
    assert not b.connection.responses
    wire.advance(500)
    assert b.connection.take().error_code == FULL


@pytest.mark.conformance("SH40", "SH43", "SH47")
def test_a_lock_that_times_out_gives_the_record_to_a_member_that_waits() -> None:
    wire, _, [a, b] = share_world(1)
    assert a.take() == [(0, 0, 1)]
    b.send(max_wait_ms=60_000)
    assert not b.connection.responses
    wire.advance(29_999)
    assert not b.connection.responses
    wire.advance(1)
    assert ranges(b.connection.take()) == [(0, 0, 2)]
    assert a.ack((0, 0, ACCEPT)) == INVALID_STATE, "another member has it now"


@pytest.mark.conformance("SH40")
def test_a_released_record_wakes_one_member_that_waits_in_the_same_step() -> None:
    _, _, [a, b, c] = share_world(2, "abc")
    assert a.take() == [(0, 1, 1)]
    b.send(max_wait_ms=60_000)
    c.send(max_wait_ms=60_000)
    assert a.ack((0, 0, RELEASE)) == 0
    assert ranges(b.connection.take()) == [(0, 0, 2)], "the one that has waited longest"
    assert not c.connection.responses
    assert a.ack((1, 1, RELEASE)) == 0
    assert ranges(c.connection.take()) == [(1, 1, 2)]


@pytest.mark.conformance("SH36", "SH40")
def test_records_that_one_member_leaves_are_for_the_next_that_waits() -> None:
    _, client, [a, b, c] = share_world(0, "abc")
    for member in (a, b, c):
        member.send(max_wait_ms=60_000, max_records=2, share_acquire_mode=1)
    client.produce("t", "0", "1", "2", "3")
    assert ranges(a.connection.take()) == [(0, 1, 1)]
    assert ranges(b.connection.take()) == [(2, 3, 1)]
    assert not c.connection.responses


def test_a_woken_member_that_is_gone_passes_it_on() -> None:
    _, client, [a, b] = share_world(0)
    a.send(max_wait_ms=60_000)
    b.send(max_wait_ms=60_000)
    a.connection.close()
    client.produce("t", "0")
    assert ranges(b.connection.take()) == [(0, 0, 1)]


def test_another_request_ends_the_wait() -> None:
    _, _, [a, _] = share_world(1)
    assert a.take() == [(0, 0, 1)]
    a.send(max_wait_ms=60_000)
    assert not a.connection.responses
    assert a.acknowledge((0, 0, ACCEPT)).responses == (), "the answer of the fetch that waited"
    assert a.connection.take().responses[0].partitions[0].error_code == 0


@pytest.mark.conformance("SH4", "SH9", "SH10", "SH46")
def test_a_renewed_lock_lasts_longer() -> None:
    wire, _, [a, b] = share_world(2)
    assert a.take() == [(0, 1, 1)]
    wire.advance(20_000)
    none = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert a.fetch([(0, 0, RENEW)], is_renew_ack=True).error_code == INVALID, "a renewal fetches nothing"
    assert row(a.fetch([(0, 0, RENEW)], is_renew_ack=True, **none)).acknowledge_error_code == 0
    wire.advance(10_000)
    assert b.take() == [(1, 1, 2)]
    assert a.ack((0, 0, RENEW), is_renew_ack=True) == 0
    assert a.ack((0, 0, RENEW)) == INVALID, "the request does not say that it renews"
    assert a.ack((0, 0, ACCEPT)) == 0


@pytest.mark.conformance("SH46")
def test_renewals_can_be_turned_off() -> None:
    _, client, [a, _] = share_world(1)
    assert a.take() == [(0, 0, 1)]
    assert client.alter_configs("g", GROUP, ("share.renew.acknowledge.enable", SET, "false"))[0] == 0
    assert a.ack((0, 0, RENEW), is_renew_ack=True) == INVALID_STATE
    assert a.ack((0, 0, ACCEPT)) == 0


@pytest.mark.conformance("SH5", "SH9", "SH43")
@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, ACCEPT)],
        [(2, 3, ACCEPT), (1, 1, ACCEPT)],
        [(0, 0)],
        [(0, 2, ACCEPT, ACCEPT)],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(0, 9, ACCEPT)],
    ],
)
def test_acknowledgements_that_fail_as_a_whole(batches: list) -> None:
    _, _, [a, _] = share_world(5)
    assert a.take() == [(0, 4, 1)]
    assert a.ack(*batches) == INVALID
    assert a.ack((0, 4, ACCEPT)) == 0, "nothing has changed"


@pytest.mark.conformance("SH41", "SH42", "SH43", "SH45")
def test_all_batches_of_a_partition_succeed_or_none() -> None:
    _, _, [a, b] = share_world(4)
    assert a.take(max_records=2) == [(0, 1, 1)]
    assert b.take() == [(2, 3, 1)]
    assert a.ack((0, 0, ACCEPT), (1, 2, ACCEPT)) == INVALID_STATE
    assert a.ack((0, 1, ACCEPT)) == 0
    assert a.ack((0, 1, ACCEPT)) == 0, "below the start, it is skipped"
    assert b.ack((3, 3, ACCEPT)) == 0
    assert b.ack((3, 3, ACCEPT)) == INVALID_STATE, "a second time"


@pytest.mark.conformance("SH6")
def test_an_error_of_the_acknowledgement_does_not_hide_records() -> None:
    _, client, [a, b] = share_world(2)
    assert a.take() == [(0, 1, 1)]
    client.produce("t", "2")
    assert b.take() == [(2, 2, 1)]
    client.produce("t", "3")
    found = row(b.fetch([(0, 0, ACCEPT)]))
    assert (found.error_code, found.acknowledge_error_code) == (0, INVALID_STATE)
    assert [(one.first_offset, one.last_offset) for one in found.acquired_records] == [(3, 3)]


@pytest.mark.conformance("SH33", "SH38")
def test_whole_batches_are_sent_and_neighbours_are_one_range() -> None:
    _, client, [a, b] = share_world(0)
    client.produce("t", "0", "1", "2", "3")
    found = a.fetch(max_records=3, share_acquire_mode=1)
    assert ranges(found) == [(0, 2, 1)]
    assert len([one for _, data in split_batches(row(found).records or b"") for one in decode_records(data)]) == 4
    assert a.ack((0, 0, RELEASE)) == a.ack((1, 1, RELEASE)) == 0
    assert b.take() == [(0, 1, 2), (3, 3, 1)]


@pytest.mark.conformance("SH31")
def test_records_are_archived_after_too_many_deliveries() -> None:
    _, client, [a, _] = share_world(1)
    assert client.alter_configs("g", GROUP, ("share.delivery.count.limit", SET, "2"))[0] == 0
    assert a.take() == [(0, 0, 1)]
    assert a.take([(0, 0, RELEASE)]) == [(0, 0, 2)]
    assert a.take([(0, 0, RELEASE)]) == []
    client.produce("t", "next")
    assert a.take() == [(1, 1, 1)]


@pytest.mark.conformance("SH42", "SH50")
def test_deleted_records_are_skipped() -> None:
    _, client, [a, b] = share_world(6)
    assert a.take(max_records=2) == [(0, 1, 1)]
    partition = DeleteRecordsPartition(partition_index=0, offset=4)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=1)
    assert client.ask(request, 2).topics[0].partitions[0].error_code == 0
    assert b.take() == [(4, 5, 1)]
    assert a.ack((0, 1, ACCEPT)) == 0, "below the start"


@pytest.mark.conformance("SH28")
def test_latest_begins_where_the_first_fetch_finds_the_end_and_stays_there() -> None:
    """Kafka stores the start with the first acknowledgement only, and a restart skips records (SH28)."""
    storage = MemoryStorage()
    _, client, [a, _] = share_world(3, reset="latest", storage=storage)
    assert a.take() == []
    client.produce("t", "after")
    again = Wire(storage, group_share_enable=True)
    member = Member(again, "a", again.broker.state.catalog.topics["t"].topic_id)
    assert member.take() == [(3, 3, 1)]


@pytest.mark.conformance("SH28")
def test_by_duration_begins_at_a_time() -> None:
    wire, client, [a, _] = share_world(0, reset="by_duration:PT1H")
    client.produce("t", "old")
    wire.advance(7_200_000)
    client.produce("t", "new")
    assert a.take() == [(1, 1, 1)]


@pytest.mark.conformance("SH4", "SH8")
def test_topics_that_are_unknown_or_not_led_here() -> None:
    _, _, [a, _] = share_world(1)
    a.topic_id = bytes(range(16))
    assert row(a.fetch()).error_code == 100
    wire, _, [b, _] = share_world(1)
    assert row(b.fetch(partitions=(7,)), 7).error_code == 3
    c = Member(wire, "c", b.topic_id, group="nobody")
    assert row(c.fetch()).error_code == -1, "its group has no state of the partition"


@pytest.mark.conformance("SH4")
@pytest.mark.parametrize("fields", [{"group_id": None}, {"group_id": ""}, {"member_id": None}, {"member_id": "x" * 37}])
def test_names_are_checked(fields: dict) -> None:
    _, _, [a, _] = share_world(1)
    assert a.fetch(**fields).error_code == INVALID


@pytest.mark.conformance("SH37")
def test_the_window_stops_new_records_behind_an_unfinished_one() -> None:
    _, client, [a, b] = share_world(1)
    assert client.alter_configs("g", GROUP, ("share.partition.max.record.locks", SET, "100"))[0] == 0
    for _ in range(15):
        client.produce("t", *["x"] * 10)
    assert a.take(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
    [(first, last, _)] = b.take(batch_size=1_000)
    assert (first, last) == (1, 100)
    assert b.ack((1, 100, ACCEPT)) == 0
    assert b.take() == []
    assert a.ack((0, 0, ACCEPT)) == 0
    assert [(first, last) for first, last, _ in b.take(batch_size=1_000)] == [(101, 150)]
