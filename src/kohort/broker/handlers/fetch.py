"""Fetch: reads record batches of partitions, at once or when there are enough (long poll).

Limits follow KIP-74. Partitions are served in the order of the request. The first batch of the first partition that has
one is sent whole even if it is larger than every limit, so that a consumer always makes progress. After that a
partition gets what fits into its own limit and into what is left of the request's.

The fetches of one turn share a limit too (fetch.turn.max.bytes): otherwise many clients that fetch at once would get as
many answers of the largest size. A fetch beyond the limit gets one batch, and its client fetches again.

A fetch may name the member of a consumer group that reads (docs/wire-extensions.md). Then partitions that the member
does not own are refused. The group's shard decides each time that the fetch is evaluated, because the member may lose a
partition while it waits for data. All brokers of the process have all shards, so the leader need not be the
coordinator.

A reader of committed records (isolation level 1) gets the batches before the last stable offset, and the list of the
aborted transactions whose records it must drop. Control batches are for all readers, which skip them.

Records that are not in memory are read by the edge. The fetch waits for all of its reads, and is then evaluated anew
(waits/reads.py). An answer with what was read does not wait for more.

Fetch sessions are declined: every answer has session 0, so clients send the full list each time. An answer holds only
records that an earlier turn made durable.

A partition that is named twice counts once, with the values that come last, as in Kafka (FetchRequest.fetchData). A
fetch of more than STEP partitions is read in steps. One of more than LARGE does not watch its partitions: while it
waits for data, it waits for its whole time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import cast

import msgspec

from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.logs.partition import Partition
from kohort.broker.messages import changed
from kohort.broker.quotas.entities import FETCH
from kohort.broker.request import ROW_BYTES, InSteps, RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Topic
from kohort.broker.turn import Complaint, Millis
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.broker.waits.reads import READS, FailedRead, Read
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.offsets.ownership_fence import Fence, every
from kohort.storage.protocol import DamagedBatch, LogKey, StoredBatch
from kohort.wire.batches import read_header
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.fetch import (
    NOBODY,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

TOPIC_IDS = 13
"""The first version that names topics by their ids."""
READ_COMMITTED = 1
_NEW_SESSION, _NO_SESSION = 0, -1
LARGE = 1_000
"""Partitions of a fetch above which it does not watch them."""
STEP = 100
"""Partitions that a step reads."""
STEPS_BYTES = 8_388_608
"""Most bytes of records in an answer that is read in steps: they stay in memory until all partitions are read."""

STORAGE_ERRORS = 6
"""The first version whose clients try again after KAFKA_STORAGE_ERROR (KafkaApis.maybeDownConvertStorageError)."""

Fetched = FetchResponse | FetchWait | InSteps


class _Reading(msgspec.Struct):
    """One pass over the partitions of a request."""

    state: BrokerState
    request: FetchRequest
    context: RequestContext
    leaders: CurrentLeaders
    fence: Fence | None
    """Refuses what the reading member does not own, if the request names a member."""
    limit: int
    """The most bytes of the answer's records."""
    share: int
    """What the turn leaves of it for this answer."""
    left_bytes: int
    """The unused part of the limits of the request and the turn."""
    reads: dict[LogKey, Read]
    """What an earlier turn has read for this fetch."""
    asked: list[tuple[LogKey, int, int, int]] = []
    """The reads that it needs: log, offset, most bytes, end offset."""
    size: int = 0
    sizes: list[tuple[Partition, int]] = []
    """The bytes of each partition that has records in the answer."""
    answer_now: bool = False
    """An error or a diverging epoch: the client must act."""


def fetch(state: BrokerState, request: FetchRequest, context: RequestContext) -> Fetched:
    if context.api_version >= 7 and request.session_epoch not in (_NEW_SESSION, _NO_SESSION):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
    deadline_ms = state.now + max(request.max_wait_ms, 0)
    size = _size(request)
    if size > LARGE:
        return InSteps(_without_repeats_in_steps(state, request, context, deadline_ms))
    if size > 1 and _repeats(request):
        request = changed(request, topics=_collected({}, request.topics))
        size = _size(request)
    return resume(state, _wait(request, context, size, deadline_ms))


def _wait(request: FetchRequest, context: RequestContext, size: int, deadline_ms: Millis) -> FetchWait:
    return FetchWait(request, context, size, deadline_ms, committed=request.isolation_level == READ_COMMITTED)


def resume(state: BrokerState, wait: FetchWait, *, at_once: bool = False) -> Fetched:
    """Answer a fetch, or park it (again) if there is too little data and its deadline has not come."""
    if wait.size > STEP:
        steps = _in_steps(state, wait, at_once)
        return InSteps(_after(next(steps), steps) if wait.reads else steps)
    reading = _reading(state, wait, state.config.fetch_max_bytes)
    topics = [
        _topic(topic, [_read(reading, _find(state, topic, wait.context), asked) for asked in topic.partitions])
        for topic in wait.request.topics
    ]
    return _concluded(reading, wait, topics, at_once)


def _after(size: int, steps: Generator[int, None, Fetched]) -> Generator[int, None, Fetched]:
    """`steps` have begun, so that they notice if the client goes."""
    yield size
    return (yield from steps)


def _in_steps(state: BrokerState, wait: FetchWait, at_once: bool) -> Generator[int, None, FetchResponse | FetchWait]:
    reading = _reading(state, wait, STEPS_BYTES)
    topics = []
    try:
        if wait.reads:
            yield state.reads.give(wait)
        for topic in wait.request.topics:
            partitions: list[PartitionData] = []
            for asked in topic.partitions:
                # The topic is looked up each time, because it may be deleted between two steps.
                size = reading.size
                partitions.append(_read(reading, _find(state, topic, wait.context), asked))
                if len(partitions) % STEP == 0 or reading.size > size:
                    yield STEP * ROW_BYTES + reading.size - size
            topics.append(_topic(topic, partitions))
            yield ROW_BYTES
    except GeneratorExit:  # the client has gone
        state.reads.remove(wait.context.request_id)
        raise
    return _concluded(reading, wait, topics, at_once)


def _reading(state: BrokerState, wait: FetchWait, most_bytes: int) -> _Reading:
    request = wait.request
    limit = max(0, min(request.max_bytes, state.config.fetch_max_bytes, most_bytes))
    if state.catalog.quotas.on:
        quota = state.meters.most_at_once(FETCH, wait.context.principal.name, wait.context.client.client_id)
        limit = limit if quota is None else min(limit, quota)
    left = min(limit, state.turn.fetch_share_bytes)
    leaders = CurrentLeaders(state, wait.context.listener)
    return _Reading(state, request, wait.context, leaders, _fence(state, request), limit, left, left, wait.reads)


def _topic(topic: FetchTopic, partitions: list[PartitionData]) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(partitions))


def _concluded(
    reading: _Reading, wait: FetchWait, topics: list[FetchableTopicResponse], at_once: bool
) -> FetchResponse | FetchWait:
    state, request, limit = reading.state, reading.request, reading.limit
    min_bytes = min(request.min_bytes, limit)
    enough = reading.answer_now or reading.size >= min_bytes or not any(topic.partitions for topic in topics)
    enough |= reading.size > 0 and (reading.share < limit or bool(wait.reads))
    if wait.reads:
        state.reads.remove(wait.context.request_id)
    if reading.asked and not (reading.reads and enough):
        state.reads.park(wait, reading.asked)
        return wait
    if not enough and not at_once and state.now < wait.deadline_ms and state.fetch_waits.has_room(wait.size):
        _park(state, wait, min_bytes - reading.size, topics)
        return wait
    state.turn.fetch_left_bytes = max(0, state.turn.fetch_left_bytes - reading.size)
    state.turn.fetched_bytes += reading.size
    for partition, size in reading.sizes:
        partition.fetched_bytes += size
    return FetchResponse(
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in reading.leaders.nodes()
        ),
        fenced=reading.fence is not None,
    )


# -- partitions that are named twice

_Partitions = dict[tuple[str, bytes], dict[int, FetchPartition]]


def _size(request: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def _repeats(request: FetchRequest) -> bool:
    """True if the request names a topic or a partition twice."""
    topics = request.topics
    if len(topics) > 1 and len({(topic.topic, topic.topic_id) for topic in topics}) < len(topics):
        return True
    return any(
        len({asked.partition for asked in topic.partitions}) < len(topic.partitions)
        for topic in topics
        if len(topic.partitions) > 1
    )


def _collected(found: _Partitions, topics: Iterable[FetchTopic]) -> tuple[FetchTopic, ...]:
    for topic in topics:
        partitions = found.setdefault((topic.topic, topic.topic_id), {})
        partitions.update((asked.partition, asked) for asked in topic.partitions)
    return tuple(
        FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions.values()))
        for (name, topic_id), partitions in found.items()
    )


def _without_repeats_in_steps(
    state: BrokerState, request: FetchRequest, context: RequestContext, deadline_ms: Millis
) -> Generator[int, None, Fetched]:
    """Drops repeats, and goes on with what is left."""
    found: _Partitions = {}
    for topic in request.topics:
        partitions = found.setdefault((topic.topic, topic.topic_id), {})
        for first in range(0, len(topic.partitions), LARGE):
            partitions.update((asked.partition, asked) for asked in topic.partitions[first : first + LARGE])
            yield 0
    request = changed(request, topics=_collected(found, ()))
    return resume(state, _wait(request, context, _size(request), deadline_ms))


# -- one partition


def _fence(state: BrokerState, request: FetchRequest) -> Fence | None:
    member = request.as_member
    if member == NOBODY or not state.config.deviations.extensions:
        return None
    if len(member.group_id) > LONGEST_NAME:
        return every(ErrorCode.GROUP_ID_NOT_FOUND)  # no group has such a name, and to find its shard would take long
    shard = state.shards[state.shard_of(member.group_id)]
    if state.slots is not None and shard.unavailable:
        return every(ErrorCode.GROUP_ID_NOT_FOUND)  # another node knows the group's members
    return shard.fetch_fence(member.group_id, member.member_id, member.member_epoch)


def _find(state: BrokerState, wanted: FetchTopic, context: RequestContext) -> Topic | None:
    return state.catalog.by_id.get(wanted.topic_id) if context.api_version >= TOPIC_IDS else state.topic(wanted.topic)


def _park(state: BrokerState, wait: FetchWait, missing_bytes: int, read: list[FetchableTopicResponse]) -> None:
    """`read`: what was found. What a fetch in steps found first may have changed since."""
    logs: list[LogKey] = []
    changed = False
    for topic, rows in zip(wait.request.topics, read, strict=True) if wait.size <= LARGE else ():
        found = _find(state, topic, wait.context)
        for row in rows.partitions:
            partition = state.partition(found, row.partition_index) if found is not None else None
            if partition is None:
                changed = True  # deleted
                continue
            logs.append(partition.log)
            missing_bytes -= partition.high_watermark - row.high_watermark  # a record has at least one byte
            # Pending: appended earlier in this turn, readable after its commit.
            changed |= partition.has_pending or partition.start_offset != row.log_start_offset
            changed |= wait.committed and partition.last_stable_offset != row.last_stable_offset < row.high_watermark
    wait.logs = tuple(logs)
    wait.missing_bytes = missing_bytes
    state.fetch_waits.park(wait, woken=changed or missing_bytes <= 0)


def _read(reading: _Reading, topic: Topic | None, asked: FetchPartition) -> PartitionData:
    if topic is None:
        by_id = reading.context.api_version >= TOPIC_IDS
        return _error(reading, asked, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = reading.state.partition(topic, asked.partition)
    if partition is None:
        return _error(reading, asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assignment = topic.partitions[asked.partition]
    error = leader_error(
        asked.current_leader_epoch, assignment.leader_epoch, assignment.leader, reading.context.broker_id
    )
    if error:
        reading.leaders.add(assignment.leader)
        current = LeaderIdAndEpoch(leader_id=assignment.leader, leader_epoch=assignment.leader_epoch)
        return _error(reading, asked, error, current)
    refused = reading.fence((topic.topic_id, asked.partition)) if reading.fence is not None else ErrorCode.NONE
    if refused:
        return _error(reading, asked, refused)
    diverging = _diverging(partition, asked)
    if diverging is not None:
        reading.answer_now = True
        return _data(reading, partition, asked, (), diverging)
    if not partition.start_offset <= asked.fetch_offset <= partition.end_offset:
        return _error(reading, asked, ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        batches = _records(reading, partition, asked)
    except FailedRead as failure:
        tell_failed_read(reading.state, topic, asked.partition, asked.fetch_offset, failure)
        is_known = reading.context.api_version >= STORAGE_ERRORS
        return _error(reading, asked, ErrorCode.KAFKA_STORAGE_ERROR if is_known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    except DamagedBatch as error:
        # Other partitions are not affected. A consumer can seek past it; an operator can delete the records.
        what = (
            f"{topic.name}-{asked.partition} cannot be read at offset {asked.fetch_offset}: {error}. Restore the data "
            "from a backup, or let consumers seek past it, or delete the records up to it"
        )
        reading.state.turn.complain(Complaint("damaged data", what))
        return _error(reading, asked, ErrorCode.CORRUPT_MESSAGE)
    return _data(reading, partition, asked, batches, EpochEndOffset())


def tell_failed_read(state: BrokerState, topic: Topic, partition: int, at: int, error: FailedRead) -> None:
    """`at`: the offset, or the time of a search."""
    values = ("partition", f"{topic.name}-{partition}"), ("at", at), ("error", str(error))
    state.turn.complain(Complaint("failed read", "a read of the storage failed", values))


def leader_error(asked_epoch: int, epoch: int, leader: int, broker_id: int) -> ErrorCode:
    """Why this broker cannot answer as the leader in the epoch that the client names; NONE if it can."""
    if asked_epoch != -1 and asked_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if asked_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if leader == broker_id else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _diverging(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the client's log diverges from this one (KIP-595), if it does."""
    if asked.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_of_epoch(asked.last_fetched_epoch)
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _records(reading: _Reading, partition: Partition, asked: FetchPartition) -> tuple[bytes, ...]:
    limit = min(asked.partition_max_bytes, reading.left_bytes)
    whole_first = reading.size == 0
    if (limit <= 0 and (not whole_first or reading.asked)) or asked.fetch_offset >= partition.high_watermark:
        return ()
    committed = reading.request.isolation_level == READ_COMMITTED
    batches = partition.read(asked.fetch_offset, max(limit, 0), whole_first=whole_first, committed=committed)
    if batches is None:
        found = _found(reading, partition, asked.fetch_offset, max(limit, 0))
        if found is None:
            return ()
        batches = partition.read(
            asked.fetch_offset, max(limit, 0), whole_first=whole_first, committed=committed, found=found
        )
        assert batches is not None
        reading.reads[partition.log].found = ()  # an answer in steps lasts longer
    size = sum(map(len, batches))
    reading.left_bytes = max(0, reading.left_bytes - size)
    reading.size += size
    if size:
        reading.sizes.append((partition, size))
    return batches


def _found(reading: _Reading, partition: Partition, offset: int, most: int) -> tuple[StoredBatch, ...] | None:
    """What was read of a partition for this fetch. None if nothing was; then it is asked for. Raises DamagedBatch,
    FailedRead."""
    read = reading.reads.get(partition.log)
    if read is not None and read.done is not None:
        if read.done.damage:
            raise DamagedBatch(read.done.damage)
        if read.done.failure:
            raise FailedRead(read.done.failure)
        if read.found or not read.is_cut:
            return read.found
    if not reading.state.reads.is_stopped and len(reading.asked) < READS:
        most = min(most, partition.size)  # which leaves room for others
        reading.asked.append((partition.log, offset, most, partition.high_watermark))
        reading.left_bytes = max(0, reading.left_bytes - most)
    return None


def _data(
    reading: _Reading,
    partition: Partition,
    asked: FetchPartition,
    batches: tuple[bytes, ...],
    diverging: EpochEndOffset,
) -> PartitionData:
    return PartitionData(
        partition_index=asked.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.start_offset,
        diverging_epoch=diverging,
        aborted_transactions=_aborted(partition, asked.fetch_offset, batches)
        if reading.request.isolation_level == READ_COMMITTED
        else None,
        records=cast(bytes, batches),  # the codec writes the batches one after the other
    )


def _aborted(partition: Partition, first: int, batches: tuple[bytes, ...]) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions with records in these batches, in the order of their markers, as Kafka lists them."""
    if not batches or not partition.has_aborted:
        return ()
    end = read_header(batches[-1]).last_offset + 1
    return tuple(
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in partition.aborted_in(first, end)
    )


def _error(
    reading: _Reading, asked: FetchPartition, error: ErrorCode, current: LeaderIdAndEpoch | None = None
) -> PartitionData:
    reading.answer_now = True
    return PartitionData(
        partition_index=asked.partition,
        error_code=error,
        high_watermark=-1,
        current_leader=current or LeaderIdAndEpoch(),
        records=b"",
    )
