"""The context of a request (its connection, its principal), and the results of a handler other than an answer."""

from __future__ import annotations

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


class CloseConnection(msgspec.Struct, frozen=True, gc=False):
    """A handler's result: no response, the connection is closed (W8)."""

    reason: str
