"""Heartbeats that need no turn, by far the most frequent requests: a member only signals that it is alive.

A turn of nothing but such a heartbeat would decide and append nothing. So it is answered as it arrives if nothing waits
for a turn, and inside of a turn without a handler. If more has to be done (an error, a held answer, news for the
member) `Shard.take_heartbeat` does nothing and the heartbeat goes to the handler. Both ways give the same bytes in the
same order: tests/broker/groups/test_heartbeats.py.

A member sends the same bytes each time, apart from the correlation id. The cache keeps the last heartbeat of each
connection as it was read, or those of all members that share the connection: equal bytes are an equal request. While
the shard's version stays the same, the answer stays the same, and only the session's deadline moves.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from kohort.broker.apis import APIS, Api
from kohort.broker.authorization import Operation, Resource
from kohort.broker.connection import Connection
from kohort.broker.handlers.consumer_groups import hold_ms
from kohort.broker.state import BrokerState, RequestCount
from kohort.broker.turn import ConnectionId, Millis
from kohort.coordinator.events import Client, GroupRequested, RequestId
from kohort.coordinator.shard import Shard
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.codec import decode_prefix, encode_response
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import body_offset, read_request_header
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse

CLASSIC: Api = APIS[12]
CONSUMER: Api = APIS[68]
CLASSIC_KEY, CONSUMER_KEY = b"\0\x0c", b"\0\x44"
LONGEST = 1_024
"""Longest frame, in bytes, that is read here."""
SHARING = 1_024
"""Heartbeats that are kept of the members that share one connection."""
MOST_SHARING = 131_072
"""The same for all connections together, some 100 MB."""
SHORTEST = 16
"""Bytes with the length; a complete frame has more."""

_LENGTH = Struct(">i")


class Beat:
    """A heartbeat that was read."""

    __slots__ = (
        "answer_head",
        "answer_tail",
        "answers",
        "api",
        "client",
        "count",
        "event",
        "following",
        "generation_id",
        "group_id",
        "head",
        "is_classic",
        "member_id",
        "shard",
        "size",
        "steady",
        "tail",
    )

    def __init__(self, frame: bytes, request: Any, event: GroupRequested, shard: Shard, count: RequestCount) -> None:
        self.size = len(frame)
        self.api = frame[:4]
        """API and version."""
        self.head = _LENGTH.pack(len(frame)) + self.api
        self.tail = frame[8:]
        """Everything after the correlation id."""
        self.count = count
        self.event = event
        self.client = event.client
        """The client that sent it."""
        self.following: Beat | None = None
        """The next heartbeat of the connection last time, if members share it and take turns; None: this one."""
        self.shard = shard
        self.steady: SteadyAnswer | None = None
        """The shard's answer to the last of these heartbeats."""
        self.is_classic = isinstance(request, HeartbeatRequest)
        self.group_id: str = request.group_id
        self.member_id: str = request.member_id
        self.generation_id: int = request.generation_id if self.is_classic else request.member_epoch
        self.answers = -1
        """The error or the interval in the answer below."""
        self.answer_head = b""
        """The bytes before its correlation id."""
        self.answer_tail = b""
        """The bytes after it."""

    def is_at(self, data: bytes, start: int) -> bool:
        """True if `data` has this heartbeat at `start`, with any correlation id."""
        return data[start + 12 : start + 4 + self.size] == self.tail and data[start : start + 8] == self.head

    def write_answer(self, answer: int) -> None:
        body: Any
        if self.is_classic:
            key, body = CLASSIC.key, HeartbeatResponse(error_code=answer)
        else:
            key = CONSUMER.key
            body = ConsumerGroupHeartbeatResponse(
                error_code=0,
                member_id=self.member_id,
                member_epoch=self.generation_id,
                heartbeat_interval_ms=answer,
            )
        whole = encode_response(body, self.event.version, 0, api_key=key)
        self.answers = answer
        self.answer_head, self.answer_tail = whole[:4], whole[8:]


class _Beating:
    __slots__ = ("last", "shared")

    def __init__(self) -> None:
        self.last: Beat | None = None
        """The last heartbeat that was answered here."""
        self.shared: dict[bytes, Beat] | None = None
        """If members share the connection: the heartbeat of each, by everything after the correlation id."""


class Heartbeats:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        config = state.config
        self._beating: dict[ConnectionId, _Beating] = {}
        self.most_sharing = MOST_SHARING
        self.sharing = 0
        self.longest = min(LONGEST, config.group_request_max_bytes, config.socket_request_max_bytes)

    def answers(self, connection: Connection, data: bytes, now: Millis) -> tuple[bytes, int]:
        """The answers to the heartbeats that `data` begins with, frames with their lengths; and the size of these."""
        beating = self._beating.get(connection.id)
        beat = None if beating is None else beating.last
        if beat is not None and beat.client is not connection.client:
            beat = None
        out: list[bytes] = []
        start, size = 0, len(data)
        while start < size:
            former = beat
            if former is not None and former.following is not None:
                beat = former.following
            if beat is None or not beat.is_at(data, start):
                beat = self._find_at(connection, data, start)
                if beat is None:
                    break
                if former is not None:
                    former.following = beat if beat is not former else None
                beating = self._beating[connection.id]
            assert beating is not None
            beating.last = beat
            if not self._answer_stands(beat, connection, now):
                break
            answer = beat.answer_head + data[start + 8 : start + 12] + beat.answer_tail
            beat.count.handled += 1
            start += beat.size + 4
            if start == size and not out:
                return answer, start  # most come alone
            out.append(answer)
        return b"".join(out), start

    def answer(self, connection: Connection, frame: bytes, now: Millis) -> bytes:
        """The answer to a request, if it is such a heartbeat; empty otherwise."""
        beating = self._beating.get(connection.id)
        beat = None if beating is None else beating.last
        if beat is None or frame[8:] != beat.tail or frame[:4] != beat.api or beat.client is not connection.client:
            beat = self._find(connection, frame)
            if beat is None:
                return b""
        if not self._answer_stands(beat, connection, now):
            return b""
        beat.count.handled += 1
        return beat.answer_head + frame[4:8] + beat.answer_tail

    def _answer_stands(self, beat: Beat, connection: Connection, now: Millis) -> bool:
        """True if answering is the only effect; the answer is then in `beat`."""
        if not beat.is_classic and not self._state.groups.know_topics:
            return False
        steady = beat.steady
        if (
            steady is not None
            and steady.version == beat.shard.version
            and steady.session.postpone(now + steady.session_ms)
        ):
            return True
        if self._state.coordinator_of(beat.shard.index) != connection.broker_id:
            return False
        steady = beat.steady = self._take(beat, now)
        if steady is None:
            return False
        if beat.answers != steady.answer:
            beat.write_answer(steady.answer)
        return True

    def _take(self, beat: Beat, now: Millis) -> SteadyAnswer | None:
        if beat.is_classic:
            return beat.shard.take_heartbeat(beat.group_id, beat.member_id, beat.generation_id, now)
        return beat.shard.take_consumer_heartbeat(beat.event, now)

    def kept(self, connection: ConnectionId) -> dict[bytes, Beat]:
        """The kept heartbeats of a connection, by everything after the correlation id."""
        beating = self._beating.get(connection)
        if beating is None or beating.last is None:
            return {}
        return {**(beating.shared or {}), beating.last.tail: beating.last}

    def validate(self, connection: ConnectionId, now: Millis) -> None:
        """Check that the shards would give the kept answers now. Raises AssertionError; for tests and the simulator."""
        for beat in self.kept(connection).values():
            steady = beat.steady
            if steady is None or steady.version != beat.shard.version:
                continue
            when = steady.session.when
            if now + steady.session_ms < when:
                continue
            found = self._take(beat, now)
            steady.session.when = when
            name = f"{beat.group_id}: {beat.member_id}"
            assert found is not None, f"{name}: its heartbeat needs a step"
            assert found.session is steady.session, f"{name}: another session"
            kept, fresh = (steady.answer, steady.session_ms, True), (found.answer, found.session_ms, found.lasts)
            assert kept == fresh, f"{name}: the kept answer is {kept}, the shard's {fresh}"

    def _find_at(self, connection: Connection, data: bytes, start: int) -> Beat | None:
        """The frame at `start`, if it is whole and a heartbeat that may be answered at once."""
        if len(data) - start < SHORTEST or data[start + 4 : start + 6] not in (CLASSIC_KEY, CONSUMER_KEY):
            return None
        end = start + 4 + int(_LENGTH.unpack_from(data, start)[0])
        return self._find(connection, data[start + 4 : end]) if start + SHORTEST <= end <= len(data) else None

    def _find(self, connection: Connection, frame: bytes) -> Beat | None:
        """A kept heartbeat, or a new one, which is kept."""
        beating = self._beating.get(connection.id)
        if beating is not None and beating.shared is not None:
            kept = beating.shared.get(frame[8:])
            if kept is not None and kept.client is connection.client and frame[:4] == kept.api:
                beating.last = kept
                return kept
        read = self._read(frame, connection.client)
        if read is None or not self._may_read(connection, read.group_id):
            return None
        if beating is None:
            beating = self._beating[connection.id] = _Beating()
        elif beating.last is not None:
            if beating.shared is None or len(beating.shared) >= SHARING or self.sharing >= self.most_sharing:
                self._forget_shared(beating)
                beating.shared = {}
            self.sharing += read.tail not in beating.shared
            beating.shared[read.tail] = read
        beating.last = read
        return read

    def _may_read(self, connection: Connection, group_id: str) -> bool:
        authorizer = self._state.authorizer
        return authorizer.allows(connection.principal, connection.host[1:], Operation.READ, Resource.GROUP, group_id)

    def forget(self, connection: ConnectionId) -> None:
        beating = self._beating.pop(connection, None)
        if beating is not None:
            self._forget_shared(beating)

    def _forget_shared(self, beating: _Beating) -> None:
        if beating.shared is not None:
            self.sharing -= len(beating.shared)

    def _read(self, frame: bytes, client: Client) -> Beat | None:
        key = frame[:2]
        if len(frame) > self.longest or key not in (CLASSIC_KEY, CONSUMER_KEY):
            return None
        api = CLASSIC if key == CLASSIC_KEY else CONSUMER
        try:
            header = read_request_header(frame)
            version = header.api_version
            if not api.first <= version <= api.last or (header.client_id or "") != client.client_id:
                return None
            start = body_offset(frame, version >= api.flexible_from)
            request: Any
            request, _ = decode_prefix(api.request, version, frame, start)
        except ProtocolError:
            return None
        state = self._state
        held = 0
        if isinstance(request, HeartbeatRequest):
            if request.group_instance_id is not None or client.software_name in state.held_clients:
                return None
        elif not state.serves_consumer_groups or not _is_bare(request):
            return None
        else:
            held = hold_ms(state, more_behind=False)
        event = GroupRequested(RequestId(0), version, client, request, "", held)
        shard = state.shards[state.shard_of(request.group_id)]
        return Beat(frame, request, event, shard, state.count_of(frame))


def _is_bare(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if it only signals that the member is alive. The shard checks the rest."""
    return request.member_epoch > 0 and request.topic_partitions is None and request.subscribed_topic_names is None
