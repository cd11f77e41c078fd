"""The server's clock: timeouts occur when a test advances the clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from edges import Edge, eventually
from group_driver import heartbeat_request, join_request, sync_request
from raw_kafka import RawKafka

from kohort.testing import KohortServer, ManualClock
from kohort.wire.errors import ErrorCode

SESSION_MS = 30_000


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: object) -> str:
    return str(tmp_path) if request.param == "disk" else ""


def test_a_session_ends_when_the_clock_is_advanced(storage: str) -> None:
    clock = ManualClock()
    with KohortServer(data_dir=storage, clock=clock) as server, RawKafka(server.bootstrap_servers) as member:
        joined = member.call(join_request("g", session_timeout_ms=SESSION_MS))
        member.call(sync_request(joined.member_id, joined.generation_id, b"all"))

        def beat() -> ErrorCode:
            return ErrorCode(member.call(heartbeat_request(joined)).error_code)

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
