"""ShareFetch: acknowledges what the member got before, then locks further records for it, or waits for some.

A fetch first looks at what it could lock, partition by partition, and reads it. If that is enough, it locks records and
answers. Otherwise it waits, and is evaluated anew when records are appended, given back, or room in a window is made.

Of the fetches that wait for one share-partition, the oldest is woken. If it leaves records, it wakes the next one. So
each record that is freed wakes one member, not all of them.

A session's partitions are visited in another order with each request, so that a small limit does not favour the first.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from kohort.broker.change_log import tell_change
from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.handlers.shares.looking import STEP, Looking, lock, look, look_at
from kohort.broker.handlers.shares.requests import Acked, acknowledge, check_names, end_of, has_acks, session_of
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, InSteps, RequestContext
from kohort.broker.shares.sessions import CLOSES, OPENS, Place, Session, SessionKey
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.storage.protocol import LogKey
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_fetch import (
    FetchTopic,
    ForgottenTopic,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

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
    if request.is_renew_ack and any(limits):
        return "A request that renews locks fetches nothing: MaxBytes, MinBytes, MaxRecords and MaxWaitMs must be 0."
    return ""


def _refused(error: ErrorCode, message: str | None = None) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error, error_message=message or error.message)


def _size(request: ShareFetchRequest) -> int:
    return sum(map(_partitions, request.topics)) + sum(map(_partitions, request.forgotten_topics_data))


def _partitions(topic: FetchTopic | ForgottenTopic) -> int:
    return len(topic.partitions)


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
    if request.share_session_epoch == OPENS:
        while state.shares.release_first(str(request.group_id), str(request.member_id)):
            yield 0
    session = _session(state, request, context)
    if _size(request) > STEP:
        yield ROW_BYTES * _size(request)
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
        yield from end_of(state, session, CLOSES)
        return (yield from _answer(state, wait, leaders, {}))
    return (yield from _evaluated(state, wait, at_once=False))


def _session(state: BrokerState, request: ShareFetchRequest, context: RequestContext) -> Session | ErrorCode:
    assert request.group_id is not None
    assert request.member_id is not None
    sessions = state.shares.sessions
    session: Session | ErrorCode | None
    if request.share_session_epoch == OPENS:
        key = SessionKey(request.group_id, request.member_id, context.broker_id)
        who = str(context.principal), context.client.client_id
        former = sessions.find(key)
        session = sessions.open(key, context.connection, who)
        if session is None:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        if former is not None and former.who != who:
            tell_change(state, context, "share session taken over", group=key.group, member_id=key.member)
    else:
        session = session_of(state, request, context)
        if isinstance(session, ErrorCode):
            return session
    if request.share_session_epoch != CLOSES:
        named = [(topic.topic_id, one.partition_index) for topic in request.topics for one in topic.partitions]
        if not sessions.add(session, named, _denied(state, context, request.topics)):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        for topic in request.forgotten_topics_data:
            sessions.forget(session, [(topic.topic_id, index) for index in topic.partitions])
    return session


def _denied(state: BrokerState, context: RequestContext, topics: Sequence[FetchTopic]) -> set[bytes]:
    """The ids of topics that the client may not read."""
    if context.may_read is None:
        return set()
    found = {topic.topic_id: state.catalog.by_id.get(topic.topic_id) for topic in topics}
    return {topic_id for topic_id, topic in found.items() if topic is not None and not context.may_read(topic.name)}


def _wait(
    request: ShareFetchRequest, context: RequestContext, size: int, deadline_ms: Millis, sharing: Sharing
) -> FetchWait:
    wait = FetchWait(request, context, size, deadline_ms)
    wait.share = sharing
    return wait


def resume(state: BrokerState, wait: FetchWait, *, at_once: bool = False) -> Any:
    """Answer a fetch that has waited, or park it again."""
    return _run(_evaluated(state, wait, at_once=at_once), wait.size)


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
        return (yield from _answer(state, wait, leaders, {}))
    looking = look_at(state, wait, leaders)
    for _ in range(TRIES):
        try:
            yield from look(looking, session)
        except GeneratorExit:  # the client has gone
            state.reads.remove(wait.context.request_id)
            raise
        if looking.asked and not looking.found:
            state.reads.remove(wait.context.request_id)
            state.reads.park(wait, looking.asked)
            return wait
        enough = looking.size >= min(request.min_bytes, looking.left_bytes + looking.size)
        if looking.found and (enough or is_due):
            lock(looking)
        locked = any(row.acquired_records for row in looking.rows.values())
        if locked or not looking.skipped:
            break
        looking = look_at(state, wait, leaders)
    if wait.reads:
        state.reads.remove(wait.context.request_id)
    has_news = bool(looking.rows) or bool(sharing.acked)
    if not has_news and not is_due and session.partitions and state.fetch_waits.has_room(wait.size):
        for found in looking.found:  # too few for this fetch's MinBytes, perhaps enough for a later fetch
            state.fetch_waits.share_freed(found.log.log, found.key.group, behind=wait.context.request_id)
        # Records behind those that nobody is to get are looked for in the next turn.
        return _parked(state, wait, looking.waits_for, woken=looking.pending or looking.skipped)
    _wake_others(looking)
    return (yield from _answer(state, wait, leaders, looking.rows))


def _parked(state: BrokerState, wait: FetchWait, shares: Sequence[tuple[LogKey, str]], *, woken: bool) -> FetchWait:
    wait.shares = tuple(shares)
    state.fetch_waits.park(wait, woken=woken)
    return wait


def _wake_others(looking: Looking) -> None:
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
) -> Generator[int, None, ShareFetchResponse]:
    sharing: Sharing = wait.share
    for place, acked in sharing.acked.items():
        row = rows.get(place)
        if row is None:
            row = PartitionData(partition_index=place[1], records=b"", current_leader=acked.leader)
        if acked.error:
            row = changed(row, acknowledge_error_code=acked.error, acknowledge_error_message=acked.error.message)
            if acked.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leaders.add(acked.leader.leader_id)
        rows[place] = row
    session = sharing.session
    if sharing.is_full and session is not None:
        sharing.is_full = False
        if len(session.partitions) > STEP:
            yield ROW_BYTES * len(session.partitions)
        for place, is_denied in list(session.partitions.items()):
            if place not in rows:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.NONE
                rows[place] = PartitionData(partition_index=place[1], records=b"", error_code=error)
    if len(rows) > STEP:
        yield 0
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
