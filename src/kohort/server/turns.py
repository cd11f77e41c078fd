"""The turn loop: drives the schedule of turns (broker/turn_schedule.py) on an event loop.

A turn is committed by the writer thread, and the event loop reads on meanwhile. A storage that takes no time (memory)
commits in place. Any exception is the end (fail-stop), also that another writer has taken the lease: no answer leaves
any more, and the owner learns it once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import assert_never

from kohort.broker.ready import COSTLY, OVER, WITHIN
from kohort.broker.turn import Arrived, Complaint, ConnectionId, HandedOut, Mute, Notice, ReadAsked, Release, Turn
from kohort.broker.turn_schedule import LOOK_MS, Steps, TurnObserver, TurnSchedule
from kohort.coordinator.events import ServerPaused
from kohort.server import log
from kohort.server.clock import Clock, Timer
from kohort.storage.protocol import Fenced, Lease, Operation, Storage

COMPLAIN_AGAIN_S = 60.0
MOST_DAMAGES = 100
"""Different lines about damaged data in that time."""
LOOKS = 5
"""After a pause, how often the event loop polls the sockets before the next turn: new connections need several."""
TURN_S = 0.005
"""A turn handles no more requests after this time."""
UNSURE_S = 0.1
"""While somebody else may have taken the data over, how often the loop looks whether nobody has."""
COSTLY_S = 0.002
"""A request that takes longer is costly."""


class Budget:
    """The time of a turn."""

    def __init__(self) -> None:
        self._began = self._asked_at = self._cpu_s = 0.0

    def begin(self) -> None:
        self._began = self._asked_at = time.perf_counter()
        self._cpu_s = time.thread_time()

    def verdict(self) -> int:
        """WITHIN, OVER or COSTLY (ready.py)."""
        now = time.perf_counter()
        took, self._asked_at = now - self._asked_at, now
        spent = now - self._began
        if spent <= TURN_S:
            return WITHIN
        if took <= COSTLY_S:
            return OVER
        # The thread may have waited for the processor or the interpreter's lock, perhaps in this request.
        waited = spent - (time.thread_time() - self._cpu_s)
        return COSTLY if took - waited > COSTLY_S else OVER


class TurnLoop:
    """Calls `began` when a turn takes what has arrived, `deliver` with the releases of a durable turn, `mute` with
    its mutes, `hand_out` with its tasks, `read` with its reads, and `failed` once with what stopped the loop."""

    def __init__(
        self,
        broker: Steps,
        storage: Storage,
        lease: Lease,
        *,
        in_place: bool,
        clock: Clock,
        began: Callable[[], None],
        deliver: Callable[[Sequence[Release]], None],
        mute: Callable[[Sequence[Mute]], None],
        hand_out: Callable[[Sequence[HandedOut]], None],
        read: Callable[[Sequence[ReadAsked]], None],
        failed: Callable[[Exception], None],
        observers: Sequence[TurnObserver] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._storage = storage
        self._lease = lease
        self._is_ours = storage.is_ours
        self._clock = clock
        self._began = began
        self._deliver = deliver
        self._mute = mute
        self._hand_out = hand_out
        self._read = read
        self._failed = failed
        self._told = _BrokerLog()
        self._writer = None if in_place else _Writer(self._loop, storage, lease)
        self._schedule = TurnSchedule(broker, self, observers, finds_pauses=clock.is_real)
        self._controls: list[tuple[Arrived | None, Callable[[], None], asyncio.Future[None]]] = []
        self._taken: list[asyncio.Future[None]] = []
        """The controls of the turn under way."""
        self._stopped = False
        self._timer: Timer | None = None
        self._budget = Budget()
        self.time_is_up = self._budget.verdict
        self.about_ms = 0
        """The present, to LOOK_MS, for requests that arrive; 0 if the clock is advanced by hand."""
        self._looks = 0
        """Since the last pause was found."""
        self._looking = self._loop.call_later(LOOK_MS / 1000, self._look)

    @property
    def writer_runs(self) -> bool:
        """False if the thread that commits has ended."""
        return self._writer is None or self._writer.runs

    def arrive(self, event: Arrived) -> None:
        self._schedule.arrive(event)

    def at_once(self, connection: ConnectionId, data: bytes) -> tuple[bytes, int]:
        """Answers to requests that need no turn, and how many bytes of `data` these requests are."""
        try:
            answered = self._schedule.at_once(connection, data, self._clock.now())
        except Exception as error:
            self._fail(error)
            return b"", 0
        if self._is_ours is not None and answered[1] and not self._is_ours():
            return b"", 0
        return answered

    def wake(self) -> None:
        """A turn is due as soon as the one under way is over."""
        self._schedule.wake()

    async def control(self, event: Arrived | None, check: Callable[[], None] = lambda: None) -> None:
        """Let the broker handle `event` (None: take a turn); returns when its turn is durable and released.

        `check` runs right before the turn and raises ValueError if the event makes no sense then."""
        if self._stopped:
            raise ConnectionAbortedError("the server has stopped")
        done: asyncio.Future[None] = self._loop.create_future()
        self._controls.append((event, check, done))
        self.wake()
        await done

    def stop(self) -> None:
        """No more turns. Waits for a commit under way, whose answers are dropped."""
        self._stopped = True
        self._schedule.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._looking.cancel()
        if self._writer is not None:
            self._writer.stop()
        for _, _, done in self._controls:
            if not done.done():
                done.set_exception(ConnectionAbortedError("the server has stopped"))
        self._controls = []

    # -- a turn, for the schedule

    def begin_soon(self) -> None:
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self._stopped:
            return
        if self._is_ours is not None and not self._is_ours():
            self._loop.call_later(UNSURE_S, self._begin)  # the lease is renewed, or the engine fails
            return
        now = self._clock.now()
        self._note(now)
        if self._looks < LOOKS and self._schedule.is_late(now):
            self._looks += 1
            self._loop.call_soon(self._begin)
            return
        self._looks = 0
        self._began()
        self._budget.begin()
        first = self._take_controls()
        try:
            self._schedule.begin(now, first)
        except Exception as error:
            self._fail(error)

    def _take_controls(self) -> list[Arrived]:
        """Controls go before what arrived: they find what `check` saw, and a shutdown waits for no request."""
        controls, self._controls = self._controls, []
        first: list[Arrived] = []
        for event, check, done in controls:
            try:
                check()
            except ValueError as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if event is not None:
                    first.append(event)
                self._taken.append(done)
        return first

    def commit(self, turn: Turn) -> None:
        if self._writer is None:
            self._storage.commit(turn.operations, self._lease)
            self._schedule.committed()
        else:
            self._writer.commit(turn.operations, self._committed)

    def _committed(self, error: Exception | None) -> None:
        if self._stopped:
            return
        try:
            if error is not None:
                raise error
            self._schedule.committed()
        except Exception as failure:
            self._fail(failure)

    def release(self, turn: Turn) -> None:
        # A commit proves that the data was ours. A turn without operations is proved by the lease after it.
        if self._is_ours is not None and not turn.operations and not self._is_ours():
            raise Fenced
        if turn.log_level is not None:
            log.set_level(turn.log_level)
        self._deliver(turn.releases)
        if turn.mutes:
            self._mute(turn.mutes)
        if turn.tasks:
            self._hand_out(turn.tasks)
        if turn.reads:
            self._read(turn.reads)
        for complaint in turn.complaints:
            self._told.complaint(complaint)
        for notice in turn.notices:
            self._told.notice(notice)
        taken, self._taken = self._taken, []
        for done in taken:
            if not done.done():
                done.set_result(None)

    def _fail(self, error: Exception) -> None:
        for done in self._taken:
            if not done.done():
                done.set_exception(ConnectionAbortedError(f"the server has failed: {error}"))
        self.stop()
        self._failed(error)

    # -- pauses

    def _look(self) -> None:
        self._looking = self._loop.call_later(LOOK_MS / 1000, self._look)
        if self._is_ours is not None and not self._is_ours():
            return  # it does not serve: that is a pause
        now = self._clock.now()
        self._note(now)
        self._schedule.look(now)

    def _note(self, now: int) -> None:
        if self._clock.is_real:
            self.about_ms = now

    def paused(self, pause: ServerPaused) -> None:
        self._told.pause(pause)

    # -- the one timer

    def wake_at(self, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self._schedule.deadline_reached()


class _BrokerLog:
    """The broker's lines in the server's log."""

    def __init__(self) -> None:
        self._limited = log.LimitedLog()
        self._damage_logged_at: dict[str, float] = {}

    def notice(self, notice: Notice) -> None:
        if notice.is_limited:
            self._limited.info(notice.what, **dict(notice.values))
        else:
            (log.debug if notice.level == "debug" else log.info)(notice.what, **dict(notice.values))

    def pause(self, pause: ServerPaused) -> None:
        self._limited.warning("the server was paused", why=pause.why, members_get_ms=pause.lost_ms)

    def complaint(self, complaint: Complaint) -> None:
        match complaint.kind:
            case "damaged data":
                # A consumer that meets damage fetches it again and again. The log says so once a minute.
                # A line names the offset that a client has asked for, so there may be many of one damaged batch.
                now = time.monotonic()
                known = self._damage_logged_at
                if len(known) >= MOST_DAMAGES:
                    known = {what: at for what, at in known.items() if now - at < COMPLAIN_AGAIN_S}
                    self._damage_logged_at = known
                is_new = now - known.get(complaint.what, -COMPLAIN_AGAIN_S) >= COMPLAIN_AGAIN_S
                if is_new and len(known) < MOST_DAMAGES:
                    known[complaint.what] = now
                    log.error("damaged data", what=complaint.what, **dict(complaint.values))
            case "failed read" | "rebalance held up" | "assignment refused" | "answer refused" | "no dead letters":
                self._limited.warning(complaint.what, **dict(complaint.values))
            case _:
                assert_never(complaint.kind)


class _Writer:
    """The thread that commits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, storage: Storage, lease: Lease) -> None:
        self._loop = loop
        self._storage = storage
        self._lease = lease
        self._queue: SimpleQueue[tuple[Sequence[Operation], Callable[[Exception | None], None]] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="kohort-writer", daemon=True)
        self._worker.start()

    def commit(self, operations: Sequence[Operation], then: Callable[[Exception | None], None]) -> None:
        """`then` is called in the loop's thread, with the error if there was one."""
        self._queue.put((operations, then))

    @property
    def runs(self) -> bool:
        return self._worker.is_alive()

    def stop(self) -> None:
        if self._worker.is_alive():
            self._queue.put(None)
            self._worker.join()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            operations, then = job
            failure: Exception | None = None
            try:
                self._storage.commit(operations, self._lease)
            except Exception as error:
                failure = error
            except BaseException as error:  # the thread must not end, because the turn waits for it
                failure = RuntimeError(f"the writer thread got {error!r}")
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                self._loop.call_soon_threadsafe(then, failure)
