"""Requests that only the controller can handle, and that clients send to other nodes.

Java's admin client sends some changes to any node, and Metadata may create topics anywhere. A node that is not the
controller parks such a request, and the edge passes it on through the database, with the client's principal. The
controller handles it as that of a connection of its own, whose id is negative (FROM_NODES), and the edge passes the
answer back. So permissions, quotas and limits are those of any other request.

A request whose answer is lost may have been handled, as always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from kohort.broker.request import InShard, RequestContext
from kohort.broker.turn import AskAnswered, Millis
from kohort.coordinator.events import Reply, RequestId
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.framing import read_response_header
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from kohort.broker.apis import Api
    from kohort.broker.state import BrokerState

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
    api: Api
    request: Any
    version: int


class Asks:
    def __init__(self) -> None:
        self.send: Callable[[Ask], None] | None = None
        """Set by the edge. It answers each with `AskAnswered`, unless nobody waits for it."""
        self._waiting: dict[RequestId, _Waits] = {}
        self._creating: dict[str, Millis] = {}
        """Topics, and until when nobody need ask for them again."""

    def ask(self, api: Api, request: Any, context: RequestContext) -> InShard | None:
        """Pass a request on. None if it cannot be."""
        if self.send is None or context.connection < FROM_NODES or len(self._waiting) >= MOST:
            return None
        frame = encode_request(request, context.api_version, 0, context.client.client_id)[4:]
        self._waiting[context.request_id] = _Waits(api, request, context.api_version)
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

    def answered(self, state: BrokerState, event: AskAnswered) -> None:
        from kohort.broker.error_answers import error_answer, response_of

        waits = self._waiting.pop(event.request_id, None)
        if waits is None:
            return
        api, version = waits.api, waits.version
        body: Any
        try:
            _, begin = read_response_header(event.frame, flexible=version >= api.flexible_from, api_key=api.key)
            body = decode(response_of(api.key).cls, version, event.frame, begin)
        except ProtocolError:  # also an empty one
            body = error_answer(api, waits.request, version, ErrorCode.NOT_CONTROLLER)
        state.turn.replies.append(Reply(event.request_id, body))


def _ask_of(request_id: RequestId, frame: bytes, context: RequestContext) -> Ask:
    principal = context.principal
    host = context.client.host.removeprefix("/")
    return Ask(request_id, frame, host, (principal.type, principal.name), context.listener)
