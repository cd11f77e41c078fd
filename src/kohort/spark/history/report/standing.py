"""Findings about groups that do not keep up: deserted, stuck, or falling behind.

They are judged by the lag of the whole group, at the instants at which it is known for all partitions that have one at
the end. Compaction keeps the state of a group and its last commits, which suffice for most of these findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.limits import Limits
from kohort.spark.history.report.findings import BAD, WARN, Finding, Place, count, duration
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
    for ones, course in _courses(lags, commits):
        group = places[ones[0]][0]
        gone = _gone(commits, ones, states.get(group), limits)
        if gone != NOTHING:
            found = _deserted(group, course, gone, lags.now, limits)
        else:
            state = states.get(group)
            found = _stuck(group, course, state, lags.now, limits) or _behind(group, course, limits)
        lines += [found] if found is not None else []
    return lines


def _courses(lags: Lags, commits: Commits) -> Iterator[tuple[Numbers, _Course]]:
    """The course of each group that has lag at the last instant at which its lag is known, with its places whose lag
    is known.

    There may be many groups, so they are computed together: the places of a group are adjacent.
    """
    rows = np.flatnonzero((lags.lag >= 0).any(axis=1))
    if not len(rows):
        return
    lag, group = lags.lag[rows], np.cumsum(np.diff(commits.places.groups[rows], prepend=-1) != 0) - 1
    groups = int(group[-1]) + 1
    edges, places = np.searchsorted(group, np.arange(groups + 1)), rows
    # Places whose offsets are deleted have no lag any more.
    is_known = np.logical_or.reduceat(lag >= 0, edges[:-1])
    last = is_known.shape[1] - 1 - np.argmax(is_known[:, ::-1], axis=1)
    kept = lag[np.arange(len(rows)), last[group]] >= 0
    rows, lag, group = rows[kept], lag[kept], group[kept]
    begins = np.searchsorted(group, np.arange(groups))
    known = np.logical_and.reduceat(lag >= 0, begins)
    lag, end = np.add.reduceat(lag, begins), np.add.reduceat(lags.ends[rows], begins)
    moved, intervals, usual_ms = _pace(commits, rows, group, groups)
    for number in np.flatnonzero(lag[np.arange(groups), last]).tolist():
        mine = known[number]
        yield (
            places[edges[number] : edges[number + 1]],
            _Course(
                lags.times[mine],
                lag[number, mine],
                end[number, mine],
                moved[number],
                intervals[number],
                usual_ms[number],
            ),
        )


def _pace(commits: Commits, rows: Numbers, group: Numbers, groups: int) -> tuple[list[int], list[int], list[int]]:
    """For each group when an offset last changed, how many intervals there are, and the usual one (see `_Course`). Its
    places are `rows`."""
    of_place = np.full(len(commits.places), NOTHING)
    of_place[rows] = group
    of = of_place[commits.place]
    # A group that has moved no offset has its last commit.
    moved, last = np.full(groups, NOTHING), np.full(groups, NOTHING)
    np.maximum.at(last, of[of >= 0], commits.at[of >= 0])
    moves = (of >= 0) & (commits.step != SAME) & (commits.step != DELETED)
    np.maximum.at(moved, of[moves], commits.at[moves])
    forward = np.flatnonzero((of >= 0) & (commits.step == FORWARD))
    adjacent = np.diff(commits.place[forward]) == 0
    gaps, of = np.diff(commits.at[forward])[adjacent], of[forward[1:]][adjacent]
    gaps = gaps[np.lexsort((gaps, of))]
    count = np.bincount(of, minlength=groups)
    first = np.cumsum(count) - count
    some = count > 0
    usual_ms = np.full(groups, NOTHING)
    low, high = first + (count - 1) // 2, first + count // 2
    usual_ms[some] = (gaps[low[some]] + gaps[high[some]]) // 2  # the median
    return np.where(moved == NOTHING, last, moved).tolist(), count.tolist(), usual_ms.tolist()


def _gone(commits: Commits, ones: Numbers, state: GroupState | None, limits: Limits) -> int:
    """Since when the group has no members, and no other process reads for it; NOTHING otherwise."""
    gone = state.deserted_since if state is not None else NOTHING
    if gone == NOTHING:
        return NOTHING
    for one in ones.tolist():
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
