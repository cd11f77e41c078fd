"""Which share-partitions of a group have a state, and the steps in which they get one or lose it.

The state of a share-partition is another machine's record (coordinator/shares), written in the same turn as the group's
record. So a few partitions are initialized in the step that finds them missing, and the first heartbeat's answer has an
assignment.

Many partitions take several steps. The group's record says first which partitions are being initialized, or which
topics are being deleted, and last that this is done. How far the steps have come is not durable: after a crash they
begin again, and what has a state already keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.events import Millis
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.share_groups.group import ShareGroup
from kohort.coordinator.share_groups.records import states_record
from kohort.coordinator.shares.events import RESET, DeleteShares, InitializeShares
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics
from kohort.wire.schemas.share_group_records import TopicPartitionsInfo

STATES = "share states"
"""The kind of the deadline of the next step."""
AT_ONCE = 250
"""Share-partitions of one step: some five milliseconds."""
Infos = Mapping[bytes, TopicPartitionsInfo]


class ShareStates:
    def __init__(self, hard: HardState, running: Running) -> None:
        self._hard = hard
        self._running = running
        self.topics = Topics()
        self._done: dict[str, int] = {}
        """By group: how many of the partitions that are being initialized or deleted are done."""

    # -- what is there

    def count_missing(self, names: Iterable[str], group: ShareGroup | None) -> int:
        """How many partitions of these topics have no state, and get none yet."""
        missing = 0
        for spec in self._specs(names):
            if group is None:
                missing += spec.partitions
            elif spec.topic_id not in group.initializing and spec.topic_id not in group.deleting:
                missing += spec.partitions - len(_partitions(group.initialized, spec.topic_id))
        return missing

    def _specs(self, names: Iterable[str]) -> list[TopicSpec]:
        by_name = self.topics.by_name
        return [spec for name in names if (spec := by_name.get(name)) is not None]

    @staticmethod
    def count(group: ShareGroup) -> int:
        infos = (*group.initialized.values(), *group.initializing.values())
        return sum([len(info.partitions) for info in infos])

    # -- initialize

    def initialize(self, group: ShareGroup, now: Millis) -> None:
        """Give each partition of the subscribed topics a state, at once or beginning with the next step."""
        at_once = self.count_missing(group.subscribers, group) <= AT_ONCE
        initialized, initializing = dict(group.initialized), dict(group.initializing)
        for spec in self._specs(sorted(group.subscribers)):
            topic_id = spec.topic_id
            known = _partitions(group.initialized, topic_id)
            if len(known) >= spec.partitions or topic_id in group.initializing or topic_id in group.deleting:
                continue
            indexes = _others(known, spec.partitions)
            if at_once:
                self._running.out.shares.append(self._event(group, topic_id, indexes, anew=True))
                initialized[topic_id] = _info(topic_id, spec.name, (*known, *indexes))
            else:
                initializing[topic_id] = _info(topic_id, spec.name, indexes)
        self._emit(group, initialized, initializing, group.deleting)
        if not at_once:
            self._begin(group, now)

    def _event(self, group: ShareGroup, topic_id: bytes, indexes: Sequence[int], *, anew: bool) -> InitializeShares:
        # Partitions that were added to a topic are read from their beginning, so nothing is skipped (SH29).
        start = 0 if topic_id in group.initialized else RESET
        return InitializeShares(group.group_id, topic_id, tuple(indexes), group.epoch, start, anew)

    # -- delete

    def forget(self, group: ShareGroup, topic_ids: Sequence[bytes], now: Millis) -> None:
        """Delete the state of these topics, at once or beginning with the next step."""
        initialized, initializing = dict(group.initialized), dict(group.initializing)
        deleting = dict(group.deleting)
        whole = {}
        for topic_id in topic_ids:
            known, begun = initialized.pop(topic_id, None), initializing.pop(topic_id, None)
            info = known or begun
            assert info is not None, topic_id
            both = (*(known.partitions if known else ()), *(begun.partitions if begun else ()))
            whole[topic_id] = _info(topic_id, info.topic_name, both)
        if sum([len(info.partitions) for info in whole.values()]) <= AT_ONCE:
            for topic_id, info in whole.items():
                self._running.out.shares.append(DeleteShares(group.group_id, topic_id, info.partitions))
                deleting.pop(topic_id, None)
            self._emit(group, initialized, initializing, deleting)
        else:
            initialized |= whole
            deleting |= {topic_id: info.topic_name for topic_id, info in whole.items()}
            self._emit(group, initialized, initializing, deleting)
            self._begin(group, now)

    def forget_deleted(self, group: ShareGroup, now: Millis) -> bool:
        """Topics that are gone have no state. True if there were some."""
        by_id = self.topics.by_id
        known = (*group.initialized, *(topic for topic in group.initializing if topic not in group.initialized))
        gone = [topic_id for topic_id in known if topic_id not in by_id and topic_id not in group.deleting]
        if gone:
            self.forget(group, gone, now)
        return bool(gone)

    def drop(self, group: ShareGroup) -> None:
        """The group is deleted: delete the states that are left."""
        for infos in (group.initialized, group.initializing):
            for topic_id, info in infos.items():
                self._running.out.shares.append(DeleteShares(group.group_id, topic_id, info.partitions))
        self._done.pop(group.group_id, None)
        self._running.deadlines.clear((STATES, group.group_id, ""))

    # -- steps

    def load(self, group: ShareGroup, now: Millis) -> None:
        if group.initializing or group.deleting:
            self._begin(group, now)

    def _begin(self, group: ShareGroup, now: Millis) -> None:
        self._running.deadlines.set((STATES, group.group_id, ""), now)

    def go_on(self, group: ShareGroup, now: Millis) -> bool:
        """One step. True if what was under way is done."""
        deletes = bool(group.deleting)
        infos = [group.initialized[topic_id] for topic_id in sorted(group.deleting) if topic_id in group.initialized]
        if not deletes:
            infos = [group.initializing[topic_id] for topic_id in sorted(group.initializing)]
        done = skipped = self._done.get(group.group_id, 0)
        left = AT_ONCE
        for info in infos:
            if skipped >= len(info.partitions):
                skipped -= len(info.partitions)
                continue
            some = info.partitions[skipped : skipped + left]
            skipped = 0
            left -= len(some)
            self._running.out.shares.append(
                DeleteShares(group.group_id, info.topic_id, some)
                if deletes
                else self._event(group, info.topic_id, some, anew=False)
            )
            if not left:
                break
        if done + AT_ONCE - left < sum([len(info.partitions) for info in infos]):
            self._done[group.group_id] = done + AT_ONCE - left
            self._running.deadlines.set((STATES, group.group_id, ""), now)
            return False
        self._finish(group, deletes=deletes)
        self.load(group, now)
        return True

    def _finish(self, group: ShareGroup, *, deletes: bool) -> None:
        self._running.deadlines.clear((STATES, group.group_id, ""))
        if deletes:
            kept = {topic_id: info for topic_id, info in group.initialized.items() if topic_id not in group.deleting}
            self._emit(group, kept, group.initializing, {})
            return
        initialized = dict(group.initialized)
        for topic_id, info in group.initializing.items():
            known = _partitions(initialized, topic_id)
            initialized[topic_id] = _info(topic_id, info.topic_name, (*known, *info.partitions))
        self._emit(group, initialized, {}, group.deleting)

    def _emit(self, group: ShareGroup, initialized: Infos, initializing: Infos, deleting: Mapping[bytes, str]) -> None:
        """Records are applied at once (docs/decisions/0005)."""
        self._done.pop(group.group_id, None)  # what is under way begins again
        record = states_record(group.group_id, initialized, initializing, deleting)
        self._running.out.records.append(record)
        self._hard.apply(record)

    def put(self, group: ShareGroup, initialized: Infos) -> None:
        """These partitions have a state, whose events are the caller's matter. Nothing is under way."""
        self._emit(group, initialized, {}, {})


def _partitions(infos: Infos, topic_id: bytes) -> tuple[int, ...]:
    info = infos.get(topic_id)
    return info.partitions if info is not None else ()


def _others(known: Sequence[int], count: int) -> Sequence[int]:
    """The partitions of a topic besides these."""
    if not known or known[-1] == len(known) - 1:
        return range(len(known), count)  # they are in order
    present = set(known)
    return [index for index in range(count) if index not in present]


def _info(topic_id: bytes, name: str, partitions: Sequence[int]) -> TopicPartitionsInfo:
    return TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=tuple(sorted(partitions)))
