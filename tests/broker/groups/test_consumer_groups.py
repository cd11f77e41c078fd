"""Consumer groups through the broker: the broker's part besides the shards (finding them, topics, ids in commits,
being off)."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit, commit_request, consumer_beat, consumer_join
from wire_driver import Connection, Wire, with_topic

from kohort.broker.turn import MoveGroup, TaskDone
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.events import AssignmentAsked, AssignmentMade
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import HeartbeatTopicPartitions
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic


def parts(response: Any) -> list[tuple[bytes, tuple[int, ...]]]:
    return [(topic.topic_id, topic.partitions) for topic in response.assignment.topic_partitions]


@pytest.mark.conformance("N1")
def test_n1_the_protocol_can_be_turned_off() -> None:
    client = Wire(group_coordinator_rebalance_protocols="classic").connect()
    assert client.ask(consumer_join(), 1).error_code == 35
    [described] = client.ask(ConsumerGroupDescribeRequest(group_ids=("g",)), 1).groups
    assert described.error_code == 35
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert {68, 69}.isdisjoint(api.api_key for api in versions.api_keys)
    assert [feature.name for feature in versions.finalized_features] == ["metadata.version", "transaction.version"]


@pytest.mark.parametrize(("version", "lowest"), [(3, 1), (4, 0)])
def test_it_is_advertised_as_a_feature(client: Connection, version: int, lowest: int) -> None:
    """Clients before version 4 take a lowest version of 0 for an error."""
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    assert {68, 69} <= {api.api_key for api in versions.api_keys}
    assert ("group.version", lowest, 1) in [(f.name, f.min_version, f.max_version) for f in versions.supported_features]
    assert ("group.version", 1) in [(f.name, f.max_version_level) for f in versions.finalized_features]


@pytest.mark.parametrize("version", [3, 4])
def test_tools_tell_the_version_by_a_feature(client: Connection, version: int) -> None:
    """As of Kafka 4.3: level 30 (MetadataVersion.java)."""
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    assert ("metadata.version", 7, 30) in [(f.name, f.min_version, f.max_version) for f in versions.supported_features]
    assert ("metadata.version", 30, 30) in [
        (f.name, f.min_version_level, f.max_version_level) for f in versions.finalized_features
    ]


@pytest.mark.conformance("N4")
def test_a_member_of_version_0_gets_an_id(client: Connection) -> None:
    client.create_topic("t")
    first, second = (client.ask(consumer_join(member=""), 0) for _ in range(2))
    assert first.error_code == second.error_code == 0
    assert len(first.member_id) == 36
    assert first.member_id != second.member_id


@pytest.mark.conformance("N19")
def test_topics_reach_the_group_when_they_are_created_grow_and_go(wire: Wire, client: Connection) -> None:
    assert parts(client.ask(consumer_join(), 1)) == []
    topic_id = client.create_topic("t", 2)
    wire.advance(1000)
    found = client.ask(consumer_beat("m", 1), 1)
    assert parts(found) == [(topic_id, (0, 1))]
    client.ask(CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=3),), timeout_ms=1), 3)
    wire.advance(1000)
    found = client.ask(consumer_beat("m", found.member_epoch), 1)
    assert parts(found) == [(topic_id, (0, 1, 2))]
    client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1), 6)
    wire.advance(1000)
    assert parts(client.ask(consumer_beat("m", found.member_epoch), 1)) == []


def test_only_groups_that_are_subscribed_look_at_a_changed_topic(wire: Wire, client: Connection) -> None:
    """A turn costs what changes in it, however many topics and groups there are."""

    def cost(name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return wire.operations(wire.connect().frame(CreateTopicsRequest(topics=(topic,)), 7))

    client.create_topic("t")
    first = cost("a")
    for number in range(500):
        client.create_topic(f"t{number}")
        client.ask(consumer_join("m", f"t{number}", group=f"g{number}"), 1)
    assert first > 500, "the count counts"
    assert cost("b") < 1.1 * first


@pytest.mark.conformance("N21")
def test_the_more_members_poll_the_longer_their_intervals() -> None:
    """Each sends something behind its held heartbeat."""
    wire = Wire(group_consumer_assignment_interval_ms=0)
    told = []
    for number in range(50):
        client = wire.connect()
        epoch = client.ask(consumer_join(f"m{number}"), 1).member_epoch
        client.send(consumer_beat(f"m{number}", epoch), 1)
        assert not client.responses, "held"
        client.send(MetadataRequest(topics=()), 9)
        told.append(client.responses.pop(0).heartbeat_interval_ms)
    assert (told[0], told[9], told[-1]) == (500, 500, 1000)


@pytest.mark.conformance("O13")
@pytest.mark.parametrize("version", [9, 10])
def test_a_commit_with_an_old_epoch_counts_for_partitions_owned_since_then(version: int) -> None:
    client = with_topic(2, group_heartbeat_hold_enable=False)
    wire = client.wire
    topic_id = wire.broker.state.catalog.topics["t"].topic_id
    assert client.ask(consumer_join(member="a"), 1).member_epoch == 1
    wire.advance(1000)
    client.ask(consumer_join(member="b"), 1)
    epoch = client.ask(consumer_beat("a", 1), 1).member_epoch
    assert epoch == 1
    owned = (HeartbeatTopicPartitions(topic_id=topic_id, partitions=(0,)),)
    assert client.ask(consumer_beat("a", 1, owned), 1).member_epoch == 2
    parts = tuple(OffsetCommitRequestPartition(partition_index=i, committed_offset=5) for i in (0, 1))
    topics = (OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=parts),)
    request = commit_request(5, generation_id_or_member_epoch=1, member_id="a", topics=topics)
    [topic] = client.ask(request, version).topics
    assert [partition.error_code for partition in topic.partitions] == [0, 113]


@pytest.mark.conformance("R3")
def test_epochs_and_assignments_survive_a_restart(wire: Wire, client: Connection) -> None:
    topic_id = client.create_topic("t", 2)
    joined = client.ask(consumer_join(), 1)
    client = wire.restarted().connect()
    owned = (HeartbeatTopicPartitions(topic_id=topic_id, partitions=(0, 1)),)
    found = client.ask(consumer_beat("m", joined.member_epoch, owned), 1)
    assert (found.error_code, found.member_epoch, found.assignment) == (0, joined.member_epoch, None)


@pytest.mark.conformance("R1", "R2")
def test_a_held_heartbeat_is_16_when_its_group_moves() -> None:
    wire = Wire(brokers=2)
    first, second = wire.connect(1), wire.connect(2)
    first.create_topic("t", 2)
    answers = [client.ask(consumer_join(), 1).error_code for client in (first, second)]
    assert sorted(answers) == [0, 16]
    coordinator, other = (first, second) if answers[0] == 0 else (second, first)
    coordinator.send(consumer_beat("m", 1), 1)
    assert coordinator.responses == []
    wire.step(MoveGroup("g", 2 if coordinator is first else 1))
    assert coordinator.take().error_code == 16
    found = other.ask(consumer_join(), 1)
    assert (found.error_code, found.member_epoch) == (0, 1)
    [described] = coordinator.ask(ConsumerGroupDescribeRequest(group_ids=("g",)), 1).groups
    assert described.error_code == 16


@pytest.mark.conformance("N23")
def test_a_description_has_authorized_operations_when_asked_for(client: Connection) -> None:
    client.create_topic("t")
    client.ask(consumer_join(), 1)
    for asked in (False, True):
        request = ConsumerGroupDescribeRequest(group_ids=("g", "none"), include_authorized_operations=asked)
        found, unknown = client.ask(request, 1).groups
        assert (found.authorized_operations != -2147483648) == asked
        assert (found.group_state, unknown.error_code) == ("Stable", 69)


def test_a_heartbeat_is_held_until_another_request_of_its_connection(wire: Wire, client: Connection) -> None:
    client.create_topic("t")
    client.ask(consumer_join(), 1)
    client.send(consumer_beat("m", 1), 1)
    assert client.responses == []
    client.send(ApiVersionsRequest(), 0)
    heartbeat, versions = client.take(), client.take()
    assert (heartbeat.error_code, heartbeat.member_epoch, heartbeat.assignment) == (0, 1, None)
    assert versions.api_keys


@pytest.mark.parametrize(("most_ms", "wait_ms"), [(4_500, 250), (0, 0)])
def test_a_target_waits_after_a_departure_only_where_heartbeats_are_held(most_ms: int, wait_ms: int) -> None:
    client = with_topic(2, group_consumer_heartbeat_hold_max_ms=most_ms, group_consumer_assignment_interval_ms=0)
    group = client.wire.shard().consumers.groups
    for member in ("a", "b"):
        client.wire.connect().send(consumer_join(member), 1)
        client.wire.advance(1_000)
    client.ask(consumer_beat("b", -1), 1)
    client.wire.advance(max(wait_ms - 1, 0))
    assert (group["g"].assignment_epoch < group["g"].epoch) == bool(wait_ms)
    client.wire.advance(1)
    assert group["g"].assignment_epoch == group["g"].epoch


def test_a_task_carries_the_lag_and_its_outcome_reaches_the_group(wire: Wire, client: Connection) -> None:
    topic_id = client.create_topic("t", 3)
    client.produce("t", "a", "b", "c")
    client.produce("t", "a", partition=1)
    commit(client, 1)
    first = client.ask(consumer_join(server_assignor="lag"), 1)
    assert (first.member_epoch, parts(first)) == (1, [])
    (handed_out,) = wire.tasks
    task = handed_out.task
    assert isinstance(task, AssignmentAsked)
    assert task.spec.topics[topic_id].lag == (2, 1, 0), "from the committed offset, or the start, to the end"
    made = AssignmentMade("g", task.epoch, "lag", assigned(BUILT_IN["lag"], task.spec))
    wire.step(TaskDone(handed_out.shard, made))
    assert parts(client.ask(consumer_beat("m", 1), 1)) == [(topic_id, (0, 1, 2))]
    # Twice, or for another time: nothing.
    wire.step(TaskDone(handed_out.shard, made))
    after = wire.restarted()
    after.step(TaskDone(handed_out.shard, made))
    assert after.shard().consumers.groups["g"].assignment_epoch == 2


def test_a_refused_assignment_is_reported_to_the_operator(wire: Wire, client: Connection) -> None:
    client.create_topic("t", 3)
    client.ask(consumer_join(server_assignor="lag"), 1)
    (handed_out,) = wire.tasks
    task = handed_out.task
    assert isinstance(task, AssignmentAsked)
    wire.step(TaskDone(handed_out.shard, AssignmentMade("g", task.epoch, "lag", "no answer in 5000 ms")))
    (complaint,) = wire.complaints
    assert complaint.kind == "assignment refused"
    assert dict(complaint.values) == {
        "group": "g",
        "why": "assignor lag: no answer in 5000 ms",
        "story": 1,
        "began_with": "member joined",
        "member_id": "m",
        "client_id": "client",
    }
    (story,) = wire.broker.state.journal.stories("g", 10)
    assert b'"what":"assignment refused"' in story
