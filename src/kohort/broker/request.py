"""The context of a request (its connection, its principal), and the results of a handler other than an answer.

An answer may be much larger than its request. One answer may have a quarter of queued.max.response.bytes, so that a
single client cannot fill the memory of unread answers. Handlers of answers that can be larger ask `Room` about each
part, and refuse the parts that do not fit with an error on which clients ask again for these parts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import wraps
from typing import Any, TypeVar

import msgspec

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.turn import ConnectionId, Millis
from kohort.coordinator.events import Client, RequestId

_T = TypeVar("_T")
_R = TypeVar("_R")


class RequestContext(msgspec.Struct, gc=False):
    request_id: RequestId
    connection: ConnectionId
    broker_id: int
    api_key: int
    api_version: int
    correlation_id: int
    client: Client
    now: Millis
    more_behind: bool = False
    """Another request of the same connection waits behind this one."""
    principal: Principal = ANONYMOUS
    listener: str = ""
    """The name of the listener that accepted the connection."""
    size: int = 0
    """Bytes of the request, as quotas count them: with its header, without its length."""
    throttle_ms: Millis = 0
    """For how long the client must wait because of what the handler has done (quotas/mutations.py)."""
    guarded: Any = None
    """The guard's decision (security/guards/guarded.py), if there is an authorizer and the answer takes longer."""
    arrived: Millis = 0
    parked_ms: Millis = 0
    """For how long it waited on purpose."""
    may_read: Callable[[str], bool] | None = None
    """Whether the client may read a topic, for requests that go on with topics of earlier ones (share sessions). None:
    there is no authorizer."""


class InShard(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: the request is parked in a shard, whose effects will hold the reply."""

    shard: int | None
    """None: it waits for the controller (sharing/asks.py)."""


STEP_BYTES = 500
ROW_BYTES = 200
"""The memory of a row of an answer, about."""
ROWS = 100
"""Rows of an answer that are one step, if a row takes microseconds."""


class Room:
    """The room that is left in an answer."""

    def __init__(self, most_bytes: int) -> None:
        self.most = self.left = most_bytes

    def take(self, size: int) -> bool:
        """False, and nothing taken, if a part of this size does not fit."""
        if size > self.left:
            return False
        self.left -= size
        return True


class InSteps(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: its answer takes long, so it is made in steps. Other requests are handled between them."""

    steps: Generator[Any, None, Any]
    """Yields the bytes by which a step has made the answer larger (None: about STEP_BYTES), or a read that has to be
    done before the next step (waits/reads.py). Returns what the handler would return, or further steps."""


def in_steps(handler: Callable[..., Generator[Any, None, Any]]) -> Callable[..., InSteps]:
    """A handler out of a generator that yields between steps, and returns the response. A step takes less than a
    millisecond. Between two steps the state may change: iterate over copies."""

    @wraps(handler)
    def handle(state: Any, request: Any, context: RequestContext) -> InSteps:
        return InSteps(handler(state, request, context))

    return handle


def rows(asked: Iterable[_T], row: Callable[[_T], _R]) -> Generator[int, None, tuple[_R, ...]]:
    """Makes the row of each, ROWS of them a step."""
    made = []
    for at, one in enumerate(asked, 1):
        made.append(row(one))
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    return tuple(made)


class CloseConnection(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: no response, the connection is closed (W8)."""

    reason: str
