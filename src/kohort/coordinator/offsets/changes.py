"""What is destroyed of committed offsets, for the journal: `kohort groups restore` brings it back.

Offsets are destroyed by their deletion, alone or with their group, by their expiry, and by commits from outside of a
live group, as tools send them. Commits of members are not noted: they are a group's progress. Neither are the offsets
of deleted topics, and commits in transactions.

Simple consumers, as Spark, commit from outside all the time. So the commits of a client are a run, and a run is one
entry for each partition, with the offset before its first commit. A run ends when the group has had members meanwhile,
after an hour, and when an offset goes back: that may be a reset. Commits of another connection, whose client has the
same name and host, belong to a run that repeats itself, or begin the next run; the third one in a row counts as a
repetition. Nor does an offset that goes back every few minutes begin runs for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kohort.config import Config
from kohort.coordinator.events import Client, JournalEntry, Millis
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.offsets.repeated_commit import RepeatedCommit
from kohort.coordinator.records import Place
from kohort.coordinator.soft_state import Running
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponseTopic

NONE = -1
"""Instead of an offset: there is none."""
GAP_MS = 3_600_000
"""A run ends if its client commits nothing for so long."""
YOUNG_MS = 10_000
"""A run that is younger does not end when an offset goes back: a reset may be several requests."""
IN_A_ROW = 3
"""So many runs of different connections in a row become one."""
MOST_RETURNS = 20
"""So many runs in a row, each of which began because an offset went back, become one."""
MOST_CLIENTS = 50
"""Runs of a group."""
MOST_PLACES, MOST_IN_ALL = 10_000, 20_000
"""Partitions of a run, and of all runs of a shard, some megabytes. Beyond these limits the journal is told only of
commits that go back: it does not fill with what cannot be remembered."""
SWEEP_MS = 60_000
"""How often the ended runs are looked for, if there are too many."""

Change = tuple[str, int, int, int]
"""Topic, partition, and the offset before and after."""


Who = tuple[str, str, str]
"""A client's id, host and principal."""


def _who(client: Client) -> Who:
    return client.client_id, client.host, client.principal


def asked_by(client: Client) -> str:
    return f"{client.client_id} of {client.host} asked for it"


class Run:
    """Commits of one client that follow each other. `in_a_row` and `returns`: see IN_A_ROW and MOST_RETURNS."""

    __slots__ = (
        "began_ms",
        "client",
        "generation_id",
        "in_a_row",
        "is_full",
        "last_ms",
        "places",
        "repeats",
        "returns",
    )

    def __init__(self, client: Client, generation_id: int, now: Millis) -> None:
        self.client = client
        self.generation_id = generation_id
        self.began_ms = self.last_ms = now
        self.places: set[Place] = set()
        self.repeats = False
        """It has committed the same partitions again."""
        self.is_full = False
        """It has more partitions than are remembered."""
        self.in_a_row = self.returns = 1


class OffsetChanges:
    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._is_on = config.deviations.extensions
        self._hard = hard
        self._running = running
        self._runs: dict[str, dict[Who, Run]] = {}
        self._places = 0
        """Of all runs."""
        self._swept_ms: Millis = 0
        self._deleter: tuple[str, Client] | None = None
        """The last deletion: of which group, and which client asked for it. The same connection has the same object."""

    def deleted(self, group_id: str, places: Sequence[Place], why: str, client: Client | None = None) -> None:
        """These offsets, or what is pending there, will be deleted. `client`: which asked for it. Call this before the
        records are applied."""
        if places:
            offsets = self._hard.offsets.get(group_id, {})
            gone = tuple((*place, value.offset, NONE) for place in places if (value := offsets.get(place)) is not None)
            for run in self._runs.pop(group_id, {}).values():
                self._places -= len(run.places)
            last = self._deleter
            follows = client is None or (last is not None and last[0] == group_id and last[1] is client)
            self._deleter = None if client is None else (group_id, client)
            self._tell("offsets deleted", group_id, f"{len(places)} of them; {why}", client, gone, follows=follows)

    def committed(
        self, request: OffsetCommitRequest, client: Client, answer: Sequence[OffsetCommitResponseTopic], now: Millis
    ) -> None:
        """A commit from outside, with its answer. Call this before its records are applied."""
        if not self._is_on:
            return
        group_id = request.group_id
        offsets = self._hard.offsets.get(group_id, {})
        changes: dict[Place, Change] = {}
        goes_back = False
        for topic, answered in zip(request.topics, answer, strict=True):
            for asked, row in zip(topic.partitions, answered.partitions, strict=True):
                value = offsets.get((topic.name, asked.partition_index))
                before = NONE if value is None else value.offset
                if not row.error_code and asked.committed_offset != before:
                    place = (topic.name, asked.partition_index)
                    changes[place] = (*place, before, asked.committed_offset)
                    goes_back = goes_back or asked.committed_offset < before
        if not changes:
            return
        cause = f"{len(changes)} of them; {client.client_id} of {client.host} committed without being a member"
        known = self._known(group_id, client, now)
        run = self._run(known, group_id, client, now, goes_back=goes_back)
        if run is None:
            if goes_back:
                self._tell("offsets changed", group_id, cause, client, tuple(changes.values()), follows=False)
            return
        run.last_ms = now
        new = tuple(change for place, change in changes.items() if place not in run.places)
        if new and (run.is_full or len(run.places) >= MOST_PLACES or not self._has_room(now)):
            run.is_full, new = True, ()
        if new:
            run.places.update(changes)
            self._places += len(new)
        if new or not run.repeats:
            run.repeats = not new
            self._tell("offsets changed", group_id, cause, client, new, follows=run is known, goes_on=not new)

    def take_repeated(self, commit: RepeatedCommit, client: Client, offsets: Sequence[int], now: Millis) -> bool:
        """True if `committed` would tell nothing of this commit; then it counts. Otherwise nothing was done."""
        if not self._is_on:
            return True
        run = self._known(commit.group_id, client, now)
        if run is None or not run.repeats:
            return False
        if commit.run is not run:
            if not run.is_full and not run.places.issuperset(commit.places):
                return False
            commit.run = run
        committed = self._hard.offsets.get(commit.group_id, {})
        changes = False
        for place, offset in zip(commit.places, offsets, strict=True):
            value = committed.get(place)
            before = NONE if value is None else value.offset
            if offset < before:
                return False
            changes = changes or offset != before
        if changes:
            run.last_ms = now
        return True

    def _known(self, group_id: str, client: Client, now: Millis) -> Run | None:
        """The run of this client that has not ended."""
        runs = self._runs.get(group_id)
        run = runs.get(_who(client)) if runs is not None else None
        if run is None or now - run.last_ms > GAP_MS or run.generation_id != self._generation(group_id):
            return None
        return run

    def _has_room(self, now: Millis) -> bool:
        if self._places < MOST_IN_ALL:
            return True
        if now - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now
            for group_id in list(self._runs):
                self._sweep(group_id, now)
        return self._places < MOST_IN_ALL

    def _sweep(self, group_id: str, now: Millis) -> None:
        """Forget the group's runs that have ended."""
        runs = self._runs[group_id]
        for who, run in list(runs.items()):
            if now - run.last_ms > GAP_MS:
                self._places -= len(runs.pop(who).places)
        if not runs:
            del self._runs[group_id]

    def _run(self, known: Run | None, group_id: str, client: Client, now: Millis, *, goes_back: bool) -> Run | None:
        """The run that a commit continues, or a new one; None if there are too many."""
        if known is not None:
            is_young = now - known.began_ms < YOUNG_MS
            is_other = known.client is not client and not known.repeats
            if goes_back:
                continues = known.returns >= MOST_RETURNS or (is_young and not is_other)
            else:
                continues = known.in_a_row >= IN_A_ROW or not is_other
            if continues:
                return known
        run = Run(client, self._generation(group_id), now)
        if known is not None:
            run.returns += known.returns if goes_back else 0
            run.in_a_row += 0 if goes_back else known.in_a_row
        who = _who(client)
        former = self._runs.get(group_id, {}).pop(who, None)
        if former is not None:
            self._places -= len(former.places)
        if len(self._runs.get(group_id, ())) >= MOST_CLIENTS:
            self._sweep(group_id, now)
        if len(self._runs.get(group_id, ())) >= MOST_CLIENTS or not self._has_room(now):
            return None
        self._runs.setdefault(group_id, {})[who] = run
        return run

    def _generation(self, group_id: str) -> int:
        """It changes when the group gets members."""
        consumers = self._hard.consumers.groups.get(group_id)
        if consumers is not None:
            return consumers.epoch
        group = self._running.groups.get(group_id)
        return NONE if group is None else group.generation_id

    def _tell(
        self,
        what: Literal["offsets deleted", "offsets changed"],
        group_id: str,
        cause: str,
        client: Client | None,
        changes: tuple[Change, ...],
        *,
        follows: bool,
        goes_on: bool = False,
    ) -> None:
        entry = JournalEntry(
            group_id,
            what,
            cause,
            client_id="" if client is None else client.client_id,
            host="" if client is None else client.host,
            principal="" if client is None else client.principal,
            changes=changes if self._is_on else (),
            follows=follows,
            goes_on=goes_on,
        )
        self._running.out.journal.append(entry)
