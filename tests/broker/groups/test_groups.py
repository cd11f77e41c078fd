"""Groups through the broker: the broker's part besides the shards (finding them, several brokers, topics, durability,
the order of a turn)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from group_driver import (
    commit,
    commit_request,
    committed,
    group_on,
    heartbeat,
    join,
    join_request,
    leave,
    stable,
    sync_request,
)
from wire_driver import Connection, Wire, delete_topics, fetch_request

from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.turn import MoveGroup
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import StorageError
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequestProtocol
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic

PARTITIONS = 3


# -- the life of a group


def test_join_sync_heartbeat_leave(client: Connection, wire: Wire) -> None:
    joined = stable(client)
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert heartbeat(client, joined) == 0
    response = client.ask(fetch_request(OFFSETS_TOPIC, partition=wire.broker.state.shard_of("g")), 11)
    assert response.responses[0].partitions[0].high_watermark > 0, "the records of groups can be fetched"
    leave(client, joined.member_id)
    assert heartbeat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conformance("R3")
def test_an_outage_of_an_hour_removes_no_member(client: Connection, wire: Wire) -> None:
    joined = stable(client)
    commit(client, 5, group="other")
    wire.advance(9_000)
    wire.now += 3_600_000
    again = wire.restarted()
    member = again.connect()
    again.advance(9_999)
    assert heartbeat(member, joined) == 0, "the session begins afresh"
    assert committed(member, "other") == 5
    assert member.ask(sync_request(joined.member_id, 1), 3).assignment == b"all"
    again.advance(10_001)
    assert heartbeat(member, joined) == ErrorCode.UNKNOWN_MEMBER_ID, "the session counts again"


@pytest.mark.conformance("R6")
def test_time_is_what_the_broker_is_told(client: Connection, wire: Wire) -> None:
    """Only the test moves the clock: sessions, rebalances and expiry use no other clock."""
    joined = stable(client)
    for _ in range(100):
        wire.step()
    assert heartbeat(client, joined) == 0
    wire.advance(9_999)
    assert heartbeat(client, joined) == 0
    wire.now += 10_000
    wire.step()
    assert heartbeat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    commit(client, 5)
    wire.advance(8 * 24 * 3_600_000)
    assert committed(client) == -1


def test_a_join_on_a_closed_connection_is_abandoned(client: Connection, wire: Wire) -> None:
    leaving = wire.connect()
    leaving.send(join_request(), 3)
    leaving.close()
    wire.advance(60_000)
    assert client.ask(DescribeGroupsRequest(groups=("g",)), 4).groups[0].group_state in ("Empty", "Dead")


@pytest.mark.parametrize("left", [True, False], ids=["leave sent", "no leave"])
def test_w5_a_leave_behind_a_parked_join_counts_although_the_client_closes(
    client: Connection, wire: Wire, left: bool
) -> None:
    """A client that closes while it joins sends LeaveGroup after its JoinGroup, and waits for neither answer."""
    other, closing = wire.connect(), wire.connect()
    member = stable(client).member_id
    client_id = closing.ask(join_request(), 4).member_id
    closing.send(join_request(member=client_id), 4)
    assert not closing.responses
    if left:
        closing.send(LeaveGroupRequest(group_id="g", member_id=client_id), 1)
    closing.close()
    described = other.ask(DescribeGroupsRequest(groups=("g",)), 0).groups[0]
    assert {found.member_id for found in described.members} == ({member} if left else {member, client_id})


# -- joining


@pytest.mark.parametrize(("kind", "waits"), [("consumer", True), ("connect", True), ("workers", False), ("sr", False)])
def test_only_consumers_and_connect_wait_for_more_members(kind: str, waits: bool) -> None:
    for config, expected in (({}, waits), ({"compatibility": "kafka"}, True)):
        client = Wire(**config).connect()
        client.send(join_request(protocol_type=kind), 3)
        assert bool(client.responses) is not expected


@pytest.mark.conformance("J2")
@pytest.mark.parametrize(("kind", "least"), [("consumer", 6_000), ("connect", 6_000), ("workers", 1_000)])
def test_other_members_may_have_short_sessions(kind: str, least: int) -> None:
    """An election has to notice soon that its leader has died."""
    client = Wire(group_initial_rebalance_delay_ms=0).connect()
    for session_ms, error in ((least - 1, ErrorCode.INVALID_SESSION_TIMEOUT), (least, ErrorCode.NONE)):
        request = join_request(protocol_type=kind, session_timeout_ms=session_ms)
        assert client.ask(request, 3).error_code == error
    strict = Wire(compatibility="kafka").connect()
    request = join_request(protocol_type=kind, session_timeout_ms=5_999)
    assert strict.ask(request, 3).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.conformance("J3", "J5")
def test_member_ids_are_the_clients_or_the_instances_name_and_a_uuid(wire: Wire) -> None:
    uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    for version in range(4, 10):
        given = wire.connect(client_id="my client").ask(join_request(f"dynamic-{version}"), version)
        assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert re.fullmatch(f"my client-{uuid}", given.member_id)
    for version in range(5, 10):
        joined = join(wire.connect(client_id="my client"), f"static-{version}", version, group_instance_id="worker-1")
        assert re.fullmatch(f"worker-1-{uuid}", joined.member_id)


@pytest.mark.conformance("J15", "J16")
@pytest.mark.parametrize("version", range(10))
def test_the_leader_is_told_the_metadata_of_the_chosen_protocol_and_the_others_nothing(
    wire: Wire, version: int
) -> None:
    """The protocol that both have in common is the second choice of either."""
    clients = [wire.connect(client_id=name) for name in ("first", "second")]
    for client in clients:
        name = client.client_id
        protocols = tuple(
            JoinGroupRequestProtocol(name=protocol, metadata=f"{protocol} of {name}".encode())
            for protocol in (f"{name}'s own", "common")
        )
        request = join_request(protocols=protocols)
        if version >= 4:
            request = join_request(protocols=protocols, member=client.ask(request, version).member_id)
        client.send(request, version)
    wire.advance(6000)
    leader, follower = (client.take() for client in clients)
    assert [member.metadata for member in leader.members] == [b"common of first", b"common of second"]
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == ()
    for told in (leader, follower):
        assert (told.error_code, told.generation_id, told.leader) == (0, 1, leader.member_id)
        assert told.protocol_name == "common"
        assert told.protocol_type == ("consumer" if version >= 7 else None)


# -- a failed append stops the process


def fails_to_commit(wire: Wire, client: Connection, request: Any, version: int) -> Connection:
    """The turn of this request fails: no request is answered. Returns a connection to the restarted broker."""
    storage = wire.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail_at_commit = storage.commits + 1
    answered = {connection.id: len(connection.responses) for connection in wire.connections.values()}
    with pytest.raises(StorageError):
        client.send(request, version)
    assert answered == {connection.id: len(connection.responses) for connection in wire.connections.values()}
    wire.storage = storage.copy()
    return wire.restarted().connect()


@pytest.mark.conformance("J33")
def test_after_a_failed_append_the_old_id_of_a_static_member_is_valid(client: Connection, wire: Wire) -> None:
    former = join(client, version=5, group_instance_id="i").member_id
    client.ask(sync_request(former, 1, b"new", group_instance_id="i"), 3)
    member = fails_to_commit(wire, client, join_request(group_instance_id="i"), 5)
    synced = member.ask(sync_request(former, 1, group_instance_id="i"), 3)
    assert (synced.error_code, synced.assignment) == (0, b"new")
    returned = member.ask(join_request(group_instance_id="i"), 5)
    assert (returned.error_code, returned.generation_id) == (0, 1)
    assert member.ask(sync_request(former, 1, group_instance_id="i"), 3).error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.conformance("S8", "O22")
def test_after_a_failed_append_of_an_assignment_the_group_rebalances(client: Connection, wire: Wire) -> None:
    first_id = stable(client).member_id
    follower = wire.connect()
    follower.send(join_request(), 3)
    leader = client.ask(join_request(member=first_id), 3)
    follower_id = follower.take().member_id
    follower.send(sync_request(follower_id, leader.generation_id), 3)
    member = fails_to_commit(wire, client, sync_request(leader.member_id, leader.generation_id, b"new"), 3)
    sync = sync_request(follower_id, leader.generation_id)
    assert member.ask(sync, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID, "it was never written"
    assert heartbeat(member, leader) == ErrorCode.ILLEGAL_GENERATION, "that generation is lost"
    rejoined = member.ask(join_request(member=leader.member_id), 3)
    assert rejoined.generation_id > leader.generation_id


@pytest.mark.conformance("O22", "R4")
def test_after_a_failed_append_a_commit_has_no_effect(client: Connection, wire: Wire) -> None:
    assert commit(client, 5) == 0
    assert committed(fails_to_commit(wire, client, commit_request(6), 7)) == 5


@pytest.mark.conformance("S9")
def test_requests_that_arrive_with_the_leaders_sync_are_handled_after_it(client: Connection, wire: Wire) -> None:
    """No decision runs beside an append: requests of the same turn are decided before it, all others wait for the
    next turn."""
    joined = join(client)
    newcomer = wire.connect()
    wire.step(
        client.frame(sync_request(joined.member_id, 1, b"new"), 3),
        newcomer.frame(join_request(), 3),
        client.frame(sync_request(joined.member_id, 1), 3),
    )
    first, second = client.responses
    assert (first.error_code, first.assignment) == (0, b"new"), "the assignment stands, and its answer"
    assert second.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer.responses == []


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


@pytest.mark.conformance("D8")
def test_a_broker_that_is_still_loading_lists_nothing(client: Connection, wire: Wire) -> None:
    commit(client, 5)
    assert len(client.ask(ListGroupsRequest(), 4).groups) == 1
    state = wire.broker.state
    other = state.shards[(state.shard_of("g") + 1) % len(state.shards)]
    other.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    response = client.ask(ListGroupsRequest(), 4)
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())


@pytest.mark.conformance("D8")
@pytest.mark.parametrize("version", range(6))
def test_the_state_is_listed_from_version_4_and_the_type_from_5(client: Connection, version: int) -> None:
    stable(client, "live")
    commit(client, 5, group="offsets")
    found = {group.group_id: group for group in client.ask(ListGroupsRequest(), version).groups}
    assert {name: group.protocol_type for name, group in found.items()} == {"live": "consumer", "offsets": ""}
    assert found["live"].group_state == ("Stable" if version >= 4 else "")
    assert found["live"].group_type == ("classic" if version >= 5 else "")


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
        owner = wire.coordinator(key)
        assert (found.error_code, found.node_id, found.port) == (0, owner, 9091 + owner)
    if version >= 4:
        response = client.ask(FindCoordinatorRequest(coordinator_keys=tuple(keys)), version)
        assert [found.key for found in response.coordinators] == keys
        assert len({found.node_id for found in response.coordinators}) == 3


@pytest.mark.conformance("D1")
def test_keys_are_answered_one_by_one_and_old_versions_in_the_response_itself(client: Connection) -> None:
    batched = client.ask(FindCoordinatorRequest(key="ignored", coordinator_keys=("a", "b", "a")), 4)
    assert [found.key for found in batched.coordinators] == ["a", "b", "a"]
    assert client.ask(FindCoordinatorRequest(coordinator_keys=()), 4).coordinators == ()
    assert (batched.node_id, batched.host, batched.port, batched.error_code) == (0, "", 0, 0)
    single = client.ask(FindCoordinatorRequest(key="a", coordinator_keys=("b",)), 3)
    assert (single.coordinators, single.node_id, single.host, single.port) == ((), 1, "127.0.0.1", 9092)


@pytest.mark.conformance("D2")
def test_the_offsets_topic_is_never_missing(wire: Wire) -> None:
    assert OFFSETS_TOPIC in wire.broker.state.catalog.topics
    client = wire.connect()
    found = client.ask(FindCoordinatorRequest(key="g"), 2)
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092), "the very first request"
    deleted = client.ask(delete_topics(OFFSETS_TOPIC), 5)
    assert deleted.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.ask(FindCoordinatorRequest(key="g"), 2).error_code == 0


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize("key_type", [2, 3, 127, -1])
def test_d3_other_key_types_are_refused_in_every_version(client: Connection, version: int, key_type: int) -> None:
    keys = ("g:AAAAAAAAAAAAAAAAAAAAAA:0", "malformed")
    if version >= 4:
        found = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys), version).coordinators
        assert tuple(each.key for each in found) == keys
    else:
        found = [client.ask(FindCoordinatorRequest(key_type=key_type, key=key), version) for key in keys]
    for each in found:
        assert (each.error_code, each.node_id, each.host, each.port) == (42, -1, "", -1)
        assert each.error_message


@pytest.mark.conformance("O22", "D4")
def test_nobody_is_refused_without_acls(client: Connection) -> None:
    commit(client, 5)
    stranger = client.wire.connect(client_id="stranger")
    response = stranger.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", 1)]
    keys = ("g", "", "any")
    found = stranger.ask(FindCoordinatorRequest(coordinator_keys=keys), 4).coordinators
    assert [(each.key, each.error_code) for each in found] == [(key, 0) for key in keys]


@pytest.mark.conformance("R2", "D8", "D9", "O14", "O17")
def test_r2_another_broker_is_not_the_coordinator() -> None:
    wire = Wire(brokers=2)
    group = group_on(wire, 1)
    here, elsewhere = wire.connect(1), wire.connect(2)
    here.create_topic("t")
    code = ErrorCode.NOT_COORDINATOR
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
    for request, versions in (
        (join_request(group), range(10)),
        (sync_request("m", 1, group=group, protocol_type="consumer", protocol_name="range"), range(6)),
        (LeaveGroupRequest(group_id=group, member_id="m"), range(6)),
        (HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), range(5)),
        (OffsetFetchRequest(group_id=group, topics=(asked,)), range(2, 8)),
        (OffsetDeleteRequest(group_id=group, topics=()), range(1)),
    ):
        for version in versions:
            assert elsewhere.ask(request, version).error_code == code, f"{request} v{version}"
    for version in range(10):
        assert elsewhere.ask(join_request(group), version).protocol_name == (None if version >= 7 else "")
    for version in range(2, 10):
        assert commit(elsewhere, 1, version, group=group) == code
    first = elsewhere.ask(OffsetFetchRequest(group_id=group, topics=(asked,)), 1)
    assert first.topics[0].partitions[0].error_code == code
    for version in (8, 9, 10):
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
        assert elsewhere.ask(request, version).groups[0].error_code == code
    for version in range(7):
        assert elsewhere.ask(DescribeGroupsRequest(groups=(group,)), version).groups[0].error_code == code
    for version in range(3):
        deleted = elsewhere.ask(DeleteGroupsRequest(groups_names=(group,)), version)
        assert deleted.results[0].error_code == code
    assert commit(here, 1, group=group) == 0
    assert [listed.group_id for listed in here.ask(ListGroupsRequest(), 4).groups] == [group]
    assert elsewhere.ask(ListGroupsRequest(), 4).groups == ()


@pytest.mark.conformance("R1")
def test_r1_a_group_moves_to_another_broker() -> None:
    wire = Wire(brokers=2)
    group = group_on(wire, 1)
    first, second = wire.connect(1), wire.connect(2)
    first.create_topic("t")
    assert commit(first, 3, group=group) == 0
    joining = wire.connect(1)
    joining.send(join_request(group), 3)
    wire.step(MoveGroup(group, 2))
    assert joining.take().error_code == ErrorCode.NOT_COORDINATOR
    assert commit(first, 4, group=group) == ErrorCode.NOT_COORDINATOR
    assert committed(second, group) == 3
    assert first.ask(FindCoordinatorRequest(key=group), 2).node_id == 2
    stable(second, group)
    assert committed(wire.restarted().connect(2), group) == 3


@pytest.mark.conformance("R1")
def test_a_parked_sync_is_answered_when_its_group_moves() -> None:
    wire = Wire(brokers=2)
    group = group_on(wire, 1)
    leader, follower = wire.connect(1), wire.connect(1)
    leader.send(join_request(group), 3)
    follower.send(join_request(group), 3)
    wire.advance(6000)
    joined = follower.take()
    assert (joined.error_code, joined.leader == joined.member_id) == (0, False)
    follower.send(sync_request(joined.member_id, 1, group=group), 3)
    assert follower.responses == []
    wire.step(MoveGroup(group, 2))
    assert follower.take().error_code == ErrorCode.NOT_COORDINATOR
    assert heartbeat(wire.connect(2), joined, group) == ErrorCode.UNKNOWN_MEMBER_ID
