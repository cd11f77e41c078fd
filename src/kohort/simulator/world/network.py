"""Connections between simulated clients and the server, with the faults of a network.

The client encodes a request, which travels as bytes, maybe in pieces; the server's own splitter cuts frames out of
them. Bytes of one connection stay in order. A fault cuts a connection, before or after the delivery, or makes it half
open: nothing more arrives in either direction, and the server notices late, or only at the healing. When a client
closes a connection, bytes under way are lost.

The server's answers are decoded once, at their release, where the onlooker checks them; they travel as messages.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.turn import Arrived, Closed, ConnectionId, Frame, Opened
from kohort.simulator.plan import Faults
from kohort.simulator.world.world import Millis, World
from kohort.wire.codec import encode_request
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import FrameSplitter
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest


class Host(Protocol):
    """The server's process, as connections see it."""

    links: dict[ConnectionId, Link]
    half_open: list[Link]

    @property
    def up(self) -> bool: ...

    def next_connection(self) -> ConnectionId: ...

    def arrive(self, event: Arrived, asked: Asked | None = None) -> None: ...


class Owner(Protocol):
    """The client that opened a connection."""

    name: str
    kind: str

    def answered(self, link: Link, tag: Any, response: Any) -> None: ...

    def cut(self, link: Link) -> None: ...


@dataclass(eq=False, slots=True)
class Asked:
    """A request under way, and the tag that its sender gets back with the answer."""

    request: Any
    version: int
    correlation_id: int
    tag: Any
    asked_at: Millis = 0
    """When it reached the server."""


Answer = tuple["Link", Asked, Any]
"""A connection, a request received on it, and the response."""

MAX_FRAME = 1_048_576


class Link:
    """One connection of a client to one broker."""

    def __init__(
        self,
        world: World,
        process: Host,
        faults: Faults,
        owner: Owner,
        broker_id: int,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.world = world
        self.owner = owner
        self.broker_id = broker_id
        self.principal = principal
        self.id = process.next_connection()
        self.open = True
        """True while the connection is open on the client's side."""
        self.half_open = False
        self.raw = False
        """The client sent bytes that are not a request: answers cannot be matched to requests."""
        self.outstanding: deque[Asked] = deque()
        """Requests that reached the server and are not answered."""
        self.muted_until: Millis = 0
        """By the throttle time of the last answer: until then, the server answers nothing."""
        self._travelling: deque[Asked] = deque()
        self._process = process
        self._faults = faults
        self._random: Random | None = None
        self._splitter = FrameSplitter(MAX_FRAME)
        self._correlation_id = 0
        self._there_at: Millis = 0
        self._back_at: Millis = 0
        self._attached = False
        world.after(world.latency_ms, self._connect)

    @property
    def random(self) -> Random:
        if self._random is None:
            self._random = self.world.random(f"link/{self.owner.name}/{self.id}")
        return self._random

    def _connect(self) -> None:
        if not self.open:
            return
        if not self._process.up:
            self.break_off()
            return
        self._attached = True
        self._process.links[self.id] = self
        self._process.arrive(Opened(self.id, self.broker_id, "10.0.0.1", self.principal))

    # -- the client's side

    def ask(self, request: Any, version: int, tag: Any = None) -> None:
        """Send a request; the owner's `answered` gets the tag back with the answer."""
        if not self.open:
            return
        self._send(request, version, tag)
        if self._happens(self._faults.duplicate):
            self.world.tell(self.owner.name, "sends it twice")
            self._send(request, version, None)

    def _send(self, request: Any, version: int, tag: Any) -> None:
        self._correlation_id += 1
        data = encode_request(request, version, self._correlation_id, self.owner.name)
        asked = Asked(request, version, self._correlation_id, tag)
        self.send_bytes(data, asked)

    def send_bytes(self, data: bytes, asked: Asked | None = None) -> None:
        if asked is None:
            self.raw = True
        if self._happens(self._faults.half_open):
            self._lose_silently()
        fate = self.random.random() if self._happens(self._faults.cut) else 1.0
        if fate < 0.5:
            self.world.tell(self.owner.name, "connection cut before the request arrives")
            self._cut_both()
            return
        if asked is not None:
            self._travelling.append(asked)
        pieces = [data]
        if len(data) > 1 and self._happens(self._faults.split):
            middle = self.random.randrange(1, len(data))
            pieces = [data[:middle], data[middle:]]
        for piece in pieces:
            self._there_at = max(self._there_at, self.world.now + self._delay())
            self.world.at(self._there_at, self._arrive, piece)
        if fate < 1.0:
            self.world.tell(self.owner.name, "connection cut after the request arrived")
            self.world.at(self._there_at, self._cut_both)

    def close(self) -> None:
        """The client closes the connection."""
        if self.open:
            self.open = False
            self._detach()

    def break_off(self) -> None:
        """The client notices that the connection is gone."""
        if self.open:
            self.open = False
            self.owner.cut(self)

    def heal(self) -> None:
        if self.half_open:
            self._cut_both()

    # -- on the way

    def _happens(self, chance: float) -> bool:
        return chance > 0 and not self.world.healed and self.random.random() < chance

    def _delay(self) -> Millis:
        if self._happens(self._faults.delay):
            return self.random.randrange(5, 2_000)
        return self.world.latency_ms

    def _lose_silently(self) -> None:
        self.world.tell(self.owner.name, "connection half open from here on")
        self.half_open = True
        self._process.half_open.append(self)
        if self.random.random() < 0.5:
            self.world.after(self.random.randrange(1_000, 20_000), self._detach)

    def _cut_both(self) -> None:
        self._detach()
        self.break_off()

    def _detach(self) -> None:
        """The server sees the end of the connection."""
        if self._attached:
            self._attached = False
            head = self.outstanding[0].request if self.outstanding else None
            if self.world.scribe is not None and isinstance(head, JoinGroupRequest | SyncGroupRequest):
                command = f"vanish {head.group_id} {self.owner.name}"
                self.world.scribe.happened(self.world.now, command, head.group_id)
            if self._process.links.pop(self.id, None) is not None:
                self._process.arrive(Closed(self.id))

    def _arrive(self, data: bytes) -> None:
        if not self._attached or self.half_open or not self.open:
            return
        try:
            frames = self._splitter.feed(data)
        except ProtocolError:
            self._cut_both()
            return
        for frame in frames:
            asked = None
            if not self.raw:
                asked = self._travelling.popleft()
                asked.asked_at = self.world.now
                if self.world.scribe is not None:
                    self.world.scribe.request(self.world.now, self.owner.name, asked.request, asked.version)
                self.outstanding.append(asked)
            self._process.arrive(Frame(self.id, frame), asked)

    # -- the server's side

    def release(self, asked: Asked, response: Any) -> None:
        """An answer leaves the server."""
        if self.half_open or not self.open:
            return
        if self._happens(self._faults.cut):
            self.world.tell(self.owner.name, "connection cut before the answer arrives")
            self._cut_both()
            return
        self._back_at = max(self._back_at, self.world.now + self._delay())
        self.world.at(self._back_at, self._answered, asked, response)
        if self._happens(self._faults.duplicate):
            self._back_at += self._delay()
            self.world.tell(self.owner.name, "gets an answer twice")
            self.world.at(self._back_at, self._answered, asked, response)

    def _answered(self, asked: Asked, response: Any) -> None:
        if self.open and not self.half_open and asked.tag is not None:
            self.owner.answered(self, asked.tag, response)

    def disconnect(self) -> None:
        """The server closes the connection, or dies."""
        self._detach()
        self.world.after(self.world.latency_ms, self.break_off)
