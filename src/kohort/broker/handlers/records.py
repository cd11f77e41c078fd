"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from functools import partial

from kohort.broker.change_log import tell_change
from kohort.broker.handlers.fetch import READ_COMMITTED, leader_error, tell_failed_read
from kohort.broker.logs.partition import Partition
from kohort.broker.logs.time_search import Located, Search, SearchedEnough
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps, rows
from kohort.broker.security.audit import listed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.broker.turn import ByTime, Complaint, ReadDone
from kohort.broker.waits.reads import FailedRead, Read
from kohort.storage.protocol import DamagedBatch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
"""ListOffsets' special timestamps."""
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The version that introduced each of them; the first two are as old as the API."""


@in_steps
def list_offsets(
    state: BrokerState, request: ListOffsetsRequest, context: RequestContext
) -> Generator[Read | int, None, ListOffsetsResponse]:
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    search = Search()
    committed = request.isolation_level == READ_COMMITTED
    topics: dict[str, list[ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        partitions = topics.setdefault(topic.name, [])
        for at, partition in enumerate(topic.partitions, 1):
            times = asked[topic.name, partition.partition_index]
            if times == 1:
                found = yield from _list_offset(state, topic.name, partition, context, search, committed)
                partitions.append(found)
            elif times:  # named twice: refused, once (ReplicaManager.fetchOffset)
                asked[topic.name, partition.partition_index] = 0
                partitions.append(_refused(partition.partition_index, ErrorCode.INVALID_REQUEST))
            if at % ROWS == 0 or _is_by_time(partition.timestamp):
                yield ROWS * ROW_BYTES if at % ROWS == 0 else 0
        yield ROW_BYTES
    return ListOffsetsResponse(
        topics=tuple(ListOffsetsTopicResponse(name=name, partitions=tuple(rows_of)) for name, rows_of in topics.items())
    )


def _is_by_time(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _refused(partition: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error)


def _list_offset(
    state: BrokerState,
    name: str,
    asked: ListOffsetsPartition,
    context: RequestContext,
    search: Search,
    committed: bool,
) -> Generator[Read, None, ListOffsetsPartitionResponse]:
    """A search that storage answers later is followed by a new look at the topic."""
    read: Read | None = None
    while True:
        found = _list_offset_now(state, state.topic(name), asked, context, search, committed, read)
        if isinstance(found, ListOffsetsPartitionResponse):
            return found
        by_time = ByTime(None if asked.timestamp == MAX_TIMESTAMP else asked.timestamp, search.left)
        read = yield from state.reads.search(context.request_id, found.log, found.start_offset, by_time)
        if read.done is not None and not (read.done.damage or read.done.failure):
            search.left = read.done.left


def _list_offset_now(
    state: BrokerState,
    topic: Topic | None,
    asked: ListOffsetsPartition,
    context: RequestContext,
    search: Search,
    committed: bool,
    read: Read | None,
) -> ListOffsetsPartitionResponse | Partition:
    """A partition is the result if it has to be searched first; `read` is a search that is done."""
    index = asked.partition_index
    partition = state.partition(topic, index) if topic is not None else None
    if topic is None or partition is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if asked.timestamp < EARLIEST and context.api_version < _SINCE.get(asked.timestamp, 32767):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    assignment = topic.partitions[index]
    error = leader_error(asked.current_leader_epoch, assignment.leader_epoch, assignment.leader, context.broker_id)
    if error:
        return _refused(index, error)
    try:
        is_parked = _is_by_time(asked.timestamp) and partition.tail is not None
        if is_parked and (read is None or not _is_valid(read, partition)):
            search.check()
            return partition
        timestamp, offset, epoch = _locate(partition, asked.timestamp, search, committed, read)
    except FailedRead as failure:
        tell_failed_read(state, topic, index, asked.timestamp, failure)
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
    except SearchedEnough:
        # Clients ask again for these partitions; the others are done by then.
        error = ErrorCode.OFFSET_NOT_AVAILABLE if context.api_version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        return _refused(index, error)
    except DamagedBatch as damage:
        state.turn.complain(Complaint("damaged data", f"{topic.name}-{index} cannot be searched by time: {damage}"))
        return _refused(index, ErrorCode.CORRUPT_MESSAGE)
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=ErrorCode.NONE, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _is_valid(read: Read, partition: Partition) -> bool:
    """False if the search was of another log, or if its record has been deleted since."""
    located = read.done.located if read.done is not None else None
    return read.asked.log == partition.log and (located is None or located.offset >= partition.start_offset)


def _searched(done: ReadDone) -> Located | None:
    if done.damage:
        raise DamagedBatch(done.damage)
    if done.failure:
        raise FailedRead(done.failure)
    if done.searched_enough:
        raise SearchedEnough
    return done.located


def _locate(
    partition: Partition, timestamp: int, search: Search, committed: bool, read: Read | None
) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch; each -1 if there is none. `committed`: for a reader that ends at the last
    stable offset, which finds nothing behind it."""
    # Appends and markers of this turn count: they are durable when the answer leaves.
    end = partition.stable_end if committed else partition.end_offset
    match timestamp:
        case -1:
            return -1, end, partition.leader_epoch
        case -2 | -4:
            return -1, partition.start_offset, partition.epoch_at(partition.start_offset)
        case -5 | -6:
            return -1, -1, -1  # Nothing is ever moved to remote storage.
        case _ if read is not None and read.done is not None:
            found = _searched(read.done)
        case -3:
            found = partition.first_record(None, search)
        case _:
            found = partition.first_record(timestamp, search)
    if found is None or found.offset >= end:
        return -1, -1, -1
    return found.timestamp, found.offset, found.leader_epoch


@in_steps
def offset_for_leader_epoch(
    state: BrokerState, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Generator[int, None, OffsetForLeaderEpochResponse]:
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        if topics:
            yield ROW_BYTES
        end_of = partial(_end_of_epoch, state, topic.topic, context)
        partitions = yield from rows(topic.partitions, end_of)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _end_of_epoch(
    state: BrokerState, name: str, context: RequestContext, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    topic = state.topic(name)
    partition = state.partition(topic, asked.partition) if topic is not None else None
    if topic is None or partition is None:
        return EpochEndOffset(partition=asked.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assignment = topic.partitions[asked.partition]
    error = leader_error(asked.current_leader_epoch, assignment.leader_epoch, assignment.leader, context.broker_id)
    if error:
        return EpochEndOffset(partition=asked.partition, error_code=error)
    epoch, end_offset = partition.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, error_code=ErrorCode.NONE, leader_epoch=epoch, end_offset=end_offset
    )


@in_steps
def delete_records(
    state: BrokerState, request: DeleteRecordsRequest, context: RequestContext
) -> Generator[int, None, DeleteRecordsResponse]:
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        if topics:
            yield ROW_BYTES
        starts: dict[int, tuple[int, int]] = {}
        delete = partial(_delete_up_to, state, topic.name, context, starts)
        partitions = yield from rows(topic.partitions, delete)
        if starts:
            deleted = listed(sorted(starts.items()), lambda one: f"{one[0]}: {one[1][0]} -> {one[1][1]}")
            tell_change(state, context, "records deleted", topic=topic.name, starts=deleted)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=tuple(topics))


def _delete_up_to(
    state: BrokerState,
    name: str,
    context: RequestContext,
    starts: dict[int, tuple[int, int]],
    asked: DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult:
    """Notes in `starts` where the log began before and begins now."""
    index, low_watermark = asked.partition_index, -1
    topic = state.topic(name)
    partition = state.partition(topic, index) if topic is not None else None
    if topic is None or partition is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif topic.is_internal:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif topic.partitions[index].leader != context.broker_id:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif not partition.settings.delete:
        error = ErrorCode.POLICY_VIOLATION
    else:
        offset = partition.high_watermark if asked.offset == -1 else asked.offset
        if 0 <= offset <= partition.high_watermark:
            before = partition.start_offset
            state.turn.trim(partition, offset)
            error, low_watermark = ErrorCode.NONE, partition.start_offset
            if low_watermark != before:
                starts[index] = before, low_watermark
        else:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
