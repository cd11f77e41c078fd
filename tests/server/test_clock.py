"""The server's clock: timeouts occur when a test advances the clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from edges import Edge, eventually
from raw_kafka import RawKafka

from kohort.testing import KohortServer, ManualClock
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 30_000


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: object) -> str:
    return str(tmp_path) if request.param == "disk" else ""


def test_a_session_ends_when_the_clock_is_advanced(storage: str) -> None:
    clock = ManualClock()
    with KohortServer(data_dir=storage, clock=clock) as server, RawKafka(server.bootstrap_servers) as member:
        protocol = JoinGroupRequestProtocol(name="any", metadata=b"")
        joined = member.call(
            JoinGroupRequest(
                group_id="group",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id="",
                protocol_type="test",
                protocols=(protocol,),
            )
        )
        member_id, generation = joined.member_id, joined.generation_id
        assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
        member.call(
            SyncGroupRequest(group_id="group", generation_id=generation, member_id=member_id, assignments=(assignment,))
        )

        def beat() -> ErrorCode:
            return ErrorCode(
                member.call(
                    HeartbeatRequest(group_id="group", generation_id=generation, member_id=member_id)
                ).error_code
            )

        for _ in range(3):
            clock.advance(SESSION_MS - 1)
            assert beat() == ErrorCode.NONE
        clock.advance(SESSION_MS)
        assert beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_ticking_clock_runs_by_itself(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(clock=ManualClock(ticking=True))
    with edge.wire() as wire:
        wire.ask(b"in 20")
        turns = len(edge.broker.turns)
        eventually(lambda: len(edge.broker.turns) > turns)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        ManualClock().advance(-1)
