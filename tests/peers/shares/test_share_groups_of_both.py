"""Membership of share groups and their offsets: the same requests to kohort and to Apache Kafka."""

from __future__ import annotations

import time
from typing import Any

import pytest
from group_driver import commit_request, consumer_join, join_request
from share_driver import ACCEPT
from share_peers import Connection, Member, World, assigned, filled, until

from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, NewOffset, NewOffsetsTopic
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, NamedTopic
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    OffsetsAskedGroup,
    OffsetsAskedTopic,
)
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.share_group_describe import ShareGroupDescribeRequest
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest

INVALID, FENCED, UNKNOWN_MEMBER, NO_GROUP = 42, 110, 25, 69


def grow(world: World, count: int) -> None:
    change = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=world.topic, count=count),), timeout_ms=9_000)
    assert world.client.ask(change, 3).results[0].error_code == 0
    world.wait_for_leaders(world.topic, count)


@pytest.mark.conformance("SH1")
def test_the_feature_and_the_apis_that_tell_of_it(world: World) -> None:
    versions = world.client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}
    served = {76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2), 83: (0, 0), 84: (0, 0), 85: (0, 1)}
    served |= {86: (0, 0), 87: (0, 1), 90: (0, 1), 91: (0, 0), 92: (0, 0)}
    assert {key: ranges[key] for key in served} == served
    level = world.either(kohort=2, kafka=1)  # dead letters are of Apache Kafka 4.4
    assert ("share.version", 0, level) in [(f.name, f.min_version, f.max_version) for f in versions.supported_features]
    assert ("share.version", level) in [(f.name, f.max_version_level) for f in versions.finalized_features]


@pytest.mark.conformance("SH15", "SH17", "SH20", "SH22", "SH25")
def test_a_member_joins_and_leaves(world: World) -> None:
    world.create(2)
    member = world.member()
    first = member.beat(world.topic)
    assert (first.error_code, first.member_id) == (0, "a")
    assert assigned(first) == world.either(kohort=[0, 1], kafka=[])
    assert member.join() == [0, 1]
    assert member.beat().assignment is None
    assert assigned(member.beat(world.topic)) == [0, 1], "whoever names topics gets the assignment"
    found = world.described()
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert found.group_epoch == found.assignment_epoch == found.members[0].member_epoch
    left = member.beat(epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "a", -1)
    found = world.described()
    assert (found.group_state, found.members) == ("Empty", ())
    # Apache Kafka 4.4 raises the epoch of the assignment too.
    assert found.group_epoch - found.assignment_epoch == world.either(kohort=0, kafka=1)


@pytest.mark.conformance("SH3")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, INVALID),
        ({"member_id": "x" * 37}, INVALID),
        ({"member_id": "x" * 36, "member_epoch": 1}, NO_GROUP),
        ({"group_id": ""}, INVALID),
        ({"rack_id": ""}, INVALID),
        ({"subscribed_topic_names": None}, INVALID),
        ({"subscribed_topic_names": ()}, INVALID),
        ({"member_epoch": -2}, INVALID),
        ({"member_epoch": -1}, NO_GROUP),
        ({"member_epoch": 3}, NO_GROUP),
    ],
)
def test_heartbeats_that_are_refused(world: World, fields: Any, error: int) -> None:
    usual = {"group_id": world.group, "member_id": "m", "member_epoch": 0, "subscribed_topic_names": (world.topic,)}
    assert world.client.ask(ShareGroupHeartbeatRequest(**(usual | fields)), 1).error_code == error


@pytest.mark.conformance("SH3", "SH16")
def test_epochs_and_members_that_are_not_known(world: World) -> None:
    world.create()
    [a] = world.joined("a")
    assert a.beat(epoch=a.member_epoch + 5).error_code == FENCED
    assert world.member("x").beat(epoch=3).error_code == UNKNOWN_MEMBER
    assert world.member("x").beat(epoch=-1).error_code == UNKNOWN_MEMBER
    oldest = a.member_epoch
    world.member("b").beat(world.topic)
    assert a.beat().error_code == 0
    last = a.member_epoch
    assert last > oldest
    assert a.beat(epoch=oldest).error_code == 0, "the last but one: its answer may have been lost"
    world.member("c").beat(world.topic)
    assert a.beat().error_code == 0
    assert a.member_epoch > last
    assert a.beat(epoch=oldest).error_code == FENCED
    assert a.beat(world.topic, epoch=0).error_code == 0, "a member may always begin anew"


@pytest.mark.conformance("SH18")
def test_what_raises_the_epoch_of_a_group(world: World) -> None:
    world.create()
    [a] = world.joined("a")

    def risen(change: Any) -> int:
        a.beat()
        before = world.described().group_epoch
        change()
        return world.described().group_epoch - before

    assert risen(lambda: a.beat()) == 0
    assert risen(lambda: a.beat(world.topic)) == 0, "it has named the same topic"
    assert risen(lambda: a.beat(world.topic, f"{world.topic}-other")) == 1

    def grown() -> None:
        grow(world, 2)
        until(lambda: 1 in assigned(a.beat(world.topic)), "the new partition is not assigned")

    # For the partition, and for its state, which may come later.
    assert risen(grown) in world.either(kohort={1, 2}, kafka={2, 3})
    b = world.member("b")
    assert risen(lambda: b.beat(world.topic)) == 1
    assert risen(lambda: b.beat(epoch=-1)) == 1


@pytest.mark.conformance("SH19")
def test_a_target_is_made_at_most_once_in_an_interval(world: World) -> None:
    world.create()
    world.joined("a")
    world.configure(assignment_interval_ms=1_000)
    began = time.monotonic()
    b = world.member("b")
    b.beat(world.topic)
    c = world.member("c")
    c.beat(world.topic)
    found = world.described()
    is_late = time.monotonic() - began > 0.9  # on a busy machine
    assert found.assignment_epoch < found.group_epoch or is_late
    until(lambda: assigned(c.beat(world.topic)), "the interval ends")
    found = world.described()
    assert found.assignment_epoch == found.group_epoch


@pytest.mark.conformance("SH21")
def test_members_share_partitions(world: World) -> None:
    world.create(4)
    members: list[Member] = []
    for count in (1, 2, 4, 6):
        while len(members) < count:
            members.append(world.member(f"m{len(members)}"))
            members[-1].join()
        found = [assigned(member.beat(world.topic)) for member in members]
        by_partition = sorted(index for some in found for index in some)
        if count <= 4:
            assert by_partition == [0, 1, 2, 3]
            assert {len(some) for some in found} == {4 // count}
        else:
            assert set(by_partition) == {0, 1, 2, 3}
            assert all(found), "nobody is idle"
            assert len(by_partition) == 8, "two members a partition"


@pytest.mark.conformance("SH23")
def test_a_silent_member_is_removed_and_its_records_stay_locked(world: World) -> None:
    a, b = filled(world, 2)
    assert a.take_all(2) == [(0, 1, 1)]
    before = world.described().group_epoch
    world.configure(session_timeout_ms=500, heartbeat_interval_ms=100)
    a.beat()  # now with the new timeout
    until(lambda: (b.beat(), len(world.described().members) == 1)[1], "a has not expired")
    assert world.described().group_epoch > before
    assert a.beat().error_code == UNKNOWN_MEMBER
    assert b.take_at_once() == []
    assert a.ack((0, 1, ACCEPT)) == 0, "acknowledgements are not checked against the membership"
    assert a.beat(world.topic, epoch=0).error_code == 0


@pytest.mark.conformance("SH24")
def test_a_group_has_room_for_so_many_members(world: World) -> None:
    members = [world.member(f"m{index}") for index in range(20)]
    for member in members:
        member.connection = world.client
    assert {member.beat(world.topic).error_code for member in members} == {0}
    assert world.member("more").beat(world.topic).error_code == 81
    assert members[0].beat(world.topic, epoch=0).error_code == 0
    members[1].beat(epoch=-1)
    assert world.member("more").beat(world.topic).error_code == 0


@pytest.mark.conformance("SH11", "SH26")
def test_requests_of_other_protocols(world: World) -> None:
    world.create()
    world.joined("a")
    client, group, other = world.client, world.group, f"{world.group}-offsets"
    assert client.ask(join_request(group, ""), 9).error_code in (23, 79)
    assert client.ask(join_request(group, "x"), 9).error_code in (23, 25)
    assert client.ask(consumer_join("m", world.topic, group=group), 1).error_code == NO_GROUP
    [topic] = client.ask(commit_request(1, group, topic=world.topic), 7).topics
    assert topic.partitions[0].error_code == NO_GROUP
    [found] = client.ask(DescribeGroupsRequest(groups=(group,)), 6).groups
    assert found.error_code == NO_GROUP
    client.ask(commit_request(1, other, topic=world.topic), 7)
    assert world.member("a", other).beat(world.topic).error_code == NO_GROUP
    listed = client.ask(ListGroupsRequest(types_filter=("share",)), 5).groups
    assert (group, "share", "Stable", "share") in [
        (one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed
    ]
    assert other not in {one.group_id for one in listed}
    described = client.ask(ShareGroupDescribeRequest(group_ids=(group, "", f"{group}-none", other)), 1).groups
    errors = {group: 0, "": 24, f"{group}-none": NO_GROUP, other: NO_GROUP}
    assert {one.group_id: one.error_code for one in described} == errors


@pytest.mark.conformance("SH12", "SH13", "SH14", "SH70")
def test_offsets_are_described_set_and_deleted(world: World) -> None:
    a, b = filled(world, 5)
    client = world.client
    assert world.offsets() == {0: (-1, -1)}
    assert a.take_all(5) == [(0, 4, 1)]
    # The start is stored with the first acknowledgement; kohort stores it with the first fetch.
    assert world.offsets() == {0: world.either(kohort=(0, 5), kafka=(-1, -1))}
    assert a.ack((1, 1, ACCEPT)) == 0
    assert world.offsets() == {0: (0, 4)}
    assert world.offsets(0) == {0: (0, -1)}
    partitions = tuple(NewOffset(partition_index=index, start_offset=2) for index in (0, 9))
    topics = (NewOffsetsTopic(topic_name=world.topic, partitions=partitions),)
    request = AlterShareGroupOffsetsRequest(group_id=world.group, topics=topics)
    assert client.ask(request, 0).error_code == 68
    named = (NamedTopic(topic_name=world.topic), NamedTopic(topic_name="none"))
    delete = DeleteShareGroupOffsetsRequest(group_id=world.group, topics=named)
    assert client.ask(delete, 0).error_code == 68
    a.fetch(share_session_epoch=-1)
    for member in (a, b):
        member.beat(epoch=-1)
    answer = client.ask(request, 0)
    assert [one.error_code for one in answer.responses[0].partitions] == [0, 3]
    assert world.offsets() == {0: (2, 3)}
    a.epoch = 0
    # Before 4.4, a leader of Apache Kafka goes on with what it has loaded.
    assert a.take_all(3) == world.either(kohort=[(2, 4, 1)], kafka=[(0, 0, 2), (2, 4, 2)])
    assert {one.topic_name: one.error_code for one in client.ask(delete, 0).responses} == {world.topic: 0, "none": 3}
    assert world.offsets() == {}


@pytest.mark.conformance("SH12")
def test_offsets_of_what_is_not_there(world: World) -> None:
    world.create()
    topics = tuple(OffsetsAskedTopic(topic_name=name, partitions=(0,)) for name in (world.topic, "none"))
    request = DescribeShareGroupOffsetsRequest(groups=(OffsetsAskedGroup(group_id=world.group, topics=topics),))

    def found() -> dict[str, Any]:
        [group] = world.client.ask(request, 1).groups
        assert group.error_code == 0
        return {
            topic.topic_name: (topic.topic_id, one.start_offset, one.lag, one.error_code)
            for topic in group.topics
            for one in topic.partitions
        }

    expected = {world.topic: (world.topic_id, -1, -1, 0), "none": (bytes(16), -1, -1, 0)}
    until(lambda: found() == expected, "the coordinator of Apache Kafka learns of the topic")


@pytest.mark.conformance("SH13")
def test_offsets_found_a_group(world: World) -> None:
    world.create()
    world.put("0", "1", "2")
    partitions = (NewOffset(partition_index=0, start_offset=1),)
    topics = (NewOffsetsTopic(topic_name=world.topic, partitions=partitions),)
    request = AlterShareGroupOffsetsRequest(group_id=world.group, topics=topics)
    assert world.client.ask(request, 0).error_code == 0
    assert world.offsets() == {0: (1, 2)}
    assert world.described().group_state == "Empty"
    [member] = world.joined("a")
    assert member.take_all(2) in ([(1, 2, 1)], [(0, 2, 1)])


def delete_group(client: Connection, group: str) -> int:
    return int(client.ask(DeleteGroupsRequest(groups_names=(group,)), 2).results[0].error_code)


@pytest.mark.conformance("SH27")
def test_a_deleted_group_begins_anew(world: World) -> None:
    [a] = filled(world, 3, "a")
    assert a.take_all(3) == [(0, 2, 1)]
    assert a.ack((0, 1, ACCEPT)) == 0
    assert delete_group(world.client, world.group) == 68
    a.beat(epoch=-1)
    assert delete_group(world.client, world.group) == 0
    assert world.described().error_code == NO_GROUP
    assert delete_group(world.client, world.group) == NO_GROUP
    a.connection.close()
    [a] = world.joined("a")
    assert a.take_all(3) == [(0, 2, 1)]


@pytest.mark.conformance("SH29")
def test_new_partitions_of_a_topic(world: World) -> None:
    """The group begins at the end of a topic that is new to it. Before 4.4, Kafka does so with new partitions too."""
    [a] = filled(world, 0, "a", auto_offset_reset="latest")
    assert a.take_at_once() == []
    grow(world, 2)
    world.put("early", partition=1)
    until(lambda: 1 in assigned(a.beat(world.topic)), "the new partition is not assigned")
    a.epoch = 0
    found = a.fetch(partitions=(1,), max_wait_ms=500)
    got = [one.first_offset for topic in found.responses for row in topic.partitions for one in row.acquired_records]
    assert got == world.either(kohort=[0], kafka=[])


@pytest.mark.conformance("SH30")
def test_a_topic_that_is_created_again_is_fresh(world: World) -> None:
    [a] = filled(world, 3, "a")
    assert a.take_all(3) == [(0, 2, 1)]
    assert a.ack((0, 2, ACCEPT)) == 0
    delete = DeleteTopicsRequest(topics=(DeleteTopicState(name=world.topic),), timeout_ms=9_000)
    assert world.client.ask(delete, 6).responses[0].error_code == 0
    former = a.topic_id
    until(lambda: a.ack((3, 3, ACCEPT)) in (3, 100), "the topic is gone")
    until(lambda: world.offsets() == {}, "the states are deleted")
    a.topic_id = until(lambda: world.create(), "the topic is there")
    assert a.topic_id != former
    world.put("new")
    a.epoch = 0
    a.join()
    assert a.take_all(1) == [(0, 0, 1)]
