"""What ShareFetch and ShareAcknowledge have in common: checks of the request, its session, and acknowledgements.

Rows SH4 to SH10 and SH54 to SH57.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

from kohort.broker.handlers.leaders import CurrentLeaders
from kohort.broker.request import RequestContext
from kohort.broker.shares.access import NOWHERE, Refused, place_of
from kohort.broker.shares.sessions import CLOSES, OPENS, Session, SessionKey
from kohort.broker.state import BrokerState
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.share_groups.checks import LONGEST_MEMBER_ID
from kohort.coordinator.shares.events import GAP, REJECT, RENEW, AckBatch, Acknowledge, ShareKey
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import share_acknowledge
from kohort.wire.schemas.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch

Batches = Sequence[AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch]
RENEW_VERSION = 2
"""The first version whose requests may renew locks."""
STEP = 50
"""Partitions that are handled in one step."""


class Acked(NamedTuple):
    """The outcome of a partition's acknowledgements."""

    error: ErrorCode
    leader: LeaderIdAndEpoch = NOWHERE


def check_names(group: str | None, member: str | None) -> str:
    """What is wrong with the names of a request's group and member."""
    if not group:
        return "GroupId can't be empty."
    if len(group) > LONGEST_NAME:
        return f"GroupId can't be longer than {LONGEST_NAME} characters."
    if not member:
        return "MemberId can't be empty."
    if len(member) > LONGEST_MEMBER_ID:
        return f"MemberId can't be longer than {LONGEST_MEMBER_ID} characters."
    return ""


def session_of(state: BrokerState, request: Any, context: RequestContext) -> Session | ErrorCode:
    """The session of a request that does not open one. Its epoch is used up."""
    key = SessionKey(request.group_id, request.member_id, context.broker_id)
    if request.share_session_epoch == OPENS:
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    return state.shares.sessions.next_request(key, request.share_session_epoch)


def end_of(state: BrokerState, session: Session, epoch: int) -> Generator[int, None, None]:
    """After the acknowledgements of a request."""
    if epoch == CLOSES and state.shares.sessions.is_open(session):
        state.shares.close_session(session)
        while state.shares.release_first(session.key.group, session.key.member):
            yield 0


def has_acks(topics: Iterable[Any]) -> bool:
    return any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions)


def acknowledge(
    state: BrokerState,
    context: RequestContext,
    names: tuple[str, str],
    place: tuple[bytes, int],
    batches: Batches,
    leaders: CurrentLeaders,
    *,
    renews: bool,
) -> Acked:
    """`names`: of the group and the member. `renews`: the request says that it renews locks."""
    found = place_of(state, context, place[0], place[1], leaders)
    if isinstance(found, Refused) and found.error is ErrorCode.UNKNOWN_TOPIC_ID:
        return Acked(found.error)
    if not _is_formed(batches, RENEW if context.api_version >= RENEW_VERSION else REJECT, renews=renews):
        return Acked(ErrorCode.INVALID_REQUEST)
    if isinstance(found, Refused):
        return Acked(found.error, found.leader)
    key = ShareKey(names[0], place[0], place[1])
    if state.shares.find(key) is None:
        return Acked(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    wanted = tuple([AckBatch(one.first_offset, one.last_offset, one.acknowledge_types) for one in batches])
    event = Acknowledge(key, names[1], wanted, context.request_id)
    return Acked(state.shares.ask(key, event, context.request_id))


def _is_formed(batches: Batches, most: int, *, renews: bool) -> bool:
    """SH9."""
    before = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < before or first < 0:
            return False
        if len(types) != 1 and len(types) != last - first + 1:
            return False
        if min(types) < GAP or max(types) > most or (not renews and RENEW in types):
            return False
        before = last
    return True
