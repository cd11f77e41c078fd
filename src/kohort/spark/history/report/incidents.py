"""Incidents out of commits, groups and log ends: steps back, zombies, standstill, offsets that will expire.

What counts as an incident is in `Limits`. A group that does its work gives none: a step back is looked at with what
came after it, silence with whether there was something to read, an empty group with what it left behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.tables import commits as series
from kohort.spark.history.tables.commits import BACK, DELETED, FORWARD, Commits, Places, instants
from kohort.spark.history.tables.groups import CLASSIC, Ownership
from kohort.spark.history.tables.spans import OPEN
from kohort.spark.history.tables.state import Standing

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as an incident. Durations in milliseconds."""

    storm_rebalances: int = 8
    storm_gap_ms: int = 2 * MINUTE
    saw_teeth: int = 3
    saw_gap_ms: int = 30 * MINUTE
    zombie_commits: int = 3
    """Commits of a group without members that make one."""
    zombie_grace_ms: int = 10_000
    handover_ms: int = 10 * MINUTE
    """Who commits by turns with a partition's owner is its former owner if that begins so soon after the hand-over."""
    standstill_ms: int = 10 * MINUTE
    offsets_retention_ms: int = 7 * DAY
    """The brokers' offsets.retention.minutes; Kafka's default."""
    expiry_warning_ms: int = 2 * DAY
    behind_ms: int = 5 * MINUTE
    """A lag that grows is told when it is more than was written in so long."""


RESET, REWIND, RECREATED = range(3)
CAUSES = ("reset", "rewind", "topic recreated")


@dataclass(frozen=True, slots=True)
class Jumps:
    """Steps that were no consumption: rows of the commits, and why."""

    rows: Numbers
    cause: Numbers


def jumps(commits: Commits, standing: Mapping[str, Standing], topic_ids: Numbers, queries: Numbers) -> Jumps:
    """Steps back that were not made up for at once, and single commits of whoever was not in the group.

    `topic_ids` is a number a row for the topic's id in it, NOTHING where it has none; `queries` says which rows name
    the query that wrote them.
    """
    deserted = _deserted(commits, standing, 0)
    back = (commits.step == BACK) & ~series.teeth(commits)
    stepped = np.zeros(len(back), np.int64)
    moving = deserted & ~queries & ((commits.step == FORWARD) | (commits.step == BACK))
    np.add.at(stepped, np.flatnonzero(moving), 1)
    in_place = np.bincount(commits.place, stepped, len(commits.places)) if len(back) else np.zeros(0)
    # A person moves a place once; a program that commits without being a member goes on doing so.
    by_hand = moving & (in_place[commits.place] <= 2)
    rows = np.flatnonzero(back | by_hand)
    before = np.maximum(rows - 1, 0)
    anew = (topic_ids[rows] != NOTHING) & (topic_ids[before] != NOTHING) & (topic_ids[rows] != topic_ids[before])
    cause = np.where(deserted[rows], RESET, REWIND)
    return Jumps(rows, np.where(anew, RECREATED, cause))


def _deserted(commits: Commits, standing: Mapping[str, Standing], grace_ms: int) -> Numbers:
    """Of each commit whether nobody was in its group, although there had been somebody before."""
    found = np.zeros(len(commits.at), bool)
    edges = np.searchsorted(commits.places.groups, np.arange(len(commits.places.group_names) + 1))
    for number, name in enumerate(commits.places.group_names.to_pylist()):
        known = standing.get(name)
        if known is None or not known.deserted:
            continue
        # A group's places stand side by side, and so do their commits.
        mine = slice(commits.first[edges[number]], commits.first[edges[number + 1]])
        since, until = np.array(known.deserted, np.int64).T
        until = np.where(until == NOTHING, np.iinfo(np.int64).max, until)
        at = commits.at[mine]
        last = np.searchsorted(since + grace_ms, at) - 1
        found[mine] = (last >= 0) & (at < until[last])
    return found


def _by_place(commits: Commits, rows: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Rows of the commits, ascending, place by place."""
    place = commits.place[rows]
    for mine in np.split(rows, np.flatnonzero(place[1:] != place[:-1]) + 1):
        if len(mine):
            yield int(commits.place[mine[0]]), mine


def jumps_table(found: Jumps, commits: Commits) -> pa.Table:
    """The table `rewinds`: rewinds and resets."""
    rows = found.rows
    back = commits.previous[rows] - commits.offset[rows]
    return pa.table(
        {
            **commits.places.columns(commits.place[rows]),
            "at": instants(commits.at[rows]),
            "from": pa.array(commits.previous[rows]),
            "to": pa.array(commits.offset[rows]),
            "back": pa.array(back),
            "cause": series.words(found.cause, CAUSES),
        }
    )


ZOMBIES = ("commits without being a member", "former owner commits", "holds and reads nothing")
STRANGER, FORMER, IDLE = range(len(ZOMBIES))


@dataclass(frozen=True, slots=True)
class Zombie:
    """Somebody who acts as if the group were as it had been, or who is in it and does nothing. Milliseconds."""

    place: int
    kind: int
    since: int
    until: int
    commits: int
    member: str | None
    waiting: int = 0
    """Records that were there to be read, where it reads nothing."""


def strangers(commits: Commits, standing: Mapping[str, Standing], queries: Numbers, limits: Limits) -> list[Zombie]:
    """Places that go on being committed although nobody is in their group any more.

    A commit that says which query wrote it is none of these: a group may be handed over to a Spark query.
    """
    unnamed = _deserted(commits, standing, limits.zombie_grace_ms) & ~queries
    rows = np.flatnonzero(unnamed & (commits.step == FORWARD))
    found = []
    for place, mine in _by_place(commits, rows):
        if len(mine) >= limits.zombie_commits:
            found.append(Zombie(place, STRANGER, int(commits.at[mine[0]]), int(commits.at[mine[-1]]), len(mine), None))
    return found


def former_owners(commits: Commits, owners: Owners, limits: Limits) -> list[Zombie]:
    """Places that are committed by turns, after they went from one member to another."""
    rows = np.flatnonzero(series.teeth(commits))
    found = []
    for place, mine in _by_place(commits, rows):
        at = commits.at[mine]
        handed = [
            (int(moment), former)
            for moment, former in owners.handovers(place)
            if at[-1] > moment and at[at > moment][0] <= moment + limits.handover_ms
        ]
        if len(mine) >= 2 and handed:
            moment, former = handed[-1]
            after = mine[at > moment]
            found.append(
                Zombie(place, FORMER, int(commits.at[after[0]]), int(commits.at[after[-1]]), len(after), former)
            )
    return found


class Owners:
    """Who has a place; the places are those of the commits."""

    def __init__(self, owned: Ownership, group_names: pa.Array, places: Places) -> None:
        self._owned = owned
        names = group_names.to_pylist()
        topics = owned.topic_names.to_pylist()
        numbers = {name: number for number, name in enumerate(places.names())}
        self._spans: dict[int, list[int]] = {}
        keys = zip(owned.groups.tolist(), owned.topics.tolist(), owned.partitions.tolist(), strict=True)
        for row, (group, topic, partition) in enumerate(keys):
            place = numbers.get((names[group], topics[topic], partition))
            if place is not None:
                self._spans.setdefault(place, []).append(row)

    def handovers(self, place: int) -> list[tuple[int, str]]:
        """When it went to another member, and from whom."""
        owned = self._owned
        return [
            (int(owned.since[row]), owned.members[int(owned.member[owned.previous[row]])].as_py())
            for row in self._spans.get(place, ())
            if owned.moved[row]
        ]

    def now(self, place: int) -> tuple[int, str] | None:
        """Since when who has it, at the end of the log."""
        rows = self._spans.get(place, ())
        for row in reversed(rows):
            if self._owned.until[row] == OPEN:
                return int(self._owned.since[row]), self._owned.members[int(self._owned.member[row])].as_py()
        return None


def idle(
    commits: Commits, owners: Owners, end_then: Numbers, end_now: Numbers, now: int, limits: Limits
) -> list[Zombie]:
    """Places that somebody has and does not read, although there was something to read for long.

    `end_then` and `end_now` are the ends of the logs a standstill ago and now, by place; NOTHING where not known.
    """
    found = []
    for place in range(len(commits.places)):
        held = owners.now(place)
        rows = slice(int(commits.first[place]), int(commits.first[place + 1]))
        moving = np.flatnonzero((commits.step[rows] != DELETED) & (commits.step[rows] != series.SAME))
        last = int(commits.offset[rows][-1])
        if held is None or last == NOTHING or not len(moving) or end_then[place] <= last:
            continue
        since = max(held[0], int(commits.at[rows][moving[-1]]))
        if now - since >= limits.standstill_ms:
            waiting = int(max(end_now[place], end_then[place])) - last
            found.append(Zombie(place, IDLE, since, now, 0, held[1], waiting))
    return found


def zombies_table(found: list[Zombie], places: Places) -> pa.Table:
    """The table `zombies`."""

    def column(name: str) -> Numbers:
        return np.array([getattr(one, name) for one in found], np.int64)

    return pa.table(
        {
            **places.columns(column("place")),
            "kind": series.words(column("kind"), ZOMBIES),
            "member_id": pa.array([one.member for one in found], pa.string()),
            "since": instants(column("since")),
            "until": instants(column("until")),
            "commits": pa.array(column("commits"), pa.int32()),
            "waiting": pa.array(column("waiting"), pa.int64()),
        }
    )


def saws_table(found: series.Saw, places: Places) -> pa.Table:
    """The table `sawteeth`."""
    return pa.table(
        {
            **places.columns(found.place),
            "since": instants(found.since),
            "until": instants(found.until),
            "teeth": pa.array(found.teeth, pa.int32()),
            "deepest": pa.array(found.deepest, pa.int64()),
        }
    )


def expiries(
    commits: Commits,
    commit_times: Numbers,
    expire_times: Numbers,
    standing: Mapping[str, Standing],
    subscribed: Mapping[str, set[str] | None],
    limits: Limits,
) -> Numbers:
    """When each place's offset will be deleted, in milliseconds; NOTHING for one that is kept.

    As Kafka does it: an explicit expiry first; the offsets of an empty classic group live from when it became empty;
    those that nobody subscribes to, of a group of another kind or of none, from their commit. `subscribed` are the
    topics that a group's members ask for, None where that is not known.
    """
    last = commits.last()
    due = commit_times[last] + limits.offsets_retention_ms
    names, topics = commits.places.group_names.to_pylist(), commits.places.topic_names.to_pylist()
    for place in range(len(last)):
        known = standing.get(names[commits.places.groups[place]])
        if expire_times[last[place]] >= 0:
            due[place] = expire_times[last[place]]
        elif known is None or known.deleted:
            continue
        elif known.members:
            asked = subscribed.get(names[commits.places.groups[place]])
            if asked is None or topics[commits.places.topics[place]] in asked:
                due[place] = NOTHING
        elif known.protocol == CLASSIC and known.state_at >= 0:
            due[place] = known.state_at + limits.offsets_retention_ms
    return np.where(commits.step[last] == DELETED, NOTHING, due)


def expiries_table(commits: Commits, due: Numbers, now: int, limits: Limits) -> pa.Table:
    """The table `expiring`: offsets that will be deleted soon."""
    rows = np.flatnonzero((due >= 0) & (due - now <= limits.expiry_warning_ms))
    last = commits.last()[rows]
    return pa.table(
        {
            **commits.places.columns(rows),
            "offset": pa.array(commits.offset[last]),
            "committed": instants(commits.at[last]),
            "expires": instants(due[rows]),
        }
    )


def subscriptions(members: pa.Table) -> dict[str, set[str] | None]:
    """The topics that the members at the end of the log ask for, by group."""
    asked: dict[str, set[str] | None] = {}
    present: Any = members.filter(pa.compute.is_null(members.column("until")))
    for group, topics, regex in zip(
        *(present.column(name).to_pylist() for name in ("group", "topics", "regex")), strict=True
    ):
        known = asked.setdefault(group, set())
        if topics is None or regex:
            asked[group] = None
        elif known is not None:
            known.update(topics)
    return asked
