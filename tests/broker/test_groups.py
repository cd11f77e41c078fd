"""Groups through the broker: the broker's part besides the shards (finding them, gathering, topics, durability)."""

from __future__ import annotations

from typing import Any

import pytest
from wire_driver import Connection, Wire, create_topic, fetch_request

from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.turn import MoveGroup
from kohort.coordinator.events import Event, TopicsDeleted
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.list_groups import ListGroupsRequest
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
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


@pytest.fixture
def client(wire: Wire) -> Connection:
    connection = wire.connect()
    create_topic(connection, "t", 3)
    return connection


def join_request(group: str = "g", member: str = "", **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        **(
            {
                "group_id": group,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 30_000,
                "member_id": member,
                "protocol_type": "consumer",
                "protocols": (JoinGroupRequestProtocol(name="range", metadata=b"m"),),
            }
            | fields
        )
    )


def join(client: Connection, group: str = "g") -> JoinGroupResponse:
    """A member alone joins a new group and waits for its initial rebalance."""
    client.send(join_request(group), 3)
    client.wire.advance(3000)
    joined: JoinGroupResponse = client.take()
    assert joined.error_code == 0, joined
    return joined


def stable(client: Connection, group: str = "g") -> JoinGroupResponse:
    joined = join(client, group)
    synced = client.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all"),),
        ),
        3,
    )
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined


def commit_request(
    offset: int, group: str = "g", partition: int = 0, topic: str = "t", topic_id: bytes = bytes(16), **fields: Any
) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note"
    )
    topics = (OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=(committed,)),)
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics, **fields)


def commit(client: Connection, offset: int, version: int = 7, **fields: Any) -> int:
    response = client.ask(commit_request(offset, **fields), version)
    error: int = response.topics[0].partitions[0].error_code
    return error


def committed(client: Connection, group: str = "g", topic: str = "t", partition: int = 0) -> int:
    topics = (OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,)),)
    response = client.ask(OffsetFetchRequest(group_id=group, topics=topics), 5)
    assert response.error_code == 0
    assert response.topics[0].partitions[0].error_code == 0
    offset: int = response.topics[0].partitions[0].committed_offset
    return offset


def heartbeat(client: Connection, joined: JoinGroupResponse, group: str = "g") -> int:
    request = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    error: int = client.ask(request, 3).error_code
    return error


# -- the life of a group


def test_join_sync_heartbeat_leave(client: Connection) -> None:
    joined = stable(client)
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert heartbeat(client, joined) == 0
    left = client.ask(LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=joined.member_id),)), 3)
    assert (left.error_code, left.members[0].error_code) == (0, 0)
    assert heartbeat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_falls_silent_is_removed(client: Connection, wire: Wire) -> None:
    joined = stable(client)
    wire.advance(9_000)
    assert heartbeat(client, joined) == 0
    wire.advance(9_999)
    assert heartbeat(client, joined) == 0
    wire.advance(10_001)
    assert heartbeat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conformance("R3")
def test_r3_a_stable_group_outlives_a_restart(client: Connection, wire: Wire) -> None:
    joined = stable(client)
    commit(client, 5, generation_id_or_member_epoch=-1, group="other")
    wire.advance(9_000)
    again = wire.restarted()
    member = again.connect()
    again.advance(9_000)
    assert heartbeat(member, joined) == 0, "the session begins afresh"
    assert committed(member, "other") == 5
    synced = member.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id), 3)
    assert synced.assignment == b"all"


def test_the_records_of_groups_can_be_fetched(client: Connection, wire: Wire) -> None:
    stable(client)
    shard = wire.broker.state.shard_of("g")
    response = client.ask(fetch_request(OFFSETS_TOPIC, partition=shard), 11)
    assert response.responses[0].partitions[0].high_watermark > 0


def test_a_join_on_a_closed_connection_is_abandoned(client: Connection, wire: Wire) -> None:
    leaving = wire.connect()
    leaving.send(join_request(), 3)
    leaving.close()
    wire.advance(60_000)
    assert client.ask(DescribeGroupsRequest(groups=("g",)), 4).groups[0].group_state in ("Empty", "Dead")


# -- offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_in_every_version(client: Connection, version: int) -> None:
    assert committed(client) == -1
    assert commit(client, 42, version) == 0
    assert committed(client) == 42


@pytest.mark.conformance("O8", "O21")
def test_commit_and_fetch_by_topic_id(client: Connection) -> None:
    topic_id = create_topic(client, "by-id")
    absent = bytes(15) + b"\x09"
    assert commit(client, 7, 10, topic="", topic_id=topic_id) == 0
    assert commit(client, 7, 10, topic="", topic_id=absent) == ErrorCode.UNKNOWN_TOPIC_ID
    assert commit(client, 7, 10, topic="", topic_id=topic_id, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(client, topic="by-id") == 7
    topics = tuple(OffsetFetchRequestTopics(topic_id=wanted, partition_indexes=(0,)) for wanted in (topic_id, absent))
    for wanted in (topics, None):
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=wanted),))
        (group,) = client.ask(request, 10).groups
        found = {topic.topic_id: topic.partitions[0] for topic in group.topics}
        assert found[topic_id].committed_offset == 7
        if wanted is not None:
            assert found[absent].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.conformance("O8")
def test_o8_unknown_topics_and_partitions_are_refused_alone(client: Connection) -> None:
    good = OffsetCommitRequestPartition(partition_index=1, committed_offset=9)
    bad = OffsetCommitRequestPartition(partition_index=7, committed_offset=9)
    topics = (
        OffsetCommitRequestTopic(name="t", partitions=(good, bad)),
        OffsetCommitRequestTopic(name="absent", partitions=(good,)),
    )
    response = client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 7)
    errors = {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }
    assert errors == {("t", 1): 0, ("t", 7): 3, ("absent", 1): 3}
    assert committed(client, partition=1) == 9


@pytest.mark.conformance("O15")
def test_o15_nothing_committed_is_no_error(client: Connection) -> None:
    assert committed(client, "nobody") == -1
    assert committed(client, "nobody", topic="absent") == -1


@pytest.mark.conformance("O16")
@pytest.mark.parametrize("version", range(2, 8))
def test_o16_all_offsets_of_a_group(client: Connection, version: int) -> None:
    commit(client, 1)
    commit(client, 2, partition=1)
    response = client.ask(OffsetFetchRequest(group_id="g", topics=None), version)
    assert {part.partition_index: part.committed_offset for part in response.topics[0].partitions} == {0: 1, 1: 2}
    assert client.ask(OffsetFetchRequest(group_id="g", topics=()), version).topics == ()


@pytest.mark.conformance("O17")
@pytest.mark.parametrize("version", [8, 9])
def test_o17_several_groups_at_once(client: Connection, version: int) -> None:
    commit(client, 1, group="a")
    commit(client, 2, group="b")
    asked = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=asked) for name in ("a", "b", "c"))
    response = client.ask(OffsetFetchRequest(groups=groups), version)
    found = {group.group_id: group.topics[0].partitions[0].committed_offset for group in response.groups}
    assert found == {"a": 1, "b": 2, "c": -1}


@pytest.mark.conformance("O25")
def test_o25_offsets_go_with_their_topic(client: Connection, wire: Wire) -> None:
    commit(client, 5)
    client.ask(DeleteTopicsRequest(topic_names=("t",), timeout_ms=1), 5)
    create_topic(client, "t")
    assert committed(client) == -1
    assert committed(wire.restarted().connect()) == -1


@pytest.mark.pure
def test_the_shards_are_told_once_of_topics_that_go_together(
    client: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looks at all offsets that it has."""
    names = [f"t{index}" for index in range(20)]
    for name in names:
        create_topic(client, name)
        assert commit(client, 5, topic=name) == 0
    told: list[TopicsDeleted] = []
    ask = wire.broker.state.machines.ask

    def watched(shard: int, event: Event, awaited: Any = None) -> Any:
        if isinstance(event, TopicsDeleted):
            told.append(event)
        return ask(shard, event, awaited)

    monkeypatch.setattr(wire.broker.state.machines, "ask", watched)
    response = client.ask(DeleteTopicsRequest(topic_names=(*names, "absent", OFFSETS_TOPIC), timeout_ms=1), 5)
    assert [topic.error_code for topic in response.responses] == [0] * 20 + [3, 17]
    assert told == [TopicsDeleted(tuple(names))] * len(wire.broker.state.shards)
    assert committed(client, topic="t7") == -1
    told.clear()
    client.ask(DeleteTopicsRequest(topic_names=("absent",), timeout_ms=1), 5)
    assert not told


def test_offsets_are_deleted_one_by_one(client: Connection) -> None:
    commit(client, 5)
    commit(client, 6, partition=1)
    asked = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9))
    request = OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name="t", partitions=asked),))
    (topic,) = client.ask(request, 0).topics
    assert {part.partition_index: part.error_code for part in topic.partitions} == {0: 0, 9: 3}
    assert (committed(client), committed(client, partition=1)) == (-1, 6)
    absent = OffsetDeleteRequest(group_id="absent", topics=(OffsetDeleteRequestTopic(name="t", partitions=asked),))
    assert client.ask(absent, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- describe, list, delete


@pytest.mark.conformance("D8", "D9", "D10")
def test_groups_are_listed_described_and_deleted(client: Connection) -> None:
    joined = stable(client, "live")
    for index in range(20):
        commit(client, index, group=f"simple-{index}")
    listed = client.ask(ListGroupsRequest(), 4)
    assert {group.group_id for group in listed.groups} == {"live"} | {f"simple-{index}" for index in range(20)}
    filtered = client.ask(ListGroupsRequest(states_filter=("stable",)), 4)
    assert [(group.group_id, group.group_state) for group in filtered.groups] == [("live", "Stable")]
    request = DescribeGroupsRequest(groups=("live", "absent"), include_authorized_operations=True)
    live, absent = client.ask(request, 5).groups
    assert (live.group_state, live.members[0].member_id) == ("Stable", joined.member_id)
    assert live.members[0].client_id == "client"
    assert live.members[0].client_host == "/127.0.0.1"
    assert live.authorized_operations == 0b110101001000
    assert (absent.group_state, absent.error_code) == ("Dead", 0)
    assert client.ask(DescribeGroupsRequest(groups=("live",)), 5).groups[0].authorized_operations == -2147483648
    deleted = client.ask(DeleteGroupsRequest(groups_names=("simple-3", "live", "absent", "simple-4", "live")), 2)
    assert [(result.group_id, result.error_code) for result in deleted.results] == [
        ("simple-3", 0),
        ("live", ErrorCode.NON_EMPTY_GROUP),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
        ("simple-4", 0),
    ]
    assert committed(client, "simple-3") == -1


@pytest.mark.conformance("D5")
def test_d5_describing_an_unknown_group_in_version_6(client: Connection) -> None:
    (absent,) = client.ask(DescribeGroupsRequest(groups=("absent",)), 6).groups
    assert (absent.error_code, absent.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert absent.error_message


# -- FindCoordinator and several brokers


@pytest.mark.conformance("D1")
@pytest.mark.parametrize("version", range(6))
def test_d1_find_coordinator_in_every_version(version: int) -> None:
    wire = Wire(brokers=3)
    client = wire.connect(2)
    keys = [f"group-{index}" for index in range(9)]
    for key in keys:
        response = client.ask(FindCoordinatorRequest(key=key, coordinator_keys=(key,)), version)
        found = response.coordinators[0] if version >= 4 else response
        owner = wire.broker.state.coordinator_of(wire.broker.state.shard_of(key))
        assert (found.error_code, found.node_id, found.port) == (0, owner, 9091 + owner)
    if version >= 4:
        response = client.ask(FindCoordinatorRequest(coordinator_keys=tuple(keys)), version)
        assert [found.key for found in response.coordinators] == keys
        assert len({found.node_id for found in response.coordinators}) == 3


@pytest.mark.conformance("D3")
@pytest.mark.parametrize(
    ("key_type", "error"), [(1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), (2, 42), (9, 42)]
)
def test_d3_other_types_of_coordinators(client: Connection, key_type: int, error: int) -> None:
    single = client.ask(FindCoordinatorRequest(key="x", key_type=key_type), 3)
    assert (single.error_code, single.node_id, single.host, single.port) == (error, -1, "", -1)
    assert single.error_message
    (batched,) = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=("x",)), 4).coordinators
    assert (batched.key, batched.error_code, batched.node_id) == ("x", error, -1)


@pytest.mark.conformance("R2", "D8", "D9", "O14", "O17")
def test_r2_another_broker_is_not_the_coordinator() -> None:
    wire = Wire(brokers=2)
    state = wire.broker.state
    group = next(name for name in "abcdefgh" if state.coordinator_of(state.shard_of(name)) == 1)
    here, elsewhere = wire.connect(1), wire.connect(2)
    create_topic(here, "t")
    code = ErrorCode.NOT_COORDINATOR
    for version in range(10):
        refused = elsewhere.ask(join_request(group), version)
        assert (refused.error_code, refused.protocol_name) == (code, None if version >= 7 else "")
    for version in range(6):
        sync = SyncGroupRequest(
            group_id=group, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        )
        assert elsewhere.ask(sync, version).error_code == code
        assert elsewhere.ask(LeaveGroupRequest(group_id=group, member_id="m"), version).error_code == code
    for version in range(5):
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        assert elsewhere.ask(beat, version).error_code == code
    for version in range(2, 10):
        assert commit(elsewhere, 1, version, group=group) == code
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
    first = elsewhere.ask(OffsetFetchRequest(group_id=group, topics=(asked,)), 1)
    assert first.topics[0].partitions[0].error_code == code
    for version in range(2, 8):
        assert elsewhere.ask(OffsetFetchRequest(group_id=group, topics=(asked,)), version).error_code == code
    for version in (8, 9, 10):
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
        assert elsewhere.ask(request, version).groups[0].error_code == code
    for version in range(7):
        assert elsewhere.ask(DescribeGroupsRequest(groups=(group,)), version).groups[0].error_code == code
    for version in range(3):
        deleted = elsewhere.ask(DeleteGroupsRequest(groups_names=(group,)), version)
        assert deleted.results[0].error_code == code
    assert elsewhere.ask(OffsetDeleteRequest(group_id=group, topics=()), 0).error_code == code
    assert commit(here, 1, group=group) == 0
    assert [listed.group_id for listed in here.ask(ListGroupsRequest(), 4).groups] == [group]
    assert elsewhere.ask(ListGroupsRequest(), 4).groups == ()


@pytest.mark.conformance("R1")
def test_r1_a_group_moves_to_another_broker() -> None:
    wire = Wire(brokers=2)
    state = wire.broker.state
    group = next(name for name in "abcdefgh" if state.coordinator_of(state.shard_of(name)) == 1)
    first, second = wire.connect(1), wire.connect(2)
    create_topic(first, "t")
    assert commit(first, 3, group=group) == 0
    joining = wire.connect(1)
    joining.send(join_request(group), 3)
    wire.step(MoveGroup(group, 2))
    assert joining.take().error_code == ErrorCode.NOT_COORDINATOR
    assert commit(first, 4, group=group) == ErrorCode.NOT_COORDINATOR
    assert committed(second, group) == 3
    found = first.ask(FindCoordinatorRequest(key=group), 2)
    assert found.node_id == 2
    stable(second, group)
    again = wire.restarted()
    assert committed(again.connect(2), group) == 3


def test_a_retention_beyond_all_time_is_for_ever(client: Connection) -> None:
    assert commit(client, 3, 2, retention_time_ms=2**63 - 1) == 0
    assert committed(client) == 3


@pytest.mark.parametrize("left", [True, False], ids=["leave sent", "no leave"])
def test_w5_a_leave_behind_a_parked_join_counts_although_the_client_closes(left: bool) -> None:
    """Clients that close while they join send LeaveGroup behind it, and wait for neither answer."""
    wire = Wire()
    client, other, closing = wire.connect(), wire.connect(), wire.connect()
    create_topic(client, "t", 3)
    member = stable(client).member_id
    client_id = closing.ask(join_request(), 4).member_id
    closing.send(join_request(member=client_id), 4)
    assert not closing.responses
    if left:
        closing.send(LeaveGroupRequest(group_id="g", member_id=client_id), 1)
    closing.close()
    described = other.ask(DescribeGroupsRequest(groups=("g",)), 0).groups[0]
    assert {found.member_id for found in described.members} == ({member} if left else {member, client_id})
