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
MOST_GROUPS, MOST_CLIENTS, MOST_PLACES = 10_000, 50, 10_000
"""Groups of a shard with runs, runs of a group, and partitions of a run, that are remembered."""

Change = tuple[str, int, int, int]
"""Topic, partition, and the offset before and after."""


def asked_by(client: Client) -> str:
    return f"{client.client_id} of {client.host} asked for it"


class Run:
    """Commits of one client that follow each other. `in_a_row` and `returns`: see IN_A_ROW and MOST_RETURNS."""

    __slots__ = ("began_ms", "client", "generation_id", "in_a_row", "last_ms", "places", "repeats", "returns")

    def __init__(self, client: Client, generation_id: int, now: Millis) -> None:
        self.client = client
        self.generation_id = generation_id
        self.began_ms = self.last_ms = now
        self.places: set[Place] = set()
        self.repeats = False
        """It has committed the same partitions again."""
        self.in_a_row = self.returns = 1


class OffsetChanges:
    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._is_on = config.deviations.extensions
        self._hard = hard
        self._running = running
        self._runs: dict[str, dict[tuple[str, str], Run]] = {}
        """By group, and the client's id and host."""
        self._deleter: tuple[str, Client] | None = None
        """The last deletion: of which group, and which client asked for it. The same connection has the same object."""

    def deleted(self, group_id: str, places: Sequence[Place], why: str, client: Client | None = None) -> None:
        """These offsets, or what is pending there, will be deleted. `client`: which asked for it. Call this before the
        records are applied."""
        if places:
            offsets = self._hard.offsets.get(group_id, {})
            gone = tuple((*place, value.offset, NONE) for place in places if (value := offsets.get(place)) is not None)
            self._runs.pop(group_id, None)
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
        known = self._known(group_id, client, now)
        run = self._run(known, group_id, client, now, goes_back=goes_back)
        run.last_ms = now
        new: tuple[Change, ...] = ()
        if len(run.places) < MOST_PLACES:
            new = tuple(change for place, change in changes.items() if place not in run.places)
            run.places.update(changes)
        if new or not run.repeats:
            run.repeats = not new
            count = f"{len(changes)} of them"
            why = f"{count}; {client.client_id} of {client.host} committed without being a member"
            self._tell("offsets changed", group_id, why, client, new, follows=run is known, goes_on=not new)

    def take_repeated(self, commit: RepeatedCommit, client: Client, offsets: Sequence[int], now: Millis) -> bool:
        """True if `committed` would tell nothing of this commit; then it counts. Otherwise nothing was done."""
        if not self._is_on:
            return True
        run = self._known(commit.group_id, client, now)
        if run is None or not run.repeats:
            return False
        if commit.run is not run:
            if len(run.places) < MOST_PLACES and not run.places.issuperset(commit.places):
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
        run = runs.get((client.client_id, client.host)) if runs is not None else None
        if run is None or now - run.last_ms > GAP_MS or run.generation_id != self._generation(group_id):
            return None
        return run

    def _run(self, known: Run | None, group_id: str, client: Client, now: Millis, *, goes_back: bool) -> Run:
        """The run that a commit continues, or a new one."""
        if known is not None:
            returns = goes_back and now - known.began_ms >= YOUNG_MS and known.returns < MOST_RETURNS
            is_other = known.client is not client and not known.repeats and known.in_a_row < IN_A_ROW
            if not returns and not is_other:
                return known
        run = Run(client, self._generation(group_id), now)
        if known is not None:
            run.returns += known.returns if goes_back else 0
            run.in_a_row += 0 if goes_back else known.in_a_row
        runs = self._runs.setdefault(group_id, {})
        runs.pop((client.client_id, client.host), None)
        runs[client.client_id, client.host] = run
        if len(runs) > MOST_CLIENTS:
            del runs[next(iter(runs))]
        if len(self._runs) > MOST_GROUPS:
            del self._runs[next(iter(self._runs))]
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
            changes=changes if self._is_on else (),
            follows=follows,
            goes_on=goes_on,
        )
        self._running.out.journal.append(entry)
