"""Heartbeats that need no turn, by far the most frequent requests: a classic group's member says that it lives.

A turn of nothing but such a heartbeat would decide nothing and append nothing. So it is answered the moment it arrives,
if no turn is under way or due, and inside of a turn without the way through a handler. Where more is to be done (an
error, an answer that is held, a group of the other protocol) `Shard.heard` does nothing, and it takes the common way.
Either way gives the same bytes in the same order: tests/broker/test_heartbeats.py.

A member sends the same bytes each time, but for the correlation id. So a connection keeps what its last heartbeat was
read as, and compares: equal bytes are the equal request.
"""

from __future__ import annotations

from struct import Struct

from kohort.broker.apis import APIS, Api
from kohort.broker.connection import Connection
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.classic_group import NOT_PLAIN, REBALANCING
from kohort.coordinator.events import Client
from kohort.wire.codec import decode_prefix, encode_response
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import body_offset, read_request_header
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT: Api = APIS[12]
LONGEST = 1_024
"""Bytes of a frame that is looked at here."""
KEY = b"\0\x0c"
SHORTEST = 16
"""With its length; a whole one has more."""

_LENGTH = Struct(">i")


class Beat:
    """A heartbeat that was read."""

    __slots__ = (
        "answer_head",
        "answer_tails",
        "client",
        "generation_id",
        "group_id",
        "head",
        "member_id",
        "shard",
        "size",
        "tail",
    )

    def __init__(self, frame: bytes, version: int, request: HeartbeatRequest, client: Client, shard: int) -> None:
        self.size = len(frame)
        self.head = _LENGTH.pack(len(frame)) + frame[:4]
        """Length, API and version."""
        self.tail = frame[8:]
        """All that follows the correlation id."""
        self.group_id = request.group_id
        self.member_id = request.member_id
        self.generation_id = request.generation_id
        self.client = client
        """Who had sent it."""
        self.shard = shard
        self.answer_head, self.answer_tails = _answers(version)

    def is_at(self, data: bytes, start: int) -> bool:
        """Whether it stands there once more, with whatever correlation id."""
        return data[start + 12 : start + 4 + self.size] == self.tail and data[start : start + 8] == self.head

    def is_frame(self, frame: bytes) -> bool:
        return frame[8:] == self.tail and frame[:4] == self.head[4:]


class Heartbeats:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        config = state.config
        self._longest = min(LONGEST, config.group_request_max_bytes, config.socket_request_max_bytes)

    def answers(self, connection: Connection, data: bytes, now: Millis) -> tuple[bytes, int]:
        """The answers to the heartbeats that `data` begins with, frames with their lengths; and the size of these.

        Equal heartbeats get the same answer, as nothing comes between them, so the shard is asked once.
        """
        beat = connection.beat
        if beat is not None and beat.client is not connection.client:
            beat = None
        out: list[bytes] = []
        asked: Beat | None = None
        tail = b""
        start, size = 0, len(data)
        while start < size:
            if beat is None or not beat.is_at(data, start):
                beat = self._read_at(data, start, connection.client)
                if beat is None:
                    break
                connection.beat = beat
            if beat is not asked:
                error = self._error_of(beat, connection, now)
                if error < 0:
                    break
                asked, tail = beat, beat.answer_tails[error]
            answer = beat.answer_head + data[start + 8 : start + 12] + tail
            start += beat.size + 4
            if start == size and not out:
                return answer, start  # one alone, as most are
            out.append(answer)
        return b"".join(out), start

    def answer(self, connection: Connection, frame: bytes, now: Millis) -> bytes:
        """The answer to a request, if it is such a heartbeat; nothing otherwise."""
        beat = connection.beat
        if beat is None or beat.client is not connection.client or not beat.is_frame(frame):
            beat = self._read(frame, connection.client)
            if beat is None:
                return b""
            connection.beat = beat
        error = self._error_of(beat, connection, now)
        return b"" if error < 0 else b"".join((beat.answer_head, frame[4:8], beat.answer_tails[error]))

    def _error_of(self, beat: Beat, connection: Connection, now: Millis) -> int:
        state = self._state
        if state.coordinator_of(beat.shard) != connection.broker_id:
            return NOT_PLAIN
        return state.shards[beat.shard].heard(beat.group_id, beat.member_id, beat.generation_id, now)

    def _read_at(self, data: bytes, start: int, client: Client) -> Beat | None:
        """The frame at `start`, if it is whole and a heartbeat that may be answered at once."""
        if data[start + 4 : start + 6] != KEY or len(data) - start < SHORTEST:
            return None
        end = start + 4 + int(_LENGTH.unpack_from(data, start)[0])
        return self._read(data[start + 4 : end], client) if start + SHORTEST <= end <= len(data) else None

    def _read(self, frame: bytes, client: Client) -> Beat | None:
        state = self._state
        if not frame.startswith(KEY) or len(frame) > self._longest:
            return None
        try:
            header = read_request_header(frame)
            version = header.api_version
            if not HEARTBEAT.first <= version <= HEARTBEAT.last or client.software_name in state.held_clients:
                return None
            if (header.client_id or "") != client.client_id:
                return None
            request, _ = decode_prefix(
                HeartbeatRequest, version, frame, body_offset(frame, version >= HEARTBEAT.flexible_from)
            )
        except ProtocolError:
            return None
        if request.group_instance_id is not None:
            return None
        return Beat(frame, version, request, client, state.shard_of(request.group_id))


_ANSWERS: dict[int, tuple[bytes, tuple[bytes, ...]]] = {}


def _answers(version: int) -> tuple[bytes, tuple[bytes, ...]]:
    """What stands before the correlation id of an answer, and behind it for each error that there is here."""
    known = _ANSWERS.get(version)
    if known is None:
        whole = [
            encode_response(HeartbeatResponse(error_code=error), version, 0, api_key=HEARTBEAT.key)
            for error in range(REBALANCING + 1)
        ]
        known = _ANSWERS[version] = whole[0][:4], tuple(answer[8:] for answer in whole)
    return known
