"""Committed offsets: commit, fetch, delete, expiry (OffsetMetadataManager.java, KIP-211).

Offsets are hard state only: a commit is a record, and what a fetch reads is the fold of the records.
"""

from __future__ import annotations

from kohort.config import LONG_MAX, Config
from kohort.coordinator.classic_group import ClassicGroups, check_member
from kohort.coordinator.events import GroupRequested, Millis, Record, Reply
from kohort.coordinator.records import offset_record
from kohort.coordinator.state import Group, HardState, Phase, Place
from kohort.wire.codec import decode_prefix
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NO_RETENTION = -1


class Offsets:
    def __init__(self, config: Config, hard: HardState, groups: ClassicGroups) -> None:
        self._config = config
        self._hard = hard
        self._groups = groups

    # -- commit

    def commit(self, event: GroupRequested, now: Millis) -> None:
        request: OffsetCommitRequest = event.body
        error = self._check_commit(request, event.version, now)
        expire = -1
        if 2 <= event.version <= 4 and request.retention_time_ms != NO_RETENTION:
            expire = min(now + request.retention_time_ms, LONG_MAX)
        topics = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                refused = error
                if not refused and len(metadata.encode("utf-16-le")) // 2 > self._config.offset_metadata_max_bytes:
                    refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
                if not refused:
                    value = OffsetCommitValue(
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now,
                        expire_timestamp=expire,
                        topic_id=topic.topic_id,
                    )
                    self._emit(offset_record(request.group_id, topic.name, asked.partition_index, value))
                results.append(OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=refused))
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(results))
            )
        self._reply(event, OffsetCommitResponse(topics=tuple(topics)))

    def _check_commit(self, request: OffsetCommitRequest, version: int, now: Millis) -> int:
        generation = request.generation_id_or_member_epoch
        group = self._groups.groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return ErrorCode.NONE  # a simple group: offsets without members (O1)
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        if group.phase is Phase.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group.phase is Phase.EMPTY and generation < 0:
            return ErrorCode.NONE
        if generation >= 0 or request.member_id or request.group_instance_id is not None:
            error = check_member(group, request.member_id, request.group_instance_id)
            if error:
                return error
            if generation != group.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        else:
            return ErrorCode.UNKNOWN_MEMBER_ID  # an operator's commit on a live group (O4)
        if group.phase is Phase.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._groups.touch(group, request.member_id, now)
        return ErrorCode.NONE

    # -- fetch

    def fetch(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        offsets = self._hard.offsets.get(request.group_id, {})
        wanted: dict[str, list[int]] = {}
        if request.topics is None:
            for topic, partition in offsets:
                wanted.setdefault(topic, []).append(partition)
        else:
            for asked in request.topics:
                wanted.setdefault(asked.name, []).extend(asked.partition_indexes)
        return OffsetFetchResponseGroup(
            group_id=request.group_id,
            error_code=ErrorCode.NONE,
            topics=tuple(
                OffsetFetchResponseTopics(
                    name=topic,
                    partitions=tuple(_fetched(index, offsets.get((topic, index))) for index in partitions),
                )
                for topic, partitions in wanted.items()
            ),
        )

    # -- delete

    def delete(self, event: GroupRequested) -> None:
        request: OffsetDeleteRequest = event.body
        group = self._groups.groups.get(request.group_id)
        offsets = self._hard.offsets.get(request.group_id, {})
        if not request.group_id:
            return self._reply(event, OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=()))
        if group is None and not offsets:
            return self._reply(event, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, topics=()))
        subscribed: set[str] = set()
        if group is not None and group.phase is not Phase.EMPTY:
            found = _subscribed(group)
            if found is None:
                return self._reply(event, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP, topics=()))
            subscribed = found
        topics = []
        for asked in request.topics:
            results = []
            for partition in asked.partitions:
                index = partition.partition_index
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if asked.name in subscribed else ErrorCode.NONE
                if not error and (asked.name, index) in offsets:
                    self._emit(offset_record(request.group_id, asked.name, index, None))
                results.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
            topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=tuple(results)))
        return self._reply(event, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=tuple(topics)))

    def delete_all(self, group_id: str) -> None:
        for topic, partition in self._hard.offsets.get(group_id, {}):
            self._emit(offset_record(group_id, topic, partition, None))

    def topics_deleted(self, topics: tuple[str, ...]) -> None:
        gone = set(topics)
        for group_id, offsets in self._hard.offsets.items():
            for topic, partition in offsets:
                if topic in gone:
                    self._emit(offset_record(group_id, topic, partition, None))

    # -- expiry

    def expire(self, now: Millis) -> None:
        """Offsets past their retention go, and groups that are empty in every sense (X1-X6)."""
        retention = self._config.offsets_retention_minutes * 60_000
        for group_id in sorted(set(self._groups.groups) | set(self._hard.offsets)):
            group = self._groups.groups.get(group_id)
            offsets = self._hard.offsets.get(group_id, {})
            expired = [place for place, value in offsets.items() if _is_expired(value, place, group, retention, now)]
            for topic, partition in expired:
                self._emit(offset_record(group_id, topic, partition, None))
            if group is not None and group.phase is Phase.EMPTY and not group.pending and len(expired) == len(offsets):
                self._groups.delete(group)

    def _emit(self, record: Record) -> None:
        self._groups.out.records.append(record)

    def _reply(self, event: GroupRequested, body: object) -> None:
        self._groups.out.replies.append(Reply(event.request_id, body))


def _fetched(index: int, value: OffsetCommitValue | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=0)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=0,
    )


def _subscribed(group: Group) -> set[str] | None:
    """The topics that a live group of consumers subscribes to; None for a group of another protocol type."""
    if group.protocol_type != "consumer":
        return None
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.metadata_of(group.protocol) or (member.protocols[0][1] if member.protocols else b"")
        try:
            version = min(max(int.from_bytes(metadata[:2], "big", signed=True), 0), 3)
            subscription, _ = decode_prefix(ConsumerProtocolSubscription, version, metadata, 2)
        except ProtocolError:
            continue
        topics.update(subscription.topics)
    return topics


def _is_expired(value: OffsetCommitValue, place: Place, group: Group | None, retention: Millis, now: Millis) -> bool:
    if value.expire_timestamp >= 0:
        return group_allows(group, place) and now >= value.expire_timestamp
    if group is None or group.protocol_type is None:
        return now >= value.commit_timestamp + retention
    if group.phase is Phase.EMPTY:
        return now >= group.since + retention
    return group_allows(group, place) and now >= value.commit_timestamp + retention


def group_allows(group: Group | None, place: Place) -> bool:
    """A live group's offsets expire only for topics that nobody subscribes to (X2)."""
    if group is None or group.phase is Phase.EMPTY:
        return True
    if group.phase is not Phase.STABLE:
        return False
    subscribed = _subscribed(group)
    return subscribed is not None and place[0] not in subscribed
