"""TxnOffsetCommit: offsets that a producer commits in its transaction (OffsetMetadataManager.java).

The checks are those of OffsetCommit, with these differences. Older clients name no member, so a request without one is
accepted in any state of the group. The end of a rebalance does not matter: a member whose generation is still the
group's may commit. The member's session is not extended, because the producer sends the request, on a connection of its
own.

A transaction cannot be half right, so a request with a partition that its member does not own is refused as a whole,
and never with 110, because Java's producer cannot go on after that error. Producers abort and go on after

     22 ILLEGAL_GENERATION   another generation or epoch, or partitions of another member
     25 UNKNOWN_MEMBER_ID    the member is not in the group
     82 FENCED_INSTANCE_ID   another member has the group instance id

and from version 6 on (KIP-1319), instead of 22,

     69 GROUP_ID_NOT_FOUND   there is no such group
    113 STALE_MEMBER_EPOCH   another epoch, or partitions of another member, in a consumer group

The coordinator of the transaction is asked before (broker/handlers/transactional_offsets.py).
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.checks import LONGEST_NAME, check_member
from kohort.coordinator.classic.group import Phase
from kohort.coordinator.classic.responses import pending_commit_error
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.events import GroupRequested, Millis, Reply
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.offsets.offsets import Offsets
from kohort.coordinator.offsets.ownership_fence import commit_fence, stale_error
from kohort.coordinator.offsets.sizes import Room, is_too_long
from kohort.coordinator.records import pending_record
from kohort.coordinator.settings.group_settings import SettingsOfGroups
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_GENERATION = -1
TOPIC_IDS = 6
"""The first version that names topics by their ids, and knows GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""


class TransactionalOffsets:
    def __init__(
        self, config: Config, hard: HardState, running: Running, settings: SettingsOfGroups, offsets: Offsets
    ) -> None:
        self._config = config
        self._hard = hard
        self._running = running
        self._settings = settings
        self._offsets = offsets

    def commit(self, event: GroupRequested, topics: Topics, now: Millis) -> None:
        """`topics`: those that consumer groups know."""
        request: TxnOffsetCommitRequest = event.body
        error = self._check(request, event.version, topics)
        if error:
            self._running.out.replies.append(Reply(event.request_id, pending_commit_error(request, error)))
            return
        self._offsets.found(request.group_id)
        self._running.out.producer = (request.producer_id, request.producer_epoch)
        room = self._room_of(request)
        answered = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                place = (topic.name, asked.partition_index)
                refused = ErrorCode.NONE
                if is_too_long(metadata, self._config.offset_metadata_max_bytes):
                    refused = ErrorCode.OFFSET_METADATA_TOO_LARGE
                elif room is not None:
                    refused = room.error(*place, metadata)
                if not refused:
                    value = OffsetCommitValue(
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now,
                    )
                    record = pending_record(request.producer_id, request.group_id, *place, value)
                    self._running.out.records.append(record)
                results.append(TxnOffsetCommitResponsePartition(partition_index=place[1], error_code=refused))
            answered.append(
                TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(results))
            )
        reply = Reply(event.request_id, TxnOffsetCommitResponse(topics=tuple(answered)))
        self._running.out.replies.append(reply)

    def _room_of(self, request: TxnOffsetCommitRequest) -> Room | None:
        """None if there is room for all of them."""
        limit, longest = self._config.group_max_total_bytes, self._config.offset_metadata_max_bytes
        total, count = self._hard.total.bytes, sum(len(topic.partitions) for topic in request.topics)
        if not Room.is_needed(total, request.group_id, count, longest, limit):
            return None
        pending = self._hard.pending.of(request.producer_id, request.group_id)
        return Room(total, request.group_id, pending, limit)

    # -- checks

    def _check(self, request: TxnOffsetCommitRequest, version: int, topics: Topics) -> int:
        """The error of the request, or NONE."""
        consumers = self._hard.consumers.groups.get(request.group_id)
        if consumers is not None:
            return self._check_of_consumers(consumers, request, version, topics)
        group = self._running.groups.get(request.group_id)
        generation = request.generation_id
        if group is None:
            if generation < 0:
                return ErrorCode.INVALID_GROUP_ID if len(request.group_id) > LONGEST_NAME else ErrorCode.NONE
            if self._hard.has_offsets(request.group_id):
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= TOPIC_IDS else ErrorCode.ILLEGAL_GENERATION
        if (group.phase is Phase.EMPTY and generation < 0) or _names_nobody(request):
            return ErrorCode.NONE
        error = check_member(group, request.member_id, request.group_instance_id)
        if error:
            return error
        is_new = group.members[request.member_id].is_new and self._config.deviations.new_member_commits
        wrong = generation != group.generation_id or is_new  # a new member was never in the generation that is ending
        return ErrorCode.ILLEGAL_GENERATION if wrong else ErrorCode.NONE

    def _check_of_consumers(
        self, group: ConsumerGroup, request: TxnOffsetCommitRequest, version: int, topics: Topics
    ) -> ErrorCode:
        epoch = request.generation_id
        if (epoch < 0 and not group.members) or _names_nobody(request):
            return ErrorCode.NONE
        holder = group.instances.get(request.group_instance_id or "", request.member_id)
        if holder != request.member_id and self._config.deviations.commit_instance:
            return ErrorCode.FENCED_INSTANCE_ID
        if request.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        stale = stale_error(group.members[request.member_id])
        if version < TOPIC_IDS:
            stale = ErrorCode.ILLEGAL_GENERATION
        if epoch > group.state_of(request.member_id).member_epoch:
            return stale
        by_ownership = self._settings.of(request.group_id).ownership_fencing_enable
        fence = commit_fence(group, request.member_id, epoch, by_ownership=by_ownership)
        for topic in request.topics:
            spec = topics.by_name.get(topic.name)
            topic_id = spec.topic_id if spec is not None else b""
            if any(fence((topic_id, asked.partition_index)) for asked in topic.partitions):
                return stale
        return ErrorCode.NONE


def _names_nobody(request: TxnOffsetCommitRequest) -> bool:
    """True for a request of the versions without a member."""
    return request.generation_id == NO_GENERATION and not request.member_id and request.group_instance_id is None
