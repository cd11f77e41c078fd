"""What the offsets of all groups hold is bounded together (half of group.max.total.bytes), over all shards."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import committed
from wire_driver import Connection, Wire, with_topic

from kohort.coordinator.offsets.sizes import group_bytes
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

MIB = 1 << 20
PARTITIONS = 50
LARGE = "m" * 4_096


def commit(client: Connection, group: str, metadata: str, count: int = PARTITIONS, offset: int = 1) -> list[int]:
    """The errors of a commit without a member."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata=metadata)
        for p in range(count)
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
    response = client.ask(OffsetCommitRequest(group_id=group, topics=topics), 7)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def full() -> Connection:
    """A server whose offsets hold all that large groups may hold."""
    client = with_topic(PARTITIONS, group_max_total_bytes=4 * MIB)
    assert commit(client, "steady", "12", 3) == [0, 0, 0]
    for i in range(20):
        commit(client, f"large-{i}", LARGE)
    return client


def total(wire: Wire) -> int:
    """The count, compared with one that is made anew."""
    shards = wire.broker.state.shards
    anew = sum(group_bytes(name, offsets) for shard in shards for name, offsets in shard.hard.offsets.items())
    assert shards[0].hard.total.bytes == anew
    assert sum(size for shard in shards for size in shard.hard.offset_bytes.values()) == anew
    return anew


def test_offsets_with_metadata_are_refused_when_all_groups_hold_too_much() -> None:
    client = full()
    assert 1.4 * MIB < total(client.wire) <= 1.5 * MIB
    held = total(client.wire)
    assert commit(client, "large-20", LARGE) == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * PARTITIONS
    assert commit(client, "large-0", LARGE) == [0] * PARTITIONS, "what is there is accepted again"
    assert commit(client, "large-0", LARGE[1:]) == [0] * PARTITIONS, "so is less"
    assert total(client.wire) == held - PARTITIONS


def test_running_consumers_go_on_when_others_hold_too_much() -> None:
    client = full()
    for offset in range(2, 6):  # the later ones are repeated commits
        assert commit(client, "steady", "34", 3, offset) == [0, 0, 0]
        assert commit(client, "large-0", LARGE, 5, offset) == [0] * 5
        assert commit(client, "large-1", "", 5, offset) == [0] * 5
        assert committed(client, "large-0") == offset
        commit(client, "large-30", LARGE)
    assert commit(client, "newcomer", "", PARTITIONS) == [0] * PARTITIONS, "the last quarter is for short metadata"
    assert total(client.wire) <= 2 * MIB


def test_many_small_groups_are_refused_in_the_end() -> None:
    client = full()
    errors: list[int] = []
    for i in range(60):
        errors = commit(client, f"small-{i}", "", PARTITIONS)
    assert errors == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * PARTITIONS
    assert 1.99 * MIB < total(client.wire) <= 2 * MIB
    assert commit(client, "steady", "56", 3, 9) == [0, 0, 0]
    assert commit(client, "small-0", "", PARTITIONS, 9) == [0] * PARTITIONS


def test_the_size_is_the_same_after_a_restart_and_goes_down_with_deletion() -> None:
    client = full()
    wire = client.wire
    commit(client, "großer name", "größer")
    commit(client, "großer name", "kleiner", 3)
    before = total(wire)
    wire = wire.restarted(group_max_total_bytes=4 * MIB)
    client = wire.connect()
    assert total(wire) == before
    for i in range(20):
        topics: Any = tuple(OffsetDeleteRequestPartition(partition_index=p) for p in range(PARTITIONS))
        topics = (OffsetDeleteRequestTopic(name="t", partitions=topics),)
        client.ask(OffsetDeleteRequest(group_id=f"large-{i}", topics=topics), 0)
    assert total(wire) < 65_536
    assert commit(client, "large-20", LARGE) == [0] * PARTITIONS


@pytest.mark.parametrize("metadata", ["", "some"])
def test_repeated_commits_count_as_others_do(metadata: str) -> None:
    client = with_topic(PARTITIONS)
    for offset in range(6):
        commit(client, "g", metadata, 10, offset)
    other = client.wire.connect()
    commit(other, "g", "longer than it was", 4)
    commit(client, "g", metadata, 10, 9)
    assert client.wire.broker.repeats.commits.in_vain(client.id) == 0, "it was repeated"
    total(client.wire)


def test_a_partition_that_a_commit_names_twice_counts_once() -> None:
    client = with_topic(PARTITIONS)
    other = client.wire.connect()
    for offset in range(6):
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
            for metadata in ("short", "longer")
        )
        topics = (OffsetCommitRequestTopic(name="t", partitions=partitions),)
        client.ask(OffsetCommitRequest(group_id="g", topics=topics), 7)
        total(client.wire)
        commit(other, "g", "other", 2)
