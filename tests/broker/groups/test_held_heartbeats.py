"""Held heartbeats at the broker: which clients get them, what ends a hold, and its cost (scenarios test the rest)."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from group_driver import commit_request, consumer_beat, consumer_join, heartbeat_request, join_request, leave, stable
from wire_driver import Connection, Wire

from kohort.broker.turn import Shutdown
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.metadata import MetadataRequest


def member_of(wire: Wire, software: str = "librdkafka", version: int = 3) -> tuple[Connection, HeartbeatRequest]:
    """A member of a stable group, and its heartbeat. Without `software`, the client does not send its name."""
    connection = wire.connect()
    if software:
        asked = ApiVersionsRequest(client_software_name=software, client_software_version="2.16.0")
        assert connection.ask(asked, version).error_code == 0
    connection.create_topic("t", 3)
    return connection, heartbeat_request(stable(connection))


def held(connection: Connection, beat: HeartbeatRequest) -> bool:
    connection.send(beat, 3)
    return not connection.responses


@pytest.fixture
def member(wire: Wire) -> Connection:
    """A member whose heartbeat is held."""
    member, beat = member_of(wire)
    assert held(member, beat)
    return member


@pytest.fixture
def beat(member: Connection) -> HeartbeatRequest:
    """The heartbeat that is held."""
    [state] = member.wire.shard().running.groups["g"].members.values()
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=state.member_id)


@pytest.mark.parametrize("software", ["apache-kafka-java", "librdkafka", "confluent-kafka-python", "kgo", "kohort"])
def test_clients_that_heartbeat_in_the_background_are_held(wire: Wire, software: str) -> None:
    member, beat = member_of(wire, software)
    assert held(member, beat)
    wire.advance(2_499)
    assert not member.responses
    wire.advance(1)
    assert member.take().error_code == 0


@pytest.mark.parametrize(("software", "version"), [("kafkajs", 3), ("kafka-python", 4), ("", 2)])
def test_others_are_answered_at_once(wire: Wire, software: str, version: int) -> None:
    member, beat = member_of(wire, software, version)
    assert not held(member, beat)
    assert member.take().error_code == 0


@pytest.mark.parametrize(
    "config",
    [{"group_heartbeat_hold_enable": False}, {"group_heartbeat_hold_clients": "kgo, kohort"}],
    ids=["switched off", "another list"],
)
def test_the_switch_and_the_list(config: dict[str, Any]) -> None:
    member, beat = member_of(Wire(**config))
    assert not held(member, beat)


def test_a_group_may_have_its_own_limit() -> None:
    wire = Wire(group_heartbeat_hold_max_ms=200)
    member, beat = member_of(wire)
    assert held(member, beat)
    wire.advance(200)
    assert member.take().error_code == 0


def test_a_rebalance_answers_at_once(wire: Wire, member: Connection) -> None:
    wire.connect().send(join_request(), 3)
    assert member.take().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(("further", "version"), [(commit_request(5), 7), (MetadataRequest(topics=None), 9)])
def test_w5_any_further_request_ends_the_wait_and_the_order_is_kept(
    member: Connection, further: Any, version: int
) -> None:
    member.send(further, version)
    assert type(member.responses[0]).__name__ == "HeartbeatResponse"
    assert len(member.responses) == 2


def test_w5_another_heartbeat_ends_the_wait_and_is_held_in_its_turn(member: Connection, beat: HeartbeatRequest) -> None:
    assert not held(member, beat)
    assert member.take().error_code == 0
    assert not member.responses


def test_a_heartbeat_with_requests_behind_it_is_not_held(wire: Wire) -> None:
    member, beat = member_of(wire)
    wire.step(member.frame(beat, 3), member.frame(MetadataRequest(topics=None), 9))
    assert len(member.responses) == 2


def test_a_heartbeat_in_a_backlog_is_not_held_while_more_waits(wire: Wire) -> None:
    """Behind a parked JoinGroup stand a heartbeat and a commit; when it is answered, so are they."""
    member, beat = member_of(wire)
    wire.connect().send(join_request(), 3)
    wire.step(
        member.frame(join_request(member=beat.member_id), 3), member.frame(beat, 3), member.frame(commit_request(5), 7)
    )
    assert [type(response).__name__ for response in member.responses] == [
        "JoinGroupResponse",
        "HeartbeatResponse",
        "OffsetCommitResponse",
    ]


def test_a_leave_on_another_connection_ends_the_hold(wire: Wire, member: Connection, beat: HeartbeatRequest) -> None:
    leave(wire.connect(), beat.member_id)
    assert member.take().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_closed_connection_is_forgotten(wire: Wire, member: Connection, beat: HeartbeatRequest) -> None:
    member.close()
    wire.advance(2_500)
    assert wire.connect().ask(beat, 3).error_code == 0, "the member is still there"


def test_a_shutdown_ends_the_hold(wire: Wire, member: Connection) -> None:
    wire.step(Shutdown())
    assert member.take().error_code == ErrorCode.NOT_COORDINATOR


def test_a_held_heartbeat_keeps_nobody_alive() -> None:
    """The session runs from when it came: 10 s, of which at most a third may be held."""
    wire = Wire(group_heartbeat_hold_max_ms=60_000)
    member, beat = member_of(wire)
    assert held(member, beat)
    wire.advance(3_333)
    assert member.take().error_code == 0
    wire.advance(10_000 - 3_333)
    assert wire.connect().ask(beat, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_held_heartbeats_are_small_and_leave_nothing_behind() -> None:
    """Counted are bytes, and entries in the heaps of deadlines; the server waits for the next deadline only."""
    wire = Wire(group_consumer_assignment_interval_ms=0)
    people = [(wire.connect(), f"g{n // 100}", f"member-{n:013}") for n in range(500)]
    epochs = {
        name: client.ask(consumer_join(name, "nowhere", group=group), 1).member_epoch for client, group, name in people
    }
    shards = wire.broker.state.shards

    def hold() -> None:
        for client, group, name in people:
            client.send(consumer_beat(name, epochs[name], group=group), 1)
        assert not any(client.responses for client, _, _ in people)
        assert sum(shard.consumers.holds.count for shard in shards) == len(people)

    def end() -> None:
        wire.advance(4_500)
        for client, _, name in people:
            epochs[name] = client.take().member_epoch
        assert not any(shard.consumers.holds.count or shard.running.parked for shard in shards)

    hold()
    end()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        hold()
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / len(people)
    finally:
        tracemalloc.stop()
    assert each < 1_500, "it is some 900"
    end()
    hold()
    end()
    places = sum(shard.running.deadlines.places for shard in shards)
    assert places <= 2 * len(people), "a session and a hold of each, however often it was held"
    assert len(wire.broker.state.machines.deadlines._heap) <= 2 * len(shards) + 64, (
        "the server waits for the next one only"
    )
