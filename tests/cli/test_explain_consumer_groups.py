"""`kohort groups explain` and `describe` of consumer groups: epochs, revocations, which member waits for which,
patterns, and groups that change their protocol."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest
from consumer_member import ConsumerMember
from group_member import GroupMember
from run_command import Kohort

from kohort.cli.groups.timeline import status_lines, story_lines
from kohort.cli.groups.wording import Names

Join = Callable[..., ConsumerMember]


@pytest.fixture
def join(kohort: Kohort, bootstrap: str, unique: str) -> Iterator[Join]:
    """Members of a group of four partitions; those that are left at the end leave."""
    kohort("topics", "create", unique, "--partitions", "4")
    members = []

    def joined(name: str) -> ConsumerMember:
        members.append(ConsumerMember(bootstrap, unique, name, unique))
        return members[-1]

    yield joined
    for member in members:
        member.leave()


def test_whom_a_reconciling_group_waits_for(kohort: Kohort, join: Join, unique: str) -> None:
    first = join("worker-1")
    second = join("worker-2")
    first.heartbeat(acknowledges=False)
    for command in ("describe", "explain"):
        told = kohort("groups", command, unique).out
        assert re.search(r"Reconciling for .* \(a member joined\); group epoch 2 by uniform", told)
        assert re.search(
            r"awaited: worker-1 on 127.0.0.1; to give 2 partitions up, .* so far, .* more, then it is removed", told
        )
        assert "waiting: worker-2 on 127.0.0.1, for 2 partitions of worker-1" in told
    (described,) = json.loads(kohort("groups", "describe", unique, "-o", "json").out)
    status = described["rebalance"]
    assert (status["group_type"], status["generation"], status["assignment_epoch"]) == ("consumer", 2, 2)
    assert [(m["state"], m["partitions"]) for m in status["members"]] == [
        ("awaited to revoke", 2),
        ("waits for partitions", 2),
    ]
    assert status["members"][1]["waits_for"] == ["worker-1"]
    first.heartbeat()
    second.heartbeat()
    (described,) = json.loads(kohort("groups", "describe", unique, "-o", "json").out)
    assert (described["state"], described["rebalance"]) == ("Stable", None)


def test_the_story_of_a_rebalance(kohort: Kohort, join: Join, unique: str) -> None:
    first = join("worker-1")
    second = join("worker-2")
    first.heartbeat(acknowledges=False)
    first.heartbeat()
    second.heartbeat()
    lines = kohort("groups", "explain", unique).out.splitlines()
    assert re.fullmatch(rf"{unique}: Stable, for [\d.]+ m?s, 2 members, group epoch 2", lines[0])
    story = lines[lines.index("") + 1 :]
    story = story[story.index("") + 1 :]
    assert story[0].startswith("#2  ")
    assert story[0].endswith("worker-2 on 127.0.0.1 joined")
    assert re.fullmatch(r"    stable after \d+ ms, group epoch 1 → 2, 2 members, by uniform", story[1])
    assert story[2] == "    told: 2 with the member's next heartbeat"
    assert story[3] == "    of 4 partitions: 2 moved"
    assert re.fullmatch(rf"      worker-1  − {unique}\[\d-\d\]", story[4])
    assert re.fullmatch(r"          told after \d+ ms, with its next heartbeat; gave up \d+ ms later", story[5])
    assert re.fullmatch(rf"      worker-2  \+ {unique}\[\d-\d\]", story[6])
    assert re.fullmatch(r"          had all after \d+ ms; waited \d+ ms for worker-1", story[7])
    told = json.loads(kohort("groups", "explain", unique, "-o", "json").out)
    newest = told["stories"][-1]
    assert (newest["group_type"], newest["assignment_epoch"], newest["protocol"]) == ("consumer", 2, "uniform")
    steps = {member["member_id"]: member["steps"] for member in newest["members"]}
    assert (steps["worker-1"]["revoked"], steps["worker-2"]["got"]) == (2, 2)
    [(_, [owned])] = [(o["member_id"], o["partitions"]) for o in told["owners"] if o["member_id"] == "worker-2"]
    assert owned["since_ms"] == newest["started_ms"] + steps["worker-2"]["got_after_ms"]


def test_topics_that_changed_are_named(kohort: Kohort, join: Join, unique: str) -> None:
    member = join("worker-1")
    kohort("topics", "delete", unique, "--yes")
    member.heartbeat()
    assert f"topics changed: {unique} is gone" in kohort("groups", "explain", unique).out


def test_a_pattern_is_described_and_explained(kohort: Kohort, bootstrap: str, unique: str) -> None:
    kohort("topics", "create", f"{unique}-a", "--partitions", "2")
    member = ConsumerMember(bootstrap, unique, "a", subscribed_topic_regex=f"{unique}-.*")
    deadline = time.monotonic() + 20
    while member.count() < 2:
        assert time.monotonic() < deadline, "its topics are found"
        member.heartbeat(acknowledges=True)
    heading, row, _ = kohort("groups", "describe", unique, "--members").out.splitlines()
    assert heading.split()[-1] == "PATTERN"
    assert row.split()[-1] == f"{unique}-.*"
    [document] = json.loads(kohort("groups", "describe", unique, "--members", "-o", "json").out)
    assert document["members"][0]["pattern"] == f"{unique}-.*"
    assert f"topics matched: {unique}-.*: +{unique}-a" in kohort("groups", "explain", unique).out
    member.leave()


def test_a_mixed_group_is_described_and_explained(kohort: Kohort, bootstrap: str, unique: str) -> None:
    kohort("topics", "create", unique, "--partitions", "2")
    classic = GroupMember(bootstrap, unique, {unique: (0, 1)})
    assert "PROTOCOL" not in kohort("groups", "describe", unique, "--members").out
    consumer = ConsumerMember(bootstrap, unique, "b", subscribed_topic_names=(unique,))
    heading, *rows, _ = kohort("groups", "describe", unique, "--members").out.splitlines()
    assert heading.split()[-1] == "PROTOCOL"
    assert sorted(row.split()[-1] for row in rows[:2]) == ["classic", "consumer"]
    [document] = json.loads(kohort("groups", "describe", unique, "--members", "-o", "json").out)
    assert {member["protocol"] for member in document["members"]} == {"classic", "consumer"}
    told = kohort("groups", "explain", unique).out
    assert "group upgraded: a member of the consumer protocol joins" in told
    consumer.leave()
    told = kohort("groups", "explain", unique).out
    assert "group downgraded: a member left" in told
    listed = json.loads(kohort("groups", "list", "-o", "json").out)
    assert [group["type"] for group in listed if group["group"] == unique] == ["classic"]
    classic.leave()


# -- in words


def story(**fields: object) -> dict[str, object]:
    cause = {"what": "member joined", "member_id": "b-1", "client_id": "b"}
    base = {
        "number": 7,
        "started_ms": 0,
        "cause": cause,
        "group_type": "consumer",
        "outcome": "Stable",
        "took_ms": 9_000,
    }
    return base | fields


def told(document: dict[str, object]) -> list[str]:
    return [line.text for line in story_lines(document, Names([]))][1:]


def test_a_story_shows_delayed_and_pushed_partitions() -> None:
    lines = told(
        story(
            held_back=[
                {"why": "assignment interval", "for_ms": 1_000},
                {"why": "gradual hand-over", "for_ms": 12_000, "times": 12, "partitions": 12},
            ],
            pushed=5,
            polled=1,
        )
    )
    assert lines[1:] == [
        "held back for 1.0 s at most: assignment interval",
        "12 partitions held back for 12.0 s at most: gradual hand-over, 12 times",
        "told: 5 pushed, 1 with the member's next heartbeat",
    ]


def test_one_that_was_told_twice() -> None:
    steps = {"told_after_ms": 10, "told_by": "push", "times": 2, "revoked_after_ms": 3_000, "gave_up_in_ms": 40}
    member = {"member_id": "b-1", "client_id": "b", "lost": {"t": [0, 1]}, "steps": steps}
    lines = told(story(moved=2, partitions_count=2, members=[member]))
    assert lines[-1] == "told 2 times, first after 10 ms, pushed; gave up 40 ms later at most"


def test_one_that_never_gave_up() -> None:
    steps = {"revoked": 2, "told_after_ms": 10, "told_by": "push"}
    gone = {"member_id": "a-1", "client_id": "a", "lost": {"t": [0, 1]}, "steps": steps}
    got = {"got": 2, "got_after_ms": 45_000, "got_by": "push", "waited_ms": 44_980, "waited_for": ["a-1", "x"]}
    member = {"member_id": "b-1", "client_id": "b", "gained": {"t": [0, 1]}, "steps": got}
    lines = told(story(moved=2, partitions_count=2, members=[member], gone=[gone], pushed=2))
    assert lines[3:] == [
        "b  + t[0-1]",
        "had all after 45.0 s, pushed; waited 45.0 s for a, x",
        "a  − t[0-1]",
        "told after 10 ms, pushed; never said that it gave up",
    ]


def test_members_that_came_and_left_meanwhile_are_named() -> None:
    left = {"what": "member left", "after_ms": 70_604, "member_id": "NBOlypLa", "client_id": "c"}
    got = {"got": 1, "got_after_ms": 76_000, "waited_ms": 35_500, "waited_for": ["NBOlypLa"]}
    member = {"member_id": "b-1", "client_id": "b", "gained": {"t": [0]}, "steps": got}
    lines = told(story(moved=1, partitions_count=1, members=[member], happenings=[left]))
    assert lines[-1] == "had all after 1 min 16 s; waited 35.5 s for c"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"held_partitions": 3}, "3 partitions held back: gradual hand-over, 1.5 s more"),
        ({"assignment_epoch": 1}, "held back: gradual hand-over, 1.5 s more"),
        ({}, None),
    ],
)
def test_partitions_delayed_now(fields: dict[str, object], text: str | None) -> None:
    status = {"phase": "Stable", "now_ms": 500, "since_ms": 0, "group_type": "consumer", "generation": 2}
    status |= {"assignment_epoch": 2, "held_back": "gradual hand-over", "held_until_ms": 2_000} | fields
    assert [line.text for line in status_lines(status, Names([]))][1:] == ([text] if text else [])
