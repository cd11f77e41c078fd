"""ShareFetch: acknowledges what the member got before, then locks further records for it, at once or when there are some.

A fetch first looks at what it could lock, partition by partition, and reads it. If that is enough, it locks records and
answers. Otherwise it waits, and is evaluated anew when records are appended, given back, or room in a window is made.

Of the fetches that wait for one share-partition, the oldest is woken. If it leaves records, it wakes the next one. So
each record that is freed wakes one member, not all of them.

Records that are not in memory are read by the edge, as those of a Fetch are (handlers/fetch.py). What others have locked
meanwhile is skipped, because records are locked when the answer is made.

A session's partitions are visited in another order with each request, so that a small limit does not favour the first.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, cast

import msgspec

from kohort.broker.handlers.fetch import STEPS_BYTES, tell_failed_read
from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.handlers.shares.requests import Acked, acknowledge, check_names, end_of, has_acks, session_of
from kohort.broker.logs.partition import Partition
from kohort.broker.logs.time_search import Search, SearchedEnough
from kohort.broker.quotas.entities import FETCH
from kohort.broker.request import ROW_BYTES, InSteps, RequestContext
from kohort.broker.shares.access import Place as Served
from kohort.broker.shares.access import Refused, needs_start, place_of, served
from kohort.broker.shares.sessions import CLOSES, OPENS, Place, Session, SessionKey
from kohort.broker.state import BrokerState
from kohort.broker.turn import ByTime, Complaint, Millis
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.broker.waits.reads import READS, FailedRead, Read
from kohort.coordinator.settings.group_settings import BY_DURATION, EARLIEST, READ_COMMITTED, duration_ms
from kohort.coordinator.shares.events import Acquire, Acquired, ShareKey, Span
from kohort.coordinator.shares.share_partition import SharePartition
from kohort.storage.protocol import DamagedBatch, LogKey, StoredBatch
from kohort.wire.batches import BatchHeader, read_header
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_fetch import (
    AcquiredRecords,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

RENEW_VERSION = 2
STEP = 50
"""Partitions of a session that one step visits."""
LEAST_READ_BYTES = 65_536
"""A read asks for the bytes of so many records as may be locked, about, and for no less than this."""
TRIES = 20
"""How often one evaluation goes on behind records that nobody is to get."""


class Sharing:
    """What a fetch has so far."""

    __slots__ = ("acked", "is_full", "refusal", "session")

    def __init__(self, session: Session | None) -> None:
        self.session = session
        """None if the broker has no room for another session."""
        self.acked: dict[Place, Acked] = {}
        self.is_full = False
        """The first answer of a session has a row for each partition."""
        self.refusal = ErrorCode.NONE
        """The answer when the time is over."""


def share_fetch(state: BrokerState, request: ShareFetchRequest, context: RequestContext) -> Any:
    if not state.shares.is_served:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if wrong := check_names(request.group_id, request.member_id) or _wrong(request, context):
        return _refused(ErrorCode.INVALID_REQUEST, wrong)
    return _run(_steps(state, request, context), _size(request))


def _wrong(request: ShareFetchRequest, context: RequestContext) -> str:
    if request.share_session_epoch == OPENS and has_acks(request.topics):
        return "A request that opens a share session has no acknowledgements."
    limits = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if context.api_version >= RENEW_VERSION and request.is_renew_ack and any(limits):
        return "A request that renews locks fetches nothing: MaxBytes, MinBytes, MaxRecords and MaxWaitMs must be 0."
    return ""


def _refused(error: ErrorCode, message: str | None = None) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error, error_message=message or error.message)


def _size(request: ShareFetchRequest) -> int:
    return sum(len(topic.partitions) for topic in (*request.topics, *request.forgotten_topics_data))


def _run(steps: Generator[Any, None, Any], size: int) -> Any:
    """The result of `steps`, at once if they are few and need no read."""
    if size > STEP:
        return InSteps(steps)
    try:
        first = next(steps)
    except StopIteration as done:
        return done.value
    return InSteps(_after(first, steps))


def _after(first: Any, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
    """`steps` have begun."""
    yield first
    return (yield from steps)


def _steps(
    state: BrokerState, request: ShareFetchRequest, context: RequestContext
) -> Generator[Any, None, ShareFetchResponse | FetchWait]:
    """The session, and the acknowledgements."""
    deadline_ms = state.now + max(request.max_wait_ms, 0)
    session = _session(state, request, context)
    if isinstance(session, ErrorCode):
        if session is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _refused(session)
        sharing = Sharing(None)
        sharing.refusal = session  # told when the time is over, so that clients do not ask again and again
        wait = _wait(request, context, 1, deadline_ms, sharing)
        return (yield from _evaluated(state, wait, at_once=False))
    sharing = Sharing(session)
    sharing.is_full = request.share_session_epoch == OPENS
    names = session.key.group, session.key.member
    leaders = CurrentLeaders(state, context.listener)
    done = 0
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                place = topic.topic_id, partition.partition_index
                batches = partition.acknowledgement_batches
                sharing.acked[place] = acknowledge(
                    state, context, names, place, batches, leaders, renews=request.is_renew_ack
                )
                done += 1
                if done % STEP == 0:
                    yield STEP * ROW_BYTES
    size = max(len(session.partitions), 1)
    wait = _wait(request, context, size, deadline_ms, sharing)
    if request.share_session_epoch == CLOSES:
        end_of(state, session, CLOSES)
        return _answer(state, wait, leaders, {})
    return (yield from _evaluated(state, wait, at_once=False))


def _session(state: BrokerState, request: ShareFetchRequest, context: RequestContext) -> Session | ErrorCode:
    assert request.group_id is not None
    assert request.member_id is not None
    sessions = state.shares.sessions
    session: Session | ErrorCode | None
    if request.share_session_epoch == OPENS:
        session = sessions.open(SessionKey(request.group_id, request.member_id, context.broker_id), context.connection)
        if session is None:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
    else:
        session = session_of(state, request, context)
        if isinstance(session, ErrorCode):
            return session
    if request.share_session_epoch != CLOSES:
        named = [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]
        if not sessions.add(session, named):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        for topic in request.forgotten_topics_data:
            sessions.forget(session, [(topic.topic_id, index) for index in topic.partitions])
    return session


def _wait(
    request: ShareFetchRequest, context: RequestContext, size: int, deadline_ms: Millis, sharing: Sharing
) -> FetchWait:
    wait = FetchWait(request, context, size, deadline_ms)
    wait.share = sharing
    return wait


def resume(state: BrokerState, wait: FetchWait, *, at_once: bool = False) -> Any:
    """Answer a fetch that has waited, or park it again."""
    return _run(_evaluated(state, wait, at_once=at_once), wait.size)


# -- what could be locked


class _Found(msgspec.Struct):
    """What was read of a share-partition."""

    place: Place
    key: ShareKey
    served: SharePartition
    log: Partition
    offset: int
    batches: list[bytes]
    headers: list[BatchHeader]
    spans: tuple[Span, ...]


class _Looking(msgspec.Struct):
    """One evaluation of a fetch."""

    state: BrokerState
    wait: FetchWait
    leaders: CurrentLeaders
    is_committed: bool
    left_bytes: int
    left_records: int
    found: list[_Found] = []
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


def _evaluated(
    state: BrokerState, wait: FetchWait, *, at_once: bool
) -> Generator[Any, None, ShareFetchResponse | FetchWait]:
    sharing: Sharing = wait.share
    request: ShareFetchRequest = wait.request
    leaders = CurrentLeaders(state, wait.context.listener)
    is_due = at_once or state.now >= wait.deadline_ms
    if sharing.refusal:
        if not is_due and state.fetch_waits.has_room(wait.size):
            return _parked(state, wait, (), woken=False)
        return _refused(sharing.refusal)
    session = sharing.session
    assert session is not None
    if not state.shares.sessions.is_open(session):
        state.reads.remove(wait.context.request_id)
        return _refused(ErrorCode.SHARE_SESSION_NOT_FOUND)
    if request.is_renew_ack or request.max_bytes <= 0 or request.max_records <= 0:
        return _answer(state, wait, leaders, {})
    looking = _look_at(state, wait, leaders)
    for _ in range(TRIES):
        try:
            yield from _look(looking, session)
        except GeneratorExit:  # the client has gone
            state.reads.remove(wait.context.request_id)
            raise
        if looking.asked and not looking.found:
            state.reads.remove(wait.context.request_id)
            state.reads.park(wait, looking.asked)
            return wait
        enough = looking.size >= min(request.min_bytes, looking.left_bytes + looking.size)
        if looking.found and (enough or is_due):
            _lock(looking)
        locked = any(row.acquired_records for row in looking.rows.values())
        if locked or not looking.skipped:
            break
        looking = _look_at(state, wait, leaders)
    if wait.reads:
        state.reads.remove(wait.context.request_id)
    has_news = bool(looking.rows) or bool(sharing.acked)
    if not has_news and not is_due and session.partitions and state.fetch_waits.has_room(wait.size):
        # Records behind those that nobody is to get are looked for in the next turn.
        return _parked(state, wait, looking.waits_for, woken=looking.pending or looking.skipped)
    _wake_others(looking)
    return _answer(state, wait, leaders, looking.rows)


def _look_at(state: BrokerState, wait: FetchWait, leaders: CurrentLeaders) -> _Looking:
    request: ShareFetchRequest = wait.request
    limit = max(1, min(request.max_bytes, state.config.fetch_max_bytes, STEPS_BYTES))
    if state.catalog.quotas.on:
        quota = state.meters.most_at_once(FETCH, wait.context.principal.name, wait.context.client.client_id)
        limit = limit if quota is None else min(limit, quota)
    settings = state.shards[state.shard_of(cast(str, request.group_id))].settings.of(cast(str, request.group_id))
    committed = settings.share_isolation_level == READ_COMMITTED
    share = min(limit, state.turn.fetch_share_bytes)
    return _Looking(state, wait, leaders, committed, share, request.max_records)


def _parked(state: BrokerState, wait: FetchWait, shares: Sequence[tuple[LogKey, str]], *, woken: bool) -> FetchWait:
    wait.shares = tuple(shares)
    state.fetch_waits.park(wait, woken=woken)
    return wait


def _look(looking: _Looking, session: Session) -> Generator[Any, None, None]:
    places = list(session.partitions)
    turned = session.epoch % len(places) if places else 0
    ordered = places[turned:] + places[:turned]
    for at, place in enumerate(ordered):
        yield from _look_into(looking, session, place, len(ordered) - at)
        if (at + 1) % STEP == 0:
            yield STEP * ROW_BYTES


def _look_into(looking: _Looking, session: Session, place: Place, partitions_left: int) -> Generator[Any, None, None]:
    state, context = looking.state, looking.wait.context
    found = place_of(state, context, place[0], place[1], looking.leaders)
    if isinstance(found, Refused):
        looking.rows[place] = _row(place, found.error, found)
        return
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
    looking: _Looking, partition: Partition, share: SharePartition, offset: int, most: int
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


def _found(looking: _Looking, partition: Partition, offset: int, most: int) -> Sequence[StoredBatch] | None:
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
    looking: _Looking,
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
    looking.found.append(_Found(place, key, share, partition, offset, kept, headers, spans))


def _spans(looking: _Looking, partition: Partition, headers: Sequence[BatchHeader]) -> tuple[Span, ...]:
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


# -- what is locked


def _lock(looking: _Looking) -> None:
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


def _locked(looking: _Looking, found: _Found, acquired: Acquired) -> PartitionData:
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
    return row if refused is None else msgspec.structs.replace(row, current_leader=refused.leader)


def _wake_others(looking: _Looking) -> None:
    """Somebody else may take what this fetch has left."""
    waits = looking.state.fetch_waits
    for found in looking.found:
        end = found.log.last_stable_offset if looking.is_committed else found.log.high_watermark
        if found.served.fetch_offset() < end:
            waits.share_freed(found.log.log, found.key.group)
    if looking.left_records <= 0 or looking.left_bytes <= 0 or len(looking.found) > 1:
        for log, group in looking.waits_for:
            waits.share_freed(log, group)


def _answer(
    state: BrokerState, wait: FetchWait, leaders: CurrentLeaders, rows: dict[Place, PartitionData]
) -> ShareFetchResponse:
    sharing: Sharing = wait.share
    for place, acked in sharing.acked.items():
        row = rows.get(place)
        if row is None:
            row = PartitionData(partition_index=place[1], records=b"", current_leader=acked.leader)
        if acked.error:
            row = msgspec.structs.replace(
                row, acknowledge_error_code=acked.error, acknowledge_error_message=acked.error.message
            )
            if acked.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leaders.add(acked.leader.leader_id)
        rows[place] = row
    session = sharing.session
    if sharing.is_full and session is not None:
        sharing.is_full = False
        for place in session.partitions:
            if place not in rows:
                rows[place] = PartitionData(partition_index=place[1], records=b"")
    topics: dict[bytes, list[PartitionData]] = {}
    for place, row in rows.items():
        topics.setdefault(place[0], []).append(row)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=state.shares.settings_of(wait.request.group_id).lock_ms,
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(of_topic))
            for topic_id, of_topic in topics.items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in leaders.nodes()
        ),
    )
