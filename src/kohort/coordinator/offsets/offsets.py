"""Committed offsets: commit, fetch, delete, expiry (OffsetMetadataManager.java, KIP-211).

Offsets are hard state only: a commit is a record, and a fetch reads the result of applying all records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice

from kohort.config import LONG_MAX, Config
from kohort.coordinator.classic.checks import LONGEST_NAME, Repeats, check_member
from kohort.coordinator.classic.group import Group, Phase
from kohort.coordinator.classic.protocol_vote import CONSUMER, is_subscribed, subscribed_topics
from kohort.coordinator.classic.responses import commit_error
from kohort.coordinator.consumer.classic_fields import is_classic, session_timeout_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.soft_state import SESSION
from kohort.coordinator.deadlines import Deadline
from kohort.coordinator.events import (
    Client,
    GroupOffsetsDeleted,
    GroupRequested,
    JournalEntry,
    Millis,
    Record,
    Reply,
    TopicOffsetsDeleted,
)
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.offsets.changes import OffsetChanges, asked_by
from kohort.coordinator.offsets.ownership_fence import Fence, commit_fence, every, stale_error
from kohort.coordinator.offsets.repeated_commit import RepeatedCommit
from kohort.coordinator.offsets.sizes import Room, is_too_long
from kohort.coordinator.records import Place, offset_record
from kohort.coordinator.settings.group_settings import SettingsOfGroups
from kohort.coordinator.soft_state import Key, Running
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
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
TOPIC_IDS = 10
"""The first version of OffsetCommit and OffsetFetch with topic ids. An offset that was committed by name has no id: it
belongs to any topic of that name."""
MEMBER_EPOCHS = 9
"""The first version of OffsetCommit and OffsetFetch that members of consumer groups use."""

STEP = 200
"""Partitions of a step."""
DELETED = 500
"""Offsets that one step deletes with their group, or because they expire."""
ROW_BYTES = 100
"""The memory of a row of an answer, about."""
FIXED_BYTES = 24
"""The fields of a fetched partition, besides its metadata."""


class Offsets:
    def __init__(self, config: Config, hard: HardState, running: Running, settings: SettingsOfGroups) -> None:
        self._config = config
        self._deviations = config.deviations
        self._hard = hard
        self._running = running
        self._settings = settings
        self.changes = OffsetChanges(config, hard, running)
        self.expires_more = False
        """The last `expire` has left some for the next one."""

    # -- commit

    def commit(self, event: GroupRequested, now: Millis) -> None:
        request: OffsetCommitRequest = event.body
        error = self._check_commit(request, event.version)
        if not error and not self._deviations.stale_commit:
            error = self._first_error(request)
        if error:
            return self._reply(event, commit_error(request, error))
        session, session_ms = self._session_of(request)
        if session is not None:
            self._running.deadlines.set(session, now + session_ms)
        expire = -1
        if 2 <= event.version <= 4 and request.retention_time_ms != NO_RETENTION:
            expire = max(0, now + request.retention_time_ms)
            if expire > LONG_MAX:
                expire = LONG_MAX if self._deviations.endless_retention else 0
        self.found(request.group_id)
        fence = self._fence(request)
        limit = self._config.offset_metadata_max_bytes
        room = self._room_of(request.group_id, sum(len(topic.partitions) for topic in request.topics))
        topics = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                if is_too_long(metadata, limit):
                    refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    refused = fence((topic.topic_id, asked.partition_index))
                if room is not None and not refused:
                    refused = room.error(topic.name, asked.partition_index, metadata)
                if not refused:
                    value = OffsetCommitValue(
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now,
                        expire_timestamp=expire,
                        topic_id=topic.topic_id if event.version >= TOPIC_IDS else NO_UUID,
                    )
                    self._emit(offset_record(request.group_id, topic.name, asked.partition_index, value))
                results.append(OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=refused))
            topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(results))
            )
        if request.generation_id_or_member_epoch < 0:
            self.changes.committed(request, event.client, topics, now)
        return self._reply(event, OffsetCommitResponse(topics=tuple(topics)))

    def _room_of(self, group_id: str, count: int) -> Room | None:
        """None if there is room for any commit of this number of partitions."""
        limit, longest = self._config.group_max_total_bytes, self._config.offset_metadata_max_bytes
        total = self._hard.total.bytes
        is_needed = Room.is_needed(total, group_id, count, longest, limit)
        return Room(total, group_id, self._hard.offsets.get(group_id), limit) if is_needed else None

    def found(self, group_id: str) -> None:
        """Like Kafka, keep a group for offsets without members, until a sweep finds neither."""
        is_new = group_id not in self._running.groups and group_id not in self._hard.consumers.groups
        if is_new and group_id and not self._deviations.empty_group:
            self._running.groups[group_id] = Group(group_id)
            self._running.unseen.add(group_id)

    def take_commit(self, commit: RepeatedCommit, now: Millis) -> SteadyAnswer | None:
        """Accept a repeated commit. None, and nothing done, if any partition of it would be refused."""
        request = commit.request
        if self._check_commit(request, commit.version):
            return None
        if request.group_id in self._hard.consumers.groups:
            fence = self._fence(request)
            if any(fence(partition) for partition in commit.fenced):
                return None
        room = self._room_of(request.group_id, len(commit.places))
        if room is not None and not commit.fits(room):
            return None
        key, session_ms = self._session_of(request)
        if key is None:
            return SteadyAnswer(0, Deadline(0), 0)  # a deadline that nothing waits for
        self._running.deadlines.set(key, now + session_ms)
        session = self._running.deadlines.find(key)
        assert session is not None
        return SteadyAnswer(0, session, session_ms)

    def _session_of(self, request: OffsetCommitRequest) -> tuple[Key | None, Millis]:
        """The session that an accepted commit extends, and by how much: that of a member with the classic protocol."""
        group_id, member_id = request.group_id, request.member_id
        consumers = self._hard.consumers.groups.get(group_id)
        if consumers is not None:
            value = consumers.members.get(member_id)
            if value is None or not is_classic(value):
                return None, 0
            return (SESSION, group_id, member_id), session_timeout_of(value)
        group = self._running.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        return (None, 0) if member is None else (("session", group_id, member_id), member.session_timeout_ms)

    def _check_commit(self, request: OffsetCommitRequest, version: int) -> int:
        """The error for all partitions, or 0. `_fence` then decides for each partition of a consumer group."""
        generation = request.generation_id_or_member_epoch
        consumers = self._hard.consumers.groups.get(request.group_id)
        if consumers is not None:
            return self._check_consumer_commit(consumers, request, version)
        group = self._running.groups.get(request.group_id)
        if group is None:
            if generation < 0:
                # A simple group: offsets without members (O1).
                return ErrorCode.INVALID_GROUP_ID if len(request.group_id) > LONGEST_NAME else ErrorCode.NONE
            if self._hard.has_offsets(request.group_id):
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        if group.phase is Phase.EMPTY and generation < 0:
            return ErrorCode.NONE
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # an operator's commit on a live group (O4)
        error = check_member(group, request.member_id, request.group_instance_id)
        if error:
            return error
        is_new = group.members[request.member_id].is_new and self._deviations.new_member_commits
        if generation != group.generation_id or is_new:
            return ErrorCode.ILLEGAL_GENERATION  # a new member was never in the generation that is ending
        return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.COMPLETING else ErrorCode.NONE

    def _check_consumer_commit(self, group: ConsumerGroup, request: OffsetCommitRequest, version: int) -> int:
        """O13. Older epochs are checked partition by partition."""
        epoch = request.generation_id_or_member_epoch
        if epoch < 0 and not group.members:
            return ErrorCode.NONE  # the group has no members: the ids of the request do not matter
        holder = group.instances.get(request.group_instance_id or "", request.member_id)
        if holder != request.member_id and self._deviations.commit_instance:
            return ErrorCode.FENCED_INSTANCE_ID
        if request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member = group.members[request.member_id]
        if version < MEMBER_EPOCHS and not is_classic(member):
            return ErrorCode.UNSUPPORTED_VERSION
        known = group.state_of(request.member_id).member_epoch
        return stale_error(member) if epoch > known else ErrorCode.NONE

    def _fence(self, request: OffsetCommitRequest) -> Fence:
        group = self._hard.consumers.groups.get(request.group_id)
        if group is None:
            return every(ErrorCode.NONE)  # a classic group is fenced by its generation only
        epoch = request.generation_id_or_member_epoch
        by_ownership = self._settings.of(request.group_id).ownership_fencing_enable
        return commit_fence(group, request.member_id, epoch, by_ownership=by_ownership)

    def _first_error(self, request: OffsetCommitRequest) -> ErrorCode:
        """The error of the first partition that the fence refuses. Kafka does not ask it about partitions whose
        metadata is too long."""
        fence, limit = self._fence(request), self._config.offset_metadata_max_bytes
        partitions = (
            (topic.topic_id, asked.partition_index)
            for topic in request.topics
            for asked in topic.partitions
            if not is_too_long(asked.committed_metadata or "", limit)
        )
        return next(filter(None, map(fence, partitions)), ErrorCode.NONE)

    # -- fetch

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        version: int,
        fits: Callable[[int], bool],
        *,
        stable: bool,
        offsets: Mapping[Place, OffsetCommitValue] | None = None,
    ) -> Generator[int, None, OffsetFetchResponseGroup | None]:
        """A group's answer, in steps; each yields the memory of its part. `fits` is asked about the bytes of each part.
        Returns None if one does not fit. `stable`: a partition gets an error while an offset is pending there.

        `offsets`: the group's, of one instant. Without them, commits between two steps may show in the answer, as if
        several requests had asked."""
        error = self._check_fetch(request, version)
        if error:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        if offsets is None:
            offsets = self._hard.offsets.get(request.group_id, {})
        wanted: dict[tuple[str, bytes], list[int]] = {}
        if request.topics is None:
            for at, (topic, partition) in enumerate(list(offsets)):
                wanted.setdefault((topic, NO_UUID), []).append(partition)
                if at % STEP == 0:
                    yield 0
        else:
            for at, asked in enumerate(request.topics):
                wanted.setdefault((asked.name, asked.topic_id), []).extend(asked.partition_indexes)
                if at % STEP == 0:
                    yield 0
        topics = []
        for (topic, topic_id), indexes in wanted.items():
            repeats = Repeats()
            partitions = []
            size = FIXED_BYTES + len(topic)
            for at, index in enumerate(indexes, 1):
                if not repeats.too_many(index):
                    place = (topic, index)
                    if stable and self._hard.pending.is_pending(request.group_id, place):
                        found = _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                    else:
                        found = _fetched(index, offsets.get(place), topic_id)
                    partitions.append(found)
                    size += FIXED_BYTES + len(found.metadata or "")
                if at % STEP == 0:
                    if not fits(size):
                        return None
                    yield STEP * ROW_BYTES
                    size = 0
            if not fits(size):
                return None
            yield len(indexes) % STEP * ROW_BYTES
            topics.append(OffsetFetchResponseTopics(name=topic, topic_id=topic_id, partitions=tuple(partitions)))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=tuple(topics))

    def _check_fetch(self, request: OffsetFetchRequestGroup, version: int) -> int:
        """The error of a fetch by a member (O20). A fetch without a member, as operators send, is allowed."""
        group = self._hard.consumers.groups.get(request.group_id)
        if version < MEMBER_EPOCHS or group is None or (request.member_id is None and request.member_epoch < 0):
            return ErrorCode.NONE
        if request.member_id is None and not self._deviations.no_member_id:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.member_epoch == group.state_of(request.member_id).member_epoch:
            return ErrorCode.NONE
        return stale_error(group.members[request.member_id])

    # -- delete

    def delete(self, event: GroupRequested) -> None:
        request: OffsetDeleteRequest = event.body
        group = self._running.groups.get(request.group_id)
        offsets, pending = self._hard.offsets.get(request.group_id, {}), self._hard.pending
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None and not self._is_known(request.group_id):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and group.phase is not Phase.EMPTY and group.protocol_type != CONSUMER:
            error = ErrorCode.NON_EMPTY_GROUP
        if error:
            return self._reply(event, OffsetDeleteResponse(error_code=error, topics=()))
        live = group if group is not None and group.phase is not Phase.EMPTY else None
        subscribed = self._subscribed(live) if live is not None else None
        consumers = self._hard.consumers.groups.get(request.group_id)
        topics = []
        deleted: list[Place] = []
        for asked in request.topics:
            kept = live is not None and is_subscribed(live, subscribed, asked.name)
            if consumers is not None:
                kept = asked.name in consumers.subscribed_topics
            results = []
            for index in dict.fromkeys(partition.partition_index for partition in asked.partitions):
                place = (asked.name, index)
                if not kept and (place in offsets or pending.is_pending(request.group_id, place)):
                    self._emit(offset_record(request.group_id, asked.name, index, None))
                    deleted.append(place)
                refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kept else ErrorCode.NONE
                results.append(OffsetDeleteResponsePartition(partition_index=index, error_code=refused))
            topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=tuple(results)))
        self.changes.deleted(request.group_id, deleted, asked_by(event.client), event.client)
        return self._reply(event, OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=tuple(topics)))

    def _subscribed(self, group: Group) -> set[str] | None:
        """The topics whose offsets cannot be deleted; None if unknown."""
        if group.phase is Phase.PREPARING and not self._deviations.subscribed_in_rebalance:
            return group.generation_topics
        return subscribed_topics(group)

    def delete_first(self, group_id: str, client: Client) -> None:
        """Delete the first DELETED offsets of a group that is deleted, and all that are pending. The others follow
        (`gone_with_group`)."""
        first = list(self._hard.offsets.get(group_id, ()))[:DELETED]
        self.changes.deleted(group_id, first, asked_by(client), client)
        for place in dict.fromkeys([*first, *self._hard.pending.places(group_id)]):
            self._emit(offset_record(group_id, *place, None))

    def gone_with_group(self, event: GroupOffsetsDeleted) -> None:
        """What was committed after the deletion stays."""
        offsets, pending = self._hard.offsets.get(event.group_id, {}), self._hard.pending
        gone = [
            place
            for place, value in event.offsets
            if offsets.get(place) is value and not pending.is_pending(event.group_id, place)
        ]
        why = asked_by(event.client) if event.client is not None else "their group was deleted"
        self.changes.deleted(event.group_id, gone, why, event.client)
        for place in gone:
            self._emit(offset_record(event.group_id, *place, None))

    def topics_deleted(self, topics: tuple[str, ...]) -> None:
        gone = frozenset(topics)
        for group_id in self._hard.groups_of(topics):
            places = [place for place in self._hard.places(group_id) if place[0] in gone]
            names = tuple(sorted({topic for topic, _ in places}))
            self.gone_with_topics(TopicOffsetsDeleted(group_id, tuple(places), names, len(places)))

    def gone_with_topics(self, event: TopicOffsetsDeleted) -> None:
        offsets = self._hard.offsets.get(event.group_id, {})
        for place in event.places:
            if place in offsets or self._hard.pending.is_pending(event.group_id, place):
                self._emit(offset_record(event.group_id, *place, None))
        if event.total:
            cause = f"{event.total} of them; deleted topic: {', '.join(event.topics)}"
            self._running.out.journal.append(JournalEntry(event.group_id, "offsets deleted", cause))

    def _is_known(self, group_id: str) -> bool:
        return self._hard.has_offsets(group_id) or group_id in self._hard.consumers.groups

    # -- expiry

    def expire(self, now: Millis) -> None:
        """Delete offsets past their retention, and groups without members and offsets (X1-X6). A pending offset keeps
        its group and the partition's committed offset. Deletes up to DELETED of them."""
        retention = self._config.offsets_retention_ms
        left = DELETED
        self.expires_more = False
        for group_id in sorted(set(self._running.groups) | set(self._hard.offsets)):
            group = self._running.groups.get(group_id)
            offsets = self._hard.offsets.get(group_id, {})
            consumers = self._hard.consumers.groups.get(group_id)
            found: Iterable[Place]
            if consumers is not None and consumers.has_pending:
                found = ()
            elif consumers is not None and consumers.members:
                subscribed = consumers.subscribed_topics
                found = (
                    place
                    for place, value in offsets.items()
                    if place[0] not in subscribed and now >= _expiry(value, None, retention)
                )
            else:
                found = _expired(offsets, group, retention, now)
            pending = self._hard.pending.places(group_id)
            # No further than needed: otherwise each of many pieces looks at all that is left.
            expired = list(islice((place for place in found if place not in pending), left + 1))
            self.expires_more = len(expired) > left
            expired = expired[:left]
            left -= len(expired)
            for topic, partition in expired:
                self._emit(offset_record(group_id, topic, partition, None))
            self.changes.deleted(group_id, expired, "past their retention")
            is_joined = group is not None and bool(group.pending) and self._deviations.swept_while_joining
            is_used = is_joined or pending or len(expired) < len(offsets)
            if group is not None and group.phase is Phase.EMPTY and not is_used:
                self._running.delete(group, "it has no members and no offsets")
            if self.expires_more:
                break

    def _emit(self, record: Record) -> None:
        self._running.out.records.append(record)

    def _reply(self, event: GroupRequested, body: object) -> None:
        self._running.out.replies.append(Reply(event.request_id, body))


def _no_offset(index: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)


def _fetched(index: int, value: OffsetCommitValue | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
    """A topic may have been deleted and created again: offsets of the former one do not count. If either side has no id
    (NO_UUID), the names are compared."""
    if value is None or (topic_id != value.topic_id and NO_UUID not in (topic_id, value.topic_id)):
        return _no_offset(index)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _expired(
    offsets: dict[Place, OffsetCommitValue], group: Group | None, retention: Millis, now: Millis
) -> Iterator[Place]:
    if not offsets:
        return
    subscribed: set[str] | None = None
    if group is not None and group.phase is not Phase.EMPTY:
        subscribed = subscribed_topics(group) if group.phase is Phase.STABLE else None
        if subscribed is None:
            return
    for place, value in offsets.items():
        if now >= _expiry(value, group, retention) and (subscribed is None or place[0] not in subscribed):
            yield place


def _expiry(value: OffsetCommitValue, group: Group | None, retention: Millis) -> Millis:
    """Offsets of an empty group expire from the time it became empty (X1), all others from their commit (X2, X3)."""
    if value.expire_timestamp >= 0:
        return value.expire_timestamp
    if group is not None and group.protocol_type is not None and group.phase is Phase.EMPTY and group.since >= 0:
        return group.since + retention
    return value.commit_timestamp + retention
