"""Findings about groups that do not keep up: deserted, stuck, or falling behind.

They are judged by the lag of the whole group, at the instants at which it is known for all partitions that have one at
the end. Compaction keeps the state of a group and its last commits, which suffice for most of these findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.limits import Limits
from kohort.spark.history.report.findings import BAD, WARN, Finding, Place, by_group, count, duration
from kohort.spark.history.tables.commits import DELETED, FORWARD, SAME, Commits
from kohort.spark.history.tables.group_state import GroupState

LEAST_INTERVALS = 8
"""Fewer instants say nothing about a trend."""
USUAL_INTERVALS = 10
"""So many of its usual intervals without a commit are long for a group."""


@dataclass(frozen=True, slots=True)
class Lags:
    """Lag and log ends by place (row) and instant (column), NOTHING if not known. `now` is the end of the history."""

    times: Numbers
    lag: Numbers
    ends: Numbers
    now: int


@dataclass(frozen=True, slots=True)
class _Course:
    """The lag of a group over time, summed over its places."""

    at: Numbers
    lag: Numbers
    end: Numbers
    moved: int
    """When an offset last changed."""
    intervals: int
    """How many intervals there are between commits that moved an offset forward, in all places."""
    usual_ms: int
    """The usual one; NOTHING if there is none."""

    @property
    def now(self) -> int:
        return int(self.lag[-1])

    @property
    def half(self) -> int:
        return len(self.at) // 2

    @property
    def behind_ms(self) -> float:
        """In what time so many records are written."""
        half = self.half
        written = (self.end[-1] - self.end[half]) / max(self.at[-1] - self.at[half], 1)
        return float(self.now / written) if written > 0 else 0.0

    def grown_since(self, at: int) -> int:
        """How much the lag has grown since an instant, as far back as it is known."""
        known = self.lag[np.searchsorted(self.at, at) :]
        return int(known[-1] - known[0]) if len(known) > 1 else 0

    def quiet_ms(self, limits: Limits) -> int:
        """After this time without a commit the group is stuck."""
        least = limits.stuck_ms if self.intervals >= LEAST_INTERVALS else limits.standstill_ms
        return max(least, USUAL_INTERVALS * self.usual_ms)


def of_lag(
    lags: Lags, commits: Commits, places: Sequence[Place], states: Mapping[str, GroupState], limits: Limits
) -> list[Finding]:
    """Groups that fall behind, that are stuck, or that have no members while their lag grows."""
    lines = []
    rows = np.flatnonzero((lags.lag >= 0).any(axis=1)).tolist() if len(places) else []
    for group, ones in by_group(rows, lambda row: places[row][0]).items():
        course = _course(lags, commits, ones)
        if course.now == 0:
            continue
        gone = _gone(commits, ones, states.get(group), limits)
        if gone != NOTHING:
            found = _deserted(group, course, gone, lags.now, limits)
        else:
            state = states.get(group)
            found = _stuck(group, course, state, lags.now, limits) or _behind(group, course, limits)
        lines += [found] if found is not None else []
    return lines


def _course(lags: Lags, commits: Commits, ones: list[int]) -> _Course:
    # Places whose offsets are deleted have no lag any more.
    last = np.flatnonzero((lags.lag[ones] >= 0).any(axis=0))[-1]
    ones = [one for one in ones if lags.lag[one, last] >= 0]
    known = (lags.lag[ones] >= 0).all(axis=0)
    rows = np.concatenate([np.arange(commits.first[one], commits.first[one + 1]) for one in ones])
    step, at = commits.step[rows], commits.at[rows]
    moves = at[(step != SAME) & (step != DELETED)]
    forward = step == FORWARD
    gaps = np.diff(at[forward])[np.diff(commits.place[rows[forward]]) == 0]
    return _Course(
        lags.times[known],
        lags.lag[ones][:, known].sum(axis=0),
        lags.ends[ones][:, known].sum(axis=0),
        int(moves.max()) if len(moves) else int(at.max()),
        len(gaps),
        int(np.median(gaps)) if len(gaps) else NOTHING,
    )


def _gone(commits: Commits, ones: list[int], state: GroupState | None, limits: Limits) -> int:
    """Since when the group has no members, and no other process reads for it; NOTHING otherwise."""
    gone = state.deserted_since if state is not None else NOTHING
    if gone == NOTHING:
        return NOTHING
    for one in ones:
        mine = slice(int(commits.first[one]), int(commits.first[one + 1]))
        later = (commits.at[mine] > gone + limits.zombie_grace_ms) & (commits.step[mine] == FORWARD)
        if later.sum() >= limits.zombie_commits:
            return NOTHING
    return gone


def _deserted(group: str, course: _Course, gone: int, now: int, limits: Limits) -> Finding | None:
    grown = course.grown_since(gone)
    if now - gone < limits.deserted_ms or grown <= 0:
        return None
    headline = f"{group} has no members, and its lag grows"
    details = f"its last member left {duration(now - gone)} ago"
    details += f"; lag {count(course.now, 'record')}, {grown:,} more since"
    return Finding(WARN, group, "deserted", headline, details, gone, NOTHING, course.now)


def _stuck(group: str, course: _Course, state: GroupState | None, now: int, limits: Limits) -> Finding | None:
    quiet, grown = now - course.moved, course.grown_since(course.moved)
    if quiet < course.quiet_ms(limits) or grown <= 0:
        return None
    usual = f", where it used to take {duration(course.usual_ms)}" if course.intervals >= LEAST_INTERVALS else ""
    details = f"no offset has moved for {duration(quiet)}{usual}"
    details += f"; lag {count(course.now, 'record')}, {grown:,} more since"
    if state is None or not state.members:
        # Simple consumers and engines with state of their own: there is no member to blame.
        headline = f"Nobody commits for {group} any more, and its lag grows"
        return Finding(WARN, group, "stuck", headline, details, course.moved, NOTHING, course.now)
    members = count(len(state.members), "member")
    headline = f"{group} is stuck: its {members} commit{'s' if len(state.members) == 1 else ''} nothing new"
    return Finding(BAD, group, "stuck", headline, details, course.moved, NOTHING, course.now)


def _behind(group: str, course: _Course, limits: Limits) -> Finding | None:
    half, grown = course.half, int(course.lag[-1] - course.lag[course.half])
    if len(course.at) < LEAST_INTERVALS or grown < course.now / 3:
        return None
    if course.behind_ms < max(limits.behind_ms, 2 * course.usual_ms):  # between two commits the lag grows anyway
        return None
    if (np.diff(course.lag[half:]) > 0).mean() <= 0.6:  # it rises in a single jump
        return None
    before = duration(course.at[-1] - course.at[half])
    details = f"lag {count(course.now, 'record')}, {duration(course.behind_ms)} of what is written"
    details += f"; {grown:,} more than {before} before"
    since = int(course.at[half])
    return Finding(BAD, group, "falling behind", f"{group} falls behind", details, since, NOTHING, course.now)
