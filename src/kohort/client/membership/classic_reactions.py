"""How a member reacts to the error codes of a classic group's coordinator: one table for each API.

They follow Java's consumer (AbstractCoordinator.java, ConsumerCoordinator.java).
"""

from __future__ import annotations

from enum import Enum

from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse


class Reaction(Enum):
    RETRY = "ask again after a backoff"
    REDISCOVER = "find the coordinator, then ask again"
    REJOIN = "join again under the same member id"
    REBALANCE = "let go of the assignment, then join again under the same member id"
    FORGET = "the member id is gone: join again without one"
    END = "the membership cannot go on"


_ALL: dict[int, Reaction] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: Reaction.REDISCOVER,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET,
}
_MEMBERSHIP = _ALL | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY}

REACTIONS: dict[type, dict[int, Reaction]] = {
    JoinGroupResponse: {**_MEMBERSHIP, ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY},
    SyncGroupResponse: {
        **_MEMBERSHIP,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN,
    },
    # REBALANCE_IN_PROGRESS also renews the session: Membership.received handles it.
    HeartbeatResponse: {**_MEMBERSHIP, ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN},
}
"""An error that is not listed ends the membership: 82 (fenced), 81 (full), 30 (not authorised), 23, 24 and 26 (a wrong
setting)."""

COMMIT_REACTIONS: dict[int, Reaction] = {
    **_ALL,
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REBALANCE,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.END,
}
"""Reactions to the answer of an OffsetCommit in this member's name. The committer handles every other error."""
