"""Membership of share groups, their offsets, and the APIs of the share coordinator, through the broker."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit_request, consumer_join, join_request
from share_driver import ACCEPT, Member, share_wire, share_world
from share_requests import share_requests
from wire_driver import GROUP, SET, Connection, Wire

from kohort.storage.memory import MemoryStorage
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, NewOffset, NewOffsetsTopic
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, NamedTopic
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    OffsetsAskedGroup,
)
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.share_group_describe import DescribedGroup, ShareGroupDescribeRequest


def described(client: Connection, group: str = "g") -> DescribedGroup:
    [found] = client.ask(ShareGroupDescribeRequest(group_ids=(group,)), 1).groups
    result: DescribedGroup = found
    return result


def assigned(answer: Any) -> list[int]:
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


def offsets(client: Connection, group: str = "g") -> dict[int, tuple[int, int]]:
    """Start and lag by partition."""
    request = DescribeShareGroupOffsetsRequest(groups=(OffsetsAskedGroup(group_id=group, topics=None),))
    [found] = client.ask(request, 1).groups
    return {one.partition_index: (one.start_offset, one.lag) for topic in found.topics for one in topic.partitions}


@pytest.mark.conformance("SH21")
def test_members_share_partitions() -> None:
    wire = share_wire(group_share_assignment_interval_ms=0)
    client = wire.connect()
    topic_id = client.create_topic("t", 4)
    a, b = (Member(wire, name, topic_id) for name in "ab")
    assert assigned(a.beat("t")) == [0, 1, 2, 3]
    assert len(assigned(b.beat("t"))) == 2
    assert len(assigned(a.beat())) == 2
    assert a.beat().assignment is None
    more = [Member(wire, f"m{index}", topic_id) for index in range(4)]
    for member in more:
        member.beat("t")
    found = {member.member_id: member for member in described(client).members}
    counts = [len(topic.partitions) for member in found.values() for topic in member.assignment.topic_partitions]
    assert (described(client).group_state, described(client).assignor_name) == ("Stable", "simple")
    assert sum(counts) in (7, 8), "each partition has two members; those that have not asked yet have fewer"
    wire.broker.validate()


@pytest.mark.conformance("SH3", "SH16", "SH22", "SH25")
def test_epochs_and_unknown_members() -> None:
    _, client, [a, b] = share_world(0)
    assert a.beat(epoch=a.member_epoch + 5).error_code == 110
    before = a.member_epoch
    b.beat(epoch=-1)
    assert a.beat(epoch=before).error_code == 0
    assert Member(a.wire, "x").beat(epoch=3).error_code == 25
    assert Member(a.wire, "x", group="none").beat(epoch=3).error_code == 69
    left = a.beat(epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "a", -1)
    found = described(client)
    assert (found.group_state, found.group_epoch) == ("Empty", found.assignment_epoch)


@pytest.mark.conformance("SH23")
def test_a_silent_member_is_removed() -> None:
    wire, client, [a, b] = share_world(0)
    wire.advance(30_000)
    assert b.beat().error_code == 0
    wire.advance(15_000)
    assert [member.member_id for member in described(client).members] == ["b"]
    assert a.beat().error_code == 25
    assert a.beat("t", epoch=0).error_code == 0


@pytest.mark.conformance("SH11")
def test_groups_that_cannot_be_described() -> None:
    _, client, _ = share_world(0)
    client.ask(commit_request(1, topic="t", group="offsets"), 7)
    assert [described(client, name).error_code for name in ("g", "", "none", "offsets")] == [0, 24, 69, 69]


@pytest.mark.conformance("SH18")
def test_what_raises_the_epoch_of_a_group() -> None:
    wire, client, [a, _] = share_world(0, group_share_assignment_interval_ms=0)

    def risen(change: Any) -> int:
        before = described(client).group_epoch
        change()
        return described(client).group_epoch - before

    grow = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=2),), timeout_ms=1)
    assert risen(lambda: a.beat()) == 0
    assert risen(lambda: a.beat("t")) == 0, "it has named the same topic"
    assert risen(lambda: a.beat("t", "u")) == 1
    assert risen(lambda: client.ask(grow, 3)) == 1
    assert risen(lambda: a.beat(epoch=-1)) == 1
    assert risen(lambda: wire.advance(46_000)) == 1, "the other member has expired"


@pytest.mark.conformance("SH19")
def test_a_target_is_made_at_most_once_in_an_interval() -> None:
    wire, client, [_, b] = share_world(0, group_share_assignment_interval_ms=4_000)
    assert described(client).assignment_epoch < described(client).group_epoch
    assert 0 < b.beat().heartbeat_interval_ms < 5_000, "a target is due soon"
    wire.advance(3_900)
    assert described(client).assignment_epoch < described(client).group_epoch
    wire.advance(100)
    assert described(client).assignment_epoch == described(client).group_epoch
    wire.now -= 3_600_000
    b.beat("t", "u")
    assert described(client).assignment_epoch == described(client).group_epoch, "the clock has been set back"


@pytest.mark.conformance("SH3", "SH24")
def test_a_group_has_room_for_so_many_members() -> None:
    _, _, [a, _] = share_world(0, "ab", group_share_max_size=2)
    assert Member(a.wire, "c").beat("t").error_code == 81
    assert a.beat("t", epoch=0).error_code == 0


@pytest.mark.conformance("SH3", "SH26")
def test_requests_of_other_protocols() -> None:
    _, client, [a, _] = share_world(0)
    assert client.ask(join_request("g", ""), 9).error_code in (23, 79)
    assert client.ask(consumer_join("m", "t"), 1).error_code == 69
    [topic] = client.ask(commit_request(1, topic="t"), 7).topics
    assert topic.partitions[0].error_code == 69
    [found] = client.ask(DescribeGroupsRequest(groups=("g",)), 6).groups
    assert found.error_code == 69
    client.ask(commit_request(1, topic="t", group="offsets"), 7)
    assert Member(a.wire, "a", group="offsets").beat("t").error_code == 69
    listed = client.ask(ListGroupsRequest(types_filter=("share",)), 5).groups
    assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed] == [
        ("g", "share", "Stable", "share")
    ]
    assert described(client, "offsets").error_code == 69


def test_groups_and_members_outlast_a_restart() -> None:
    storage = MemoryStorage()
    _, client, [a, _] = share_world(0, storage=storage)
    before = described(client)
    again = Wire(storage, group_share_enable=True)
    assert described(again.connect()) == before
    member = Member(again, "a", a.topic_id)
    member.member_epoch = a.member_epoch
    assert member.beat().error_code == 0
    again.broker.validate()


@pytest.mark.conformance("SH29")
def test_new_partitions_are_read_from_their_beginning() -> None:
    """SH29: although the group begins at the end of a topic that is new to it."""
    _, client, [a, _] = share_world(3, reset="latest")
    assert a.take() == []
    grow = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=2),), timeout_ms=1)
    assert client.ask(grow, 3).results[0].error_code == 0
    client.produce("t", "early", partition=1)
    a.beat()
    found = a.fetch(partitions=(1,))
    [one] = [one for topic in found.responses for one in topic.partitions if one.partition_index == 1]
    assert [(got.first_offset, got.last_offset) for got in one.acquired_records] == [(0, 0)]


@pytest.mark.conformance("SH27")
def test_a_deleted_group_leaves_no_state() -> None:
    wire, client, [a, b] = share_world(3)
    assert a.take() == [(0, 2, 1)]
    request = DeleteGroupsRequest(groups_names=("g",))
    assert client.ask(request, 2).results[0].error_code == 68
    a.beat(epoch=-1)
    b.beat(epoch=-1)
    assert client.ask(request, 2).results[0].error_code == 0
    assert described(client).error_code == 69
    assert not any(shard.states for shard in wire.broker.state.shares.shards)
    a.member_epoch = a.epoch = 0
    assert a.beat("t").error_code == 0
    assert a.take() == [(0, 2, 1)]
    wire.broker.validate()


@pytest.mark.conformance("SH30")
def test_a_topic_that_is_created_again_is_fresh() -> None:
    wire, client, [a, _] = share_world(3)
    assert a.take() == [(0, 2, 1)]
    client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1), 6)
    assert not any(shard.states for shard in wire.broker.state.shares.shards)
    a.topic_id = client.create_topic("t")
    client.produce("t", "new")
    assert a.beat().error_code == 0
    assert a.take(partitions=(0,)) == [(0, 0, 1)]


@pytest.mark.conformance("SH12", "SH13", "SH14", "SH70")
def test_offsets_are_described_set_and_deleted() -> None:
    _, client, [a, b] = share_world(5)
    assert offsets(client) == {0: (-1, -1)}
    a.take(max_records=3)
    assert a.ack((1, 1, ACCEPT)) == 0
    assert offsets(client) == {0: (0, 4)}
    new = NewOffset(partition_index=0, start_offset=2)
    unknown = NewOffset(partition_index=9, start_offset=2)
    request = AlterShareGroupOffsetsRequest(
        group_id="g", topics=(NewOffsetsTopic(topic_name="t", partitions=(new, unknown)),)
    )
    assert client.ask(request, 0).error_code == 68
    for member in (a, b):
        member.beat(epoch=-1)
    answer = client.ask(request, 0)
    assert [one.error_code for one in answer.responses[0].partitions] == [0, 3]
    assert offsets(client) == {0: (2, 3)}
    a.epoch = 0
    assert a.take() == [(2, 4, 1)]
    delete = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=(NamedTopic(topic_name="t"), NamedTopic(topic_name="none"))
    )
    assert [one.error_code for one in client.ask(delete, 0).responses] == [0, 3]
    assert offsets(client) == {}


@pytest.mark.conformance("SH13")
def test_offsets_found_a_group() -> None:
    wire = share_wire()
    client = wire.connect()
    topic_id = client.create_topic("t")
    client.produce("t", "0", "1", "2")
    new = NewOffset(partition_index=0, start_offset=1)
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=(NewOffsetsTopic(topic_name="t", partitions=(new,)),))
    assert client.ask(request, 0).error_code == 0
    member = Member(wire, "a", topic_id)
    assert assigned(member.beat("t")) == [0]
    assert member.take() == [(1, 2, 1)]


@pytest.mark.conformance("SH2", "SH66", "SH67", "SH68")
def test_the_state_of_share_partitions_is_read_by_tools() -> None:
    wire, client, [a, _] = share_world(4)
    assert a.take() == [(0, 3, 1)]
    assert a.ack((0, 0, ACCEPT), (2, 2, ACCEPT)) == 0
    asked = share_requests(("t",), (a.topic_id,), (0,))

    def to(name: str, version: int = 0, **fields: Any) -> Any:
        request = type(asked[name])(**{"group_id": "g", "topics": asked[name].topics} | fields)
        [result] = client.ask(request, version).results
        return result.partitions[0]

    found = to("ReadShareGroupState")
    assert (found.error_code, found.start_offset) == (0, 1)
    assert [(one.first_offset, one.last_offset, one.delivery_state) for one in found.state_batches] == [(2, 2, 2)]
    summary = to("ReadShareGroupStateSummary", 1)
    assert (summary.start_offset, summary.delivery_complete_count) == (1, 1)
    assert to("WriteShareGroupState", 1).error_code == 0
    assert to("InitializeShareGroupState").error_code == 0
    assert a.ack((1, 1, ACCEPT)) == 121, "an initialization ends all locks"
    assert to("DeleteShareGroupState").error_code == 0
    assert to("ReadShareGroupState").error_code == 42
    key = f"g:{'A' * 22}:0"
    [coordinator] = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=(key,)), 6).coordinators
    assert (coordinator.error_code, coordinator.node_id) == (0, 1)
    [refused] = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=("g:0",)), 6).coordinators
    assert refused.error_code == 42
    wire.broker.validate()


@pytest.mark.conformance("SH63")
def test_the_log_of_states_is_pruned() -> None:
    storage = MemoryStorage()
    wire, client, [a, _] = share_world(1, storage=storage, share_coordinator_state_topic_num_partitions=1)
    assert a.take() == [(0, 0, 1)]
    client.alter_configs("g", GROUP, ("share.delivery.count.limit", SET, "10"))
    for index in range(1_100):
        client.produce("t", str(index))
        assert a.fetch([(index, index, ACCEPT)]).error_code == 0
    [partition] = wire.partitions("__share_group_state")
    assert partition.end_offset > 1_000
    for _ in range(3):
        wire.advance(2_000)
    assert partition.end_offset - partition.start_offset < 10
    again = Wire(storage, group_share_enable=True)
    assert offsets(again.connect()) == offsets(client) == {0: (1_100, 1)}


def test_group_configs_have_bounds() -> None:
    client = share_wire().connect()
    for name, value in (
        ("share.record.lock.duration.ms", "14999"),
        ("share.delivery.count.limit", "11"),
        ("share.auto.offset.reset", "by_duration:1d"),
        ("share.isolation.level", "read"),
        ("share.heartbeat.interval.ms", "60000"),
    ):
        assert client.alter_configs("g", GROUP, (name, SET, value))[0] == 40, name
    assert client.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "by_duration:P1DT2H3M4.5S"))[0] == 0
