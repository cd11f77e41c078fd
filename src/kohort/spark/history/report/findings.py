"""What a person should be told of a group, in words: which group is in trouble, why, since when.

A finding is the sum of what the tables say of one group and one kind of trouble, so that a storm of a hundred
rebalances or a zombie on fifty partitions is one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import TIME, Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.report.incidents import (
    CAUSES,
    DAY,
    FORMER,
    IDLE,
    RECREATED,
    RESET,
    STRANGER,
    Jumps,
    Limits,
    Zombie,
)
from kohort.spark.history.tables.commits import Commits, Saw
from kohort.spark.history.tables.rebalances import Storm
from kohort.spark.history.tables.state import Standing

_T = TypeVar("_T")

BAD, WARN = "bad", "warn"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. Times in milliseconds; `until` is NOTHING for what goes on."""

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


def findings_table(found: Sequence[Finding]) -> pa.Table:
    """The table `findings`, the worst first."""
    rows = []
    for one in sorted(found, key=lambda one: (one.severity != BAD, -one.weight, one.group)):
        row = asdict(one)
        for name in ("since", "until"):
            row[name] = row[name] * 1000 if row[name] >= 0 else None
        rows.append(row)
    plain = pa.schema([pa.field(f.name, pa.int64() if f.type == TIME else f.type) for f in SCHEMA])
    return pa.Table.from_pylist(rows, schema=plain).cast(SCHEMA)


def duration(milliseconds: float) -> str:
    """A duration for people: `40 ms`, `12.5 s`, `7 min`, `3 h`, `2 days`."""
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


def _by(rows: Iterable[_T], key: Callable[[_T], str]) -> dict[str, list[_T]]:
    grouped: dict[str, list[_T]] = {}
    for row in rows:
        grouped.setdefault(key(row), []).append(row)
    return grouped


def _some(names: Iterable[str], most: int = 3) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


def of_storms(found: Iterable[Storm], names: Sequence[str]) -> list[Finding]:
    told = []
    for group, ones in _by(found, lambda one: names[one.group]).items():
        worst = max(ones, key=lambda one: one.rebalances)
        lasted = max(worst.until - worst.since, 1)
        again = "" if len(ones) == 1 else f" (the worst of {len(ones)} storms)"
        if worst.newcomers >= worst.rebalances // 2:
            why = f"{worst.newcomers} different members joined: restarts, or a rolling deployment"
        elif worst.newcomers:
            who = "the same member" if worst.newcomers == 1 else f"the same {worst.newcomers} members"
            why = f"{who} came and went: sessions or polls that time out"
        else:
            why = "nobody came or went: members that rejoin, or change what they ask for"
        moved = f"{count(worst.moved, 'partition')} moved"
        pause = (
            f"; longest pause in its commits {duration(worst.longest_pause_ms)}" if worst.longest_pause_ms > 0 else ""
        )
        told.append(
            Finding(
                BAD,
                group,
                "storm",
                f"{group} rebalanced {worst.rebalances} times in {duration(lasted)}{again}",
                f"{why}; {moved}{pause}",
                worst.since,
                worst.until,
                worst.rebalances,
            )
        )
    return told


def of_zombies(found: Iterable[Zombie], places: Sequence[tuple[str, str, int]]) -> list[Finding]:
    told = []
    for key, ones in _by(found, lambda one: f"{one.kind} {places[one.place][0]}").items():
        kind, group = ones[0].kind, places[ones[0].place][0]
        since, until = min(one.since for one in ones), max(one.until for one in ones)
        where = count(len(ones), "partition")
        which = _some(f"{places[one.place][1]}-{places[one.place][2]}" for one in ones)
        who = _some(one.member for one in ones if one.member)
        commits = sum(one.commits for one in ones)
        if kind == STRANGER:
            headline = f"{group} is committed by somebody who is not in it"
            details = f"{count(commits, 'commit')} on {where} ({which}) for {duration(until - since)} without a member"
        elif kind == FORMER:
            headline = f"A zombie commits in {group}: {who} goes on with what it no longer has"
            details = f"{count(commits, 'step')} back on {where} ({which}) within {duration(until - since)}"
        else:
            waiting = sum(one.waiting for one in ones)
            headline = f"{who} in {group} holds {where} and reads nothing"
            details = f"{which}: still for {duration(until - since)}, {count(waiting, 'record')} waiting"
        assert key
        severity = WARN if kind == STRANGER else BAD
        told.append(Finding(severity, group, _KINDS[kind], headline, details, since, until, commits + len(ones)))
    return told


_KINDS = {STRANGER: "zombie", FORMER: "zombie", IDLE: "standstill"}


def of_saws(found: Saw, places: Sequence[tuple[str, str, int]], known: Iterable[Zombie]) -> list[Finding]:
    """Sawteeth, but for those whose author is known."""
    told_of = {one.place for one in known if one.kind == FORMER}
    rows = [row for row in range(len(found.place)) if int(found.place[row]) not in told_of]
    told = []
    for group, ones in _by(rows, lambda row: places[int(found.place[row])][0]).items():
        which = _some(f"{places[int(found.place[row])][1]}-{places[int(found.place[row])][2]}" for row in ones)
        teeth = int(found.teeth[ones].sum())
        since, until = int(found.since[ones].min()), int(found.until[ones].max())
        told.append(
            Finding(
                BAD,
                group,
                "sawtooth",
                f"Two consumers commit the same {'partition' if len(ones) == 1 else 'partitions'} of {group}",
                f"{which}: offsets went back and forth {teeth} times in {duration(max(until - since, 1))}, by up to "
                f"{count(int(found.deepest[ones].max()), 'record')}",
                since,
                until,
                teeth,
            )
        )
    return told


def of_jumps(found: Jumps, commits: Commits, places: Sequence[tuple[str, str, int]]) -> list[Finding]:
    told = []
    size = commits.previous[found.rows] - commits.offset[found.rows]
    rows = [n for n in range(len(found.rows)) if found.cause[n] != RECREATED and _is_far(commits, int(found.rows[n]))]
    for _, ones in _by(rows, lambda n: f"{found.cause[n]} {places[commits.place[found.rows[n]]][0]}").items():
        group = places[commits.place[found.rows[ones[0]]]][0]
        at = commits.at[found.rows[ones]]
        again, skipped = int(np.maximum(size[ones], 0).sum()), int(np.maximum(-size[ones], 0).sum())
        partitions = count(len({int(commits.place[found.rows[n]]) for n in ones}), "partition")
        effect = f"{count(again, 'record')} to be read again" if again else f"{count(skipped, 'record')} skipped"
        cause = CAUSES[int(found.cause[ones[0]])]
        by_hand = found.cause[ones[0]] == RESET
        headline = f"{group} was reset while nobody was in it" if by_hand else f"{group} went back to older offsets"
        told.append(
            Finding(
                WARN, group, cause, headline, f"{effect} on {partitions}", int(at.min()), int(at.max()), again + skipped
            )
        )
    return told


def _is_far(commits: Commits, row: int) -> bool:
    """Whether a step is more than a few batches of its place: less is a retry."""
    place = commits.place[row]
    mine = slice(int(commits.first[place]), int(commits.first[place + 1]))
    steps = (commits.offset - commits.previous)[mine][commits.step[mine] == 1]
    usual = float(np.median(steps)) if len(steps) else 0.0
    return abs(int(commits.previous[row] - commits.offset[row])) > 10 * usual


def of_expiries(
    due: Numbers, commits: Commits, places: Sequence[tuple[str, str, int]], now: int, limits: Limits
) -> list[Finding]:
    told = []
    rows = np.flatnonzero((due >= 0) & (due - now <= limits.expiry_warning_ms)).tolist()
    last = commits.last()
    for group, ones in _by(rows, lambda row: places[row][0]).items():
        first = int(due[ones].min())
        left = first - now
        when = f"in {duration(left)}" if left > 0 else "any moment"
        idle = now - int(commits.at[last[ones]].max())
        told.append(
            Finding(
                BAD if left < DAY // 2 else WARN,
                group,
                "expiring",
                f"{group} loses its offsets {when}",
                f"{count(len(ones), 'partition')}, committed {duration(max(idle, 0))} ago. Who starts it after that "
                "begins at auto.offset.reset",
                first,
                NOTHING,
                len(ones),
            )
        )
    return told


def of_lag(
    times: Numbers,
    lag: Numbers,
    ends: Numbers,
    commits: Commits,
    places: Sequence[tuple[str, str, int]],
    standing: Mapping[str, Standing],
    limits: Limits,
) -> list[Finding]:
    """Groups that fall behind, and groups that nobody is in while their topics grow. `lag` and `ends` are by place and
    instant, NOTHING where not known."""
    told = []
    rows = np.arange(len(places))[(lag >= 0).any(axis=1)].tolist() if len(places) else []
    for group, ones in _by(rows, lambda row: places[row][0]).items():
        known = (lag[ones] >= 0).all(axis=0)
        if known.sum() < 8:
            continue
        at, total, end = times[known], lag[ones][:, known].sum(axis=0), ends[ones][:, known].sum(axis=0)
        half = len(at) // 2
        written = (end[-1] - end[half]) / max(at[-1] - at[half], 1)
        now, grown = int(total[-1]), int(total[-1] - total[half])
        left = standing.get(group)
        gone = left.deserted_since if left is not None else NOTHING
        if gone != NOTHING and int(commits.at[commits.last()[ones]].max()) > gone + limits.zombie_grace_ms:
            gone = NOTHING  # somebody reads for it, without being a member
        behind = now / written if written > 0 else 0.0
        if now == 0 or grown <= 0 or behind < limits.behind_ms:
            continue
        if gone != NOTHING:
            details = f"its last member left {duration(times[-1] - gone)} ago; {count(now, 'record')} wait"
            told.append(Finding(WARN, group, "deserted", f"Nobody reads for {group}", details, gone, NOTHING, now))
        elif grown >= now / 3 and _rises(total[half:]):
            before = duration(at[-1] - at[half])
            details = f"lag {count(now, 'record')}, {duration(behind)} of what is written"
            details += f"; {grown:,} more than {before} before"
            since = int(at[half])
            told.append(Finding(BAD, group, "falling behind", f"{group} falls behind", details, since, NOTHING, now))
    return told


def _rises(values: Numbers) -> bool:
    """Whether a series goes up as a whole, and not in a single jump."""
    steps = np.diff(values)
    return bool((steps > 0).mean() > 0.6)
