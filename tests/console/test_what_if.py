"""What if: stories as changes that can be played, the process that plays them, the tab."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from console_pages import Pages
from group_member import GroupMember as Joined

from kohort.client.admin.groups import GroupMember
from kohort.console.what_if import answers
from kohort.console.what_if.answers import Answer, Way, WhatIfs, task_of, ways_of
from kohort.console.what_if.history import MOST_CHANGES, MOST_MEMBERS, History, NothingToPlay, history_of
from kohort.console.what_if.words import best_line, played_line, static_line

PATIENT_S = 120.0


def event(what: str, client: str, member_id: str, **more: Any) -> dict[str, Any]:
    return {"what": what, "client_id": client, "member_id": member_id, "host": "/10.0.0.1", **more}


def story(number: int, started_ms: int, cause: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "number": number, "started_ms": started_ms, "took_ms": 500, "outcome": "Stable", "cause": cause,
        "protocol": "range", "partitions_count": 12, **more,
    }  # fmt: skip


def now(client: str, member_id: str, instance: str | None = None) -> GroupMember:
    return GroupMember(member_id, instance, client, "/10.0.0.1", b"", b"", (), {})


RESTART = [
    story(1, 100_000, event("member left", "a", "a-1")),
    story(2, 105_000, event("member joined", "a", "a-2"), members=[event("", "b", "b-1", joined_after_ms=4_000)]),
]
MEMBERS = [now("a", "a-2"), now("b", "b-1"), now("c", "c-1")]


def test_a_restart() -> None:
    history = history_of(RESTART, MEMBERS)
    assert (history.protocol, history.is_static, history.members, history.partitions) == ("eager", False, 3, 12)
    assert [(one.what, one.member, one.returns) for one in history.changes] == [("leaves", 0, True), ("joins", 0, True)]
    assert history.gaps_ms == (1_000, 5_000)
    assert history.slow_ms == {1: 4_000}, "b takes its time"
    assert (history.rebalances, history.took_ms, history.avoidable) == (2, 1_000, (1, 2))
    assert (history.session_ms, history.session_known, history.scaled) == (45_000, False, False)
    assert static_line(history) == (
        "Static members (group.instance.id) would have avoided 2 of 2 rebalances: the members came back within their "
        "session timeout (45.0 s, the clients' default)."
    )
    assert played_line(history) == "The group was played: 3 members at first, 12 partitions, 2 changes."


def test_who_stays_away_longer_than_its_session_is_not_avoided() -> None:
    late = [RESTART[0], {**RESTART[1], "started_ms": 200_000}]
    history = history_of(late, MEMBERS)
    assert history.avoidable == ()
    assert [one.returns for one in history.changes] == [False, False]
    assert "would have avoided none of 2 rebalances" in static_line(history)
    assert history.gaps_ms[1] == 12_000, "quiet time is cut"


def test_a_member_that_dies() -> None:
    """Its session ends after 10 s of silence; its process is back before that."""
    died = event("session expired", "a", "a-1", waited_ms=10_000)
    stories = [story(1, 103_000, event("member joined", "a", "a-2")), story(2, 110_000, died)]
    history = history_of(stories, MEMBERS)
    assert [(one.at_ms, one.what, one.member) for one in history.changes] == [
        (100_000, "dies", 0),
        (103_000, "joins", 0),
    ]
    assert (history.session_ms, history.session_known) == (10_000, True)
    assert history.avoidable == (1, 2)
    assert "(10.0 s)" in static_line(history)


def test_new_members_and_rebalances_that_follow() -> None:
    stories = [
        *RESTART,
        story(3, 106_000, event("subscription changed", "b", "b-1", cause="it gave partitions up")),
        story(4, 150_000, event("member joined", "d", "d-1")),
        story(5, 160_000, {"what": "topics changed", "cause": "t: 4 → 6 partitions"}, protocol="cooperative-sticky"),
    ]
    history = history_of(stories, [*MEMBERS, now("d", "d-1")])
    assert history.protocol == "cooperative"
    assert [(one.what, one.member) for one in history.changes] == [("leaves", 0), ("joins", 0), ("joins", 3)]
    assert history.members == 3
    assert history.avoidable == (1, 2, 3)
    assert history.others == {"topics changed": 1}


def test_a_group_that_is_new() -> None:
    joins = [
        story(number, number * 10_000, event("member joined", f"m{number}", f"m{number}-1")) for number in (1, 2, 3)
    ]
    history = history_of(joins, [now(f"m{number}", f"m{number}-1") for number in (1, 2, 3)])
    assert (history.members, history.partitions, history.scaled) == (1, 12, False)
    assert [one.member for one in history.changes] == [0, 1, 2]


def test_a_run_is_small() -> None:
    stories = [
        story(number, number * 100_000, event("member left", f"m{number}", f"m{number}-1"), partitions_count=5_000)
        for number in range(1, 60)
    ]
    history = history_of(stories, [now("x", f"x-{number}") for number in range(1_000)])
    assert len(history.changes) == MOST_CHANGES
    assert history.members == MOST_MEMBERS
    assert history.partitions <= 6 * MOST_MEMBERS
    assert history.scaled
    assert played_line(history).startswith("A smaller group was played: 8 members at first")
    assert sum(history.gaps_ms) <= MOST_CHANGES * 12_000


def test_there_may_be_nothing_to_play() -> None:
    with pytest.raises(NothingToPlay, match="no member of this group that joined"):
        history_of([story(1, 0, {"what": "topics changed"})], MEMBERS)


def test_the_ways_begin_with_the_present_one() -> None:
    history = history_of(RESTART, MEMBERS)
    ways = ways_of(history)
    assert ways[0] == ("eager", False)
    assert len(set(ways)) == 6
    assert set(ways[1:4]) == {("eager", True), ("cooperative", False), ("consumer", False)}
    static = history_of(RESTART, [now("a", "a-2", "instance-a")])
    assert ways_of(static)[0] == ("eager", True)
    assert static_line(static) == "The group has static members already (group.instance.id)."


async def test_the_simulator_plays_them() -> None:
    history = history_of(RESTART, MEMBERS)
    what_ifs = WhatIfs(limit_s=PATIENT_S, processor_s=60)
    task = what_ifs.ask("key", history)
    assert what_ifs.ask("key", history) is task, "it is played once"
    answer = await task
    assert (answer.problem, answer.complete) == ("", True)
    by_way = {(way.protocol, way.is_static): way for way in answer.ways}
    assert all(way.settled and not way.problem for way in answer.ways)
    assert by_way["eager", False].rebalances == 2
    assert by_way["eager", True].rebalances == by_way["consumer", True].moves == 0
    assert by_way["consumer", False].paused_ms < by_way["cooperative", False].paused_ms
    assert by_way["cooperative", False].paused_ms < by_way["eager", False].paused_ms, "b needs 4 s each time"
    assert what_ifs.history("key") is history
    assert what_ifs.history("other") is None
    await what_ifs.close()


async def test_its_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process writes one way and then never ends."""
    row = json.dumps({"protocol": "eager", "is_static": False, "rebalances": 2})
    program = f"import sys, time; sys.stdin.read(); print({row!r}, flush=True); time.sleep(1000)"
    monkeypatch.setattr(answers, "PROGRAM", (*answers.PROGRAM[:1], "-c", program))
    what_ifs = WhatIfs(limit_s=1.0)
    answer = await what_ifs.ask("key", history_of(RESTART, MEMBERS))
    assert not answer.complete
    assert len(answer.ways) <= 1
    assert answer.problem == ""
    endless = WhatIfs(limit_s=PATIENT_S)
    endless.ask("key", history_of(RESTART, MEMBERS))
    await endless.close()


async def test_a_process_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PROGRAM", (*answers.PROGRAM[:1], "-c", "raise SystemExit('no simulator here')"))
    answer = await WhatIfs(limit_s=PATIENT_S).ask("key", history_of(RESTART, MEMBERS))
    assert (answer.ways, answer.complete, answer.problem) == ((), False, "no simulator here")


async def test_an_answer_without_a_comparison_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PROGRAM", (*answers.PROGRAM[:1], "-c", ""))
    now_s = 0.0
    what_ifs, history = WhatIfs(limit_s=PATIENT_S, clock=lambda: now_s), history_of(RESTART, MEMBERS)
    first = what_ifs.ask("key", history)
    await first
    now_s = 20.0
    assert what_ifs.ask("key", history) is first
    now_s = 40.0
    second = what_ifs.ask("key", history)
    assert second is not first
    await second


def test_the_best_way_in_words() -> None:
    history = history_of(RESTART, MEMBERS)
    slow, fast = Way("eager", False, paused_ms=24_000), Way("consumer", True, paused_ms=1_200)
    assert best_line(history, Answer((slow, fast), True)) == (
        "Shortest: consumer protocol, static members. A partition stands still for 100 ms in the mean, "
        "instead of 2.0 s."
    )
    assert best_line(history, Answer((fast, slow), True)) == "No other way stands still much shorter."
    assert best_line(history, Answer((slow,), False)) == ""
    assert best_line(history, Answer((Way("eager", False, problem="x"), fast), True)) == ""


def test_a_task_is_json() -> None:
    history: History = history_of(RESTART, MEMBERS)
    task = json.loads(task_of(history, 2))
    assert task["changes"] == [[1_000, "leaves", 0], [5_000, "joins", 0]]
    assert (task["members"], task["partitions"], task["session_ms"]) == (3, 12, 45_000)


def test_the_tab(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 3)
    Joined(pages.bootstrap, unique, {unique: (0, 1)}, "restarts").leave()
    member = Joined(pages.bootstrap, unique, {unique: (0, 1)}, "restarts")
    page = pages.get("/group", id=unique, tab="what_if")
    assert re.search(r"Since \S+ \S+ the group rebalanced \d times", page.text)
    assert "would have avoided" in page.text
    while "The simulator plays" in (text := pages.live("group", id=unique, tab="what_if")["regions"]["what-if"]):
        time.sleep(0.01)
    assert "as the group is now" in text or "The simulator's time ended" in text
    assert "Not modelled" in pages.get("/group", id=unique, tab="what_if").text
    member.leave()
    pages.cluster.commit(f"{unique}-idle", {(unique, 0): 0})
    assert "no member of this group that joined" in pages.get("/group", id=f"{unique}-idle", tab="what_if").text
