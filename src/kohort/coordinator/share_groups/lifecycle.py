"""The life of a shard's share groups: load, topics, settings, deadlines, deletion; offsets that are set or deleted."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.config import Config
from kohort.coordinator.events import GroupRequested, Millis, Reply
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import generation_record
from kohort.coordinator.settings.group_settings import SettingsOfGroups
from kohort.coordinator.share_groups.group import GROUP_BYTES, INITIALIZED_BYTES, ShareGroup
from kohort.coordinator.share_groups.heartbeat import ShareHeartbeats
from kohort.coordinator.share_groups.records import (
    share_group_record,
    share_target_epoch_record,
    states_record,
)
from kohort.coordinator.share_groups.states import AT_ONCE, STATES
from kohort.coordinator.share_groups.targets import ASSIGN, SESSION, ShareTargets
from kohort.coordinator.shares.events import RESET, InitializeShares
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_share_group_offsets import (
    AlteredOffset,
    AlteredOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    NewOffsetsTopic,
)
from kohort.wire.schemas.delete_share_group_offsets import (
    DeletedOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kohort.wire.schemas.share_group_records import TopicPartitionsInfo

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = bytes(16)


class ShareGroups:
    def __init__(self, config: Config, hard: HardState, running: Running, settings: SettingsOfGroups) -> None:
        self.targets = ShareTargets(hard, running, settings)
        self.heartbeats = ShareHeartbeats(config, self.targets)
        self._hard = hard
        self._running = running

    @property
    def groups(self) -> dict[str, ShareGroup]:
        return self._hard.shares.groups

    @property
    def topics(self) -> Topics:
        return self.targets.topics

    def is_other(self, group_id: str) -> bool:
        """Whether a group of this name exists that is no share group."""
        hard = self._hard
        return group_id in self._running.groups or group_id in hard.consumers.groups or hard.has_offsets(group_id)

    def topics_are(self, topics: Topics) -> None:
        self.targets.states.topics = topics

    def topics_changed(self, now: Millis, names: Iterable[str] | None = None) -> None:
        """`names`: the topics that changed, if known."""
        wanted = None if names is None else set(names)
        for group in list(self.groups.values()):
            if wanted is not None and not self._knows(group, wanted):
                continue
            self.targets.refresh(group, now, bump=self.targets.states.forget_deleted(group, now))

    def _knows(self, group: ShareGroup, names: set[str]) -> bool:
        if not names.isdisjoint(group.subscribers):
            return True
        return any(info.topic_name in names for info in group.initialized.values())

    def deadline_reached(self, key: tuple[str, str, str], now: Millis) -> None:
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return
        if kind == SESSION and member_id in group.members:
            silent_ms = self.targets.settings(group).share_session_timeout_ms
            self.heartbeats.remove(group, member_id, now, silent_ms)
        elif kind == ASSIGN:
            self.targets.make(group, now)
        elif kind == STATES:
            self.targets.go_on(group, now)

    def load(self, now: Millis) -> None:
        for group in self.groups.values():
            session = self.targets.settings(group).share_session_timeout_ms
            for member_id in group.members:
                self._running.deadlines.set((SESSION, group.group_id, member_id), now + session)
            self.targets.states.load(group, now)
        self.topics_changed(now)

    def delete(self, group: ShareGroup) -> None:
        """Forget a group without members, and what its share-partitions have."""
        assert not group.members, group.group_id
        name = group.group_id
        if self._running.deviations.numbers_go_on:
            highest = max(group.epoch, self._running.former_generation(name))
            self.targets.emit(generation_record(name, highest))
        self.targets.states.drop(group)
        self.targets.emit(states_record(name, None, {}, {}))
        self.targets.emit(share_target_epoch_record(name, None))
        self.targets.emit(share_group_record(name, None))
        self._running.deadlines.clear((ASSIGN, name, ""))

    def is_large(self, group_id: str) -> bool:
        """To delete this group in one step takes too long: `shrink` comes first."""
        group = self.groups.get(group_id)
        return group is not None and not group.members and self.targets.states.count(group) > AT_ONCE

    def shrink(self, group_id: str, now: Millis) -> None:
        """A step on the way to the deletion of a group. Not durable before the last one: what its share-partitions have
        is deleted, the group stays."""
        group = self.groups.get(group_id)
        if group is None or group.members:
            return
        states = self.targets.states
        if len(group.deleting) < len({**group.initialized, **group.initializing}):
            states.forget(group, list({**group.initialized, **group.initializing}), now)
        else:
            self.targets.go_on(group, now)

    # -- offsets

    def _check_offsets(self, group_id: str, group: ShareGroup | None) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None and self.is_other(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NON_EMPTY_GROUP if group is not None and group.members else ErrorCode.NONE

    def alter_offsets(self, event: GroupRequested, now: Millis) -> None:
        """SH13: the group's next epoch is the state epoch of what is set."""
        request: AlterShareGroupOffsetsRequest = event.body
        group = self.groups.get(request.group_id)
        error = self._check_offsets(request.group_id, group)
        if not error and group is not None and (group.initializing or group.deleting):
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # it takes less than a second
        if not error and not self._running.member_bytes.has_room(self._more_bytes(request, group)):
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error:
            answer = AlterShareGroupOffsetsResponse(error_code=error, error_message=error.message)
            self._running.out.replies.append(Reply(event.request_id, answer))
            return
        group = self.targets.found(request.group_id)
        self.targets.emit(share_group_record(group.group_id, group.epoch + 1, group.metadata_hash))
        topics = dict(group.initialized)
        rows = tuple([self._altered(group, topic, topics, now) for topic in request.topics])
        self.targets.states.put(group, topics)
        self.targets.make(group, now)
        self._running.out.replies.append(Reply(event.request_id, AlterShareGroupOffsetsResponse(responses=rows)))

    def _more_bytes(self, request: AlterShareGroupOffsetsRequest, group: ShareGroup | None) -> int:
        """What a request adds to the memory of groups, at most."""
        known = {info.topic_name: set(info.partitions) for info in group.initialized.values()} if group else {}
        added = (
            one.partition_index not in known.get(topic.topic_name, ())
            for topic in request.topics
            for one in topic.partitions
        )
        return INITIALIZED_BYTES * sum(added) + (GROUP_BYTES + len(request.group_id) if group is None else 0)

    def _altered(
        self, group: ShareGroup, wanted: NewOffsetsTopic, topics: dict[bytes, TopicPartitionsInfo], now: Millis
    ) -> AlteredOffsetsTopic:
        spec = self.topics.by_name.get(wanted.topic_name)
        rows = []
        starts: dict[int, list[int]] = {}
        for partition in wanted.partitions:
            index = partition.partition_index
            error = ErrorCode.NONE
            if spec is None or not 0 <= index < spec.partitions:
                error = UNKNOWN
            elif partition.start_offset < RESET:
                error = ErrorCode.INVALID_REQUEST
            else:
                starts.setdefault(partition.start_offset, []).append(index)
            message = error.message if error else None
            rows.append(AlteredOffset(partition_index=index, error_code=error, error_message=message))
        if spec is not None and starts:
            known = topics.get(spec.topic_id)
            indexes = set(known.partitions if known is not None else ()).union(*starts.values())
            topics[spec.topic_id] = TopicPartitionsInfo(
                topic_id=spec.topic_id,
                topic_name=spec.name,
                partitions=tuple(sorted(indexes)),
            )
            self._running.out.shares += [
                InitializeShares(group.group_id, spec.topic_id, tuple(some), group.epoch, start)
                for start, some in starts.items()
            ]
        topic_id = spec.topic_id if spec is not None else NO_ID
        return AlteredOffsetsTopic(topic_name=wanted.topic_name, topic_id=topic_id, partitions=tuple(rows))

    def delete_offsets(self, event: GroupRequested, now: Millis) -> None:
        request: DeleteShareGroupOffsetsRequest = event.body
        group = self.groups.get(request.group_id)
        error = self._check_offsets(request.group_id, group)
        if not error and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if error or group is None:
            answer = DeleteShareGroupOffsetsResponse(error_code=error, error_message=error.message)
            self._running.out.replies.append(Reply(event.request_id, answer))
            return
        infos = (*group.initialized.values(), *group.initializing.values())
        by_name = {info.topic_name: info for info in infos if info.topic_id not in group.deleting}
        rows, gone = [], []
        for topic in request.topics:
            info = by_name.pop(topic.topic_name, None)
            if info is None:
                rows.append(
                    DeletedOffsetsTopic(
                        topic_name=topic.topic_name, topic_id=NO_ID, error_code=UNKNOWN, error_message=UNKNOWN.message
                    )
                )
            else:
                gone.append(info.topic_id)
                rows.append(DeletedOffsetsTopic(topic_name=topic.topic_name, topic_id=info.topic_id))
        if gone:
            self.targets.states.forget(group, gone, now)
        self._running.out.replies.append(
            Reply(event.request_id, DeleteShareGroupOffsetsResponse(responses=tuple(rows)))
        )
