"""Incidents in commits, groups and log ends: rewinds, zombies, standstill, offsets that will expire.

`Limits` says what counts as an incident. A healthy group has none: a step back is judged with the commits after it, a
silent member with the records that wait for it, a group without members with the commits that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.limits import Limits
from kohort.spark.history.tables.columns import field_of, instants, words
from kohort.spark.history.tables.commits import BACK, DELETED, FORWARD, SAME, Commits, Places, teeth
from kohort.spark.history.tables.group_state import GroupState
from kohort.spark.history.tables.ownership import CLASSIC, Ownership
from kohort.spark.history.tables.spans import OPEN

RESET, REWIND, RECREATED = range(3)
CAUSES = ("reset", "rewind", "topic recreated")


@dataclass(frozen=True, slots=True)
class Rewinds:
    """Steps of offsets that are not consumption."""

    rows: Numbers
    """Of the commits."""
    cause: Numbers
    """One of CAUSES."""


def rewinds(commits: Commits, states: Mapping[str, GroupState], topic_ids: Numbers, queries: Numbers) -> Rewinds:
    """Steps back that are not teeth, and single steps in groups without members.

    `topic_ids` has for each commit a number for the topic's id, NOTHING if it has none; `queries` says which commits
    name the Spark query that wrote them.
    """
    deserted = _deserted(commits, states, 0)
    back = (commits.step == BACK) & ~teeth(commits)
    moving = deserted & ~queries & ((commits.step == FORWARD) | (commits.step == BACK))
    in_place = np.bincount(commits.place[moving], minlength=len(commits.places))
    # A person moves a place once or twice; a program that is not a member commits again and again.
    by_hand = moving & (in_place[commits.place] <= 2)
    rows = np.flatnonzero(back | by_hand)
    before = np.maximum(rows - 1, 0)
    anew = (topic_ids[rows] != NOTHING) & (topic_ids[before] != NOTHING) & (topic_ids[rows] != topic_ids[before])
    cause = np.where(deserted[rows], RESET, REWIND)
    return Rewinds(rows, np.where(anew, RECREATED, cause))


def _deserted(commits: Commits, states: Mapping[str, GroupState], grace_ms: int) -> Numbers:
    """For each commit whether its group had no members, after it had had some."""
    found = np.zeros(len(commits.at), bool)
    edges = np.searchsorted(commits.places.groups, np.arange(len(commits.places.group_names) + 1))
    for number, name in enumerate(commits.places.group_names.to_pylist()):
        known = states.get(name)
        if known is None or not known.deserted:
            continue
        # The places of a group are adjacent, and so are their commits.
        mine = slice(commits.first[edges[number]], commits.first[edges[number + 1]])
        since, until = np.array(known.deserted, np.int64).T
        until = np.where(until == NOTHING, np.iinfo(np.int64).max, until)
        at = commits.at[mine]
        last = np.searchsorted(since + grace_ms, at) - 1
        found[mine] = (last >= 0) & (at < until[last])
    return found


def _by_place(commits: Commits, rows: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Rows of the commits, which ascend, split by place."""
    place = commits.place[rows]
    for mine in np.split(rows, np.flatnonzero(place[1:] != place[:-1]) + 1):
        if len(mine):
            yield int(commits.place[mine[0]]), mine


def rewinds_table(found: Rewinds, commits: Commits) -> pa.Table:
    rows = found.rows
    back = commits.previous[rows] - commits.offset[rows]
    return pa.table(
        {
            **commits.places.columns(commits.place[rows]),
            "at": instants(commits.at[rows]),
            "from": pa.array(commits.previous[rows]),
            "to": pa.array(commits.offset[rows]),
            "back": pa.array(back),
            "cause": words(found.cause, CAUSES),
        }
    )


ZOMBIES = ("commits without being a member", "former owner commits", "holds and reads nothing")
NOT_A_MEMBER, FORMER_OWNER, IDLE = range(len(ZOMBIES))


@dataclass(frozen=True, slots=True)
class Zombie:
    """A process that commits without owning the partition, or a member that owns it and does nothing. Milliseconds."""

    place: int
    kind: int
    since: int
    until: int
    commits: int
    member: str | None
    waiting: int = 0
    """Records that an idle member has not consumed."""


def non_members(commits: Commits, states: Mapping[str, GroupState], queries: Numbers, limits: Limits) -> list[Zombie]:
    """Places with commits after all members have left their group.

    Commits that name a Spark query do not count: a group can be handed over to a query.
    """
    unnamed = _deserted(commits, states, limits.zombie_grace_ms) & ~queries
    rows = np.flatnonzero(unnamed & (commits.step == FORWARD))
    found = []
    for place, mine in _by_place(commits, rows):
        if len(mine) >= limits.zombie_commits:
            found.append(
                Zombie(place, NOT_A_MEMBER, int(commits.at[mine[0]]), int(commits.at[mine[-1]]), len(mine), None)
            )
    return found


def former_owners(commits: Commits, owners: Owners, limits: Limits) -> list[Zombie]:
    """Places that become a sawtooth after they moved from one member to another."""
    rows = np.flatnonzero(teeth(commits))
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
                Zombie(place, FORMER_OWNER, int(commits.at[after[0]]), int(commits.at[after[-1]]), len(after), former)
            )
    return found


class Owners:
    """The owners of places."""

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
        """When the place moved to another member, and its former owner."""
        owned = self._owned
        return [
            (int(owned.since[row]), owned.members[int(owned.member[owned.previous[row]])].as_py())
            for row in self._spans.get(place, ())
            if owned.moved[row]
        ]

    def now(self) -> Iterator[tuple[int, int, str]]:
        """The places that have an owner at the end of the log, ascending; since when, and the owner."""
        owned, members = self._owned, self._owned.members.to_pylist()
        is_open = (owned.until == OPEN).tolist()
        for place, rows in sorted(self._spans.items()):
            row = next((row for row in reversed(rows) if is_open[row]), None)
            if row is not None:
                yield place, int(owned.since[row]), members[owned.member[row]]


def idle(
    commits: Commits, owners: Owners, end_then: Numbers, end_now: Numbers, now: int, limits: Limits
) -> list[Zombie]:
    """Places whose owner has not consumed the records that wait there since `limits.standstill_ms`.

    `end_then` and `end_now` are the log's end for each place at that time ago and now; NOTHING if not known.
    """
    found = []
    for place, held_since, owner in owners.now():
        rows = slice(int(commits.first[place]), int(commits.first[place + 1]))
        moving = np.flatnonzero((commits.step[rows] != DELETED) & (commits.step[rows] != SAME))
        last = int(commits.offset[rows][-1])
        if last == NOTHING or not len(moving) or end_then[place] <= last:
            continue
        since = max(held_since, int(commits.at[rows][moving[-1]]))
        if now - since >= limits.standstill_ms:
            waiting = int(max(end_now[place], end_then[place])) - last
            found.append(Zombie(place, IDLE, since, now, 0, owner, waiting))
    return found


def zombies_table(found: list[Zombie], places: Places) -> pa.Table:
    column = partial(field_of, found)
    return pa.table(
        {
            **places.columns(column("place")),
            "kind": words(column("kind"), ZOMBIES),
            "member_id": pa.array([one.member for one in found], pa.string()),
            "since": instants(column("since")),
            "until": instants(column("until")),
            "commits": pa.array(column("commits"), pa.int32()),
            "waiting": pa.array(column("waiting"), pa.int64()),
        }
    )


def expiries(
    commits: Commits,
    places: Sequence[tuple[str, str, int]],
    commit_times: Numbers,
    expire_times: Numbers,
    states: Mapping[str, GroupState],
    subscribed: Mapping[str, set[str] | None],
    limits: Limits,
) -> Numbers:
    """When the offset of each place will be deleted, in milliseconds; NOTHING if it is kept.

    These are Kafka's rules. An explicit expiry time comes first. The retention of an empty classic group begins when
    the group became empty. Otherwise it begins at the commit, if no member subscribes to the topic. `subscribed` are
    the topics of a group's members, None if they are not known.
    """
    last = commits.last()
    due = commit_times[last] + limits.offsets_retention_ms
    explicit = expire_times[last] >= 0
    due[explicit] = expire_times[last][explicit]
    for place, (group, topic, _) in enumerate(places):
        known = states.get(group)
        if known is None or known.deleted or explicit[place]:
            continue
        if known.members:
            topics_of_group = subscribed.get(group)
            if topics_of_group is None or topic in topics_of_group:
                due[place] = NOTHING
        elif known.protocol == CLASSIC and known.state_at >= 0:
            due[place] = known.state_at + limits.offsets_retention_ms
    return np.where(commits.step[last] == DELETED, NOTHING, due)


def due_soon(due: Numbers, now: int, limits: Limits) -> Numbers:
    """The places whose offsets will be deleted soon."""
    return np.flatnonzero((due >= 0) & (due - now <= limits.expiry_warning_ms))


def expiries_table(commits: Commits, due: Numbers, now: int, limits: Limits) -> pa.Table:
    """The table `expiring`: offsets that will be deleted soon."""
    rows = due_soon(due, now, limits)
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
    """The topics that the members at the end of the log subscribe to, by group; None if a member uses a pattern."""
    subscribed: dict[str, set[str] | None] = {}
    present = members.filter(pc.is_null(members.column("until")))
    for group, topics, regex in zip(
        *(present.column(name).to_pylist() for name in ("group", "topics", "regex")), strict=True
    ):
        known = subscribed.setdefault(group, set())
        if topics is None or regex:
            subscribed[group] = None
        elif known is not None:
            known.update(topics)
    return subscribed
