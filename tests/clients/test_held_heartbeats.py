"""Held heartbeats and real clients: a rebalance reaches those that are held at once, and nothing else is held up.

The server may hold for a minute, longer than any wait here. So a result that only came with the end of a hold would
fail.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from group import Group, Worker, until
from produce import create_topic, produce

from kohort.broker.connection import Connection
from kohort.broker.handlers import groups
from kohort.broker.request import InShard
from kohort.broker.shortcuts.heartbeats import Beat, Heartbeats
from kohort.wire.schemas.heartbeat import HeartbeatRequest

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
HOLD_MS = 60_000
LONG_SESSION = {"session_timeout_ms": 3 * HOLD_MS}
SERVER = {"group_min_session_timeout_ms": 1_000, "group_heartbeat_hold_max_ms": HOLD_MS}


class Heartbeat(NamedTuple):
    group: str
    member: str
    generation: int
    held: bool


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[Heartbeat]:
    """The requests that reach the server from now on."""
    seen: list[Heartbeat] = []
    ask, answer_stands = groups.ask_shard, Heartbeats._answer_stands

    def noting(state: Any, shard: int, body: Any, *more: Any, **options: Any) -> Any:
        result = ask(state, shard, body, *more, **options)
        if isinstance(body, HeartbeatRequest):
            held = isinstance(result, InShard)
            seen.append(Heartbeat(body.group_id, body.member_id, body.generation_id, held))
        return result

    def noting_short(self: Heartbeats, beat: Beat, connection: Connection, now: int) -> bool:
        stands = answer_stands(self, beat, connection, now)
        if stands:
            seen.append(Heartbeat(beat.group_id, beat.member_id, beat.generation_id, False))
        return stands

    monkeypatch.setattr(groups, "ask_shard", noting)
    monkeypatch.setattr(Heartbeats, "_answer_stands", noting_short)
    return seen


def wait_held(heartbeats: list[Heartbeat], members: int) -> int:
    """Wait until this many members have a held heartbeat in the newest generation; return that generation."""

    def held() -> bool:
        newest = max((beat.generation for beat in heartbeats), default=0)
        return len({beat.member for beat in heartbeats if beat.held and beat.generation == newest}) == members

    until(held, f"{members} members' heartbeats are held")
    return max(beat.generation for beat in heartbeats)


def no_errors(*workers: Worker) -> None:
    assert [error for worker in workers for error in worker.errors] == []


@pytest.mark.parametrize("cooperative", [False, True], ids=["range", "cooperative"])
def test_a_newcomer_does_not_wait_for_heartbeats(
    cooperative: bool, bootstrap: str, unique: str, heartbeats: list[Heartbeat]
) -> None:
    create_topic(bootstrap, unique, 6)
    with Group("confluent", bootstrap, unique, unique, cooperative=cooperative, **LONG_SESSION) as group:
        a, b = group.share([3, 3], "a", "b")
        wait_held(heartbeats, 2)
        c = group.start("c")
        group.wait_assigned([2, 2, 2], a, b, c)
        wait_held(heartbeats, 3)
        c.close()
        group.wait_assigned([3, 3], a, b)
        no_errors(a, b, c)


def test_commits_and_the_leave_do_not_wait(bootstrap: str, unique: str, heartbeats: list[Heartbeat]) -> None:
    create_topic(bootstrap, unique, 1)
    with Group("confluent", bootstrap, unique, unique, **LONG_SESSION) as group:
        only = group.start("only")
        wait_held(heartbeats, 1)
        for commits in (1, 2, 3):
            before = len(heartbeats)
            produce("confluent", bootstrap, unique, ["x"], 1)
            group.wait(lambda wanted=commits: only.commits == wanted, "a commit")
            until(lambda seen=before: len(heartbeats) > seen, "the next heartbeat")
        assert heartbeats[-1].held
        only.close()
        no_errors(only)


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_an_idle_member_stays(client: str, bootstrap: str, unique: str, heartbeats: list[Heartbeat]) -> None:
    """librdkafka's heartbeats are held again and again, a third of its session long; aiokafka's never."""
    create_topic(bootstrap, unique, 1)
    with Group(client, bootstrap, unique, unique) as group:
        only = group.start("only")
        group.wait_assigned([1], only)
        until(lambda: len(heartbeats) >= 5, "heartbeats")
        no_errors(only)
        assert {beat.held for beat in heartbeats} == {client == "confluent"}
        assert len({(beat.member, beat.generation) for beat in heartbeats}) == 1, "one member, which did not rejoin"
        only.close()
