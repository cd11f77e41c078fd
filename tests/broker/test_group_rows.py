"""Rows of docs/conformance.md that no shard alone can prove: topics, several brokers, the order of a turn, failures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from test_groups import commit, commit_request, committed, heartbeat, join, join_request, stable
from wire_driver import Connection, Wire, create_topic

from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.turn import MoveGroup
from kohort.coordinator.records import offset_record
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import StorageError
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.join_group import JoinGroupRequestProtocol
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


class FailingStorage(MemoryStorage):
    """A storage that commits until `fails` is set."""

    fails = False

    def commit(self, operations: Any, lease: Any) -> None:
        if self.fails:
            raise StorageError("the disk is full")
        super().commit(operations, lease)


@pytest.fixture
def wire() -> Wire:
    return Wire(FailingStorage())


@pytest.fixture
def client(wire: Wire) -> Connection:
    connection = wire.connect()
    create_topic(connection, "t", 3)
    return connection


def sync_request(member: str, generation: int, leads: bool = False, **fields: Any) -> SyncGroupRequest:
    assignments = (SyncGroupRequestAssignment(member_id=member, assignment=b"new"),) if leads else ()
    return SyncGroupRequest(group_id="g", generation_id=generation, member_id=member, assignments=assignments, **fields)


def fails_to_commit(wire: Wire, client: Connection, request: Any, version: int) -> Wire:
    """The turn of this request fails: no request is answered. Returns the restarted broker."""
    storage = wire.storage
    assert isinstance(storage, FailingStorage)
    storage.fails = True
    answered = {connection.id: len(connection.responses) for connection in wire.connections.values()}
    with pytest.raises(StorageError):
        client.send(request, version)
    assert answered == {connection.id: len(connection.responses) for connection in wire.connections.values()}
    storage.fails = False
    return wire.restarted()


# -- joining


@pytest.mark.conformance("J3", "J5")
def test_member_ids_are_the_clients_or_the_instances_name_and_a_uuid(wire: Wire) -> None:
    uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    for version in range(4, 10):
        client = wire.connect(client_id="my client")
        given = client.ask(join_request(f"dynamic-{version}"), version)
        assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert re.fullmatch(f"my client-{uuid}", given.member_id)
    for version in range(5, 10):
        client = wire.connect(client_id="my client")
        client.send(join_request(f"static-{version}", group_instance_id="worker-1"), version)
        wire.advance(3000)
        joined = client.take()
        assert joined.error_code == 0
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


@pytest.mark.conformance("J33")
def test_after_a_failed_append_the_old_id_of_a_static_member_is_valid(client: Connection, wire: Wire) -> None:
    client.send(join_request(group_instance_id="i"), 5)
    wire.advance(3000)
    former = client.take().member_id
    client.ask(sync_request(former, 1, leads=True, group_instance_id="i"), 3)
    again = fails_to_commit(wire, client, join_request(group_instance_id="i"), 5)
    member = again.connect()
    synced = member.ask(sync_request(former, 1, group_instance_id="i"), 3)
    assert (synced.error_code, synced.assignment) == (0, b"new")
    returned = member.ask(join_request(group_instance_id="i"), 5)
    assert (returned.error_code, returned.generation_id) == (0, 1)
    assert member.ask(sync_request(former, 1, group_instance_id="i"), 3).error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.conformance("S8", "O22")
def test_after_a_failed_append_of_an_assignment_the_group_rebalances(client: Connection, wire: Wire) -> None:
    stable(client)
    follower = wire.connect()
    follower.send(join_request(), 3)
    leader = client.ask(join_request(member=wire_member(wire)), 3)
    follower_id = follower.take().member_id
    follower.send(sync_request(follower_id, leader.generation_id), 3)
    again = fails_to_commit(wire, client, sync_request(leader.member_id, leader.generation_id, leads=True), 3)
    member = again.connect()
    sync = sync_request(follower_id, leader.generation_id)
    assert member.ask(sync, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID, "it was never written"
    assert heartbeat(member, leader) == ErrorCode.ILLEGAL_GENERATION, "that generation is lost"
    rejoined = member.ask(join_request(member=leader.member_id), 3)
    assert rejoined.generation_id > leader.generation_id


def wire_member(wire: Wire, group: str = "g") -> str:
    """The first member's id."""
    state = wire.broker.state
    member_id: str = state.shards[state.shard_of(group)].describe(group, 5).members[0].member_id
    return member_id


@pytest.mark.conformance("O22", "R4")
def test_after_a_failed_append_a_commit_never_was(client: Connection, wire: Wire) -> None:
    assert commit(client, 5) == 0
    again = fails_to_commit(wire, client, commit_request(6), 7)
    assert committed(again.connect()) == 5


@pytest.mark.conformance("S9")
def test_what_comes_with_the_leaders_sync_is_looked_at_after_it(client: Connection, wire: Wire) -> None:
    """No decision runs beside an append: requests of the same turn are decided before it, all others wait for the
    next turn."""
    joined = join(client)
    newcomer = wire.connect()
    wire.step(
        client.frame(sync_request(joined.member_id, 1, leads=True), 3),
        newcomer.frame(join_request(), 3),
        client.frame(sync_request(joined.member_id, 1), 3),
    )
    first, second = client.responses
    assert (first.error_code, first.assignment) == (0, b"new"), "the assignment stands, and its answer"
    assert second.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer.responses == []


@pytest.mark.conformance("O19")
@pytest.mark.parametrize("stable", [False, True])
def test_a_fetch_behind_a_commit_waits_for_it(client: Connection, wire: Wire, stable: bool) -> None:
    reader = wire.connect()
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    fetch = reader.frame(OffsetFetchRequest(groups=(group,), require_stable=stable), 8)
    turn = wire.broker.step((client.frame(commit_request(5), 7), fetch), wire.now)
    assert reader.responses == []
    assert turn.operations, "the commit; the answer leaves when it is durable, never before"
    wire.storage.commit(turn.operations, wire.storage.acquire())
    for release in turn.releases:
        wire.connections[release.connection].received(release)
    assert reader.take().groups[0].topics[0].partitions[0].committed_offset == 5


# -- offsets


@pytest.mark.conformance("O8")
@pytest.mark.parametrize("version", range(2, 10))
def test_unknown_places_are_refused_alone_in_every_version(client: Connection, version: int) -> None:
    parts = tuple(OffsetCommitRequestPartition(partition_index=index, committed_offset=9) for index in (0, 3, -1))
    topics = tuple(OffsetCommitRequestTopic(name=name, partitions=parts) for name in ("t", "absent"))
    response = client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), version)
    errors = {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }
    assert errors == {("t", 0): 0} | {place: 3 for place in errors if place != ("t", 0)}
    assert len(errors) == 6


@pytest.mark.conformance("O15", "O23")
@pytest.mark.parametrize("version", range(1, 10))
def test_what_was_committed_is_fetched_in_every_version(client: Connection, version: int) -> None:
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=4, committed_metadata="näh"
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 8)
    if version >= 8:
        asked = (OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1)),)
        group = OffsetFetchRequestGroup(group_id="g", topics=asked)
        [topic] = client.ask(OffsetFetchRequest(groups=(group,)), version).groups[0].topics
    else:
        old = (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)
        [topic] = client.ask(OffsetFetchRequest(group_id="g", topics=old), version).topics
    found = [(p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code) for p in topic.partitions]
    assert found == [(9, 4 if version >= 5 else -1, "näh", 0), (-1, -1, "", 0)]


@pytest.mark.conformance("O16")
@pytest.mark.parametrize("version", [8, 9, 10])
def test_no_topics_and_all_topics_of_several_groups(client: Connection, version: int) -> None:
    commit(client, 1)
    commit(client, 2, partition=1)
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=topics) for name in "gh" for topics in (None, ()))
    answers = client.ask(OffsetFetchRequest(groups=groups), version).groups
    assert [(found.group_id, found.error_code) for found in answers] == [("g", 0), ("g", 0), ("h", 0), ("h", 0)]
    assert [[part.committed_offset for topic in found.topics for part in topic.partitions] for found in answers] == [
        [1, 2], [], [], [],
    ]  # fmt: skip


@pytest.mark.conformance("O17")
@pytest.mark.parametrize("version", [8, 9, 10])
def test_groups_fail_one_by_one(version: int) -> None:
    wire = Wire(brokers=2)
    state = wire.broker.state
    owned = {state.coordinator_of(state.shard_of(name)): name for name in "abcdefgh"}
    here = wire.connect(1)
    create_topic(here, "t")
    assert commit(here, 3, group=owned[1]) == 0
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in (owned[2], owned[1], owned[2]))
    answers = here.ask(OffsetFetchRequest(groups=groups), version).groups
    assert [(found.group_id, found.error_code, len(found.topics)) for found in answers] == [
        (owned[2], ErrorCode.NOT_COORDINATOR, 0),
        (owned[1], 0, 1),
        (owned[2], ErrorCode.NOT_COORDINATOR, 0),
    ]


@pytest.mark.conformance("O18")
@pytest.mark.parametrize("version", [7, 8, 9])
def test_nothing_is_ever_unstable(client: Connection, version: int) -> None:
    commit(client, 5)
    old = (OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
    group = OffsetFetchRequestGroup(group_id="g", topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),))
    request = OffsetFetchRequest(group_id="g", topics=old, groups=(group,), require_stable=True)
    response = client.ask(request, version)
    [topic] = response.groups[0].topics if version >= 8 else response.topics
    assert (topic.partitions[0].committed_offset, topic.partitions[0].error_code) == (5, 0)


@pytest.mark.conformance("O21")
def test_offsets_of_a_topics_former_self_are_not_read_by_its_id(client: Connection, wire: Wire) -> None:
    """Deleting a topic deletes its offsets (O25); a log that another coordinator wrote may hold some all the same."""
    topic_id = create_topic(client, "again", 2)
    former = topic_id[::-1]
    state = wire.broker.state
    shard = state.shard_of("g")
    for partition, committed_under in enumerate((former, topic_id)):
        value = OffsetCommitValue(
            offset=7, leader_epoch=2, metadata="m", commit_timestamp=wire.now, topic_id=committed_under
        )
        record = offset_record("g", "again", partition, value)
        log = state.topics.partitions[state.catalog.topics[OFFSETS_TOPIC].topic_id][shard]
        state.turn.append_records(log, [record])
    wire.step()
    again = wire.restarted()
    reader = again.connect()
    asked = (OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0, 1)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=asked),))
    [topic] = reader.ask(request, 10).groups[0].topics
    assert topic.topic_id == topic_id
    assert [(p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code) for p in topic.partitions] == [
        (-1, -1, "", 0),
        (7, 2, "m", 0),
    ]
    assert committed(reader, topic="again") == 7, "by its name, as Kafka answers older versions"


@pytest.mark.conformance("O21")
def test_a_commit_by_id_is_kept_with_the_id(client: Connection, wire: Wire) -> None:
    topic_id = create_topic(client, "by-id")
    assert commit(client, 7, 10, topic="", topic_id=topic_id) == 0
    for current in (wire, wire.restarted()):
        shard = current.broker.state.shards[current.broker.state.shard_of("g")]
        assert shard.hard.offsets["g"]["by-id", 0].topic_id == topic_id


@pytest.mark.conformance("O22", "D4")
def test_nobody_is_refused_without_acls(client: Connection) -> None:
    commit(client, 5)
    stranger = client.wire.connect(client_id="stranger")
    response = stranger.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", 1)]
    keys = ("g", "", "any")
    found = stranger.ask(FindCoordinatorRequest(coordinator_keys=keys), 4).coordinators
    assert [(each.key, each.error_code) for each in found] == [(key, 0) for key in keys]
    refused = stranger.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=("a", "b")), 4).coordinators
    assert [(each.key, each.error_code) for each in refused] == [("a", 53), ("b", 53)]
    assert all("transactions" in each.error_message for each in refused)


# -- where a group is


@pytest.mark.conformance("D1")
def test_keys_are_answered_one_by_one_and_old_versions_in_the_response_itself(client: Connection) -> None:
    batched = client.ask(FindCoordinatorRequest(key="ignored", coordinator_keys=("a", "b", "a")), 4)
    assert [found.key for found in batched.coordinators] == ["a", "b", "a"]
    assert client.ask(FindCoordinatorRequest(coordinator_keys=()), 4).coordinators == ()
    assert (batched.node_id, batched.host, batched.port, batched.error_code) == (0, "", 0, 0)
    single = client.ask(FindCoordinatorRequest(key="a", coordinator_keys=("b",)), 3)
    assert (single.coordinators, single.node_id, single.host, single.port) == ((), 1, "127.0.0.1", 9092)


@pytest.mark.conformance("D2")
def test_the_offsets_topic_is_never_missing() -> None:
    wire = Wire()
    assert OFFSETS_TOPIC in wire.broker.state.catalog.topics
    client = wire.connect()
    found = client.ask(FindCoordinatorRequest(key="g"), 2)
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092), "the very first request"
    deleted = client.ask(DeleteTopicsRequest(topic_names=(OFFSETS_TOPIC,), timeout_ms=1), 5)
    assert deleted.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.ask(FindCoordinatorRequest(key="g"), 2).error_code == 0


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize("key_type", [2, 3, 127, -1])
def test_other_key_types_are_refused_in_every_version(client: Connection, version: int, key_type: int) -> None:
    keys = ("g:AAAAAAAAAAAAAAAAAAAAAA:0", "malformed")
    if version >= 4:
        found = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys), version).coordinators
        assert [(each.key, each.error_code) for each in found] == [(key, 42) for key in keys]
    else:
        for key in keys:
            assert client.ask(FindCoordinatorRequest(key_type=key_type, key=key), version).error_code == 42


# -- list


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


# -- the runtime


@pytest.mark.conformance("R1")
def test_a_parked_sync_is_answered_when_its_group_moves(wire: Wire) -> None:
    wire = Wire(brokers=2)
    state = wire.broker.state
    group = next(name for name in "abcdefgh" if state.coordinator_of(state.shard_of(name)) == 1)
    leader, follower = wire.connect(1), wire.connect(1)
    leader.send(join_request(group), 3)
    follower.send(join_request(group), 3)
    wire.advance(6000)
    joined = follower.take()
    assert (joined.error_code, joined.leader == joined.member_id) == (0, False)
    follower.send(SyncGroupRequest(group_id=group, generation_id=1, member_id=joined.member_id), 3)
    assert follower.responses == []
    wire.step(MoveGroup(group, 2))
    assert follower.take().error_code == ErrorCode.NOT_COORDINATOR
    assert heartbeat(wire.connect(2), joined, group) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conformance("R3")
def test_an_outage_of_an_hour_costs_nobody_its_place(client: Connection, wire: Wire) -> None:
    joined = stable(client)
    wire.now += 3_600_000
    again = wire.restarted()
    member = again.connect()
    again.advance(9_999)
    assert heartbeat(member, joined) == 0
    again.advance(10_001)
    assert heartbeat(member, joined) == ErrorCode.UNKNOWN_MEMBER_ID, "the session counts again"


@pytest.mark.conformance("R6")
def test_time_is_what_the_broker_is_told(client: Connection, wire: Wire) -> None:
    """The test's clock stands still and jumps: sessions, rebalances and expiry use no other clock."""
    joined = stable(client)
    for _ in range(100):
        wire.step()
    assert heartbeat(client, joined) == 0
    wire.now += 10_000
    wire.step()
    assert heartbeat(client, joined) == ErrorCode.UNKNOWN_MEMBER_ID
    commit(client, 5)
    wire.advance(8 * 24 * 3_600_000)
    assert committed(client) == -1
