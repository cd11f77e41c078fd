"""The rules of `kohort groups doctor`, on cases that are written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from surveyed_groups import TOPIC, member, story, surveyed

from kohort.cli.groups.doctor.app import document_of, findings_of, lines_of
from kohort.cli.groups.doctor.case import AGES_MS, Case, Finding, Severity
from kohort.cli.groups.doctor.collection import Collected
from kohort.cli.groups.wording import wrapped
from kohort.cli.stable_offsets import StableEnd
from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed
from kohort.client.admin.lag import PartitionLag
from kohort.client.admin.survey import SurveyedGroup
from kohort.spark.history.limits import DAY, MINUTE

NOW = 1_700_000_000_000
Ends = dict[int, int]


def case(
    before: SurveyedGroup,
    after: SurveyedGroup | None = None,
    ends: Ends | None = None,
    *,
    ends_before: Ends | None = None,
    minutes: int = 0,
    seconds: float = 12.0,
    **fields: Any,
) -> Case:
    """`minutes`: the age of the oldest unread record of each partition."""
    now = after or before
    given = {
        "now_ms": NOW,
        "ends_before": at(ends_before or ends or {}),
        "ends": at(ends or {}),
        "younger": {age_ms: dict.fromkeys(now.committed, -1 if age_ms < minutes * MINUTE else 0) for age_ms in AGES_MS},
    }
    return Case(before, now, seconds, **{**given, **fields})  # type: ignore[arg-type]


def at(offsets: Ends) -> dict[tuple[str, int], int]:
    return {(TOPIC, index): offset for index, offset in offsets.items()}


def found(one: Case, least: Severity = Severity.INFO) -> list[Finding]:
    return findings_of([one], least)


def the(one: Case) -> Finding:
    [finding] = found(one)
    return finding


def of(finding: Finding) -> tuple[str, str]:
    return finding.severity.value, finding.kind


WORKERS = member("w1", 0, 1), member("w2", 2, 3)


def healthy(**fields: Any) -> SurveyedGroup:
    return surveyed("billing", {0: 10, 1: 10, 2: 10, 3: 10}, *WORKERS, **fields)


def test_a_healthy_group_has_no_findings() -> None:
    ends = {0: 10, 1: 12, 2: 10, 3: 10}
    stories = [story(n, NOW - n * 20 * MINUTE, "member joined", "w1") for n in (2, 1)]
    assert found(case(healthy(), None, ends)) == []
    assert found(case(healthy(stories=stories, now_ms=NOW), None, ends, partitions_of={TOPIC: 4})) == []


# -- offsets


def test_a_deserted_group() -> None:
    left = story(4, NOW - 7_200_000, "member left", "w1", outcome="Empty", cause={"cause": "closing"})
    group = surveyed("billing", {0: 3, 1: 5}, stories=[left], now_ms=NOW)
    quiet = the(case(group, None, {0: 10, 1: 5}))
    assert of(quiet) == ("warning", "deserted")
    assert quiet.text == "has no members: 7 records wait; w1 on 10.0.0.1 left: closing, 2 h ago"
    grows = the(case(group, None, {0: 12, 1: 5}, ends_before={0: 10, 1: 5}, minutes=20))
    assert of(grows) == ("critical", "deserted")
    assert (
        "9 records wait, the oldest for more than 10 min by its timestamp, and 2 records came within 12.0 s"
        in grows.text
    )
    assert grows.command == "kohort groups delete billing"
    assert found(case(group, None, {0: 3, 1: 5})) == []


def test_commits_without_members() -> None:
    before, after = surveyed("g", {0: 3}), surveyed("g", {0: 5})
    finding = the(case(before, after, {0: 9}, minutes=20))
    assert of(finding) == ("info", "commits without members")
    query = Committed(5, -1, GroupReader(name="loads", host="h").metadata())
    reads = surveyed("g", {0: query})
    assert found(case(before, reads, {0: 9}, minutes=20)) == []
    assert found(case(reads, None, {0: 9}, minutes=6)) == []
    stands = the(case(reads, None, {0: 9}, minutes=20))
    assert of(stands) == ("warning", "query stands still")
    assert stands.text.startswith("is read by Spark query loads on h, which committed nothing within 12.0 s: 4 records")


def test_a_member_that_does_not_commit() -> None:
    ends = {0: 10, 1: 10, 2: 20, 3: 30}
    finding = the(case(healthy(), None, ends, minutes=11))
    assert of(finding) == ("critical", "no commits")
    assert finding.text == (
        "w2 on 10.0.0.1 does not commit: nothing moved in orders[2-3] within 12.0 s, and 30 records wait, the oldest "
        "for more than 10 min by its timestamp"
    )
    assert of(the(case(healthy(), None, ends, minutes=2))) == ("warning", "no commits")
    assert found(case(healthy(), None, ends, minutes=0)) == []
    brief = the(case(healthy(), None, ends, minutes=11, seconds=2.0))
    assert brief.severity is Severity.WARNING
    assert brief.command == "kohort groups doctor billing --for 30s"
    fresh = healthy(stories=[story(1, NOW - 30_000, "member joined", "w2")], now_ms=NOW)
    assert the(case(fresh, None, ends, minutes=11)).severity is Severity.INFO


def test_ages_that_the_server_tells_go_before_those_by_timestamps() -> None:
    ends, ages = {0: 10, 1: 10, 2: 20, 3: 30}, at({2: 65_000, 3: 700_000})
    finding = the(case(healthy(), None, ends, minutes=600, ages_ms=ages))
    assert of(finding) == ("critical", "no commits")
    assert finding.text.endswith("30 records wait, the oldest for 11 min 40 s")
    assert found(case(healthy(), None, ends, minutes=600, ages_ms=at({2: 59_000, 3: 0}))) == []
    [partly] = found(case(healthy(), None, ends, minutes=2, ages_ms=at({2: 0})))
    assert "w2 on 10.0.0.1 does not commit orders[3], but commits others" in partly.text
    assert partly.text.endswith("20 records wait, the oldest for more than 1 min by its timestamp")


def test_a_partition_that_is_stuck_beside_others_that_move() -> None:
    before = healthy()
    after = surveyed("billing", {0: 10, 1: 10, 2: 10, 3: 15}, *WORKERS)
    finding = the(case(before, after, {0: 10, 1: 10, 2: 20, 3: 20}, minutes=2))
    assert of(finding) == ("warning", "stuck")
    assert finding.text.startswith("w2 on 10.0.0.1 does not commit orders[2], but commits others: nothing moved within")


def test_a_slow_member_may_read_its_partitions_one_after_the_other() -> None:
    before = healthy()
    after = surveyed("billing", {0: 10, 1: 10, 2: 10, 3: 15}, *WORKERS)
    ends = {0: 10, 1: 10, 2: 20, 3: 20}
    slow = [one for one in found(case(before, after, ends, minutes=11)) if one.kind == "stuck"]
    assert [(one.severity, one.command) for one in slow] == [(Severity.WARNING, "kohort groups watch billing")]
    others_are_young = case(before, after, ends, minutes=600, ages_ms=at({2: 700_000, 3: 1_000}))
    assert the(others_are_young).severity is Severity.CRITICAL


def test_partitions_without_a_committed_offset() -> None:
    finding = the(case(surveyed("g", {0: 5}, member("a", 0, 1, 2)), None, {0: 5, 1: 7, 2: 0}))
    assert of(finding) == ("info", "never committed")
    assert finding.text.startswith(
        "has no committed offset in orders[1], which a on 10.0.0.1 has: the lag is not known"
    )


def test_a_group_that_is_behind() -> None:
    before = healthy()
    after = surveyed("billing", {0: 34, 1: 10, 2: 10, 3: 10}, *WORKERS)
    ends_before = {0: 1000, 1: 10, 2: 10, 3: 10}
    slow = the(case(before, after, {**ends_before, 0: 1120}, ends_before=ends_before, minutes=6))
    assert of(slow) == ("warning", "behind")
    assert slow.text == (
        "is behind in orders[0], which w1 on 10.0.0.1 has: 1086 records wait, the oldest for more than 5 min by its "
        "timestamp; 10 records/s come and 2 are committed"
    )
    catching_up = the(case(before, after, ends_before, minutes=6))
    assert catching_up.severity is Severity.INFO
    assert "so it catches up in 8 min 3 s if this goes on" in catching_up.text
    assert found(case(before, after, ends_before, minutes=2)) == []


def test_a_lag_that_grows_is_told_before_the_records_are_old() -> None:
    before, after = (surveyed("billing", {0: offset, 1: 10, 2: 10, 3: 10}, *WORKERS) for offset in (10, 34))
    ends_before = {0: 100, 1: 10, 2: 10, 3: 10}
    grows = the(case(before, after, {**ends_before, 0: 140}, ends_before=ends_before, minutes=2, seconds=2.0))
    assert of(grows) == ("warning", "behind")
    assert "106 records wait, the oldest for more than 1 min by its timestamp; 20 records/s come and 12" in grows.text
    ends, ages = {**ends_before, 0: 110}, {(TOPIC, 0): 40_000}
    assert found(case(before, after, ends, ends_before=ends_before, ages_ms=ages)) == [], "it catches up"
    warned = [
        replace(one, lags={place: PartitionLag(offset, 110, burrow="WARN") for place, offset in one.committed.items()})
        for one in (before, after)
    ]
    grew = the(case(*warned, ends, ends_before=ends_before, ages_ms=ages))
    assert of(grew) == ("warning", "behind")
    assert "the oldest for 40.0 s" in grew.text
    assert grew.text.endswith("and the lag did not fall at any of the last commits")
    assert found(case(*warned, ends, ends_before=ends_before, ages_ms={(TOPIC, 0): 20_000})) == []


def test_a_lag_that_grows_is_told_between_two_commits_and_in_a_rebalance() -> None:
    ends, ages = {0: 110, 1: 10, 2: 10, 3: 10}, {(TOPIC, 0): 700_000}
    lags = {(TOPIC, 0): PartitionLag(10, 110, burrow="WARN")}
    between = replace(healthy(), lags=lags)
    finding = the(case(between, None, ends, ages_ms=ages, seconds=2.0))
    assert of(finding) == ("warning", "behind")
    assert finding.text == (
        "is behind in orders[0], which w1 on 10.0.0.1 has: 100 records wait, the oldest for 11 min 40 s, and the lag "
        "did not fall at any of the last commits"
    )
    rebalancing = replace(surveyed("billing", {0: 10, 1: 10, 2: 10, 3: 10}, member("w1"), member("w2")), lags=lags)
    kinds = {one.kind: one.text for one in found(case(between, rebalancing, ends, ages_ms=ages))}
    assert kinds["behind"] == finding.text


def test_offsets_that_go_back() -> None:
    after = surveyed("billing", {0: 10, 1: 4, 2: 10, 3: 10}, *WORKERS)
    assert of(the(case(healthy(), after, dict.fromkeys(range(4), 10)))) == ("warning", "rewind")


def test_offsets_outside_of_the_log() -> None:
    ends = dict.fromkeys(range(4), 10)
    early = the(case(healthy(), None, ends, starts=at({0: 7, 1: 12}) | {("other", 0): 99}))
    assert of(early) == ("warning", "out of range")
    assert "before the start of the log in orders[1]: 2 offsets that it has not read" in early.text
    assert "stop its members, and then move" in early.advice
    assert early.command == "kohort groups reset-offsets billing --all-topics --shift-by 0"
    late = the(case(healthy(), None, {**ends, 2: 4}))
    assert of(late) == ("critical", "out of range")
    assert "after the end of the log in orders[2], by 6 at most" in late.text


@pytest.mark.parametrize(
    ("days", "expected"),
    [(4.9, []), (5.1, [("warning", "expiring")]), (6.6, [("critical", "expiring")]), (8.0, [("critical", "expiring")])],
)
def test_offsets_that_expire(days: float, expected: list[tuple[str, str]]) -> None:
    status = {"phase": "Empty", "since_ms": round(NOW - days * DAY)}
    group = surveyed("g", {0: 10}, stories=[], now_ms=NOW, status=status)
    assert [of(one) for one in found(case(group, None, {0: 10}, retention_ms=7 * DAY))] == expected
    assert found(case(group, None, {0: 10})) == []
    assert found(case(surveyed("g", {0: 10}), None, {0: 10}, retention_ms=7 * DAY)) == []


def test_an_open_transaction_holds_readers_back() -> None:
    ends = {0: 10, 1: 10, 2: 30, 3: 10}
    stable = {(TOPIC, 2): StableEnd(TOPIC, 2, 10, 30)}
    finding = the(case(healthy(), None, ends, minutes=2, stable=stable))
    assert of(finding) == ("warning", "open transaction")
    assert "orders-2: readers of committed records wait at offset 10, 20 offsets before the end" in finding.text
    assert the(case(healthy(), None, ends, minutes=20, stable=stable)).severity is Severity.CRITICAL
    passed = {(TOPIC, 2): StableEnd(TOPIC, 2, 5, 30)}  # the group reads uncommitted records: it has passed the offset
    assert of(the(case(healthy(), None, ends, minutes=2, stable=passed))) == ("warning", "no commits")


def test_offsets_of_deleted_topics() -> None:
    finding = the(case(surveyed("a b", {0: 10}), None, {}, missing_topics={TOPIC: None}))
    assert of(finding) == ("info", "deleted topic")
    assert finding.command == "kohort groups delete-offsets 'a b' --topic orders"


# -- members


def test_more_members_than_partitions() -> None:
    group = surveyed("g", {}, member("a", 0), member("b", 1), member("c"))
    finding = the(case(group))
    assert of(finding) == ("info", "more members than partitions")
    assert finding.text == "has 3 members and 2 partitions: c on 10.0.0.1 has nothing to do"


def test_an_assignment_that_is_uneven() -> None:
    group = surveyed("g", {}, member("a", *range(5)), member("b", 5, 6))
    assert of(the(case(group))) == ("warning", "unbalanced")
    idle = the(case(surveyed("g", {}, member("a", 0, 1), member("b"))))
    assert idle.text == "shares 2 partitions unevenly: its members have between 0 and 2, and b on 10.0.0.1 has none"
    assert found(case(surveyed("g", {}, member("a", 0, 1, 2), member("b", 3, 4)))) == []
    assert found(case(surveyed("g", {}, member("a", 0, 1, 2), member("b", 3), protocol="lag"))) == []
    held = surveyed("g", {}, member("a", 0, 1), member("b"), stories=[], status={"held_partitions": 1})
    assert found(case(held)) == []
    others = member("b", topic="refunds", subscribed=("refunds",))
    assert [one.kind for one in found(case(surveyed("g", {}, member("a", 0, 1), others)))] == ["mixed subscriptions"]


def test_partitions_that_nobody_has() -> None:
    finding = the(case(healthy(), None, dict.fromkeys(range(4), 10), partitions_of={TOPIC: 6}))
    assert of(finding) == ("warning", "without owner")
    assert finding.text.startswith("is stable, and nobody reads 2 partitions of orders")


def test_a_subscription_to_a_topic_that_does_not_exist() -> None:
    group = surveyed("g", {}, member("a", 0, subscribed=(TOPIC, "ordres")))
    finding = the(case(group, missing_topics={"ordres": "orders"}))
    assert of(finding) == ("warning", "missing topic")
    assert finding.text == "subscribes to topic ordres, which does not exist (a on 10.0.0.1)"
    assert finding.advice.startswith("Did you mean orders?")


def test_members_of_both_protocols() -> None:
    group = surveyed("g", {}, member("a", 0, protocol="classic"), member("b", 1, protocol="consumer"), type="consumer")
    finding = the(case(group))
    assert of(finding) == ("info", "mixed protocols")
    assert "1 of 2 members speaks the classic protocol (a on 10.0.0.1)" in finding.text


def test_a_rebalance_that_takes_long() -> None:
    awaited = {"client_id": "w2", "member_id": "w2-1", "host": "/h", "state": "awaited to join"}
    status = {"phase": "PreparingRebalance", "since_ms": NOW - 20_000, "why": "a member joined", "members": [awaited]}
    group = surveyed("g", {}, *WORKERS, state="PreparingRebalance", stories=[], now_ms=NOW, status=status)
    finding = the(case(group))
    assert of(finding) == ("warning", "rebalancing")
    assert finding.text == "has been PreparingRebalance for 20.0 s (a member joined): it waits for w2 on h to join"
    silent = {"client_id": "w2", "member_id": "w2-1", "host": "/h", "state": "on its way"}
    waits = {"client_id": "w1", "member_id": "w1-1", "state": "waits for partitions", "waits_for": ["w2-1"]}
    status = {"phase": "Reconciling", "since_ms": NOW - 20_000, "members": [silent, waits]}
    group = surveyed("g", {}, *WORKERS, state="Reconciling", stories=[], now_ms=NOW, status=status)
    assert the(case(group)).text == "has been Reconciling for 20.0 s: it waits for the next heartbeat of w2 on h"
    elsewhere = surveyed("g", {}, *WORKERS, state="PreparingRebalance")
    assert found(case(elsewhere, seconds=2.0)) == []
    assert "for 12.0 s at least" in the(case(elsewhere)).text
    assert found(case(healthy(), elsewhere, {})) == []


# -- the journal


def journal(*stories: dict[str, Any], members: tuple[Any, ...] = WORKERS) -> Case:
    offsets = {0: 10, 1: 10, 2: 10, 3: 10} if members else {}
    group = surveyed("billing", offsets, *members, stories=list(stories), now_ms=NOW)
    return case(group, None, dict.fromkeys(range(4), 10))


def minutes_ago(minutes: float) -> int:
    return round(NOW - minutes * MINUTE)


def test_a_client_whose_session_expires_again_and_again() -> None:
    stories = []
    for n in range(4):
        silent = {"waited_ms": 10_000}
        stories.append(story(2 * n + 1, minutes_ago(40 - 10 * n), "session expired", "w2", cause=silent))
        stories.append(story(2 * n + 2, minutes_ago(38 - 10 * n), "member joined", "w2"))
    finding = the(journal(*stories))
    assert of(finding) == ("critical", "removed again and again")
    assert finding.text == (
        "w2 on 10.0.0.1 dropped out 4 times in 30 min, the last time 10 min ago: its session expired after 10.0 s "
        "of silence"
    )
    assert found(journal(*stories[:4])) == []


@pytest.mark.parametrize(
    ("what", "cause"),
    [("member left", "consumer poll timeout has expired."), ("member removed", "it did not rejoin in time")],
)
def test_a_client_that_polls_too_rarely(what: str, cause: str) -> None:
    stories = [story(n, minutes_ago(50 - n), what, "w1", cause={"cause": cause}) for n in range(1, 4)]
    finding = the(journal(*stories))
    assert finding.text.endswith(": it took longer than max.poll.interval.ms")
    assert finding.advice.startswith("Lower max.poll.records")


def test_members_that_share_a_name_and_host_are_not_one_that_loops() -> None:
    stories = [story(n, minutes_ago(50 - n), "session expired", "w1") for n in range(1, 4)]
    twins = member("w1", 0, 1), member("w1", 2, 3, member_id="w1-3333")
    assert found(journal(*stories, members=twins)) == []
    assert [of(one) for one in found(journal(*stories))] == [("critical", "removed again and again")]


def test_an_operator_who_removes_members_is_no_loop() -> None:
    by_hand = {"cause": "an operator removed it: stuck"}
    stories = [story(n, minutes_ago(50 - n), "member removed", "w1", cause=by_hand) for n in range(6)]
    assert found(journal(*stories)) == []


def test_a_rolling_deployment_is_no_storm() -> None:
    stories = []
    for n in range(5):
        stories.append(story(2 * n + 1, minutes_ago(30 - n), "member left", f"old-{n}"))
        stories.append(story(2 * n + 2, minutes_ago(29.5 - n), "member joined", f"new-{n}"))
    finding = the(journal(*stories))
    assert of(finding) == ("info", "rolling deployment")
    assert finding.text.startswith("rebalanced 10 times in 4 min 30 s: 5 different members joined: restarts, or a ")
    assert finding.command == "kohort groups hold billing --for 10m"


def test_a_storm_and_who_causes_it() -> None:
    def changes(every: int) -> list[dict[str, Any]]:
        what = "subscription changed"
        return [story(n, minutes_ago(59 - every * n), what, "w1", group_type="consumer") for n in range(1, 10)]

    stories = changes(1)
    finding = the(journal(*stories))
    assert of(finding) == ("warning", "storm")
    assert finding.text == (
        "rebalanced 9 times in 8 min: no member came or went: members rejoin or change their subscriptions; by w1 on "
        "10.0.0.1 (9)"
    )
    assert found(journal(*changes(5))) == []
    old = [{**one, "started_ms": one["started_ms"] - DAY} for one in stories]
    assert found(journal(*old)) == []


def test_a_storm_of_one_client_that_loops_is_one_finding() -> None:
    stories = []
    for n in range(6):
        stories.append(story(2 * n + 1, minutes_ago(30 - 2 * n), "session expired", "w2"))
        stories.append(story(2 * n + 2, minutes_ago(29 - 2 * n), "member joined", "w2"))
    assert of(the(journal(*stories))) == ("critical", "removed again and again")


def test_a_slow_member_for_which_others_wait() -> None:
    held_up = {"client_id": "w2", "member_id": "w2-1", "host": "/10.0.0.1", "how": "gave up late", "waited_ms": 6_000}
    stories = [story(n, minutes_ago(50 - 20 * n), "member joined", "w1", held_up_by=[held_up]) for n in (1, 2)]
    finding = the(journal(*stories))
    assert of(finding) == ("warning", "slow member")
    assert finding.text == "the others waited 12.0 s for w2 on 10.0.0.1, in 2 rebalances: gave up late"
    assert found(journal(*stories[:1])) == []


def test_assignors_that_change() -> None:
    used = ("range", "sticky", "range")
    stories = [story(n, minutes_ago(50 - 10 * n), "member joined", "w1", protocol=used[n]) for n in range(3)]
    finding = the(journal(*stories))
    assert finding.text == "changed its assignor 2 times in its last 3 rebalances: range, sticky"
    assert found(journal(*stories[:2])) == []


# -- all of it


def test_the_worst_comes_first_and_the_least_severe_may_be_left_out() -> None:
    cases = [
        case(surveyed("a", {}, member("a", 0), member("b", 1), member("c"))),
        case(surveyed("b", {0: 1}), None, {0: 9}),
        case(surveyed("c", {0: 1}), None, {0: 9}, ends_before={0: 8}),
        case(surveyed("d", {0: 1}), None, {0: 99}),
    ]
    assert [one.group for one in findings_of(cases)] == ["c", "d", "b", "a"]
    assert [one.group for one in findings_of(cases, Severity.WARNING)] == ["c", "d", "b"]
    assert [one.group for one in findings_of(cases, Severity.CRITICAL)] == ["c"]


def test_findings_as_lines_and_as_a_document() -> None:
    one = case(surveyed("a\x1b[2J", {0: 1}), None, {0: 9})
    collected = Collected([one], 2.0, ["the journal"])
    lines = [text for _, text in wrapped(lines_of(findings_of([one]), collected), 80)]
    assert lines == [
        "WARNING a�[2J: has no members: 8 records wait",
        "    Start a consumer; if nobody needs the group, delete it:",
        "      kohort groups delete 'a�[2J'",
        "1 finding (1 warning) in 1 group, within 2.0 s",
        "not seen: the journal",
    ]
    document = document_of(findings_of([one]), collected)
    assert document["counts"] == {"critical": 0, "warning": 1, "info": 0}
    [finding] = document["findings"]
    assert (finding["severity"], finding["kind"], finding["group"]) == ("warning", "deserted", "a\x1b[2J")
    assert document["not_seen"] == ["the journal"]
    assert lines_of([], collected)[0].text == "nothing found in 1 group, within 2.0 s"
