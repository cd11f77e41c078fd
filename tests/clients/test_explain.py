"""The story of a group after real consumers joined, died and paused: it names the member that caused the delay."""

from __future__ import annotations

import json
import logging
import signal
from typing import Any

import pytest
from group import Group, consumer_group
from produce import create_topic
from typer.testing import CliRunner
from worker import SESSION_TIMEOUT_MS

from kohort.cli.commands import app

PARTITIONS = 6
pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]


def explained(bootstrap: str, group: str, *options: str) -> str:
    result = CliRunner().invoke(app, ["groups", "explain", group, *options], env={"KOHORT_BOOTSTRAP_SERVER": bootstrap})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def stories(bootstrap: str, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(explained(bootstrap, group, "-o", "json"))["stories"]
    return found


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_a_killed_consumer_is_named(client: str, bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    with Group(client, bootstrap, unique, unique) as group:
        a, b = group.share([3, 3], "worker-a", "worker-b")
        lost = sorted(b.assigned)
        b.kill()
        group.wait_assigned([6], a)
        last = stories(bootstrap, unique)[-1]
        told = explained(bootstrap, unique)
        group.close()
    assert (last["cause"]["what"], last["cause"]["client_id"]) == ("session expired", "worker-b")
    assert last["cause"]["waited_ms"] == SESSION_TIMEOUT_MS
    assert (last["outcome"], last["moved"]) == ("Stable", 3)
    assert [(gone["client_id"], gone["lost"]) for gone in last["gone"]] == [("worker-b", {unique: lost})]
    assert f"worker-b on 127.0.0.1: session expired after {SESSION_TIMEOUT_MS} ms of silence" in told
    assert "of 6 partitions: 3 moved" in told


def test_a_member_delaying_a_rebalance_is_named(bootstrap: str, unique: str, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer is paused when a rebalance begins: the others wait, and the journal and the log name that
    consumer."""
    create_topic(bootstrap, unique, PARTITIONS)
    with Group("confluent", bootstrap, unique, unique) as group, caplog.at_level(logging.WARNING, "kohort"):
        a, b, c = group.share([2, 2, 2], "worker-a", "worker-b", "worker-c")
        b._process.send_signal(signal.SIGSTOP)
        c.close()
        group.wait_assigned([6], a)
        told = stories(bootstrap, unique)
        b.kill()
        a.close()
    blamed = [who for story in told for who in story.get("held_up_by", ()) if who["how"] == "session expired"]
    assert [who["client_id"] for who in blamed] == ["worker-b"]
    (line,) = [record.getMessage() for record in caplog.records if f"group={unique}" in record.getMessage()]
    assert line.startswith("a member was removed because it held up its group")
    assert "client_id=worker-b" in line


def test_a_story_of_a_consumer_group_lists_givers_and_receivers(bootstrap: str, unique: str) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a = group.start("worker-a")
        group.wait_assigned([6], a)
        b = group.start("worker-b")
        group.wait_assigned([3, 3], a, b)
        last = stories(bootstrap, unique)[-1]
        told = explained(bootstrap, unique)
        group.close()
    assert (last["cause"]["what"], last["cause"]["client_id"]) == ("member joined", "worker-b")
    assert (last["group_type"], last["outcome"], last["moved"], last["protocol"]) == (
        "consumer",
        "Stable",
        3,
        "uniform",
    )
    members = {member["client_id"]: member for member in last["members"]}
    giver, taker = members["worker-a"]["steps"], members["worker-b"]["steps"]
    assert (giver["revoked"], taker["got"]) == (3, 3)
    giver_id = members["worker-a"]["member_id"]
    assert taker.get("waited_for", [giver_id]) == [giver_id]
    assert giver["told_after_ms"] <= giver["revoked_after_ms"] <= taker["got_after_ms"] <= last["took_ms"]
    assert giver["told_by"] in ("push", "heartbeat")
    assert f"worker-b  + {unique}" in told
