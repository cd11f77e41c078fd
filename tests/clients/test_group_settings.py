"""Settings of single groups and rollout holds, with confluent-kafka's consumers in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from group import consumer_group, until
from typer.testing import CliRunner

from kohort.cli.commands import app

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
PARTITIONS = 6
SERVER = {
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_assignment_interval_ms": 0,
}
"""Sessions last as long as by default, unless a group wants it otherwise."""


@pytest.fixture
def kohort(bootstrap: str) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["groups", *arguments], env={"KOHORT_BOOTSTRAP_SERVER": bootstrap})
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return run


def wait_for_members(kohort: Callable[..., str], group: str, count: int) -> None:
    def members() -> int:
        return len(json.loads(kohort("describe", group, "--members", "-o", "json"))[0]["members"])

    until(lambda: members() == count, f"{count} members")


def short_sessions(kohort: Callable[..., str], group: str) -> None:
    """Shorten the sessions, so that the server removes a killed member quickly."""
    kohort(
        *("configs", group),
        *("--set", "consumer.session.timeout.ms=3000", "--set", "consumer.heartbeat.interval.ms=1000"),
    )


def test_a_group_has_a_session_timeout_of_its_own(bootstrap: str, unique: str, kohort: Callable[..., str]) -> None:
    short_sessions(kohort, unique)
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a, b = group.share([3, 3], "a", "b")
        b.kill()
        assert group.wait_assigned([6], a, timeout=10) > 1
        group.close()


def test_a_rollout_is_one_rebalance(bootstrap: str, unique: str, kohort: Callable[..., str]) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a, b = group.share([3, 3], "a", "b")
        kept, seen = list(b.assigned), len(b.assignments)
        kohort("hold", unique, "--for", "5m")
        a.close()
        c, d = group.start("c"), group.start("d")
        wait_for_members(kohort, unique, 3)
        assert "rebalances are held for" in kohort("describe", unique)
        assert (b.assigned, c.assigned, d.assigned, len(b.assignments)) == (kept, [], [], seen)
        kohort("release", unique)
        group.wait_assigned([2, 2, 2], b, c, d, timeout=10)
        assert set(b.assigned) < set(kept)
        group.close()
        assert not group.errors()


def test_a_hold_ends_when_all_are_back(bootstrap: str, unique: str, kohort: Callable[..., str]) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a, b = group.share([3, 3], "a", "b")
        kohort("hold", unique, "--for", "5m", "--until-members", "3")
        c = group.start("c")
        wait_for_members(kohort, unique, 3)
        group.wait_assigned([2, 2, 2], a, b, c, timeout=10)
        group.close()


def test_partitions_of_killed_members_are_reassigned(bootstrap: str, unique: str, kohort: Callable[..., str]) -> None:
    short_sessions(kohort, unique)
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a, b = group.share([3, 3], "a", "b")
        kohort("hold", unique, "--for", "5m")
        b.kill()
        group.wait_assigned([6], a, timeout=15)
        kohort("release", unique)
        group.close()
