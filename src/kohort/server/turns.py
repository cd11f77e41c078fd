"""The turn loop: collect what arrived, step the broker, make the turn durable, release its answers; one at a time.

While a commit runs in the writer thread, the event loop reads on; what arrives meanwhile is the next turn. That is all
there is to group commit: the slower the disk, the more a sync serves. A storage that takes no time (memory) commits
in place.

Any exception is the end (fail-stop): no answer leaves any more, and the owner is told once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol, assert_never

from kohort.broker.turn import Arrived, Complaint, ConnectionId, HandedOut, Millis, Opened, Release, Shutdown, Turn
from kohort.server import log
from kohort.server.clock import Clock, Timer
from kohort.storage.protocol import Operation, Storage

COMPLAIN_AGAIN_S = 60.0


class Steps(Protocol):
    """What the loop needs of a broker."""

    @property
    def busy(self) -> bool: ...
    def step(self, arrived: Sequence[Arrived], now: Millis) -> Turn: ...
    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]: ...
    def next_deadline(self) -> Millis | None: ...
    def waiting_bytes(self, connection: ConnectionId) -> int: ...


class TurnLoop:
    """Calls `began` when a turn takes what has arrived, `deliver` with the releases of a durable turn, `hand_out`
    with its tasks, and `failed` once with what stopped the loop."""

    def __init__(
        self,
        broker: Steps,
        storage: Storage,
        *,
        in_place: bool,
        clock: Clock,
        began: Callable[[], None],
        deliver: Callable[[Sequence[Release]], None],
        hand_out: Callable[[Sequence[HandedOut]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._storage = storage
        self._clock = clock
        self._began = began
        self._deliver = deliver
        self._hand_out = hand_out
        self._complained: dict[str, float] = {}
        self._limited = log.LimitedLog()
        self._failed = failed
        self._writer = None if in_place else _Writer(self._loop, storage)
        self._arrived: list[Arrived] = []
        self._controls: list[tuple[Arrived | None, Callable[[], None], asyncio.Future[None]]] = []
        self._due = False
        self._awaited = False
        """Something waits for the turn that is due, and comes before what arrives from now on."""
        self._under_way = False
        self._stopped = False
        self._timer: Timer | None = None
        self._timer_deadline: Millis = 0

    def arrive(self, event: Arrived) -> None:
        self._arrived.append(event)
        # Nobody else waits for a new connection, and where a thousand come one by one, a turn is always due.
        if not isinstance(event, Opened):
            self._awaited = True
        if not self._due:
            self._plan()

    def at_once(self, connection: ConnectionId, data: bytes) -> tuple[bytes, int]:
        """Answers to requests that need no turn, and how many bytes of `data` these are; nothing while a turn is under
        way, or one is due that something waits for, as what came before comes first."""
        if self._awaited or self._under_way or self._stopped:
            return b"", 0
        try:
            return self._broker.at_once(connection, data, self._clock.now())
        except Exception as error:
            self._fail(error, [])
            return b"", 0

    def wake(self) -> None:
        """A turn is due as soon as the one under way is over."""
        self._awaited = True
        self._plan()

    def _plan(self) -> None:
        if not self._due and not self._stopped:
            self._due = True
            if not self._under_way:
                self._loop.call_soon(self._turn)

    async def control(self, event: Arrived | None, check: Callable[[], None] = lambda: None) -> None:
        """Let the broker handle `event` (None: take a turn); returns when its turn is durable and released.

        `check` runs right before the turn and raises ValueError if the event makes no sense then.
        """
        if self._stopped:
            raise ConnectionAbortedError("the server has stopped")
        done: asyncio.Future[None] = self._loop.create_future()
        self._controls.append((event, check, done))
        self.wake()
        await done

    def stop(self) -> None:
        """No more turns. Waits for a commit under way, whose answers are dropped."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.stop()
        for _, _, done in self._controls:
            if not done.done():
                done.set_exception(ConnectionAbortedError("the server has stopped"))
        self._controls = []

    # -- a turn

    def _turn(self) -> None:
        if self._stopped:
            return
        self._due = self._awaited = False
        self._under_way = True
        self._began()
        arrived, self._arrived = self._arrived, []
        controls = self._take_controls(arrived)
        try:
            turn = self._broker.step(arrived, self._clock.now())
            if turn.operations and self._writer is None:
                self._storage.commit(turn.operations)
        except Exception as error:
            self._fail(error, controls)
            return
        if turn.operations and self._writer is not None:
            self._writer.commit(turn.operations, lambda error: self._committed(turn, controls, error))
        else:
            self._finish(turn, controls)

    def _take_controls(self, arrived: list[Arrived]) -> list[asyncio.Future[None]]:
        """A control goes before what arrived with it, so that it finds what `check` saw; a shutdown goes last."""
        controls, self._controls = self._controls, []
        taken: list[asyncio.Future[None]] = []
        first: list[Arrived] = []
        for event, check, done in controls:
            try:
                check()
            except ValueError as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if event is not None:
                    (arrived if isinstance(event, Shutdown) else first).append(event)
                taken.append(done)
        arrived[:0] = first
        return taken

    def _committed(self, turn: Turn, controls: list[asyncio.Future[None]], error: Exception | None) -> None:
        if self._stopped:
            return
        if error is not None:
            self._fail(error, controls)
        else:
            self._finish(turn, controls)

    def _complain(self, complaint: Complaint) -> None:
        match complaint.kind:
            case "damaged data":
                # A consumer that meets damage asks again and again; the log says so once a minute.
                now = time.monotonic()
                if now - self._complained.get(complaint.what, -COMPLAIN_AGAIN_S) >= COMPLAIN_AGAIN_S:
                    self._complained[complaint.what] = now
                    log.error("damaged data", what=complaint.what, **dict(complaint.values))
            case "rebalance held up" | "assignment refused":
                self._limited.warning(complaint.what, **dict(complaint.values))
            case _:
                assert_never(complaint.kind)

    def _finish(self, turn: Turn, controls: list[asyncio.Future[None]]) -> None:
        try:
            self._deliver(turn.releases)
            if turn.tasks:
                self._hand_out(turn.tasks)
            for complaint in turn.complaints:
                self._complain(complaint)
            busy = self._broker.busy
            deadline = self._broker.next_deadline()
        except Exception as error:
            self._fail(error, controls)
            return
        for done in controls:
            if not done.done():
                done.set_result(None)
        self._under_way = False
        if self._due:
            self._loop.call_soon(self._turn)
        elif busy or self._arrived or self._controls:
            self.wake()
        if deadline is not None:
            self._arm(deadline)

    def _fail(self, error: Exception, controls: list[asyncio.Future[None]]) -> None:
        for done in controls:
            if not done.done():
                done.set_exception(ConnectionAbortedError(f"the server has failed: {error}"))
        self.stop()
        self._failed(error)

    # -- the one timer

    def _arm(self, deadline: Millis) -> None:
        """Firing too early costs an empty turn; moving the timer with every heartbeat would cost more."""
        if self._timer is not None:
            if self._timer_deadline <= deadline:
                return
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._clock.call_at(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self.wake()


class _Writer:
    """The thread that commits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, storage: Storage) -> None:
        self._loop = loop
        self._storage = storage
        self._queue: SimpleQueue[tuple[Sequence[Operation], Callable[[Exception | None], None]] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="kohort-writer", daemon=True)
        self._worker.start()

    def commit(self, operations: Sequence[Operation], then: Callable[[Exception | None], None]) -> None:
        """`then` is called in the loop's thread, with the error if there was one."""
        self._queue.put((operations, then))

    def stop(self) -> None:
        if self._worker.is_alive():
            self._queue.put(None)
            self._worker.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            operations, then = job
            failure: Exception | None = None
            try:
                self._storage.commit(operations)
            except Exception as error:
                failure = error
            self._loop.call_soon_threadsafe(then, failure)
