"""The context of a request (its connection, its principal), and the results of a handler other than an answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

import msgspec

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.turn import ConnectionId, Millis
from kohort.coordinator.events import Client, RequestId


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


class InShard(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: the request is parked in a shard, whose effects will hold the reply."""

    shard: int


class InSteps(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: its answer takes long, so it is made in steps. Other requests are handled between them."""

    steps: Generator[None, None, Any]
    """Returns what the handler would return."""


def in_steps(handler: Callable[..., Generator[None, None, Any]]) -> Callable[..., InSteps]:
    """A handler out of a generator that yields between steps, and returns the response. A step takes less than a
    millisecond. Between two steps the state may change: iterate over copies."""

    @wraps(handler)
    def handle(state: Any, request: Any, context: RequestContext) -> InSteps:
        return InSteps(handler(state, request, context))

    return handle


class CloseConnection(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: no response, the connection is closed (W8)."""

    reason: str
