"""OffsetCommit of a classic member in a mixed group whose commits are fenced by ownership, in each version that clients
send: requests below version 10 have no topic ids."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit_request, committed, consumer_beat, consumer_join, join_request, sync_request
from wire_driver import GROUP, SET, Connection, Wire, with_topic

from kohort.wire.codec import encode
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import HeartbeatTopicPartitions
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.join_group import JoinGroupRequestProtocol
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

FENCED = ErrorCode.FENCED_MEMBER_EPOCH


class Mixed:
    """Group `g`: each of the consumer `x` and a classic member has one partition of `t`."""

    def __init__(self) -> None:
        self.client: Connection = with_topic(
            2, group_consumer_assignment_interval_ms=0, group_heartbeat_hold_enable=False
        )
        self.wire: Wire = self.client.wire
        self.topic_id = self.wire.broker.state.catalog.topics["t"].topic_id
        assert self.client.alter_configs("g", GROUP, ("consumer.ownership.fencing.enable", SET, "true")) == (0, None)
        self.client.ask(consumer_join(member="x"), 1)
        self.member: dict[str, Any] = {}
        self.joins()
        self.client.ask(consumer_beat("x", 1), 1)
        owned = (HeartbeatTopicPartitions(topic_id=self.topic_id, partitions=(0,)),)
        assert self.client.ask(consumer_beat("x", 1, owned), 1).member_epoch == 2
        self.joins()

    def joins(self) -> None:
        """The classic member joins, again without any partition, as an eager client does."""
        metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=("t",)), 0)
        protocols = (JoinGroupRequestProtocol(name="range", metadata=metadata),)
        joined = self.client.ask(join_request(member=self.member.get("member_id", ""), protocols=protocols), 3)
        assert joined.error_code == 0
        self.member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        assert self.client.ask(sync_request(joined.member_id, joined.generation_id), 2).error_code == 0

    def commit(self, version: int, offset: int, *partitions: int) -> list[int]:
        asked = tuple(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset) for index in partitions
        )
        topic = OffsetCommitRequestTopic(name="t", topic_id=self.topic_id, partitions=asked)
        response = self.client.ask(commit_request(offset, topics=(topic,), **self.member), version)
        return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.mark.conformance("O13")
@pytest.mark.parametrize("version", range(2, 11))
def test_a_classic_member_commits_its_partitions_in_every_version(version: int) -> None:
    group = Mixed()
    assert group.commit(version, 7, 1) == [0]
    assert group.commit(version, 8, 0, 1) == [FENCED, 0]
    assert [committed(group.client, partition=index) for index in (0, 1)] == [-1, 8]


@pytest.mark.parametrize("version", range(2, 11))
def test_a_repeated_commit_is_fenced_as_the_first_is(version: int) -> None:
    group = Mixed()
    for offset in range(1, 6):
        assert group.commit(version, offset, 1) == [0]
    repeats = group.wire.broker.repeats.commits
    assert repeats.kept(group.client.id) is not None
    assert repeats.in_vain(group.client.id) == 0, "the last commits were repetitions"
    assert group.commit(version, 6, 0) == [FENCED]
    assert group.commit(version, 6, 1) == [0]
    assert [committed(group.client, partition=index) for index in (0, 1)] == [-1, 6]
