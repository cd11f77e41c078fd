"""What a ShareFetch could lock: looks at its session's share-partitions, reads them, and locks what was found.

Records that are not in memory are read by the edge, as those of a Fetch are (handlers/fetch.py). What others have
locked meanwhile is skipped, because records are locked when the answer is made.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, cast

import msgspec

from kohort.broker.handlers.fetch import STEPS_BYTES, tell_failed_read
from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.logs.partition import Partition
from kohort.broker.logs.time_search import Search, SearchedEnough
from kohort.broker.messages import changed
from kohort.broker.quotas.entities import FETCH
from kohort.broker.request import ROW_BYTES, RequestContext
from kohort.broker.shares.access import Place as Served
from kohort.broker.shares.access import Refused, needs_start, place_of, served
from kohort.broker.shares.sessions import Place, Session
from kohort.broker.state import BrokerState
from kohort.broker.turn import ByTime, Complaint
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.broker.waits.reads import READS, FailedRead, Read
from kohort.coordinator.settings.group_settings import BY_DURATION, EARLIEST, READ_COMMITTED, duration_ms
from kohort.coordinator.shares.events import Acquire, Acquired, ShareKey, Span
from kohort.coordinator.shares.share_partition import SharePartition
from kohort.storage.protocol import DamagedBatch, LogKey, StoredBatch
from kohort.wire.batches import BatchHeader, read_header
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_fetch import AcquiredRecords, PartitionData, ShareFetchRequest

STEP = 25
"""Partitions of a session that one step visits."""
LEAST_READ_BYTES = 65_536
"""A read asks for the bytes of so many records as may be locked, about, and for no less than this."""


class Found(msgspec.Struct):
    """What was read of a share-partition."""

    place: Place
    key: ShareKey
    served: SharePartition
    log: Partition
    offset: int
    batches: list[bytes]
    headers: list[BatchHeader]
    spans: tuple[Span, ...]


class Looking(msgspec.Struct):
    """One evaluation of a fetch."""

    state: BrokerState
    wait: FetchWait
    leaders: CurrentLeaders
    is_committed: bool
    left_bytes: int
    left_records: int
    found: list[Found] = []
    rows: dict[Place, PartitionData] = {}
    """Errors, and records that were locked."""
    asked: list[tuple[LogKey, int, int, int]] = []
    """Reads that it needs."""
    waits_for: list[tuple[LogKey, str]] = []
    size: int = 0
    skipped: bool = False
    """Some records are for nobody: there may be others behind them."""
    pending: bool = False
    """More is readable after this turn's commit."""


def look_at(state: BrokerState, wait: FetchWait, leaders: CurrentLeaders) -> Looking:
    request: ShareFetchRequest = wait.request
    limit = max(1, min(request.max_bytes, state.config.fetch_max_bytes, STEPS_BYTES))
    if state.catalog.quotas.on:
        quota = state.meters.most_at_once(FETCH, wait.context.principal.name, wait.context.client.client_id)
        limit = limit if quota is None else min(limit, quota)
    settings = state.shards[state.shard_of(cast(str, request.group_id))].settings.of(cast(str, request.group_id))
    committed = settings.share_isolation_level == READ_COMMITTED
    share = max(1, min(limit, state.turn.fetch_share_bytes))  # one batch at least
    return Looking(state, wait, leaders, committed, share, request.max_records)


def look(looking: Looking, session: Session) -> Generator[Any, None, None]:
    places = list(session.partitions)
    turned = session.epoch % len(places) if places else 0
    ordered = places[turned:] + places[:turned]
    for at, place in enumerate(ordered):
        yield from _look_into(looking, session, place, len(ordered) - at)
        if (at + 1) % STEP == 0:
            yield STEP * ROW_BYTES


def _look_into(looking: Looking, session: Session, place: Place, partitions_left: int) -> Generator[Any, None, None]:
    state, context = looking.state, looking.wait.context
    found = place_of(state, context, place[0], place[1], looking.leaders)
    if isinstance(found, Refused):
        looking.rows[place] = _row(place, found.error, found)
        return
    if session.partitions.get(place):
        session.partitions[place] = False  # the right was given meanwhile
    key = ShareKey(session.key.group, place[0], place[1])
    initial = 0
    if needs_start(state, key):
        initial = yield from _initial(state, context, key, found)
        if initial < 0:
            looking.rows[place] = _row(place, ErrorCode.KAFKA_STORAGE_ERROR)
            return
    share = served(state, key, found, initial)
    if share is None:
        looking.rows[place] = _row(place, ErrorCode.UNKNOWN_SERVER_ERROR)  # SH8
        return
    looking.waits_for.append((found.partition.log, key.group))
    looking.pending |= found.partition.has_pending
    if looking.left_bytes <= 0 or looking.left_records <= 0:
        return
    offset = share.fetch_offset()
    settings = state.shares.settings_of(key.group)
    if offset >= share.end and share.is_full(settings):
        return
    most = max(1, looking.left_bytes // partitions_left)
    try:
        batches = _read(looking, found.partition, share, offset, most)
    except FailedRead as failure:
        tell_failed_read(state, found.topic, place[1], offset, failure)
        looking.rows[place] = _row(place, ErrorCode.KAFKA_STORAGE_ERROR)
        return
    except DamagedBatch as damage:
        what = f"{found.topic.name}-{place[1]} cannot be read at offset {offset}: {damage}. Delete the records up to it"
        state.turn.complain(Complaint("damaged data", what))
        looking.rows[place] = _row(place, ErrorCode.CORRUPT_MESSAGE)
        return
    if batches:
        _note(looking, place, key, share, found.partition, offset, batches)


def _initial(state: BrokerState, context: RequestContext, key: ShareKey, found: Served) -> Generator[Any, None, int]:
    """Where a group begins to read a partition (SH28). -1: the storage cannot be read."""
    reset = state.shards[state.shard_of(key.group)].settings.of(key.group).share_auto_offset_reset
    partition = found.partition
    if reset == EARLIEST:
        return partition.start_offset
    if not reset.startswith(BY_DURATION):
        return partition.high_watermark
    since = state.now - duration_ms(reset.removeprefix(BY_DURATION))
    search = Search()
    try:
        if partition.tail is None:
            located = partition.first_record(since, search)
        else:
            read = yield from _searched(state, context, partition, since, search)
            assert read.done is not None
            if read.done.failure or read.done.damage:
                return -1
            if read.done.searched_enough:
                return partition.start_offset
            located = read.done.located
    except SearchedEnough:
        return partition.start_offset
    except DamagedBatch:
        return -1
    return located.offset if located is not None else partition.high_watermark


def _searched(
    state: BrokerState, context: RequestContext, partition: Partition, since: int, search: Search
) -> Generator[Read, None, Read]:
    by_time = ByTime(since, search.left)
    return (yield from state.reads.search(context.request_id, partition.log, partition.start_offset, by_time))


def _read(
    looking: Looking, partition: Partition, share: SharePartition, offset: int, most: int
) -> tuple[bytes, ...] | None:
    """None if there is nothing, or if it has to be read first."""
    end = partition.last_stable_offset if looking.is_committed else partition.high_watermark
    if offset >= end:
        return None
    average = partition.size // max(partition.end_offset - partition.start_offset, 1) + 1
    most = min(most, max(LEAST_READ_BYTES, 2 * average * looking.left_records))
    whole = not looking.found
    batches = partition.read(offset, most, whole_first=whole, committed=looking.is_committed)
    if batches is not None:
        return batches
    found = _found(looking, partition, offset, most)
    if found is None:
        return None
    return partition.read(offset, most, whole_first=whole, committed=looking.is_committed, found=found)


def _found(looking: Looking, partition: Partition, offset: int, most: int) -> Sequence[StoredBatch] | None:
    """What was read of a partition for this fetch; None if that was something else."""
    read = looking.wait.reads.get(partition.log)
    if read is not None and read.done is not None and read.asked.offset <= offset:
        if read.done.damage:
            raise DamagedBatch(read.done.damage)
        if read.done.failure:
            raise FailedRead(read.done.failure)
        found = [batch for batch in read.found or () if batch.last_offset >= offset]
        if found or (not read.found and not read.is_cut):
            return found
    if not looking.state.reads.is_stopped and len(looking.asked) < READS:
        most = min(most, partition.size)
        looking.asked.append((partition.log, offset, most, partition.high_watermark))
        looking.left_bytes = max(0, looking.left_bytes - most)
    return None


def _note(
    looking: Looking,
    place: Place,
    key: ShareKey,
    share: SharePartition,
    partition: Partition,
    offset: int,
    batches: Sequence[bytes],
) -> None:
    headers: list[BatchHeader] = []
    kept: list[bytes] = []
    size = 0
    for data in batches:
        header = read_header(data)
        headers.append(header)
        kept.append(data)
        size += len(data)
        if header.last_offset - offset + 1 >= looking.left_records:
            break
    looking.size += size
    looking.left_bytes = max(0, looking.left_bytes - size)
    spans = _spans(looking, partition, headers)
    looking.found.append(Found(place, key, share, partition, offset, kept, headers, spans))


def _spans(looking: Looking, partition: Partition, headers: Sequence[BatchHeader]) -> tuple[Span, ...]:
    """The batches, each with the gap behind it."""
    aborted: dict[int, list[tuple[int, int]]] = {}
    if looking.is_committed and partition.has_aborted:
        for one in partition.aborted_in(headers[0].base_offset, headers[-1].last_offset + 1):
            aborted.setdefault(one.producer_id, []).append((one.first_offset, one.marker_offset))
    spans = []
    for at, header in enumerate(headers):
        last = headers[at + 1].base_offset - 1 if at + 1 < len(headers) else header.last_offset
        is_aborted = header.is_transactional and any(
            first <= header.base_offset <= marker for first, marker in aborted.get(header.producer_id, ())
        )
        spans.append(Span(header.base_offset, last, is_aborted))
    return tuple(spans)


def lock(looking: Looking) -> None:
    state, request = looking.state, looking.wait.request
    left = request.max_records
    for found in looking.found:
        if left <= 0:
            break
        event = Acquire(
            found.key,
            request.member_id,
            found.offset,
            found.spans,
            left,
            request.batch_size,
            request.share_acquire_mode,
            looking.wait.context.request_id,
        )
        acquired: Acquired = state.shares.ask(found.key, event, looking.wait.context.request_id)
        left -= acquired.records
        looking.skipped |= acquired.archived > 0
        if acquired.ranges:
            looking.rows[found.place] = _locked(looking, found, acquired)


def _locked(looking: Looking, found: Found, acquired: Acquired) -> PartitionData:
    first, last = acquired.ranges[0][0], acquired.ranges[-1][1]
    data = [
        batch
        for batch, header in zip(found.batches, found.headers, strict=True)
        if header.last_offset >= first and header.base_offset <= last
    ]
    size = sum(map(len, data))
    turn = looking.state.turn
    turn.fetch_left_bytes = max(0, turn.fetch_left_bytes - size)
    turn.fetched_bytes += size
    found.log.fetched_bytes += size
    return PartitionData(
        partition_index=found.place[1],
        records=cast(bytes, tuple(data)),  # the codec writes the batches one after the other
        acquired_records=tuple(
            [
                AcquiredRecords(first_offset=begin, last_offset=end, delivery_count=count)
                for begin, end, count in acquired.ranges
            ]
        ),
    )


def _row(place: Place, error: ErrorCode, refused: Refused | None = None) -> PartitionData:
    row = PartitionData(partition_index=place[1], error_code=error, error_message=error.message, records=b"")
    return row if refused is None else changed(row, current_leader=refused.leader)
