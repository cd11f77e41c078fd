"""Findings: in words, which group is in trouble, why, and since when.

A finding sums up what the tables contain of one group and one kind of trouble: a storm of a hundred rebalances, or a
zombie on fifty partitions, is one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import TIME, Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.limits import DAY, Limits, why_storm
from kohort.spark.history.report.incidents import (
    CAUSES,
    FORMER_OWNER,
    IDLE,
    NOT_A_MEMBER,
    RECREATED,
    RESET,
    Rewinds,
    Zombie,
    due_soon,
)
from kohort.spark.history.tables.columns import microseconds
from kohort.spark.history.tables.commits import FORWARD, Commits, Sawteeth
from kohort.spark.history.tables.rebalances import Rejoining, Storm

_T = TypeVar("_T")
_K = TypeVar("_K")
Place = tuple[str, str, int]
"""Group, topic, partition."""

BAD, WARN = "bad", "warn"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. Times in milliseconds; `until` is NOTHING if the log ends in this state."""

    severity: str
    group: str
    kind: str
    headline: str
    details: str
    since: int
    until: int
    weight: float
    """Orders findings of the same severity."""


SCHEMA = pa.schema(
    [
        pa.field("severity", pa.string()),
        pa.field("group", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("headline", pa.string()),
        pa.field("details", pa.string()),
        pa.field("since", TIME),
        pa.field("until", TIME),
        pa.field("weight", pa.float64()),
    ]
)


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (one.severity != BAD, -one.weight, one.group))


def findings_table(found: Sequence[Finding]) -> pa.Table:
    rows = [asdict(one) | {"since": microseconds(one.since), "until": microseconds(one.until)} for one in found]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def duration(milliseconds: float) -> str:
    """A duration in words: `40 ms`, `12.5 s`, `7 min`, `3 h`, `2 days`."""
    seconds = milliseconds / 1000
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"), (float("inf"), 86_400, "days")):
        if seconds < 1:
            return f"{milliseconds:.0f} ms"
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and value % 1 > 0.05 else f"{value:.0f} {unit}"
    raise AssertionError(milliseconds)


def count(number: int, noun: str) -> str:
    """`1 partition`, `1,200 partitions`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def by_group(rows: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    grouped: dict[_K, list[_T]] = {}
    for row in rows:
        grouped.setdefault(key(row), []).append(row)
    return grouped


def some(names: Iterable[str], most: int = 3) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


def of_storms(found: Iterable[Storm], names: Sequence[str]) -> list[Finding]:
    lines = []
    for (group, is_rollout), ones in by_group(found, lambda one: (names[one.group], one.is_rollout)).items():
        worst = max(ones, key=lambda one: one.rebalances)
        lasted = max(worst.until - worst.since, 1)
        again = "" if len(ones) == 1 else f" (the worst of {len(ones)} storms)"
        looping = f"{worst.looping.words} joined again and again, {worst.loops} times" if worst.looping else ""
        why = why_storm(worst.rebalances, worst.newcomers, looping)
        moved = f"{count(worst.moved, 'partition')} moved"
        pause_ms = worst.longest_pause_ms
        pause = f"; longest pause in its commits {duration(pause_ms)}" if pause_ms > 0 else ""
        severity, kind, during = (WARN, "rolling deployment", " in a rolling deployment") if is_rollout else (
            BAD, "storm", ""
        )  # fmt: skip
        headline = f"{group} rebalanced {worst.rebalances} times in {duration(lasted)}{during}{again}"
        details = f"{why}; {moved}{pause}"
        lines.append(Finding(severity, group, kind, headline, details, worst.since, worst.until, worst.rebalances))
    return lines


def of_rejoining(found: Iterable[Rejoining], names: Sequence[str], stormy: Iterable[Storm]) -> list[Finding]:
    """Clients that come back again and again, without those that a storm names."""
    explained = {(one.group, one.looping) for one in stormy}
    lines = []
    for one in found:
        if (one.group, one.client) in explained:
            continue
        group, since, until = names[one.group], one.times[0], one.times[-1]
        headline = f"{one.client.words} joined {group} again and again: {len(one.times)} times in "
        headline += duration(max(until - since, 1))
        details = "the others stayed, so this is no deployment: its sessions or polls time out, or it restarts"
        lines.append(Finding(BAD, group, "loop", headline, details, since, until, len(one.times)))
    return lines


def of_zombies(
    found: Iterable[Zombie], places: Sequence[Place], people: Mapping[tuple[str, str], str]
) -> list[Finding]:
    """`people` has members in words, by group and member id."""
    lines = []
    for ones in by_group(found, lambda one: f"{one.kind} {places[one.place][0]}").values():
        kind, group = ones[0].kind, places[ones[0].place][0]
        since, until = min(one.since for one in ones), max(one.until for one in ones)
        where = count(len(ones), "partition")
        which = some(f"{places[one.place][1]}-{places[one.place][2]}" for one in ones)
        who = some(people.get((group, one.member), one.member) for one in ones if one.member)
        commits = sum(one.commits for one in ones)
        if kind == NOT_A_MEMBER:
            headline = f"A process that is not a member commits to {group}"
            details = f"{count(commits, 'commit')} on {where} ({which}) for {duration(until - since)} without a member"
        elif kind == FORMER_OWNER:
            headline = f"A zombie commits to {group}: {who} continues with partitions that it no longer owns"
            details = f"{count(commits, 'step')} back on {where} ({which}) within {duration(until - since)}"
        else:
            waiting = sum(one.waiting for one in ones)
            headline = f"{who} in {group} owns {where} and reads nothing"
            details = f"{which}: no progress for {duration(until - since)}, {count(waiting, 'record')} waiting"
        severity = WARN if kind == NOT_A_MEMBER else BAD
        lines.append(Finding(severity, group, _KINDS[kind], headline, details, since, until, commits + len(ones)))
    return lines


_KINDS = {NOT_A_MEMBER: "zombie", FORMER_OWNER: "zombie", IDLE: "standstill"}


def of_sawteeth(found: Sawteeth, places: Sequence[Place], zombies: Iterable[Zombie]) -> list[Finding]:
    """Sawteeth, without those that a zombie explains."""
    explained = {one.place for one in zombies if one.kind == FORMER_OWNER}
    rows = [row for row in range(len(found.place)) if int(found.place[row]) not in explained]
    lines = []
    for group, ones in by_group(rows, lambda row: places[int(found.place[row])][0]).items():
        which = some(f"{places[int(found.place[row])][1]}-{places[int(found.place[row])][2]}" for row in ones)
        teeth, deepest = int(found.teeth[ones].sum()), count(int(found.deepest[ones].max()), "record")
        since, until = int(found.since[ones].min()), int(found.until[ones].max())
        headline = f"Two consumers commit the same {'partition' if len(ones) == 1 else 'partitions'} of {group}"
        lasted = duration(max(until - since, 1))
        details = f"{which}: offsets went back and forth {teeth} times in {lasted}, by up to {deepest}"
        lines.append(Finding(BAD, group, "sawtooth", headline, details, since, until, teeth))
    return lines


def of_rewinds(found: Rewinds, commits: Commits, places: Sequence[Place]) -> list[Finding]:
    lines = []
    size = commits.previous[found.rows] - commits.offset[found.rows]
    rows = [n for n in range(len(found.rows)) if found.cause[n] != RECREATED and _is_far(commits, int(found.rows[n]))]
    for ones in by_group(rows, lambda n: f"{found.cause[n]} {places[commits.place[found.rows[n]]][0]}").values():
        group = places[commits.place[found.rows[ones[0]]]][0]
        at = commits.at[found.rows[ones]]
        again, skipped = int(np.maximum(size[ones], 0).sum()), int(np.maximum(-size[ones], 0).sum())
        partitions = count(len({int(commits.place[found.rows[n]]) for n in ones}), "partition")
        effect = f"{count(again, 'record')} to be read again" if again else f"{count(skipped, 'record')} skipped"
        cause = CAUSES[int(found.cause[ones[0]])]
        by_hand = found.cause[ones[0]] == RESET
        to_zero = bool((commits.offset[found.rows[ones]] == 0).all())
        older = "offset 0" if to_zero else "older offsets"
        headline = f"{group} went back to {older}"
        if by_hand:
            headline = f"{group} was reset{' to offset 0' if to_zero else ''} while it had no members"
        details, since, until = f"{effect} on {partitions}", int(at.min()), int(at.max())
        lines.append(Finding(WARN, group, cause, headline, details, since, until, again + skipped))
    return lines


def _is_far(commits: Commits, row: int) -> bool:
    """True if a step is larger than ten usual steps of its place, or goes to 0; a smaller step is a retry."""
    if commits.offset[row] == 0:
        return True
    place = commits.place[row]
    mine = slice(int(commits.first[place]), int(commits.first[place + 1]))
    steps = (commits.offset - commits.previous)[mine][commits.step[mine] == FORWARD]
    usual = float(np.median(steps)) if len(steps) else 0.0
    return abs(int(commits.previous[row] - commits.offset[row])) > 10 * usual


def of_expiries(due: Numbers, commits: Commits, places: Sequence[Place], now: int, limits: Limits) -> list[Finding]:
    lines = []
    rows = due_soon(due, now, limits).tolist()
    last = commits.last()
    for group, ones in by_group(rows, lambda row: places[row][0]).items():
        first = int(due[ones].min())
        left = first - now
        when = f"in {duration(left)}" if left > 0 else "at any moment"
        idle = duration(max(now - int(commits.at[last[ones]].max()), 0))
        severity, headline = BAD if left < DAY // 2 else WARN, f"{group} loses its offsets {when}"
        details = f"{count(len(ones), 'partition')}, committed {idle} ago. A member that starts later begins at "
        details += "auto.offset.reset"
        lines.append(Finding(severity, group, "expiring", headline, details, first, NOTHING, len(ones)))
    return lines
