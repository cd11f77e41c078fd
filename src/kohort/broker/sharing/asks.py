"""Requests that only the controller can handle, and that clients send to other nodes.

Java's admin client sends some changes to any node, and Metadata may create topics anywhere. A node that is not the
controller parks such a request, and the edge passes it on through the database, with the client's principal. The
controller handles it as that of a connection of its own, whose id is negative (FROM_NODES), and the edge passes the
answer back. So permissions, quotas and limits are those of any other request.

A request whose answer is lost may have been handled, as always.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from kohort.broker.request import InShard, RequestContext
from kohort.broker.turn import AskAnswered, Millis
from kohort.coordinator.events import Reply, RequestId
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest

FROM_NODES = 0
"""Connections with a lower id are requests of other nodes."""
MOST = 100
"""Requests of a node that wait for the controller. Clients ask the controller themselves if there are more."""
AGAIN_MS = 1_000
"""While a topic's creation is asked for, clients ask for it again and again."""
NOBODY = RequestId(0)
CREATES = 7
"""The version of CreateTopics in which a node asks for a topic."""


class Ask(msgspec.Struct, frozen=True):
    """A request for the controller."""

    request_id: RequestId
    """NOBODY if nobody waits for the answer."""
    frame: bytes
    host: str
    principal: tuple[str, str]
    """Type and name."""
    listener: str


class _Waits(msgspec.Struct, frozen=True):
    api_key: int
    version: int
    is_flexible: bool
    otherwise: Any
    """The answer if the controller gives none."""


class Asks:
    def __init__(self) -> None:
        self.send: Callable[[Ask], None] | None = None
        """Set by the edge. It answers each with `AskAnswered`, unless nobody waits for it."""
        self._waiting: dict[RequestId, _Waits] = {}
        self._creating: dict[str, Millis] = {}
        """Topics, and until when nobody need ask for them again."""

    def ask(self, request: Any, context: RequestContext, otherwise: Any, *, is_flexible: bool) -> InShard | None:
        """Pass a request on; None if it cannot be. `otherwise`: its answer if the controller gives none."""
        if self.send is None or context.connection < FROM_NODES or len(self._waiting) >= MOST:
            return None
        frame = encode_request(request, context.api_version, 0, context.client.client_id)[4:]
        version = context.api_version
        self._waiting[context.request_id] = _Waits(context.api_key, version, is_flexible, otherwise)
        self.send(_ask_of(context.request_id, frame, context))
        return InShard(None)

    def create_topic(self, name: str, context: RequestContext) -> None:
        """Ask for a topic with the defaults of the controller."""
        now = context.now
        if self.send is None or self._creating.get(name, 0) > now:
            return
        self._creating = {each: until for each, until in self._creating.items() if until > now}
        if len(self._creating) >= MOST:
            return
        self._creating[name] = now + AGAIN_MS
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=(), configs=())
        frame = encode_request(CreateTopicsRequest(topics=(topic,)), CREATES, 0, context.client.client_id)[4:]
        self.send(_ask_of(NOBODY, frame, context))

    def answered(self, event: AskAnswered) -> Reply | None:
        """The reply to the client that waits for this answer, if there is one."""
        waits = self._waiting.pop(event.request_id, None)
        if waits is None:
            return None
        body = waits.otherwise
        with suppress(ProtocolError):  # an empty frame, too
            _, begin = read_response_header(event.frame, flexible=waits.is_flexible, api_key=waits.api_key)
            body = decode(type(body), waits.version, event.frame, begin)
        return Reply(event.request_id, body)


def _ask_of(request_id: RequestId, frame: bytes, context: RequestContext) -> Ask:
    principal = context.principal
    host = context.client.host.removeprefix("/")
    return Ask(request_id, frame, host, (principal.type, principal.name), context.listener)
