"""What is destroyed of committed offsets, for the journal: `kohort groups restore` brings it back.

Offsets are destroyed by their deletion, alone or with their group, by their expiry, and by commits from outside of a
live group, as tools send them. Commits of members are not noted: they are a group's progress. Neither are the offsets
of deleted topics, and commits in transactions.

Simple consumers, as Spark, commit from outside all the time. So the commits of one client that follow each other are
one run, and a run is one entry for each partition, with the offset before its first commit. A run ends with a commit of
another client, when the group has had members meanwhile, after an hour, and when an offset goes back. Commits of
another connection, whose client has the same name, belong to a run that repeats itself, or begin the next one; the
third in a row counts as a repetition. Repeated commits that take the short way (repeated_commit.py) are not seen
here, unless an offset goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kohort.config import Config
from kohort.coordinator.events import Client, JournalEntry, Millis
from kohort.coordinator.hard_state import HardState
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
"""So many runs of one client, and nothing in between, become one."""
MOST_RUNS, MOST_PLACES = 10_000, 10_000
"""Runs of a shard, and partitions of a run, that are remembered."""

Change = tuple[str, int, int, int]
"""Topic, partition, and the offset before and after."""


def asked_by(client: Client) -> str:
    return f"{client.client_id} of {client.host} asked for it"


class _Run:
    __slots__ = ("began_ms", "client", "generation_id", "last_ms", "places", "repeats", "times")

    def __init__(self, client: Client, generation_id: int, now: Millis, times: int) -> None:
        self.client = client
        self.generation_id = generation_id
        self.began_ms = self.last_ms = now
        self.places: set[Place] = set()
        self.repeats = False
        self.times = times
        """The runs of this client in a row."""

    def is_of(self, client: Client, generation_id: int, now: Millis) -> bool:
        ours = self.client
        return (
            (ours is client or (ours.client_id, ours.host) == (client.client_id, client.host))
            and self.generation_id == generation_id
            and now - self.last_ms <= GAP_MS
        )


class OffsetChanges:
    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._is_on = config.deviations.extensions
        self._hard = hard
        self._running = running
        self._runs: dict[str, _Run] = {}
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
        group_id = request.group_id
        if not self._is_on:
            return
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
        known = self._runs.get(group_id)
        run = self._run(group_id, client, now, goes_back=goes_back)
        run.last_ms = now
        new = tuple(change for place, change in changes.items() if place not in run.places)
        if len(run.places) < MOST_PLACES:
            run.places.update(changes)
        if new or not run.repeats:
            run.repeats = not new
            count = f"{len(changes)} of them"
            why = f"{count}; {client.client_id} of {client.host} committed without being a member"
            self._tell("offsets changed", group_id, why, client, new, follows=run is known, goes_on=not new)

    def _run(self, group_id: str, client: Client, now: Millis, *, goes_back: bool) -> _Run:
        """The run that a commit continues, or a new one."""
        run = self._runs.pop(group_id, None)
        generation_id = self._generation(group_id)
        times = 1
        if run is not None and run.is_of(client, generation_id, now):
            is_young = now - run.began_ms < YOUNG_MS
            continues = run.client is client or run.repeats or run.times >= IN_A_ROW
            if continues and (is_young or not goes_back):
                self._runs[group_id] = run
                return run
            times = 1 if goes_back else run.times + 1
        run = self._runs[group_id] = _Run(client, generation_id, now, times)
        if len(self._runs) > MOST_RUNS:
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
