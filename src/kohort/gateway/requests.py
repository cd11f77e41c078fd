"""A client's bytes, cut at the requests: what each of them needs, and who answers it. Without IO.

Most bytes are never looked at. Of a request that is forwarded, the header is read, and of a Produce also `acks`,
because a Produce with acks=0 has no answer. Requests of groups go to kohort's own coordinator. FindCoordinator,
ListGroups, and requests about configs and SASL are collected as a whole, because more than the API decides.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from kohort.broker.apis import APIS, OF_SHARE_GROUPS
from kohort.gateway.versions import FORWARDED, OWN_KEYS
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import PIECE, BadLength, read_unsigned_varint, skip_tagged_fields

PRODUCE, METADATA, FIND_COORDINATOR, LIST_GROUPS = 0, 3, 10, 16
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP = 11, 12, 13
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, DESCRIBE_CLUSTER = 17, 18, 36, 60
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
CONFIGS = frozenset((DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS))
TOPIC_CHANGES = frozenset((19, 20, 37))
"""CreateTopics, DeleteTopics, CreatePartitions."""
WHOLE = {
    FIND_COORDINATOR: range(APIS[FIND_COORDINATOR].last + 1),
    LIST_GROUPS: range(APIS[LIST_GROUPS].last + 1),
    SASL_HANDSHAKE: range(2),
    API_VERSIONS: range(5),
    DESCRIBE_CONFIGS: range(1, 5),
    ALTER_CONFIGS: range(3),
    SASL_AUTHENTICATE: range(3),
    INCREMENTAL_ALTER_CONFIGS: range(2),
}
"""The versions of these APIs that the gateway reads. Others go where a request goes that nobody reads."""
BARE = -2
"""In the place of an API key: a login message after SaslHandshake 0, which is a length and bytes."""
MOST_BARE = 65_536
"""The largest length of a BARE message, for a token."""
MOST_WHOLE = 1_048_576
"""Bytes of a request that is collected."""
HEAD = Struct(">ihhi")
"""The length of a frame, API key, version and correlation id of a request."""
LENGTH = Struct(">i")
SHORT = Struct(">h")
FLEXIBLE_PRODUCE = 9
TRANSACTIONAL_PRODUCE = 3
"""The first version that names a transactional id before `acks`."""
MOST_BEFORE_ACKS = 65_536
"""Bytes of a Produce before its `acks`: header, client id and transactional id."""


REFUSED = {
    25: "AddOffsetsToTxn: offsets in transactions do not pass a gateway (docs/gateway.md)",
    28: "TxnOffsetCommit: offsets in transactions do not pass a gateway (docs/gateway.md)",
    **dict.fromkeys(
        OF_SHARE_GROUPS,
        "share groups do not pass a gateway; their members connect to the cluster's own address (docs/gateway.md)",
    ),
}


class Route(IntEnum):
    OWN = 0
    """To kohort's coordinator."""
    UPSTREAM = 1
    WHOLE = 2
    """The gateway decides."""
    REFUSED = 3


class Request(NamedTuple):
    key: int
    version: int
    correlation_id: int
    route: Route
    is_answered: bool = True


class Piece(NamedTuple):
    request: Request | None
    """The request that begins here; None for more bytes of the last one."""
    route: Route
    data: bytes


class Requests:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head = b""
        """The beginning of a request, too short to tell what it needs."""
        self._left = 0
        """Bytes that the request under way still needs."""
        self._under_way: Request | None = None
        self._collected: list[bytes] = []
        self.is_bare = False
        """What comes are messages of a login (BARE)."""

    @property
    def collected(self) -> tuple[int, int]:
        """Of a request that is collected: the bytes that are here, and those that are missing."""
        if self.is_bare and self._head:
            return len(self._head), max(LENGTH.size - len(self._head), 1)
        return sum(map(len, self._collected)), self._left if self._collected else 0

    @property
    def is_forwarding(self) -> bool:
        """The last bytes were a part of a request to the upstream broker."""
        return self._left > 0 and self._under_way is not None and self._under_way.route is Route.UPSTREAM

    def feed(self, data: bytes, most: int) -> tuple[list[Piece], bytes]:
        """Up to `most` pieces, and the bytes behind them, which are fed again. A piece takes more memory than the bytes
        of a small request. Raises ProtocolError, after which the stream is unreadable."""
        if self.is_bare:
            return self._bare(data), b""
        if self._left >= len(data):  # the common case in the middle of a large request
            return self._more(data), b""
        pieces = []
        if self._left:
            at = self._left
            pieces = self._more(data[:at])
            data = data[at:]
        if self._head:
            data = self._head + data
        at = 0
        while len(data) - at >= HEAD.size:
            if len(pieces) >= most:
                self._head = b""
                return pieces, data[at:]
            length, key, version, correlation_id = HEAD.unpack_from(data, at)
            if not 8 <= length <= self._max_bytes:
                raise BadLength(length, self._max_bytes, [])
            is_answered = _has_answer(data, at, length, version) if key == PRODUCE else True
            if is_answered is None:
                break
            request = Request(key, version, correlation_id, _route(key, version), is_answered)
            if request.route is Route.WHOLE and length > MOST_WHOLE:
                raise BadLength(length, MOST_WHOLE, [])
            end = at + 4 + length
            part = data[at:end]
            if end > len(data):
                self._left, self._under_way = end - len(data), request
                if request.route is Route.WHOLE:
                    self._collected = [part]
                else:
                    pieces.append(Piece(request, request.route, part))
                self._head = b""
                return pieces, b""
            pieces.append(Piece(request, request.route, part))
            at = end
        self._head = data[at:]
        return pieces, b""

    def _bare(self, data: bytes) -> list[Piece]:
        self._head += data
        if len(self._head) < LENGTH.size:
            return []
        (length,) = LENGTH.unpack_from(self._head)
        if not 0 <= length <= MOST_BARE:
            raise BadLength(length, MOST_BARE, [])
        missing = LENGTH.size + length - len(self._head)
        if missing > 0:
            return []
        if missing < 0:
            raise ProtocolError("more bytes before the last message of a login is answered")
        whole, self._head = self._head, b""
        return [Piece(Request(BARE, 0, 0, Route.WHOLE), Route.WHOLE, whole)]

    def _more(self, data: bytes) -> list[Piece]:
        request = self._under_way
        assert request is not None
        self._left -= len(data)
        if request.route is not Route.WHOLE:
            return [Piece(None, request.route, data)]
        if len(self._collected[-1]) < PIECE:  # many small pieces need no more memory than their bytes
            self._collected[-1] += data
        else:
            self._collected.append(data)
        if self._left:
            return []
        whole, self._collected = b"".join(self._collected), []
        return [Piece(request, Route.WHOLE, whole)]


def why_refused(request: Request) -> str:
    told = REFUSED.get(request.key, f"the API with key {request.key}, version {request.version}, does not pass")
    return f"a request that is not advertised: {told}"


def _route(key: int, version: int) -> Route:
    if version in WHOLE.get(key, ()):
        return Route.WHOLE
    if key in OWN_KEYS:
        return Route.OWN
    return Route.UPSTREAM if 0 <= version <= FORWARDED.get(key, -1) else Route.REFUSED


def _has_answer(data: bytes, at: int, length: int, version: int) -> bool | None:
    """Whether a Produce has an answer; None: more bytes are needed to tell."""
    end = min(at + 4 + length, len(data))
    try:
        (client,) = SHORT.unpack_from(data, at + HEAD.size)
        position = at + HEAD.size + 2 + max(client, 0)
        if version >= FLEXIBLE_PRODUCE:
            position = skip_tagged_fields(data, position)
            size, position = read_unsigned_varint(data, position)
            position += max(size - 1, 0)
        elif version >= TRANSACTIONAL_PRODUCE:
            (size,) = SHORT.unpack_from(data, position)
            position += 2 + max(size, 0)
        if position + 2 <= end:
            return bool(SHORT.unpack_from(data, position)[0])
    except (error, ProtocolError):
        pass
    if end == at + 4 + length or end - at > MOST_BEFORE_ACKS:
        raise ProtocolError("a Produce without acks")
    return None
