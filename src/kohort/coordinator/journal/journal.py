"""The journal: the events of the groups, collected into stories that explain their rebalances.

The shards' effects hold entries, one for each thing that happened. The entries of a rebalance become one story. It
begins with "rebalance started" (its cause is the entry right before in the same step), continues with the generation,
and ends when the group is stable or empty, when the next rebalance replaces it, or when the coordinator stops. A
consumer group has one story from the first raise of its epoch until all members have the newest target, however often
the epoch is raised meanwhile; it includes the steps of each member (reconciliation_steps.py). An entry outside of a
rebalance that starts none is a story by itself; the same thing again is added to it. Changes of committed offsets
(offsets/changes.py) are stories of their own, also during a rebalance: what follows each other is one story.

The journal decides nothing: it may be missing, cut or damaged, and it accepts any sequence of entries.

Limits: stories of a group, groups, and bytes of all finished stories, which are kept as the JSON that is written and
served. The group whose last entry is oldest is dropped first. The key of a story's record is the group and a slot, its
number modulo the stories of a group, so compaction limits the topic in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kohort.config import Config
from kohort.coordinator.classic.group import Phase
from kohort.coordinator.events import STEPS, JournalEntry, Millis, Record
from kohort.coordinator.journal.partition_moves import Owners, unread_owners
from kohort.coordinator.journal.rebalance_counts import RebalanceCounts
from kohort.coordinator.journal.rebalance_end import end_of_rebalance
from kohort.coordinator.journal.reconciliation_steps import StepsByMember, hold_back, rows_of, take_step
from kohort.coordinator.journal.story import (
    MOST_CHANGES,
    HeldUp,
    PhaseLength,
    Story,
    changed_count,
    cut,
    happening,
    held_up,
)

MAX_HAPPENINGS = 50
"""Happenings that a story keeps; further ones are counted."""
COUNTED_ONLY = frozenset(("subscription changed",))
"""Members of a cooperative group send what they own, so each rejoin changes their subscription."""

WITHIN = STEPS | {"target made", "held back"}
"""Entries of a consumer group that belong to the story of its rebalance."""
ASSIGNING, RECONCILING = "Assigning", "Reconciling"
"""Phases of a consumer group's rebalance: until it has a target; until all members have reached it."""

MOST_RUNS = 50
"""Clients of a group of which the journal can still note that they go on."""
PIECE_MS = 10_000
"""A deletion in pieces, or a reset of several requests, takes less time from one to the next."""

GAVE_UP = "it gave up partitions in the rebalance before, for others to take"

_encode = msgspec.json.Encoder().encode


@cache
def _decoder() -> msgspec.json.Decoder[Story]:
    """Made when first needed: that takes longer than reading the few stories of most restarts."""
    return msgspec.json.Decoder(Story)


class Refused(NamedTuple):
    group: str
    why: str
    story: Story | None
    """The rebalance of the refused assignment."""


class _Group:
    __slots__ = (
        "ends_with_change",
        "gave_up",
        "loaded_ms",
        "next_number",
        "open",
        "owners",
        "runs",
        "since",
        "single",
        "steps_of",
        "stories",
    )

    def __init__(self, owners: Owners | None) -> None:
        self.next_number = 1
        self.stories: deque[bytes] = deque()
        """Finished stories, the newest last."""
        self.open: Story | None = None
        """The running rebalance."""
        self.since: Millis = 0
        """When the present phase of the running rebalance began."""
        self.single: Story | None = None
        """The newest story, if it is not a rebalance: the same thing again is added to it."""
        self.ends_with_change = False
        """The newest finished story is one of changed offsets: what follows is added to it."""
        self.runs: dict[tuple[str, str, str], bytes] = {}
        """The newest story of each client that committed from outside, by its id, host and principal."""
        self.owners = owners
        """The owners of the partitions; None if unknown, because the journal dropped the group."""
        self.gave_up: frozenset[str] = frozenset()
        """Members that gave up partitions in the last rebalance that have no owner yet: the next one assigns them."""
        self.loaded_ms: Millis | None = None
        self.steps_of: StepsByMember = {}
        """The steps of the members in the running rebalance of a consumer group."""


class Journal:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._groups: dict[str, _Group] = {}
        """In the order of their last entries."""
        self._bytes = 0
        self._has_forgotten = False
        self.counts = RebalanceCounts(config.journal_max_groups)
        self._changed: dict[tuple[str, int], Story] = {}
        self._delays: list[tuple[str, HeldUp]] = []
        self._refused: list[Refused] = []

    # -- entries

    def tell(self, entries: Iterable[JournalEntry], now: Millis) -> None:
        """Add the entries of one step."""
        by_group: dict[str, list[JournalEntry]] = {}
        for entry in entries:
            self.counts.note(entry.what)
            by_group.setdefault(entry.group, []).append(entry)
        for group_id, told in by_group.items():
            self._tell(self._group(group_id, told[0]), told, now)
        self._forget_some()

    def _tell(self, group: _Group, entries: Sequence[JournalEntry], now: Millis) -> None:
        waiting: list[JournalEntry] = []
        """Entries that may turn out to be the cause of the next rebalance."""
        for entry in entries:
            match entry.what:
                case "rebalance started":
                    self._start(group, waiting, entry, now)
                    waiting = []
                case what if what in WITHIN:
                    if group.open is not None:
                        self._within(group, group.open, entry, now)
                case "generation began" | "group is stable" | "group is empty":
                    for happened in waiting:
                        self._add(group, happened, now)
                    waiting = []
                    self._go_on(group, entry, now)
                case "group loaded":
                    self._interrupt(group, now)
                    group.owners = unread_owners(entry.members)
                    group.loaded_ms = now
                case "group unloaded":
                    self._interrupt(group, now)
                case "offsets changed" | "offsets deleted" if entry.changes or entry.goes_on:
                    self._change(group, entry, now)
                case _:
                    if entry.what == "assignment refused":
                        self._refused.append(Refused(cut(entry.group), cut(entry.cause), group.open))
                    waiting.append(entry)
        for happened in waiting:
            self._add(group, happened, now)

    def _within(self, group: _Group, story: Story, entry: JournalEntry, now: Millis) -> None:
        """An entry that a consumer group has only within a rebalance."""
        match entry.what:
            case "target made":
                self._target(group, story, entry, now)
            case "held back":
                hold_back(story, entry, now)
            case _:
                take_step(story, group.steps_of, entry, now)

    def _start(self, group: _Group, waiting: list[JournalEntry], entry: JournalEntry, now: Millis) -> None:
        open_story = group.open
        if open_story is not None and open_story.group_type and entry.assignment_epoch >= 0:
            for happened in waiting:
                self._add(group, happened, now)
            open_story.generation_after = entry.generation_id
            return
        if open_story is not None:
            for happened in waiting:
                self._note_delay(group, open_story, happened, now)
            self._close(group, open_story, "superseded", now)
        cause = next((w for w in waiting if w.member_id == entry.member_id), waiting[0] if waiting else entry)
        story = self._open(group, cause, entry, now)
        self.counts.begin(cut(entry.group), "other" if cause is entry else cause.what)
        if cause.what == "subscription changed" and cut(cause.member_id) in group.gave_up:
            story.cause.cause = GAVE_UP
        for happened in waiting:
            if happened is not cause:
                self._note(story, happened, now)
            if open_story is None:
                self._note_delay(group, story, happened, now)
        self._mark(story)

    def _open(self, group: _Group, cause: JournalEntry, entry: JournalEntry, now: Millis) -> Story:
        is_consumer_group = entry.assignment_epoch >= 0
        raised = 1 if is_consumer_group and entry.what == "rebalance started" else 0
        story = Story(
            group=entry.group,
            number=self._number(group),
            started_ms=now,
            cause=happening(cause, 0),
            why=entry.cause,
            group_type="consumer" if is_consumer_group else "",
            generation_before=entry.generation_id - raised,
            protocol_type=entry.protocol_type,
            phases=[PhaseLength(ASSIGNING if is_consumer_group else Phase.PREPARING.value)],
        )
        group.open, group.since, group.single = story, now, None
        group.steps_of = {}
        return story

    def _target(self, group: _Group, story: Story, entry: JournalEntry, now: Millis) -> None:
        story.assignment_epoch, story.protocol = entry.assignment_epoch, entry.protocol
        phase = story.phases[-1]
        if phase.phase == ASSIGNING:
            phase.took_ms, group.since = now - group.since, now
            story.phases.append(PhaseLength(RECONCILING))

    def _go_on(self, group: _Group, entry: JournalEntry, now: Millis) -> None:
        """The rebalance progresses or ends."""
        story = group.open or self._open(group, entry, entry, now)
        phase = story.phases[-1]
        told_ms = -1 if story.group_type else entry.waited_ms
        phase.took_ms = told_ms if told_ms >= 0 else now - group.since
        phase.ended_by = entry.cause
        story.generation_after = entry.generation_id
        story.protocol_type = entry.protocol_type or story.protocol_type
        story.protocol = entry.protocol or story.protocol
        group.since = now
        if entry.what == "generation began":
            story.phases.append(PhaseLength(Phase.COMPLETING.value))
            self._mark(story)
            return
        members = () if entry.what == "group is empty" else entry.members
        story.assignment_epoch = entry.assignment_epoch
        group.owners = end_of_rebalance(story, members, entry.member_id, group.owners, group.steps_of)
        hands_on = story.released and not story.group_type
        group.gave_up = frozenset(m.member_id for m in story.members if m.lost) if hands_on else frozenset()
        self._close(group, story, "Empty" if entry.what == "group is empty" else "Stable", now)
        if story.outcome == "Stable":
            self.counts.end(story.group, story.group_type or "classic", now - story.started_ms)

    def _add(self, group: _Group, entry: JournalEntry, now: Millis) -> None:
        """An entry that starts no rebalance."""
        if group.open is not None:
            self._note(group.open, entry, now)
            self._note_delay(group, group.open, entry, now)
            return
        single = group.single
        if single is not None and single.cause.what == entry.what and group.stories:
            self._bytes -= len(group.stories.pop())
            self._note(single, entry, now)
        else:
            single = Story(
                group=entry.group,
                number=self._number(group),
                started_ms=now,
                cause=happening(entry, 0),
                generation_before=entry.generation_id,
                generation_after=entry.generation_id,
            )
        self._close(group, single, "noted", now)
        group.single = single

    def _change(self, group: _Group, entry: JournalEntry, now: Millis) -> None:
        """Committed offsets were changed or deleted from outside, or have expired."""
        who = cut(entry.client_id), cut(entry.host), cut(entry.principal)
        if entry.goes_on:
            self._goes_on(group, who)
            return
        story = None
        if entry.follows and group.ends_with_change and group.stories:
            story = _decoder().decode(group.stories[-1])
        if story is not None and _continues(story, entry, now):
            self._bytes -= len(group.stories.pop())
            story.took_ms = now - story.started_ms
        else:
            number = self._number(group)
            story = Story(entry.group, number, now, happening(entry, 0), outcome="noted", took_ms=0)
        known = {(topic, row[0]) for topic, rows in story.changed.items() for row in rows}
        for topic, partition, before, after in entry.changes[:MOST_CHANGES]:
            if (topic, partition) not in known:
                story.changed.setdefault(topic, []).append((partition, before, after))
        data = _encode(story)
        self._keep(group, data)
        self._mark(story)
        group.ends_with_change, group.single = True, None
        if entry.what == "offsets changed":
            group.runs.pop(who, None)
            group.runs[who] = data
            if len(group.runs) > MOST_RUNS:
                del group.runs[next(iter(group.runs))]

    def _goes_on(self, group: _Group, who: tuple[str, str, str]) -> None:
        """A client has committed again; other stories may have come in between."""
        before = group.runs.pop(who, None)
        if before is None or before not in group.stories:
            return  # it is noted already, or the journal has dropped the story
        story = _decoder().decode(before)
        story.goes_on = True
        after = _encode(story)
        group.stories[group.stories.index(before)] = after
        self._bytes += len(after) - len(before)
        self._mark(story)

    def _note(self, story: Story, entry: JournalEntry, now: Millis) -> None:
        is_counted_only = entry.what in COUNTED_ONLY and entry.assignment_epoch < 0
        if len(story.happenings) < MAX_HAPPENINGS and not is_counted_only:
            story.happenings.append(happening(entry, now - story.started_ms))
        else:
            story.more[entry.what] = story.more.get(entry.what, 0) + 1

    def _note_delay(self, group: _Group, story: Story, entry: JournalEntry, now: Millis) -> None:
        """Note that the others waited for a member that is gone now."""
        if entry.what == "member removed" and entry.waited_ms >= 0:
            delay = held_up(entry, entry.cause, entry.waited_ms)
        elif entry.what == "session expired" and (waited_ms := self._waited(group, story, entry, now)) > 0:
            delay = held_up(entry, entry.what, waited_ms)
        else:
            return
        self._delays.append((cut(entry.group), delay))
        if len(story.held_up_by) < MAX_HAPPENINGS:
            story.held_up_by.append(delay)

    def _waited(self, group: _Group, story: Story, entry: JournalEntry, now: Millis) -> Millis:
        """How long the others waited for a silent member. Members of a consumer group wait only for a member that has
        partitions to give up."""
        if not story.group_type:
            return now - group.since
        member = group.steps_of.get(cut(entry.member_id))
        return now - member.told_ms if member is not None and member.told_ms is not None else 0

    def _interrupt(self, group: _Group, now: Millis) -> None:
        if group.open is not None:
            self._close(group, group.open, "interrupted", now)

    def _close(self, group: _Group, story: Story, outcome: str, now: Millis) -> None:
        story.outcome = outcome
        story.took_ms = now - story.started_ms
        if outcome in ("superseded", "interrupted"):
            story.phases[-1].took_ms = now - group.since
            story.phases[-1].ended_by = outcome
            story.members = rows_of(group.steps_of)
        group.steps_of = {}
        group.open = group.single = None
        group.ends_with_change = False
        self._keep(group, _encode(story))
        self._mark(story)

    # -- stories

    def _group(self, group_id: str, first: JournalEntry) -> _Group:
        group = self._groups.pop(group_id, None)
        if group is None:
            group = _Group(None if self._has_forgotten and first.generation_id > 0 else {})
        self._groups[group_id] = group
        return group

    def _number(self, group: _Group) -> int:
        group.next_number += 1
        return group.next_number - 1

    def _mark(self, story: Story) -> None:
        self._changed[story.group, story.number] = story

    def _keep(self, group: _Group, data: bytes) -> None:
        group.stories.append(data)
        self._bytes += len(data)
        while len(group.stories) > self._config.journal_max_stories_per_group:
            self._bytes -= len(group.stories.popleft())

    def _forget_some(self) -> None:
        while len(self._groups) > self._config.journal_max_groups or (
            self._bytes > self._config.journal_max_bytes and len(self._groups) > 1
        ):
            oldest = self._groups.pop(next(iter(self._groups)))
            self._bytes -= sum(map(len, oldest.stories))
            self._has_forgotten = True
        for group in self._groups.values() if self._bytes > self._config.journal_max_bytes else ():
            while group.stories and self._bytes > self._config.journal_max_bytes:
                self._bytes -= len(group.stories.popleft())

    def take_delays(self) -> list[tuple[str, HeldUp]]:
        """Groups with the members that were removed since the last call while others waited for them."""
        delays, self._delays = self._delays, []
        return delays

    def take_refused(self) -> list[Refused]:
        """The assignments that were refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def take_changed(self) -> list[Record]:
        """The records of the stories that changed since the last call."""
        slots = self._config.journal_max_stories_per_group
        records = {
            f"{group}#{number % slots}".encode(): _encode(story) for (group, number), story in self._changed.items()
        }
        self._changed.clear()
        return [Record(key, value) for key, value in records.items()]

    def restore(self, value: bytes) -> None:
        """Take a record of the topic, in the order of the offsets. Raises ValueError if the bytes are not a story.

        A story that was running when its coordinator stopped is interrupted; the next turn writes it so."""
        try:
            story = _decoder().decode(value)
            if not story.outcome:
                story.outcome = "interrupted"
                value = _encode(story)
                self._mark(story)
        except (msgspec.MsgspecError, OverflowError) as error:
            raise ValueError(str(error)) from None
        # If the group has members, "group loaded" will follow with the owners.
        group = self._groups.pop(story.group, None) or _Group({})
        self._groups[story.group] = group
        group.next_number = max(group.next_number, story.number + 1)
        self._keep(group, value)
        self._forget_some()

    # -- queries

    def stories(self, group_id: str, last: int) -> list[bytes]:
        """The newest stories of a group as JSON, the newest last; the running one included."""
        group = self._groups.get(group_id)
        if group is None or last <= 0:
            return []
        found = list(group.stories)
        if (running := self.running(group_id)) is not None:
            found.append(_encode(running))
        return found[-last:]

    def running(self, group_id: str) -> Story | None:
        """The rebalance under way."""
        group = self._groups.get(group_id)
        if group is None or group.open is None:
            return None
        return replace(group.open, members=rows_of(group.steps_of))

    def loaded_ms(self, group_id: str) -> Millis | None:
        """When the coordinator loaded the group, if this process did."""
        group = self._groups.get(group_id)
        return group.loaded_ms if group is not None else None


def _continues(story: Story, entry: JournalEntry, now: Millis) -> bool:
    """Whether a change of offsets belongs to the story of the one before: pieces of the same deletion or expiry, or
    commits of the same client."""
    cause = story.cause
    who = cut(entry.client_id), cut(entry.host), cut(entry.principal)
    is_same = (cause.what, cause.client_id, cause.host, cause.principal) == (entry.what, *who)
    is_next_piece = is_same and now - story.started_ms - (story.took_ms or 0) < PIECE_MS
    return is_next_piece and changed_count(story) + len(entry.changes) <= MOST_CHANGES
