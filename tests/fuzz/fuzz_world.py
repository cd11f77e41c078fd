"""A broker that is fed frames, with a client's eye on what comes out: kind `broker`.

Everything that happens is a line of text (`Story`), so that a find can be repeated, made smaller, and kept:

    brokers 3 group_max_size=3      the first line: how many brokers, and settings
    open 1 2                        connection 1 to broker 2
    frame 1 00120003…               a request frame without its length, in hex
    stream 1 0000000a00120003…      bytes of frames with their lengths, as they come from the socket
    turn                            what came since the last turn is stepped through, and committed
    wait 5000                       so many milliseconds pass, deadline by deadline
    close 1

The checks after every turn: no exception; answers of a connection come in the order of its requests, with their
correlation ids, and the response's schema table reads them to their last byte; no answer follows a disconnect; a
parked request has a deadline; no turn takes more than 50 ms of CPU. `check_state` looks into the shards.
"""

from __future__ import annotations

import random
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fuzz_grammar import all_messages

from kohort.broker.apis import APIS
from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.turn import Arrived, Closed, ConnectionId, Disconnect, Frame, Opened, Send, TaskDone, Turn
from kohort.config import Config
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.events import AssignmentMade, PatternsAsked, PatternsResolved, Task
from kohort.coordinator.patterns.regex import search
from kohort.storage.memory import MemoryStorage
from kohort.wire import codec, schema
from kohort.wire.framing import API_VERSIONS_KEY, BadLength, FrameSplitter, read_response_header
from kohort.wire.schema import schema_of

START_MS = 1_760_000_000_000
PRODUCE = 0
_HEADER = struct.Struct(">hhi")

all_messages()  # all tables are imported from here on
RESPONSES: dict[int, type] = {
    known.api_key: known.cls
    for known in schema._SCHEMAS.values()
    if known.api_key is not None and known.name.endswith("Response")
}


class Violation(AssertionError):
    """A forbidden action of the broker."""


class Client:
    """The client's side of one connection."""

    __slots__ = ("awaited", "gone", "id")

    def __init__(self, number: int) -> None:
        self.id = ConnectionId(number)
        self.awaited: deque[tuple[int, int, int]] = deque()
        """API key, version and correlation id of each request that is not answered."""
        self.gone = False


class World:
    def __init__(self, brokers: int = 1, settings: Sequence[str] = ()) -> None:
        values: dict[str, Any] = {"offsets_topic_num_partitions": 3}
        for setting in settings:
            name, _, text = setting.partition("=")
            default = getattr(Config(), name)
            values[name] = (
                text if isinstance(default, str) else text == "True" if isinstance(default, bool) else int(text)
            )
        listeners = ",".join(f"127.0.0.1:{9092 + index}" for index in range(brokers))
        self.config = Config(brokers=brokers, listeners=listeners, **values)
        self.storage = MemoryStorage()
        self.now = START_MS
        self.clients: dict[int, Client] = {}
        self.learned: Callable[[int, int, Any], None] = lambda number, correlation_id, response: None
        """Called with every answer: the connection, the request's correlation id, the decoded response."""
        self.slowest_s = 0.0
        """CPU time of the longest turn."""
        self.answered_bytes = 0
        self._arrived: list[Arrived] = []
        self.broker = self._started()
        self.turn()

    def _started(self) -> Broker:
        return Broker(
            self.config,
            self.storage,
            now=self.now,
            random=random.Random(1),
            endpoints=[Endpoint("127.0.0.1", 9092 + index) for index in range(self.config.brokers)],
        ).load()

    # -- the lines of a story

    def do(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "open":
                number, _, broker = rest.partition(" ")
                self.open(int(number), int(broker or 1))
            case "frame":
                number, _, data = rest.partition(" ")
                self.frame(int(number), bytes.fromhex(data))
            case "stream":
                number, _, data = rest.partition(" ")
                self.stream(int(number), bytes.fromhex(data))
            case "turn":
                self.turn()
            case "wait":
                self.wait(int(rest))
            case "close":
                self.close(int(rest))
            case _:
                raise ValueError(f"a story has no line {line!r}")

    def open(self, number: int, broker: int = 1) -> None:
        self.clients[number] = Client(number)
        self._arrived.append(Opened(ConnectionId(number), broker, "127.0.0.1"))

    def frame(self, number: int, data: bytes) -> None:
        client = self.clients.get(number)
        if client is None or client.gone:
            return
        if len(data) >= 10:
            client.awaited.append(_HEADER.unpack_from(data))
        self._arrived.append(Frame(client.id, data))

    def stream(self, number: int, data: bytes) -> None:
        """Requests that need no turn are answered at once, as at the server's edge; the others wait for a turn."""
        client = self.clients.get(number)
        if client is None or client.gone:
            return
        if not self._arrived and not self.broker.busy:
            started = time.process_time()
            answers, size = self.broker.at_once(client.id, data, self.now)
            self.slowest_s = max(self.slowest_s, time.process_time() - started)
            answered, data = FrameSplitter(2**31 - 1).feed(data[:size]), data[size:]
            for frame, answer in zip(answered, FrameSplitter(2**31 - 1).feed(answers), strict=True):
                client.awaited.append(_HEADER.unpack_from(frame))
                self._received(client, Send(client.id, len(answer).to_bytes(4, "big") + answer))
        try:
            frames = FrameSplitter(self.config.socket_request_max_bytes).feed(data)
        except BadLength as bad:
            frames = bad.frames
        for frame in frames:
            self.frame(number, frame)

    def close(self, number: int) -> None:
        if self.clients.pop(number, None) is not None:
            self._arrived.append(Closed(ConnectionId(number)))

    def turn(self) -> float:
        """One turn, and the turns that it makes due at once. Returns the CPU time of the longest."""
        slowest = self._turn()
        turns = 0
        while self.broker.busy or self._arrived:
            turns += 1
            if turns > 1000:
                raise Violation("the broker never comes to rest")
            slowest = max(slowest, self._turn())
        self.slowest_s = max(self.slowest_s, slowest)
        return slowest

    def wait(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        for _ in range(10_000):
            deadline = self.broker.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.turn()
        else:
            raise Violation("the broker has a new deadline whenever one is served")
        self.now = end
        self.turn()

    # -- one turn

    def _turn(self) -> float:
        arrived, self._arrived = self._arrived, []
        started = time.process_time()
        turn = self.broker.step(arrived, self.now)
        took = time.process_time() - started
        self._end(turn)
        return took

    def _end(self, turn: Turn) -> None:
        if turn.operations:
            self.storage.commit(turn.operations, self.storage.acquire())
        for handed_out in turn.tasks:
            self._arrived.append(TaskDone(handed_out.shard, outcome(handed_out.task)))
        for release in turn.releases:
            client = self.clients.get(release.connection)
            if isinstance(release, Disconnect):
                if client is not None:
                    client.gone = True
                    self.close(release.connection)
            elif client is not None:
                self._received(client, release)

    def _received(self, client: Client, send: Send) -> None:
        data = send.whole
        self.answered_bytes += len(data)
        if client.gone:
            raise Violation("an answer after the end of its connection")
        if int.from_bytes(data[:4], "big") != len(data) - 4:
            raise Violation("a response frame whose length is not its length")
        correlation_id = int.from_bytes(data[4:8], "big", signed=True)
        while True:
            if not client.awaited:
                raise Violation(f"an answer that nobody awaits, to {correlation_id}")
            api_key, version, expected = client.awaited.popleft()
            if expected == correlation_id:
                break
            if api_key != PRODUCE:  # with acks=0 it has no answer
                raise Violation(f"the answer to {correlation_id} where that to {expected} is due")
        self._read(client, api_key, version, correlation_id, data[4:])

    def _read(self, client: Client, api_key: int, version: int, correlation_id: int, frame: bytes) -> None:
        api = APIS[api_key]
        if not api.first <= version <= api.last:
            if api_key != API_VERSIONS_KEY:
                raise Violation(f"an answer to {api.name} v{version}, which is not served")
            version = 0
        cls = RESPONSES[api_key]
        flexible = version in schema_of(cls).flexible
        _, start = read_response_header(frame, flexible=flexible, api_key=api_key)
        response = codec.decode(cls, version, frame, start)
        self.learned(client.id, correlation_id, response)

    def storage_bytes(self) -> int:
        return sum(info.size for info in self.storage.logs())

    # -- what holds in between

    def check_state(self) -> None:
        parked = self.broker._parked
        if parked and self.broker.next_deadline() is None:
            raise Violation("requests are parked, and nothing will ever come due")
        for connection in self.broker._connections.values():
            if connection.backlog and connection.parked is None:
                raise Violation("requests wait behind nothing")
        for shard in self.broker.state.shards:
            shard.validate()

    def check_restart(self) -> None:
        """A replay of the stored logs gives the present state."""
        fresh = self._started()
        for live, replayed in zip(self.broker.state.shards, fresh.state.shards, strict=True):
            for part in ("groups", "offsets", "generations"):
                before, after = getattr(live.hard, part), getattr(replayed.hard, part)
                if before != after:
                    raise Violation(f"a replay of shard {live.index} gives other {part}: {before} became {after}")
        if fresh.state.catalog.topics != self.broker.state.catalog.topics:
            raise Violation("a replay of the metadata log gives other topics")


def outcome(task: Task) -> AssignmentMade | PatternsResolved:
    """The work of the server's threads beside the turns."""
    if isinstance(task, PatternsAsked):
        return search(task)
    return task.made(assigned(BUILT_IN[task.assignor], task.spec))


def told(first: str) -> World:
    """The world of a story's first line."""
    word, brokers, *settings = first.split()
    assert word == "brokers", first
    return World(int(brokers), settings)
