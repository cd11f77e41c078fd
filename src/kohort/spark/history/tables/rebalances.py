"""Rebalances: when the partitions of a group were assigned again, how long that took, and how many moved.

For a classic group the log has only the end of a rebalance: the record with the leader's assignment. Its `state_time`
is the time at which all members had joined. The only trace of earlier steps is the pause in the group's commits. For a
group of the consumer protocol the log has the record that raises the epoch, and for each member a record when it has
reached that epoch. If the epoch is raised again before that, both raises belong to the same rebalance.

The records of groups are few, so this module reads them one by one, without partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.stories import OFTEN, Client
from kohort.spark.history.tables.clients import Clients
from kohort.spark.history.tables.columns import field_of, instants, nullable, taken, words
from kohort.spark.history.tables.commits import Commits
from kohort.spark.history.tables.groups import GroupEvent
from kohort.spark.history.tables.ownership import CLASSIC, CONSUMER, PROTOCOLS, Ownership


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance. Times in milliseconds; NOTHING if not known."""

    group: int
    protocol: int
    epoch: int
    started: int
    settled: int
    """NOTHING if it has not settled at the end of the log."""
    before: int
    after: int
    """Members."""
    joined: tuple[str, ...]
    left: tuple[str, ...]
    present: tuple[str, ...] = ()
    """The members after it, as in `joined`."""
    raises: int = 1
    """How often the epoch was raised."""
    moved: int = 0
    """Partitions that moved to another member."""
    pause_ms: int = NOTHING
    """The time from the group's last commit before the rebalance to the first commit after it."""

    @property
    def seen(self) -> int:
        """Its instant on a timeline."""
        return self.settled if self.settled != NOTHING else self.started

    @property
    def length_ms(self) -> int:
        known = self.started != NOTHING and self.settled != NOTHING
        return self.settled - self.started if known else NOTHING


@dataclass(slots=True)
class _State:
    """A group while its records are read."""

    generation: int = NOTHING
    classic: tuple[str, ...] = ()
    epoch: int = NOTHING
    members: set[str] = field(default_factory=set)
    settled: frozenset[str] = frozenset()
    """The members when the last rebalance had ended."""
    behind: set[str] = field(default_factory=set)
    """Members that have not reached the epoch."""
    open: Rebalance | None = None


def rebalances_of(events: Iterable[GroupEvent]) -> list[Rebalance]:
    """The rebalances of all groups, in the order in which they settled; those that have not settled come last."""
    states: dict[int, _State] = {}
    found: list[Rebalance] = []
    for event in events:
        state = states.setdefault(event.group, _State())
        one = _classic(state, event) if event.kind == 2 else _consumer(state, event)
        if one is not None:
            found.append(one)
    return found + [state.open for state in states.values() if state.open is not None]


def _classic(state: _State, event: GroupEvent) -> Rebalance | None:
    before, state.classic = state.classic, event.members
    if event.deleted or event.epoch == state.generation:
        return None
    state.generation = event.epoch
    if not before and not event.members:
        return None
    joined = tuple(sorted(set(event.members) - set(before)))
    left = tuple(sorted(set(before) - set(event.members)))
    started = event.state_at if 0 <= event.state_at <= event.at else NOTHING
    return Rebalance(
        event.group,
        CLASSIC,
        event.epoch,
        started,
        event.at,
        len(before),
        len(event.members),
        joined,
        left,
        event.members,
    )


def _consumer(state: _State, event: GroupEvent) -> Rebalance | None:
    match event.kind:
        case 3 if event.deleted:
            state.epoch, state.open, state.settled = NOTHING, None, frozenset()
            return None
        case 3 if event.epoch > state.epoch:
            state.epoch = event.epoch
            state.behind = set(state.members)
            if state.open is None:
                state.open = Rebalance(
                    event.group, CONSUMER, event.epoch, event.at, NOTHING, len(state.settled), 0, (), ()
                )
            else:
                state.open = replace(state.open, epoch=event.epoch, raises=state.open.raises + 1)
        case 5 if event.deleted:
            state.members.discard(event.member)
            state.behind.discard(event.member)
        case 5 if event.member not in state.members:
            state.members.add(event.member)
            state.behind.add(event.member)
        case 8 if not event.deleted and event.epoch == state.epoch and event.state == 0:
            state.behind.discard(event.member)
    if state.open is None or state.behind:
        return None
    before, members = state.settled, frozenset(state.members)
    done = replace(
        state.open,
        settled=event.at,
        after=len(members),
        joined=tuple(sorted(members - before)),
        left=tuple(sorted(before - members)),
        present=tuple(sorted(members)),
    )
    state.open, state.settled = None, members
    return done if before or members else None


def measured(
    found: list[Rebalance], owned: Ownership, commits: Commits, group_of_name: Mapping[str, int]
) -> list[Rebalance]:
    """The rebalances with the number of partitions that moved to another member during each, and with the pause in the
    group's commits around each."""
    column = partial(field_of, found)
    groups, started, settled = column("group"), column("started"), column("settled")
    is_settled = settled != NOTHING
    moves = _Timeline(owned.groups[owned.moved], owned.since[owned.moved])
    begin = np.where(column("protocol") == CLASSIC, settled, started)
    end = np.where(is_settled, settled, np.iinfo(np.int64).max)
    moved = moves.place(groups, end, "right") - moves.place(groups, begin, "left")

    names = commits.places.group_names.to_pylist()
    numbers = np.array([group_of_name.get(name, NOTHING) for name in names], np.int64)
    line = _Timeline(numbers[commits.places.groups[commits.place]] if len(commits.place) else commits.place, commits.at)
    before = line.place(groups, np.where(started != NOTHING, started, settled), "right") - 1
    after = line.place(groups, np.where(is_settled, settled, started), "left")
    known = np.flatnonzero(is_settled & line.is_of(groups, before) & line.is_of(groups, after))
    pause_ms = np.full(len(found), NOTHING)
    pause_ms[known] = line.at[after[known]] - line.at[before[known]]
    return [
        replace(one, moved=count, pause_ms=pause)
        for one, count, pause in zip(found, moved.tolist(), pause_ms.tolist(), strict=True)
    ]


class _Timeline:
    """Instants in the order of their groups and of time."""

    def __init__(self, groups: Numbers, at: Numbers) -> None:
        order = np.lexsort((at, groups))
        self._groups, self.at = groups[order], at[order]
        low, high = (int(at.min()), int(at.max())) if len(at) else (0, 0)
        self._range = low - 1, high + 1
        self._keys = self._key(self._groups, self.at)

    def _key(self, groups: Numbers, at: Numbers) -> Numbers:
        """Group and instant as one number."""
        first, last = self._range
        key: Numbers = groups * (last - first + 1) + np.clip(at, first, last) - first
        return key

    def place(self, groups: Numbers, at: Numbers, side: Literal["left", "right"]) -> Numbers:
        return np.searchsorted(self._keys, self._key(groups, at), side)

    def is_of(self, groups: Numbers, places: Numbers) -> Numbers:
        """For each place whether it is one of the group's."""
        found = np.zeros(len(places), bool)
        inside = (places >= 0) & (places < len(self._groups))
        found[inside] = self._groups[places[inside]] == groups[inside]
        return found


def rebalances_table(found: list[Rebalance], group_names: pa.Array) -> pa.Table:
    column = partial(field_of, found)
    return pa.table(
        {
            "group": taken(column("group"), group_names),
            "protocol": words(column("protocol"), PROTOCOLS),
            "epoch": pa.array(column("epoch"), pa.int32()),
            "started": instants(column("started")),
            "settled": instants(column("settled")),
            "length_ms": nullable(column("length_ms")),
            "pause_ms": nullable(column("pause_ms")),
            "raises": pa.array(column("raises"), pa.int32()),
            "members_before": pa.array(column("before"), pa.int32()),
            "members_after": pa.array(column("after"), pa.int32()),
            "joined": pa.array([list(one.joined) for one in found], pa.list_(pa.string())),
            "left": pa.array([list(one.left) for one in found], pa.list_(pa.string())),
            "moved": pa.array(column("moved"), pa.int32()),
        }
    )


@dataclass(frozen=True, slots=True)
class Storm:
    """Many rebalances in quick succession. Times in milliseconds."""

    group: int
    since: int
    until: int
    rebalances: int
    moved: int
    longest_pause_ms: int
    members: int
    """At the end."""
    newcomers: int
    """Different members that joined. A client that restarts, or is expelled and comes back, is another member."""
    clients: int
    """Different clients that joined. In a rolling deployment they are as many as the restarts."""
    looping: Client | None
    """The client that joined again and again, if one did."""
    loops: int
    """How often it joined."""

    @property
    def is_rollout(self) -> bool:
        return self.looping is None and self.newcomers >= self.rebalances // 2


def storms(found: Iterable[Rebalance], least: int, gap_ms: int, clients: Clients) -> list[Storm]:
    """Runs of at least this many rebalances, each at most `gap_ms` after the one before it.

    A group needs one rebalance for each member that it gains or loses in the run; these are not counted.
    """
    stormy = []
    for run in _runs(found, gap_ms):
        growth = abs(run[-1].after - run[0].before)
        if sum(each.raises for each in run) - growth >= least:
            stormy.append(_storm(run, clients))
    return sorted(stormy, key=lambda storm: storm.since)


def _runs(found: Iterable[Rebalance], gap_ms: int) -> Iterator[list[Rebalance]]:
    by_group: dict[int, list[Rebalance]] = {}
    for one in found:
        if one.after:
            by_group.setdefault(one.group, []).append(one)
    for ones in by_group.values():
        ones.sort(key=lambda one: one.seen)
        run = [ones[0]]
        for later in ones[1:]:
            if later.seen - run[-1].seen > gap_ms:
                yield run
                run = []
            run.append(later)
        yield run


def _storm(run: list[Rebalance], clients: Clients) -> Storm:
    looping = _rejoined(run, clients)
    worst = max(looping, key=lambda client: len(looping[client]), default=None)
    joined = {member for one in run for member in one.joined}
    return Storm(
        run[0].group,
        run[0].started if run[0].started != NOTHING else run[0].seen,
        run[-1].seen,
        sum(one.raises for one in run),
        sum(one.moved for one in run),
        max(one.pause_ms for one in run),
        run[-1].after,
        len(joined),
        len({_client(clients, run[0].group, member) for member in joined}),
        worst,
        0 if worst is None else len(looping[worst]),
    )


def _client(clients: Clients, group: int, member: str) -> Client:
    return clients.get((group, member), Client(member))


def _rejoined(run: Sequence[Rebalance], clients: Clients) -> dict[Client, list[int]]:
    """When each client joined, of those that joined again and again while others did not.

    Several members may have the same name and host; then each of them joins once in a rolling deployment.
    """
    joins: dict[Client, list[int]] = {}
    together: Counter[Client] = Counter()
    for one in run:
        for member in one.joined:
            joins.setdefault(_client(clients, one.group, member), []).append(one.seen)
        together |= Counter(_client(clients, one.group, member) for member in one.present)
    each = {client: len(times) / max(together[client], 1) for client, times in joins.items()}
    for client in together:
        each.setdefault(client, 0.0)
    usual = sorted(each.values())[(len(each) - 1) // 2] if len(each) > 1 else 0.0
    return {client: joins[client] for client, times in each.items() if times >= OFTEN and times >= 2 * usual}


@dataclass(frozen=True, slots=True)
class Rejoining:
    """A client that joined its group again and again, too seldom for a storm. Times in milliseconds."""

    group: int
    client: Client
    times: tuple[int, ...]


def rejoining(found: Iterable[Rebalance], gap_ms: int, clients: Clients) -> list[Rejoining]:
    """Clients that come back again and again, at most `gap_ms` after the rebalance before.

    max.poll.interval.ms is five minutes, so a client that exceeds it each time makes no storm.
    """
    return [
        Rejoining(run[0].group, client, tuple(times))
        for run in _runs(found, gap_ms)
        if sum(len(one.joined) for one in run) >= OFTEN
        # Of a group that has one client at a time, the log does not say whether it is a job that runs now and then.
        if len({_client(clients, one.group, member) for one in run for member in one.present}) > 1
        for client, times in _rejoined(run, clients).items()
    ]


def storms_table(found: list[Storm], group_names: pa.Array) -> pa.Table:
    column = partial(field_of, found)
    return pa.table(
        {
            "group": taken(column("group"), group_names),
            "since": instants(column("since")),
            "until": instants(column("until")),
            "rebalances": pa.array(column("rebalances"), pa.int32()),
            "moved": pa.array(column("moved"), pa.int32()),
            "longest_pause_ms": nullable(column("longest_pause_ms")),
            "members": pa.array(column("members"), pa.int32()),
            "newcomers": pa.array(column("newcomers"), pa.int32()),
            "clients": pa.array(column("clients"), pa.int32()),
            "looping": pa.array([one.looping.words if one.looping else None for one in found], pa.string()),
            "loops": pa.array(column("loops"), pa.int32()),
        }
    )
