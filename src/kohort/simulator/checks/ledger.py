"""The durable state: an independent fold of every record committed to `__consumer_offsets`.

The fold uses the committed bytes alone, turn by turn, and survives crashes like the disk. The shards' hard state must
equal it after every turn, and so must a replay of the disk, compacted or not.

This file checks promises about the log itself: a name's generations only rise, even over a deletion; a generation has
one assignment; commits of a group with honest members never go back; no offset disappears without a reason.
consumer_ledger.py has those of consumer groups, transaction_ledger.py the offsets of open transactions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import SHARE_KEYS, Place, parse
from kohort.coordinator.share_groups.group import ShareFold
from kohort.simulator.checks.consumer_ledger import ConsumerLedger, Durable
from kohort.simulator.checks.transaction_ledger import NO_PRODUCER, Logged, Transactions, logged
from kohort.simulator.world.world import Millis, Violation
from kohort.storage.protocol import Append, Operation
from kohort.wire.markers import Marker
from kohort.wire.schemas.group_records import (
    GenerationKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse

Written = tuple[Any, Any]
"""A committed record: its key, and its value or None."""


class Fold:
    """One shard's durable state."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, dict[Place, OffsetCommitValue]] = {}
        self.generations: dict[str, int] = {}
        self.consumers: dict[str, Durable] = {}
        self.transactions = Transactions()
        self.shares = ShareFold()
        """Share groups. It shares its code with the shards: what is compared is the order, and what became durable."""

    def equals(self, hard: HardState) -> bool:
        return (
            self.groups == hard.groups
            and self.offsets == hard.offsets
            and self.generations == hard.generations
            and self.transactions.pending() == hard.pending.described()
            and self.shares == hard.shares
            and not self._of_consumers(hard)
        )

    def _of_consumers(self, hard: HardState) -> str:
        for name in sorted({*self.consumers, *hard.consumers.groups}):
            mine, theirs = self.consumers.get(name), hard.consumers.groups.get(name)
            if mine is None or theirs is None:
                return f"the consumer group {name}: {mine} is durable, {theirs} is not"
            if difference := mine.difference(theirs):
                return f"the consumer group {name}, durable and not: {difference}"
        return ""

    def difference(self, hard: HardState) -> str:
        for name in ("groups", "offsets", "generations"):
            mine, theirs = getattr(self, name), getattr(hard, name)
            for key in sorted({*mine, *theirs}):
                if mine.get(key) != theirs.get(key):
                    return f"{name} of {key}: {mine.get(key)} is durable, {theirs.get(key)} is not"
        if (mine := self.transactions.pending()) != (theirs := hard.pending.described()):
            return f"pending offsets: {mine} are durable, {theirs} are not"
        if self.shares != hard.shares:
            return f"share groups: {self.shares.groups} are durable, {hard.shares.groups} are not"
        return self._of_consumers(hard)


class Ledger:
    def __init__(self, honest: frozenset[str] = frozenset()) -> None:
        self.honest = honest
        """Groups whose commits come only from our members."""
        self.folds: defaultdict[int, Fold] = defaultdict(Fold)
        """By shard."""
        self.written: list[Written] = []
        """Records of the last commit, in order. Those of a transaction are in the commit of its marker."""
        self.before: dict[tuple[str, Place], int | None] = {}
        """Offsets that the last commit changed, with their former values."""
        self.replaced: defaultdict[tuple[str, Place], list[tuple[Millis, int]]] = defaultdict(list)
        """By offset: all former values (-1 for none), and when another one became durable."""
        self.deleted: dict[tuple[str, Place], int] = {}
        """Offsets that it deleted, with their commit times."""
        self.groups_before: dict[str, GroupMetadataValue | None] = {}
        """Groups that the last commit changed, with their former values."""
        self._assigned: dict[tuple[str, int], dict[str, bytes]] = {}
        self._consumers = ConsumerLedger()

    def commit(self, operations: Iterable[Operation], offsets_topic: bytes, now: Millis) -> None:
        self.written.clear()
        self.before.clear()
        self.deleted.clear()
        self.groups_before.clear()
        for operation in operations:
            if isinstance(operation, Append) and operation.log.topic_id == offsets_topic:
                fold = self.folds[operation.log.partition]
                for batch in operation.batches:
                    for each in logged(batch.data):
                        self._take(fold, each)
        for changed, former in self.before.items():
            self.replaced[changed].append((now, -1 if former is None else former))

    def _take(self, fold: Fold, each: Logged) -> None:
        if isinstance(each.what, Marker):
            for key, value in fold.transactions.end(each.what):
                self.written.append((key, value))
                self._apply(fold, key, value)
            return
        parsed = parse(each.what)
        if parsed is None:
            raise Violation("records are known", f"{each.what.key!r}")
        key, value = parsed
        if each.what.producer_id != NO_PRODUCER:
            if not isinstance(key, OffsetCommitKey) or value is None:
                raise Violation("transactions write offsets", f"{key}: {value}")
            fold.transactions.add(each.what.producer_id, key, value, each.at)
            return
        if isinstance(key, OffsetCommitKey):
            fold.transactions.other(key, value, each.at)
        self.written.append(parsed)
        self._apply(fold, key, value)

    def since(self, group: str, place: Place, start: Millis) -> Iterator[int]:
        """The offsets of a partition that were durable at some time since `start`, apart from the present one."""
        return (former for until, former in self.replaced[group, place] if until >= start)

    def lost(self, request: OffsetCommitRequest, response: OffsetCommitResponse, names: dict[bytes, str]) -> str:
        """An accepted offset that is not among the last records, in words; "" if there is none. `names`: of topics."""
        written = {
            (key.topic, key.partition, value.offset)
            for key, value in self.written
            if isinstance(key, OffsetCommitKey) and key.group == request.group_id and value is not None
        }
        accepted = {
            (topic.name or names.get(topic.topic_id, ""), result.partition_index)
            for topic in response.topics
            for result in topic.partitions
            if not result.error_code
        }
        for topic in request.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for asked in topic.partitions:
                place = (name, asked.partition_index)
                if name and place in accepted and (*place, asked.committed_offset) not in written:
                    return f"{place} = {asked.committed_offset} is not in the log"
        return ""

    def _apply(self, fold: Fold, key: Any, value: Any) -> None:
        match key:
            case OffsetCommitKey():
                self._offset(fold, key, value)
            case GroupMetadataKey(group=group):
                self.groups_before.setdefault(group, fold.groups.get(group))
                if value is None:
                    fold.groups.pop(group, None)
                else:
                    self._check_group(fold, group, value)
                    fold.groups[group] = value
            case GenerationKey(group=group):
                known = fold.generations.get(group, 0)
                if value is None or value.generation <= known:
                    raise Violation.of(
                        group, "generations only rise", f"{known} is followed by {value and value.generation}"
                    )
                fold.generations[group] = value.generation
            case _ if type(key) in SHARE_KEYS:
                fold.shares.apply(key, value)
            case _:
                self._consumers.apply(fold.consumers, fold.generations.get(key.group_id, 0), key, value)

    def _offset(self, fold: Fold, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        offsets = fold.offsets.setdefault(key.group, {})
        former = offsets.get(place)
        self.before.setdefault((key.group, place), None if former is None else former.offset)
        if value is not None:
            if former is not None and key.group in self.honest and value.offset < former.offset:
                text = f"{key.topic}-{key.partition}: {former.offset} is followed by {value.offset}"
                raise Violation.of(key.group, "commits never go back", text)
            offsets[place] = value
        elif offsets.pop(place, None) is not None and former is not None:
            self.deleted[key.group, place] = former.commit_timestamp
        if not offsets:
            del fold.offsets[key.group]

    def _check_group(self, fold: Fold, group: str, value: GroupMetadataValue) -> None:
        known = fold.generations.get(group, 0)
        if value.generation > known:
            raise Violation.of(group, "generations only rise", f"{value.generation} is used, {known} is taken")
        former = fold.groups.get(group)
        if former is not None and value.generation < former.generation:
            raise Violation.of(group, "generations only rise", f"{former.generation} is followed by {value.generation}")
        if not value.members:
            return
        assignment = {m.group_instance_id or m.member_id: m.assignment for m in value.members}
        first = self._assigned.setdefault((group, value.generation), assignment)
        if first != assignment:
            text = f"generation {value.generation}: {first} and then {assignment}"
            raise Violation.of(group, "a generation has one assignment", text)
