"""`kohort groups explain`: the timeline, the running rebalance, JSON, and the wording of stories."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from group_member import GroupMember
from run_command import Kohort

from kohort.cli.groups.standings import offenders, owned_since
from kohort.cli.groups.timeline import happened, status_lines, story_lines
from kohort.cli.groups.wording import Line, Names, duration, ranges, wrapped
from kohort.client.cluster import Cluster


@pytest.fixture
def member(kohort: Kohort, bootstrap: str, unique: str) -> Iterator[GroupMember]:
    kohort("topics", "create", unique, "--partitions", "3")
    member = GroupMember(bootstrap, unique, {unique: (0, 1)})
    yield member
    member.leave()


# -- the command


def test_a_timeline(kohort: Kohort, member: GroupMember, unique: str) -> None:
    told = kohort("groups", "explain", unique).out
    lines = told.splitlines()
    assert re.fullmatch(rf"{unique}: Stable, for [\d.]+ m?s, 1 member, generation 1", lines[0])
    assert re.fullmatch(r"#1  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  by-hand on 127.0.0.1 joined", lines[2])
    assert re.fullmatch(r"    stable after .*, generation 0 → 1, 1 member", lines[3])
    assert lines[4:6] == ["    of 2 partitions: 2 newly assigned", f"      by-hand  + {unique}[0-1]"]
    assert lines[7:9] == ["Who owns what", "  by-hand on 127.0.0.1"]
    assert re.fullmatch(rf"      {unique}\[0-1\]  since [-: 0-9]+ \(#1\)", lines[9])
    assert "#1" not in kohort("groups", "explain", unique, "--last", "0").out.split("Who owns what")[0]


def test_json(kohort: Kohort, member: GroupMember, unique: str) -> None:
    told = json.loads(kohort("groups", "explain", unique, "-o", "json").out)
    assert (told["group"], told["state"], told["status"]["phase"]) == (unique, "Stable", "Stable")
    (story,) = told["stories"]
    assert (story["number"], story["outcome"], story["cause"]["client_id"]) == (1, "Stable", "by-hand")
    [owned] = told["owners"][0]["partitions"]
    assert (owned["topic"], owned["partitions"], owned["story"]) == (unique, [0, 1], 1)
    assert owned["since_ms"] == story["started_ms"] + story["took_ms"]
    assert told["offenders"][0]["caused"] == 1


def test_awaited_members_are_named(kohort: Kohort, bootstrap: str, member: GroupMember, unique: str) -> None:
    def join() -> None:
        GroupMember(bootstrap, unique, {unique: (2,)}).connection.close()

    joining = threading.Thread(target=join, daemon=True)
    joining.start()
    with Cluster(bootstrap) as cluster:
        while cluster.describe_groups([unique])[unique].state != "PreparingRebalance":
            time.sleep(0.01)
    for command in ("describe", "explain"):
        told = kohort("groups", command, unique).out
        assert re.search(r"PreparingRebalance for .* more at most \(a member joined\)", told)
        assert re.search(r"awaited: by-hand-\w{4} on 127.0.0.1; to join, .* so far, .* more, then", told)
    (described,) = json.loads(kohort("groups", "describe", unique, "-o", "json").out)
    assert described["rebalance"]["counts"] == {"awaited to join": 1, "joined": 1}
    member.rejoin()
    joining.join(timeout=20)


def test_a_deleted_group_keeps_its_stories(kohort: Kohort, bootstrap: str, unique: str) -> None:
    GroupMember(bootstrap, unique, {unique: (0,)}).leave()
    with Cluster(bootstrap) as cluster:
        cluster.delete_group(unique)
    told = kohort("groups", "explain", unique).out
    assert told.startswith(f"{unique} does not exist any more\n")
    assert "by-hand on 127.0.0.1 left" in told
    assert "group deleted: asked for" in told
    hint = f"kohort: group {unique} does not exist; its history: kohort groups explain {unique}\n"
    assert kohort("groups", "describe", unique, code=1).err == hint


def test_an_unknown_group(kohort: Kohort) -> None:
    assert kohort("groups", "explain", "nobody", code=1).err == "kohort: group nobody does not exist\n"
    assert kohort("groups", "explain", "nobody", "-o", "json", code=1).out == ""
    assert "--follow goes with the timeline" in kohort("groups", "explain", "g", "-f", "-o", "json", code=2).err


def test_follow_tells_what_happens(start: Any, bootstrap: str, unique: str, kohort: Kohort) -> None:
    GroupMember(bootstrap, unique, {unique: (0,)}).leave()
    following = start("groups", "explain", unique, "--follow")
    assert unique in following.stdout.readline().decode()
    GroupMember(bootstrap, unique, {unique: (0,)}).leave()
    told = b""
    while b"#4" not in told:
        told += following.stdout.readline()
    assert told.count(b"#3") == 1
    following.send_signal(signal.SIGINT)
    assert following.wait(20) == 0


# -- in words


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_949, "59.9 s"),
        (59_999, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 day 1 h"),
        (200_000_000, "2 days 7 h"),
        (None, "?"),
    ],
)
def test_durations(milliseconds: int | None, text: str) -> None:
    assert duration(milliseconds) == text


def test_ranges() -> None:
    assert ranges([3, 0, 1, 2, 7, 9, 10]) == "0-3,7,9-10"
    assert ranges([]) == ""


def someone(name: str = "a", member: str = "", **fields: Any) -> dict[str, Any]:
    return {"member_id": member or f"{name}-11112222", "client_id": name, "host": "/10.0.0.1", **fields}


@pytest.mark.parametrize(
    ("happening", "text"),
    [
        (someone(what="member joined"), "a on 10.0.0.1 joined"),
        (someone(what="member left", cause="closing"), "a on 10.0.0.1 left: closing"),
        (someone(what="member left", cause="it left"), "a on 10.0.0.1 left"),
        (
            someone(what="session expired", waited_ms=10_000),
            "a on 10.0.0.1: session expired after 10000 ms of silence",
        ),
        (
            someone(what="member removed", cause="it did not sync in time", waited_ms=30_000),
            "a on 10.0.0.1 was removed: it did not sync in time, after 30.0 s",
        ),
        (someone(what="static member returned", instance_id="i"), "static member i on 10.0.0.1 returned"),
        ({"what": "rebalance started", "cause": "2 left"}, "2 left"),
        ({"what": "something new", "cause": "why"}, "something new: why"),
        ({}, "?"),
    ],
)
def test_happenings(happening: dict[str, Any], text: str) -> None:
    assert happened(happening, Names([])) == text


def test_members_that_share_a_client_id_are_told_apart() -> None:
    names = Names([someone("rdkafka", "rdkafka-aaaa1"), someone("rdkafka", "rdkafka-bbbb2"), someone("other")])
    assert names.of(someone("rdkafka", "rdkafka-bbbb2")) == "rdkafka-bbbb"
    assert names.of(someone("other")) == "other"
    assert names.of(someone(instance_id="static")) == "static"
    assert names.of({"member_id": "m"}) == "m"
    assert names.of({}) == "somebody"


STORY: dict[str, Any] = {
    "number": 7,
    "started_ms": 0,
    "cause": someone("b", what="member joined"),
    "outcome": "Stable",
    "took_ms": 31_000,
    "generation_before": 3,
    "generation_after": 4,
    "phases": [
        {"phase": "PreparingRebalance", "took_ms": 30_000, "ended_by": "time was up"},
        {"phase": "CompletingRebalance", "took_ms": 1_000},
    ],
    "happenings": [
        someone("c", what="member removed", waited_ms=30_000),
        someone("d", what="member joined"),
        someone("e", what="member joined"),
    ],
    "more": {"member joined": 40},
    "held_up_by": [someone("c", how="it did not rejoin in time", waited_ms=30_000)],
    "members": [someone("b", gained={"t": [4]}), someone("a", lost={"t": [4]}), someone("f")],
    "members_count": 3,
    "gone": [someone("c", lost={"t": [5]})],
    "partitions_count": 6,
    "moved": 1,
    "released": 1,
}


def test_a_story_in_full() -> None:
    lines = [" " * line.depth + line.text for line in story_lines(STORY, Names([]))]
    assert lines[0].endswith("  b on 10.0.0.1 joined")
    assert lines[1:] == [
        "    stable after 31.0 s (joining 30.0 s until time was up, assigning 1.0 s), generation 3 → 4, 3 members",
        "    held up by c on 10.0.0.1: it did not rejoin in time; the others waited 30.0 s",
        "    also 42 × member joined: d, e …",
        "    of 7 partitions: 1 moved, 1 given up",
        "      b  + t[4]",
        "      a  − t[4]",
        "      c  − t[5]",
    ]


def test_worst_offenders() -> None:
    [c, b] = offenders([STORY])
    assert (c.name, c.waited_ms, c.removed, c.caused) == ("c", 30_000, 1, 0)
    assert (b.name, b.waited_ms, b.caused) == ("b", 0, 1)
    noted = {"number": 1, "started_ms": 0, "outcome": "noted", "cause": someone(what="static member returned")}
    assert [who.caused for who in offenders([noted])] == []


def test_a_client_that_starts_rebalances_again_and_again_comes_first() -> None:
    late = {**someone("slow"), "how": "joined last", "waited_ms": 3_000}
    cause = someone("restarts", what="member joined")
    story = {"number": 1, "started_ms": 0, "outcome": "Stable", "took_ms": 3_000, "cause": cause}
    found = offenders([{**story, "number": number} for number in range(5)] + [{**story, "held_up_by": [late]}])
    assert [(who.name, who.caused, who.waited_ms) for who in found] == [("restarts", 6, 0), ("slow", 0, 3_000)]


def test_owned_since() -> None:
    older = {**STORY, "number": 6, "members": [someone("b", gained={"t": [1, 4]})]}
    found = owned_since(someone("b"), {"t": (1, 4), "u": (0,)}, [older, STORY])
    assert [(row.topic, row.partitions, row.story and row.story["number"]) for row in found] == [
        ("u", [0], None),
        ("t", [1], 6),
        ("t", [4], 7),
    ]


def test_a_status_in_words() -> None:
    status = {
        "phase": "CompletingRebalance",
        "since_ms": 0,
        "now_ms": 5_000,
        "ends_ms": 30_000,
        "counts": {"synced": 2, "awaited to sync": 1, "id given out": 1},
        "members": [
            someone(
                state="awaited to sync", leader=True, waited_ms=5_000, remaining_ms=4_000, session_remaining_ms=4_000
            ),
            {"member_id": "x", "state": "id given out", "remaining_ms": 9_000},
        ],
    }
    assert [line.text for line in status_lines(status, Names([]))] == [
        "CompletingRebalance for 5.0 s, for 25.0 s more at most",
        "2 members have synced",
        "awaited: a on 10.0.0.1, the leader; to sync, 5.0 s so far, 4.0 s more, then its session ends",
        "1 member id given out and not used yet, for 9.0 s more",
    ]
    assert status_lines({"phase": "Stable", "since_ms": 0, "now_ms": 1, "counts": {"member": 1}}, Names([])) == []


def test_a_member_that_is_silent_while_others_wait_for_it() -> None:
    status = {
        "phase": "Reconciling",
        "since_ms": 0,
        "now_ms": 30_000,
        "group_type": "consumer",
        "counts": {"on its way": 2, "waits for partitions": 1},
        "members": [
            someone(member="a-1", state="on its way", session_remaining_ms=15_000),
            someone("c", state="on its way", session_remaining_ms=44_000),
            someone("b", state="waits for partitions", partitions=1, waits_for=["a-1"]),
        ],
    }
    assert [line.text for line in status_lines(status, Names([]))][1:] == [
        "2 members learn of it with their next heartbeat",
        "awaited: a on 10.0.0.1; its next heartbeat, 15.0 s more, then its session ends",
        "waiting: b on 10.0.0.1, for 1 partition of a",
    ]


def test_names_do_not_reach_the_terminal_as_commands() -> None:
    story = {**STORY, "cause": someone("evil\x1b[2J", what="member left", cause="two\nlines")}
    lines = [text for _, text in wrapped(story_lines(story, Names([])), None)]
    assert lines[0].endswith("evil�[2J on 10.0.0.1 left: two�lines")
    assert "evil�[2J" in [who.name for who in offenders([story])]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    for _, text in wrapped(story_lines(STORY, Names([])), width):
        assert len(text) <= width
    assert wrapped([Line("a b", 2)], None) == [(False, "  a b")]
    command = "to undo: kohort groups reset-offsets billing --from-file old.json --execute"
    assert wrapped([Line(command, whole=True)], width) == [(False, command)]
