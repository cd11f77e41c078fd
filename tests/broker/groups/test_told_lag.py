"""OffsetFetch tells the lag to a client that asks for it: of one instant, in bounded steps, to nobody else."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from acl_driver import Secured
from group_driver import commit, commit_request
from transaction_driver import Transactional
from wire_driver import START_MS, Connection, Wire, delete_topics, with_topic

from kohort.broker.authorization import Operation, Resource
from kohort.broker.lag.told_lag import ToldLag
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

PARTITIONS = 2
UNKNOWN = -1


def asking(*indexes: int, topic: str = "t", with_lag: bool = True) -> OffsetFetchRequest:
    """Without indexes, all that is committed."""
    topics = (OffsetFetchRequestTopics(name=topic, partition_indexes=indexes),) if indexes else None
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),), with_lag=with_lag)


def told(client: Connection, *indexes: int, **options: Any) -> list[tuple[int, int, int]]:
    """Committed offset, end offset and age of each partition."""
    [group] = client.ask(asking(*indexes, **options), 8).groups
    assert group.as_of_ms == client.wire.now
    return [(row.committed_offset, row.end_offset, row.lag_ms) for topic in group.topics for row in topic.partitions]


def test_records_and_time(client: Connection, wire: Wire) -> None:
    client.produce("t", "a", "b")
    commit(client, 1)
    assert told(client) == [(1, 2, 0)]
    wire.advance(10_000)
    assert told(client) == [(1, 2, 10_000)]
    commit(client, 2)
    assert told(client) == [(2, 2, 0)], "no lag"
    client.produce("t", "c")
    wire.advance(5_000)
    assert told(client) == [(2, 3, 5_000)], "by the server's clock: the record says that it is older"
    commit(client, 9)
    assert told(client) == [(9, 3, 0)], "an offset beyond the end"


def test_what_is_not_committed_and_what_does_not_exist(client: Connection) -> None:
    client.produce("t", "a", partition=1)
    assert told(client) == []
    commit(client, 0)
    assert told(client, 0, 1, 7) == [(0, 0, 0), (UNKNOWN, 1, UNKNOWN), (UNKNOWN, UNKNOWN, UNKNOWN)]
    assert told(client, 0, topic="absent") == [(UNKNOWN, UNKNOWN, UNKNOWN)]


def test_nobody_else_gets_it(client: Connection) -> None:
    client.produce("t", "a")
    commit(client, 0)
    [group] = client.ask(asking(with_lag=False), 8).groups
    [row] = group.topics[0].partitions
    assert (group.as_of_ms, row.end_offset, row.lag_ms, row.last_stable_offset) == (-1, -1, -1, -1)
    strict = with_topic(compatibility="kafka")
    commit(strict, 0)
    [group] = strict.ask(asking(), 8).groups
    assert (group.as_of_ms, group.topics[0].partitions[0].end_offset) == (-1, -1)


@pytest.mark.parametrize("version", [6, 7, 10])
def test_in_other_versions(client: Connection, version: int) -> None:
    topic_id = client.create_topic("other")
    client.produce("other", "a", "b")
    commit(client, 1, topic="other")
    if version < 8:
        asked = (OffsetFetchRequestTopic(name="other", partition_indexes=(0,)),)
        group = client.ask(OffsetFetchRequest(group_id="g", topics=asked, with_lag=True), version)
    else:
        wanted = (OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,)),)
        group_request = OffsetFetchRequestGroup(group_id="g", topics=wanted)
        [group] = client.ask(OffsetFetchRequest(groups=(group_request,), with_lag=True), version).groups
    [row] = group.topics[0].partitions
    assert (group.as_of_ms, row.end_offset, row.last_stable_offset, row.lag_ms) == (START_MS, 2, 2, 0)


def test_readers_of_committed_records(client: Connection) -> None:
    client.produce("t", "a")
    producer = Transactional(client)
    producer.init()
    producer.produce("b", partition=0)
    commit(client, 0)
    [group] = client.ask(asking(), 8).groups
    [row] = group.topics[0].partitions
    assert (row.end_offset, row.last_stable_offset) == (2, 1)


def test_ends_of_hidden_topics_are_not_told() -> None:
    secured = Secured()
    for name in ("t", "u"):
        secured.root.create_topic(name)
        secured.root.produce(name, "a")
        secured.root.ask(commit_request(0, topic=name), 7)
    client = secured.connect("a")
    [group] = client.ask(asking(), 8).groups
    assert (group.error_code, group.as_of_ms, group.topics) == (30, -1, ())
    secured.allow("User:a", Operation.DESCRIBE, Resource.GROUP, "g")
    secured.allow("User:a", Operation.DESCRIBE, Resource.TOPIC, "t")
    [group] = client.ask(asking(), 8).groups
    assert [(topic.name, topic.partitions[0].end_offset) for topic in group.topics] == [("t", 1)]
    [group] = client.ask(asking(0, topic="u"), 8).groups
    [row] = group.topics[0].partitions
    assert (row.error_code, row.end_offset, row.last_stable_offset) == (29, -1, -1)


def test_one_instant() -> None:
    """The group commits all that is appended, between the steps of the answer. So it never lags."""
    client = with_topic(300)
    other = client.wire.connect()
    all_of_it = tuple(OffsetCommitRequestPartition(partition_index=at, committed_offset=1) for at in range(300))
    for at in range(300):
        other.produce("t", "a", partition=at)
    other.ask(commit_request(0, topics=(OffsetCommitRequestTopic(name="t", partitions=all_of_it),)), 7)
    state = client.wire.broker.state
    answer = ToldLag(state)
    group = OffsetFetchRequestGroup(group_id="g", topics=None)

    def fetched() -> Generator[int, None, OffsetFetchResponseGroup]:
        shard = state.shard_of("g")
        instant = yield from answer.instant(shard, group)
        found = yield from state.shards[shard].fetch_offsets(group, 8, lambda size: True, offsets=instant.offsets)
        assert found is not None
        return (yield from answer.told(found, instant))

    work, at = fetched(), 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            rows = [row for topic in done.value.topics for row in topic.partitions]
            break
        other.produce("t", "b", partition=at % 300)
        commit(other, 2 + at // 300, partition=at % 300)
        at += 1
    assert at > 300
    assert {row.end_offset - row.committed_offset for row in rows} == {0}
    assert {row.lag_ms for row in rows} == {0}


def test_a_topic_that_is_deleted(client: Connection, wire: Wire) -> None:
    client.produce("t", "a")
    commit(client, 0)
    assert told(client) == [(0, 1, 0)]
    client.ask(delete_topics("t"), 5)
    assert told(client) == []
    wire.advance(2_000)
    assert wire.broker.state.lag_times.rings, "it is forgotten with time"
    wire.advance(200_000)
    assert not wire.broker.state.lag_times.rings


def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    client = with_topic(100, queued_max_response_bytes=1_048_576)
    commit(client, 0)
    monkeypatch.setattr("kohort.broker.handlers.offsets.LAG_BYTES", 1_000_000)
    [group] = client.ask(asking(), 8).groups
    assert group.error_code == 42
