"""Findings from the stories of kohort's journal: they name the client and say why, which the log of groups cannot."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter

from kohort.spark.history.limits import Limits, why_storm
from kohort.spark.history.report.findings import BAD, WARN, Finding, by_group, count, duration, some
from kohort.spark.history.stories import ADVICE, GONE, Document, client_of, loops, storm_of

UNREST = frozenset({"storm", "rolling deployment", "loop"})
"""Kinds of findings of which the journal knows more than the log."""


def of_stories(stories: Mapping[str, Sequence[Document]], limits: Limits) -> list[Finding]:
    return [finding for group, ones in stories.items() for finding in _of_group(group, ones, limits)]


def without_repeats(of_log: Iterable[Finding], of_journal: Sequence[Finding]) -> list[Finding]:
    """The findings of the log that the journal's findings do not explain."""
    told = by_group(of_journal, attrgetter("group"))
    return [one for one in of_log if not any(_explains(other, one) for other in told.get(one.group, ()))]


def _explains(journals: Finding, logs: Finding) -> bool:
    """Of the same group."""
    same = {journals.kind, logs.kind} <= UNREST or (journals.kind == "reset" and logs.kind in ("reset", "rewind"))
    if not same:
        return False
    slack = 60_000  # the clocks of a log and of a journal are one, but a storm has a beginning and an end
    return journals.since - slack <= logs.until and logs.since <= journals.until + slack


def _of_group(group: str, stories: Sequence[Document], limits: Limits) -> list[Finding]:
    found = []
    looping = loops(stories)
    for who, loop in looping.items():
        times, lasted = len(loop.times), duration(max(loop.times[-1] - loop.times[0], 1))
        severity = WARN if loop.kind == GONE else BAD
        headline = f"{who.words} dropped out of {group} {times} times in {lasted}: {loop.kind}{loop.others}"
        found.append(
            Finding(severity, group, "loop", headline, f"{ADVICE[loop.kind]}.", loop.times[0], loop.times[-1], times)
        )
    storm = storm_of(stories, limits, looping)
    if storm is not None:
        lasted = duration(max(storm.until - storm.since, 1))
        why = why_storm(storm.rebalances, storm.newcomers)
        by = some(f"{who.words} ({times})" for who, times in storm.causes.most_common())
        severity, kind, during = (WARN, "rolling deployment", " in a rolling deployment") if storm.is_rollout else (
            BAD, "storm", ""
        )  # fmt: skip
        headline = f"{group} rebalanced {storm.rebalances} times in {lasted}{during}"
        details = f"{why}; caused by {by}" if by else why
        found.append(Finding(severity, group, kind, headline, details, storm.since, storm.until, storm.rebalances))
    return found + [finding for story in stories if (finding := _changed(group, story)) is not None]


def _changed(group: str, story: Document) -> Finding | None:
    """Committed offsets that were moved back from outside, or deleted."""
    rows = [row for rows in story.get("changed", {}).values() for row in rows]
    back = [(old, new) for _, old, new in rows if 0 <= new < old]
    deleted = [old for _, old, new in rows if new < 0 <= old]
    if not (back or deleted):
        return None
    cause = story.get("cause", {})
    who = client_of(cause)
    by = f"by {who.words}" if who else str(cause.get("cause", "")) or "not known by whom"
    at = story["started_ms"]
    moment = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    undo = f"kohort groups restore {shlex.quote(group)} --before {moment} brings them back"
    if not back:
        headline = f"{group} lost {count(len(deleted), 'committed offset')}"
        return Finding(WARN, group, "offsets deleted", headline, f"{by}; {undo}", at, at, len(deleted))
    again = sum(old - new for old, new in back)
    to = " to 0" if all(new == 0 for _, new in back) else ""
    headline = f"{group} was reset{to} from outside"
    details = f"{by}; {count(again, 'record')} to be read again on {count(len(back), 'partition')}; {undo}"
    return Finding(WARN, group, "reset", headline, details, at, at, again)
