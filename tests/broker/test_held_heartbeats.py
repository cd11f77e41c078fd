"""Held heartbeats at the broker: whose may be held, and what ends the wait (what the group makes of it: scenarios)."""

from __future__ import annotations

from typing import Any

import pytest
from test_groups import commit_request, join_request, stable
from wire_driver import Connection, Wire, create_topic

from kohort.broker.turn import Shutdown
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.metadata import MetadataRequest


def member_of(wire: Wire, software: str = "librdkafka", version: int = 3) -> tuple[Connection, HeartbeatRequest]:
    """A member of a stable group, and its heartbeat."""
    connection = wire.connect()
    asked = ApiVersionsRequest(client_software_name=software, client_software_version="2.16.0")
    assert connection.ask(asked, version).error_code == 0
    create_topic(connection, "t", 3)
    joined: JoinGroupResponse = stable(connection)
    beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    return connection, beat


def held(connection: Connection, beat: HeartbeatRequest) -> bool:
    connection.send(beat, 3)
    return not connection.responses


@pytest.mark.parametrize("software", ["apache-kafka-java", "librdkafka", "confluent-kafka-python", "kgo", "kohort"])
def test_clients_that_heartbeat_in_the_background_are_held(software: str) -> None:
    wire = Wire()
    member, beat = member_of(wire, software)
    assert held(member, beat)
    wire.advance(2_499)
    assert not member.responses
    wire.advance(1)
    assert member.take().error_code == 0


@pytest.mark.parametrize(("software", "version"), [("kafkajs", 3), ("kafka-python", 4), ("", 2)])
def test_others_are_answered_at_once(software: str, version: int) -> None:
    wire = Wire()
    member, beat = member_of(wire, software, version) if software else (wire.connect(), None)
    if beat is None:
        create_topic(member, "t", 3)
        joined = stable(member)
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
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


def test_a_limit_of_ones_own() -> None:
    wire = Wire(group_heartbeat_hold_max_ms=200)
    member, beat = member_of(wire)
    assert held(member, beat)
    wire.advance(200)
    assert member.take().error_code == 0


def test_a_rebalance_is_told_at_once() -> None:
    wire = Wire()
    member, beat = member_of(wire)
    assert held(member, beat)
    wire.connect().send(join_request(), 3)
    assert member.take().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("request_", "version"), [(commit_request(5), 7), (MetadataRequest(topics=None), 9), (None, 0)]
)
def test_w5_any_further_request_ends_the_wait_and_the_order_is_kept(request_: Any, version: int) -> None:
    wire = Wire()
    member, beat = member_of(wire)
    assert held(member, beat)
    if request_ is None:
        # Another heartbeat: it is held in its turn.
        assert held(member, beat) is False
        assert member.take().error_code == 0
        assert not member.responses
        return
    member.send(request_, version)
    assert type(member.responses[0]).__name__ == "HeartbeatResponse"
    assert len(member.responses) == 2


def test_a_heartbeat_with_requests_behind_it_is_not_held() -> None:
    wire = Wire()
    member, beat = member_of(wire)
    wire.step(member.frame(beat, 3), member.frame(MetadataRequest(topics=None), 9))
    assert len(member.responses) == 2


def test_a_heartbeat_in_a_backlog_is_not_held_while_more_waits() -> None:
    """Behind a parked JoinGroup stand a heartbeat and a commit; when it is answered, so are they."""
    wire = Wire()
    member, beat = member_of(wire)
    other = wire.connect()
    other.send(join_request(), 3)
    wire.step(
        member.frame(join_request(member=beat.member_id), 3),
        member.frame(beat, 3),
        member.frame(commit_request(5), 7),
    )
    assert [type(response).__name__ for response in member.responses] == [
        "JoinGroupResponse",
        "HeartbeatResponse",
        "OffsetCommitResponse",
    ]


def test_a_leave_on_another_connection_answers_it() -> None:
    wire = Wire()
    member, beat = member_of(wire)
    assert held(member, beat)
    leave = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=beat.member_id),))
    assert wire.connect().ask(leave, 5).members[0].error_code == 0
    assert member.take().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_closed_connection_is_forgotten() -> None:
    wire = Wire()
    member, beat = member_of(wire)
    assert held(member, beat)
    member.close()
    wire.advance(2_500)
    again = wire.connect()
    assert again.ask(beat, 3).error_code == 0, "the member is still there"


def test_a_shutdown_answers_it() -> None:
    wire = Wire()
    member, beat = member_of(wire)
    assert held(member, beat)
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
