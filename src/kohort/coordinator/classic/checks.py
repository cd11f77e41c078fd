"""Checks of a request before anything changes. Each returns the error, or 0; their order is part of the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from kohort.config import Config
from kohort.coordinator.classic.group import Group, Phase
from kohort.coordinator.classic.protocol_vote import CONSUMER
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import MemberIdentity
from kohort.wire.schemas.sync_group import SyncGroupRequest

_T = TypeVar("_T")

MOST_REPEATS = 3
"""How often one request gets an answer about the same name: the answer can be much longer than the name. Kafka has no
such limit, but no client asks twice."""
LONGEST_NAME = 8_000
"""Characters of a group id, instance id or protocol. Flexible requests can carry names that neither a record's key nor
an older version's response can hold: there a string's length is an int16."""

GATHERING = frozenset((CONSUMER, "connect"))
"""Protocol types of groups that wait for more members at first and have the configured least session timeout. Groups of
other types are elections, registries and workers, which have to act soon."""
LEAST_SESSION_MS = 1_000
"""The least session timeout of members of other types."""
MOST_PROTOCOLS = 1_000
"""Protocols of a member. Clients have one for each of their assignors."""


class Repeats:
    """Counts the names in one request, one after the other."""

    def __init__(self) -> None:
        self._times: dict[Hashable, int] = {}

    def too_many(self, name: Hashable) -> bool:
        """True if the request has named it MOST_REPEATS times before."""
        times = self._times[name] = self._times.get(name, 0) + 1
        return times > MOST_REPEATS


def not_too_often(asked: Sequence[_T], name_of: Callable[[_T], Hashable] | None = None) -> Sequence[_T]:
    """Drop everything that repeats a name more than MOST_REPEATS times."""
    names: Iterable[Hashable] = asked if name_of is None else map(name_of, asked)
    if max(Counter(names).values(), default=0) <= MOST_REPEATS:
        return asked
    repeats = Repeats()
    return [one for one in asked if not repeats.too_many(one if name_of is None else name_of(one))]


def check_join(request: JoinGroupRequest, config: Config) -> int:
    """The error of the request itself, whatever the state of the group."""
    if not request.group_id or len(request.group_id) > LONGEST_NAME:
        return ErrorCode.INVALID_GROUP_ID
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if request.protocol_type not in GATHERING and config.deviations.soon_again:
        least = min(least, LEAST_SESSION_MS)
    if not least <= request.session_timeout_ms <= most:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len(request.group_instance_id or "") > LONGEST_NAME:
        return ErrorCode.INVALID_REQUEST
    if len(request.protocols) > MOST_PROTOCOLS:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if len(request.protocol_type) > LONGEST_NAME or any(len(p.name) > LONGEST_NAME for p in request.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def founds(request: JoinGroupRequest, config: Config) -> bool:
    """True if the join may create the group: it is valid and has no member id."""
    is_valid = bool(request.protocol_type and request.protocols) and not check_join(request, config)
    return is_valid and not request.member_id


def check_member(group: Group, member_id: str, instance_id: str | None) -> int:
    """25 for an unknown member, 82 if the instance id belongs to another member."""
    if instance_id is not None:
        owner = group.instances.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def check_generation(group: Group | None, request: SyncGroupRequest | HeartbeatRequest) -> int:
    """Check that a request is of a member of the group's generation."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
    error = check_member(group, request.member_id, request.group_instance_id)
    return error or (ErrorCode.NONE if request.generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION)


def check_sync(group: Group | None, request: SyncGroupRequest, version: int) -> int:
    if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    error = check_generation(group, request)
    if error or group is None:
        return error
    # Before its first generation a group has no protocol to compare with.
    for asked, has in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
        if asked is not None and has is not None and asked != has:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE


BY_AN_ADMIN = "member was removed by an admin"
"""The reason of Kafka's admin client; that of its caller may follow."""


def is_operators(identity: MemberIdentity) -> bool:
    """Whether an operator's tool removes the member: by the instance id alone, or with the tool's reason (KIP-800)."""
    by_instance = not identity.member_id and identity.group_instance_id is not None
    return by_instance or (identity.reason or "").startswith(BY_AN_ADMIN)


def operators_reason(identity: MemberIdentity) -> str:
    reason = (identity.reason or "").removeprefix(BY_AN_ADMIN).removeprefix(": ")
    return f"an operator removed it: {reason}" if reason else "by an operator"
