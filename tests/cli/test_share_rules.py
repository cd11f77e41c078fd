"""The doctor's rules about share groups, on reports as values."""

from __future__ import annotations

from typing import Any

from kohort.cli.groups.doctor.app import findings_of
from kohort.cli.groups.doctor.case import Case, Finding, Severity
from kohort.cli.groups.watch.trends import Trends
from kohort.client.admin.groups import GroupDescription, GroupMember
from kohort.client.admin.share_groups import ShareOffset, ShareOffsets, lag_of_shares
from kohort.client.admin.survey import Survey, SurveyedGroup

JOBS = ("jobs", 0)
NOW_MS = 1_800_000_000_000
MEMBER = GroupMember("m-1", None, "worker", "/10.0.0.1", b"", b"", ("jobs",), {"jobs": (0,)})


def reported(**records: Any) -> ShareOffset:
    usual = {"log_end": 100, "next_offset": 40, "window": 2_000, "delivery_limit": 5, "now_ms": NOW_MS}
    return ShareOffset(10, records.pop("lag", 30), records={**usual, **records})


def surveyed(offset: ShareOffset, *members: GroupMember) -> SurveyedGroup:
    state = "Stable" if members else "Empty"
    group = GroupDescription("mailers", state, "share", "simple", members, 1, "share", 3)
    return SurveyedGroup(group, shares=ShareOffsets({JOBS: offset}))


def found(before: ShareOffset, after: ShareOffset, *members: GroupMember, **case: Any) -> list[Finding]:
    looked = Case(surveyed(before, *members), surveyed(after, *members), 2.0, partitions_of={"jobs": 1}, **case)
    return findings_of([looked])


def test_nothing_is_wrong_with_a_group_that_works() -> None:
    before = reported(counts={"delivered": 10, "accepted": 10})
    after = reported(counts={"delivered": 30, "accepted": 28, "released": 1}, stands_ms=2_000, in_flight_records=1)
    assert found(before, after, MEMBER) == []


def test_a_record_that_is_not_finished() -> None:
    stuck = reported(stands_ms=720_000, first_deliveries=3, first_member="m-1", in_flight_records=4)
    [finding] = found(stuck, stuck, MEMBER)
    assert (finding.kind, finding.severity) == ("stuck record", Severity.WARNING)
    assert finding.text == (
        "has not finished the first record of jobs[0]: offset 10, delivered 3 ×, held by m-1, for 12 min"
    )
    assert finding.command == "kohort groups release mailers m-1 --topic jobs:0"


def test_a_full_window() -> None:
    full = reported(stands_ms=90_000, next_offset=2_010, first_deliveries=1, first_member="m-1", in_flight_records=1)
    [finding] = found(full, full, MEMBER)
    assert (finding.kind, finding.severity) == ("window full", Severity.CRITICAL)
    assert finding.text.startswith("hands out nothing new of jobs[0]: 2000 offsets may be open, and the first is not")


def test_deliveries_in_vain_and_locks_that_end() -> None:
    before = reported(counts={"delivered": 10, "accepted": 5})
    after = reported(counts={"delivered": 40, "accepted": 8, "released": 9, "lock ended": 6}, in_flight_records=5)
    locks, redeliveries = sorted(found(before, after, MEMBER), key=lambda one: one.kind)
    assert redeliveries.text == (
        "delivers again and again: 15 of 18 deliveries that ended within 2.0 s gave no result "
        "(9 released, 6 lock ended)"
    )
    assert locks.text.startswith("takes 6 records from members within 2.0 s")


def test_records_without_dead_letters() -> None:
    after = reported(counts={"rejected": 3, "dead letters": 1, "without a dead letter": 2})
    findings = [finding for finding in found(after, after, MEMBER) if finding.kind == "no dead letters"]
    assert [(finding.severity, finding.text) for finding in findings] == [
        (Severity.WARNING, "gave up 2 records without dead letters, although it names a dead-letter topic")
    ]


def test_records_that_the_group_gave_up() -> None:
    rows = [
        [3, 3, 5, "delivered too often", "m-1", NOW_MS - 60_000],
        [5, 6, 1, "rejected", "m-1", NOW_MS - 60_000],
        [1, 1, 1, "rejected", "m-1", NOW_MS - 7_200_000],
    ]
    given_up = reported(archived=rows, in_flight_records=1)
    gave_up, rejected = found(given_up, given_up, MEMBER)
    assert gave_up.text.startswith("gave up 1 record within the last hour after as many deliveries as")
    assert gave_up.command == "kohort groups redeliver mailers --archived --why 'delivered too often'"
    assert (rejected.severity, rejected.text) == (Severity.INFO, "rejected 2 records within the last hour: jobs[0] 5-6")


def test_nobody_works() -> None:
    left = reported()
    [finding] = found(left, left, ends={JOBS: 100}, ends_before={JOBS: 97})
    assert (finding.severity, finding.kind) == (Severity.CRITICAL, "deserted")
    assert finding.text == "has no members: 30 records are unfinished, and 3 records came within 2.0 s"
    elsewhere = ShareOffset(10, 30)
    [finding] = found(elsewhere, elsewhere)
    assert (finding.severity, finding.kind) == (Severity.WARNING, "deserted")
    idle = reported(stands_ms=90_000)
    [finding] = found(idle, idle, MEMBER)
    assert finding.kind == "members fetch nothing"
    assert "has 1 member that takes nothing of jobs[0] for 1 min 30 s, where 30 records wait: worker" in finding.text


def test_what_is_watched() -> None:
    """What is finished counts as committed, so the lag is exact, and the rate out is that of finished records."""
    holds = {"m-1": {"records": 5, "deliveries": {"1": 5}, "next_end_ms": 9}}
    trends = Trends()
    for at_s, lag in ((0.0, 30), (10.0, 10)):
        one = surveyed(reported(lag=lag, holders=holds, in_flight_records=5), MEMBER)
        [row] = trends.rows(Survey({"mailers": one}, {}, NOW_MS, at_s, at_s))
    assert (row.type, row.figures.lag, row.figures.rate_out, row.without_offset) == ("share", 10, 2.0, 0)
    assert row.figures.lag_ms is None
    [part] = row.parts
    assert (part.committed, part.end, part.owner) == (10, 100, "worker holds 5")
    assert lag_of_shares(ShareOffsets({JOBS: ShareOffset(None)}), {JOBS: 7}).total is None
