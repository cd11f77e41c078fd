"""The broker: owns the order of a turn, and of each connection's requests and responses.

A turn does, in this order:

1. It handles a costly request that the last turn has left (ready.py); or takes the outcomes of tasks and reads, and
   answers the fetches that the last commit woke. If both wait, they take turns; while requests wait, the latter have
   every second turn only.
2. It handles the events that arrived, one after the other.
3. It serves the queue of ready connections: one request of each, round after round. Deadlines that are due come behind
   all requests that have arrived: a member whose request arrived during a slow sync must not lose its session.
4. It does a bounded piece of upkeep of the logs.

The requests of a turn have a budget of time and of answer bytes. Those that are left wait for the next turn, which
begins at once. The edge delivers the turn's releases when its operations are durable.

A connection's requests are handled one by one. While one is parked (JoinGroup, SyncGroup, a fetch that waits for data),
the next ones wait in its backlog, so responses leave in order (W5). A held heartbeat is answered when another request
arrives, also at a gateway, and so is a parked fetch, unless the other one is a fetch too.
"""

from __future__ import annotations

import random as random_module
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kohort.broker import moves
from kohort.broker.answers import Encoded, encoded
from kohort.broker.apis import (
    API_VERSIONS,
    APIS,
    FETCHES,
    HEARTBEATS,
    OFFSET_COMMIT,
    SECRETS,
    advertised,
    is_made,
    may_be_last_words,
    outlasts,
)
from kohort.broker.connection import Connection, ParkedRequest, Waiting, late_request, nothing
from kohort.broker.decoding import decoded, most_bytes
from kohort.broker.handlers import fetch
from kohort.broker.handlers.shares import fetch as share_fetch
from kohort.broker.journal.topic import write_journal
from kohort.broker.nodes import Endpoint, nodes_of
from kohort.broker.quotas.throttling import Throttling
from kohort.broker.ready import REPEATS, STEPS, Ready, never
from kohort.broker.request import CloseConnection, InShard, InSteps, RequestContext
from kohort.broker.security.guards.guarded import denied_now
from kohort.broker.sharing.controller import handled
from kohort.broker.sharing.slots import Slots
from kohort.broker.shortcuts.repeats import Repeats
from kohort.broker.start import Replaying, replay, unwatched, write_first_records
from kohort.broker.state import BrokerState
from kohort.broker.turn import (
    Arrived,
    Closed,
    ConnectionId,
    Disconnect,
    Frame,
    Millis,
    Opened,
    Passed,
    ReadDone,
    Release,
    Send,
    Shutdown,
    TaskDone,
    Turn,
    Unread,
)
from kohort.broker.upkeep import Upkeep
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.broker.waits.shard_deadlines import SHARDS
from kohort.broker.works import UNFINISHED, Works, request_size
from kohort.config import Config
from kohort.coordinator import events
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignor
from kohort.storage.protocol import Storage


class Broker:
    """All brokers of this process; they differ in their ids and in what they lead."""

    def __init__(
        self,
        config: Config,
        storage: Storage,
        *,
        now: Millis,
        random: random_module.Random,
        endpoints: Sequence[Endpoint],
        assignors: Mapping[str, Assignor] = BUILT_IN,
        stopwatch: Callable[[], int] = never,
        parks_reads: bool = False,
        slots: Slots | None = None,
    ) -> None:
        """`stopwatch` (nanoseconds) measures requests for quotas. `parks_reads`: no step reads records from storage.
        `slots`: of a node among others that serve at once (sharing/)."""
        nodes = nodes_of(config.broker_id, endpoints)
        self._state = BrokerState(config, storage, nodes, random, now, assignors, parks_reads=parks_reads, slots=slots)
        self._state.advertised_apis = advertised(*self._state.serves)
        self._most_bytes = most_bytes(config)
        self._upkeep = Upkeep(self._state, now)
        self.repeats = Repeats(self._state)
        self._early_fetches = config.deviations.early_fetches
        self._quotas = self._state.catalog.quotas
        self._throttling = Throttling(self._state, stopwatch)
        self._connections: dict[ConnectionId, Connection] = {}
        self.waiting = Waiting(self._connections)
        self._parked: dict[events.RequestId, ParkedRequest] = {}
        self._ready = Ready(self._state.turn)
        self._state.turn.others = self._ready.__len__
        self.works = Works(config.queued_max_response_bytes, self._ready.put)
        self._done: deque[TaskDone | ReadDone] = deque()  # they wait for their turn
        self._releases: list[Release] = []
        self._last_request_id = 0
        self._stopping = False
        self._first_records_due = True

    def load(self, replaying: Replaying = unwatched) -> Broker:
        """Read the stored logs: once, before the first step. Writes nothing. Raises StorageError, ProtocolError."""
        replay(self._state, replaying)
        return self

    @property
    def state(self) -> BrokerState:
        """For reading, between turns: tests, and the edges' own reports."""
        return self._state

    @property
    def busy(self) -> bool:
        """True if work waited for the last commit only: step again at once."""
        waits = self._ready, self._done, self._state.fetch_waits.woken, self._upkeep.busy, self.works.has_gone
        return not self._stopping and any(waits)

    @property
    def is_behind(self) -> bool:
        """True if requests or deadlines did not fit into the last turn."""
        return bool(self._ready)

    def next_deadline(self) -> Millis | None:
        if self._stopping:
            return None
        shards, fetches = self._state.machines.deadlines.next(), self._state.fetch_waits.next_deadline()
        deadlines = shards, fetches, self._upkeep.next_deadline(), self._throttling.next_deadline()
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, arrived: Iterable[Arrived], now: Millis, time_is_up: Callable[[], int] = never) -> Turn:
        """`time_is_up` is asked before each request: WITHIN, OVER or COSTLY (ready.py)."""
        state = self._state
        state.turn.begin(now)
        self._ready.begin(time_is_up)
        if self._first_records_due:
            self._first_records_due = False
            write_first_records(state)
        costly = None
        if self._ready.costly_first:
            costly = self._ready.take_costly(bool(self._done or state.fetch_waits.woken))
        if costly is not None:
            self._serve_share(costly)
        elif self._ready.may_wake():
            self._take_done()
            for wait in state.fetch_waits.take_woken():
                self._answer_fetch(wait)
        for event in arrived:
            self._take(event)
        if not self._ready:
            self._take_done()
        if not self._stopping:
            if (due := self.next_deadline()) is not None and due <= now:
                self._ready.put_deadlines()
            self._serve_ready()
            self.works.free(self._ready.is_over)
            self._ready.end()
        if self._quotas.counts_time:
            self._throttling.end()
        if state.absent:
            moves.take_over(state)
            self._settle()
        state.groups.tell_topics()
        self._refuse_parked()
        if not self._stopping:
            self._upkeep.step(now)
            self._settle()
        write_journal(state)
        releases, self._releases = tuple(self._releases), []
        return state.end_turn(releases)

    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]:
        """Answer the requests that `data` (frames with their lengths) begins with, as long as answering is all that
        they need. Returns the answers, and the size of these requests in bytes. Call this only while no turn is under
        way, and no frame of the connection waits for one."""
        connection = self._connections.get(connection_id)
        takes_turn = self._stopping or self._quotas.counts_time
        if takes_turn or connection is None or connection.closing or connection.is_occupied or connection.is_held:
            return b"", 0
        return self.repeats.at_once(connection, data, now)

    def validate(self) -> None:
        """Check what holds at the end of a turn. Raises AssertionError; for tests and the simulator."""
        self._state.machines.validate()
        for connection in self._connections:
            self.repeats.validate(connection, self._state.now)

    # -- what arrives

    def _take(self, event: Arrived) -> None:
        match event:
            case Frame():
                connection = self._connections.get(event.connection)
                if connection is None or connection.closing or self._stopping:
                    return
                connection.arrived = event.arrived or self._state.turn.now
                if connection.backlog:  # the first one that waits has done the rest
                    connection.push(event.data)
                    return
                self._answer_held(connection)
                if connection.is_occupied or connection.is_costly or self._ready or self._ready.is_over():
                    connection.push(event.data)
                    self._hurry_fetch(connection)
                    self._settle()
                    self._ready.put(connection)
                    return
                self._serve(connection, event.data)
            case Opened():
                self._connections[event.connection] = Connection(event, self._state.rules_version)
            case Closed():
                self._close(event.connection)
            case Unread():
                if (connection := self._connections.get(event.connection)) is not None:
                    connection.is_unread = event.unread
                    connection.wait_from(self._state.now)
                    self._ready.put(connection)
            case Passed():
                if (connection := self._connections.get(event.connection)) is not None:
                    self._answer_held(connection, has_passed=True)
            case TaskDone() | ReadDone():
                self._done.append(event)
            case events.ServerPaused():
                self._state.machines.ask_all(event)
                self._settle()
            case Shutdown():
                self._shut_down()
            case _:
                moves.carry_out(self._state, event)
                self._settle()

    def _take_done(self) -> None:
        """The outcomes of tasks and of reads: each may take many milliseconds, so requests go between."""
        while self._done and not self._ready.is_over():
            done = self._done.popleft()
            if isinstance(done, TaskDone):
                self._state.ask(done.shard, done.event)
            elif isinstance(found := self._state.reads.done(done), FetchWait):
                self._answer_fetch(found)
            elif found is not None:
                self._ready.put(self.works.read(found))
            self._settle()

    def _answer_held(self, connection: Connection, *, has_passed: bool = False) -> None:
        """Answer the connection's held heartbeat, if any: another request has arrived."""
        connection.has_passed = has_passed
        parked = self._parked.get(connection.parked) if connection.parked is not None else None
        if parked is not None and parked.shard is not None and parked.context.api_key in HEARTBEATS:
            self._state.ask(parked.shard, events.AnswerHeld(parked.context.request_id))
            self._settle()

    def _close(self, connection_id: ConnectionId) -> None:
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        connection.closing = True
        self._throttling.forget(connection)
        self.repeats.forget(connection_id)
        self.works.close(connection)
        connection.closes(outlasts, may_be_last_words)
        if connection.parked is not None:
            parked = self._parked.pop(connection.parked)
            connection.parked = None
            self._state.abandon(parked.context.request_id, parked.shard)
            self._settle()
        self._state.shares.connection_closed(connection_id)
        self._ready.put(connection)

    def _shut_down(self) -> None:
        """Answer the parked requests, and take no more requests. Whatever is read in the middle, or does not fit into
        the turn, stays unanswered: the connections are closed, and clients ask again."""
        state = self._state
        self._stopping = True
        for connection in self._connections.values():
            connection.keep(nothing)
            self.works.drop(connection)
        self._ready.clear()
        for shard in range(len(state.shards)):
            state.ask(shard, events.Unloaded())
        for wait in (*state.fetch_waits.take_all(), *state.reads.stop()):
            if self._ready.is_over():
                break
            self._answer_fetch(wait)
        self._settle()

    # -- one request

    def _serve(self, connection: Connection, frame: bytes) -> bool:
        self._ready.serves(connection)
        answer = b"" if self._quotas.counts_time or connection.closing else self.repeats.answer(connection, frame)
        if answer:
            self._emit(Send(connection.id, answer), len(answer))
        else:
            if self._quotas.counts_time:
                self._throttling.begin(connection)
            self._handle(connection, frame)
            self._settle()
        self._ready.put(connection)
        return bool(answer)

    def _handle(self, connection: Connection, frame: bytes) -> None:
        found = decoded(frame, self._most_bytes)
        if isinstance(found, CloseConnection):
            self._disconnect(connection, found.reason)
            return
        if isinstance(found, bytes):
            self._emit(Send(connection.id, found), len(found))
            return
        api, header, request = found.api, found.header, found.request
        if connection.closing and not is_made(api, request, is_first=connection.take_first()):
            return
        self._state.count_of(frame).handled += 1
        self._last_request_id += 1
        context = connection.context(events.RequestId(self._last_request_id), header, len(frame), self._state.now)
        try:
            result = handled(self._state, connection, api, request, context)
        except Exception as error:
            who = f"{api.name} v{context.api_version} of client {context.client.client_id!r}"
            error.add_note(f"while handling {who}: {request if api.key not in SECRETS else '…'}")
            raise
        if api is API_VERSIONS:
            connection.note_software(request, result)
        self._finish(connection, context, result, request_size(context, frame))
        if api is OFFSET_COMMIT and not connection.closing:
            self.repeats.commits.learn(connection, frame, found.start, request, result)

    def _finish(self, connection: Connection, context: RequestContext, result: Any, size: int = 0) -> None:
        """`size` is the memory that the request and the result take, if it is not small."""
        match result:
            case Encoded():
                if (now := self._state.turn.now) - context.arrived - context.parked_ms >= self._state.late_ms:
                    self._state.turn.late.append(late_request(context, now))
                self._emit(result.send, result.size)
            case InShard():
                self._park(connection, context, result.shard)
            case FetchWait():
                self._park(connection, context, None)
                self._hurry_fetch(connection)
            case CloseConnection():
                self._disconnect(connection, result.reason)
            case InSteps():
                self.works.begin(connection, context, result, size)
                if not self._ready.others_wait:
                    self._go_on(connection)
            case None:
                if self._quotas.on:
                    self._throttling.throttled(connection, context, None)
            case _:
                connection.is_held = False
                self._send(connection, context, result, size)

    def _go_on(self, connection: Connection) -> None:
        """The next steps of an answer, within the turn's budget."""
        assert connection.work is not None
        context = connection.work.context
        try:
            if self._quotas.counts_time:
                self._throttling.begin(connection)
            result = self.works.go_on(connection, STEPS, self._ready.is_over)
        except Exception as error:
            error.add_note(f"while answering {APIS[context.api_key].name} of client {context.client.client_id!r}")
            raise
        if result is not UNFINISHED:
            self._finish(connection, context, result, self.works.drop(connection))
        while (largest := self.works.largest()) is not None:
            self.works.drop(largest)
            self._disconnect(largest, "its answer is large, and memory is short; see queued.max.response.bytes")

    def _park(self, connection: Connection, context: RequestContext, shard: int | None) -> None:
        connection.parked = context.request_id
        if context.api_key in HEARTBEATS:
            connection.is_held = True
            self.repeats.heartbeats.forget(connection.id)
        self._parked[context.request_id] = ParkedRequest(connection, context, shard)

    # -- what leaves

    def _send(self, connection: Connection, context: RequestContext, response: Any, size: int = 0) -> None:
        if self._quotas.on:
            response = self._throttling.throttled(connection, context, response)
        if connection.closing:
            return
        self._finish(connection, context, encoded(self._state, context, response, at_once=self._stopping), size)

    def _emit(self, answer: Send, size: int) -> None:
        self._ready.answer_bytes += size
        self._releases.append(answer)

    def _disconnect(self, connection: Connection, reason: str) -> None:
        connection.closing = True
        connection.keep(nothing)
        self._releases.append(Disconnect(connection.id, reason))

    def _settle(self) -> None:
        """Release the replies of parked requests."""
        replies = self._state.turn.replies
        while replies:
            for reply in replies:
                self._release(reply.request_id, reply.body)
            replies.clear()

    # -- whose turn it is

    def _serve_ready(self) -> None:
        """A share of each connection in the queue, round after round, within the turn's budget."""
        while self._ready and not self._ready.is_over() and not self._ready.must_end():
            connection = self._ready.take()
            if connection is None:
                self._serve_deadlines()
            else:
                self._serve_share(connection)

    def _serve_share(self, connection: Connection) -> None:
        if connection.work is not None and connection.can_go_on:
            self._go_on(connection)
            self._settle()
            self._ready.put(connection)
            return
        left = REPEATS
        while connection.can_go_on and left and self._serve(connection, connection.pop()):
            left -= 1

    def _release(self, request_id: events.RequestId, body: Any) -> None:
        parked = self._parked.pop(request_id, None)
        if parked is None:
            return
        parked.end(self._state.turn.now)
        if parked.context.guarded is not None:
            body = parked.context.guarded.concluded(body)
        answer = self._finish if isinstance(body, InSteps) else self._send
        answer(parked.connection, parked.context, body)
        self._ready.put(parked.connection)

    def _refuse_parked(self) -> None:
        """The rules have changed: parked requests that are denied now wait no longer."""
        for request_id, parked in denied_now(self._state, self._parked):
            if parked.shard is not None:
                self._state.ask(parked.shard, events.RequestAbandoned(request_id))
                self._settle()
                self._release(request_id, None)
            elif (wait := self._state.fetch_waits.take_waiting(request_id)) is not None:
                self._answer_fetch(wait, at_once=True)

    # -- time

    def _serve_deadlines(self) -> None:
        state = self._state
        state.groups.tell_topics()
        for _ in range(SHARDS):
            if (shard := state.machines.deadlines.pop_due(state.now)) is None:
                break
            state.ask(shard, events.DeadlineReached())
            if self._ready.is_over():
                break
        for wait in state.fetch_waits.take_due(state.now):
            self._answer_fetch(wait)
        for connection in self._throttling.unmute_due(state.now):
            self._ready.put(connection)
        self._settle()
        due = min(filter(None, (state.fetch_waits.next_deadline(), state.machines.deadlines.next())), default=None)
        if due is not None and due <= state.now:
            self._ready.put_deadlines()

    def _hurry_fetch(self, connection: Connection) -> None:
        parked = self._parked.get(connection.parked) if connection.parked is not None else None
        if parked is None or parked.context.api_key not in FETCHES or not connection.hurries(self._early_fetches):
            return
        if (wait := self._state.fetch_waits.take_waiting(parked.context.request_id)) is not None:
            self._answer_fetch(wait)

    def _answer_fetch(self, wait: FetchWait, *, at_once: bool = False) -> None:
        """Answer a fetch with the data there is, or park it again."""
        connection = self._parked[wait.context.request_id].connection
        if self._quotas.counts_time:
            self._throttling.begin(connection)
        at_once |= self._stopping or connection.hurries(self._early_fetches)
        resume = fetch.resume if wait.share is None else share_fetch.resume
        result = resume(self._state, wait, at_once=at_once)
        if not isinstance(result, FetchWait):
            self._release(wait.context.request_id, result)
