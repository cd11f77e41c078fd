"""Work that would block the turn loop too long: three threads, and a process for assignors of other packages.

Built-in assignors run in a thread: they always end. A second thread searches the topics that match regular expressions;
RE2 releases the interpreter's lock meanwhile. An assignor of another package may raise, loop or crash its process, so
it runs in a worker process (assignor_worker.py), for which the third thread waits. The worker is started for its first
task, and killed when an answer takes too long; the next task starts another one. Each thread does its tasks in their
order.

Every task has an outcome, which arrives as an event; otherwise the group would wait for it for ever. A task that fails
for want of the system's means (files, threads) is tried again, with growing pauses and a line in the log. Any other
error, and one that stays, is raised in the event loop, where it stops the process as any bug does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import IO, Generic, TypeVar

from kohort.broker.turn import Arrived, HandedOut, TaskDone
from kohort.coordinator.assignors.check import Result, assigned, checked
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.events import AssignmentAsked, AssignmentMade, Millis, PatternsAsked, PatternsResolved
from kohort.coordinator.patterns.regex import search
from kohort.server import log
from kohort.server.assignor_worker import Answer, Question, read_frame, write_frame

T = TypeVar("T")

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Before the second and later attempts of a task; and the first one before another attempt to start a thread."""
LONG_S = 0.005
RESTS = 5
LONGEST_REST_S = 0.25
"""After more than LONG_S of CPU, in one task or in several with short waits between, a thread rests for RESTS times as
long: the event loop needs the interpreter's lock, and the processor, and one task after the other would make it two to
three times as slow."""


class OffLoop:
    def __init__(self, arrive: Callable[[Arrived], None], plugin_timeout_ms: Millis) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrive = arrive
        self._plugins = _Plugins(plugin_timeout_ms)
        self._own = TaskThread("kohort-assign", self._assign, self._failed)
        self._others = TaskThread("kohort-plugins", self._ask_plugin, self._failed)
        self._patterns = TaskThread("kohort-patterns", self._resolve, self._failed)

    def start(self, tasks: Sequence[HandedOut]) -> None:
        for handed_out in tasks:
            shard, task = handed_out.shard, handed_out.task
            if isinstance(task, PatternsAsked):
                self._patterns.put(shard, task)
            elif task.assignor in BUILT_IN:
                self._own.put(shard, task)
            else:
                self._others.put(shard, task)

    def stop(self) -> None:
        """Outcomes that are not there yet are dropped."""
        self._own.stop()
        self._others.stop()
        self._patterns.stop()
        # A thread that returns from RE2 after the interpreter has ended crashes the process.
        self._patterns.join()
        self._plugins.stop()

    def _assign(self, shard: int, task: AssignmentAsked) -> None:
        self._made(shard, task, assigned(BUILT_IN[task.assignor], task.spec))

    def _ask_plugin(self, shard: int, task: AssignmentAsked) -> None:
        self._made(shard, task, self._plugins.ask(task))

    def _made(self, shard: int, task: AssignmentAsked, result: Result) -> None:
        self._done(shard, task.made(result))

    def _resolve(self, shard: int, task: PatternsAsked) -> None:
        self._done(shard, search(task))

    def _done(self, shard: int, event: AssignmentMade | PatternsResolved) -> None:
        self._in_loop(lambda: self._arrive(TaskDone(shard, event)))

    def _failed(self, bug: Exception) -> None:
        def raise_it() -> None:
            if isinstance(bug, OSError):  # which the loop's handler takes for trouble with the network
                raise RuntimeError(f"a task outside of the event loop fails: {bug}") from bug
            raise bug

        self._in_loop(raise_it)

    def _in_loop(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return  # the loop is closed: the server has stopped


class TaskThread(Generic[T]):
    """A thread that does one task after the other. The first task starts it."""

    def __init__(
        self, name: str, work: Callable[[int, T], None], failed: Callable[[Exception], None], rests: int = RESTS
    ) -> None:
        self._name = name
        self._rests = rests
        self._work = work
        self._failed = failed
        self._queue: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def put(self, shard: int, task: T) -> None:
        self._queue.put((shard, task))
        if self._thread is None and self._retry is None:
            self._start()

    def _start(self) -> None:
        self._retry = None
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("a thread cannot be started", thread=self._name, error=str(error), again_in_s=PAUSES_S[0])
            self._retry = self._loop.call_later(PAUSES_S[0], self._start)
        else:
            self._thread = thread

    def stop(self) -> None:
        """Tasks that wait are dropped."""
        self._stopped.set()
        self._queue.put(None)
        if self._retry is not None:
            self._retry.cancel()

    def join(self) -> None:
        """Wait for the task under way."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        spent = 0.0
        ended = time.monotonic()
        while (next_one := self._queue.get()) is not None and not self._stopped.is_set():
            spent = max(spent - (time.monotonic() - ended) / self._rests, 0.0)
            began = time.thread_time()
            try:
                self._attempt(*next_one)
            except Exception as error:
                self._failed(error)
            spent += time.thread_time() - began
            if spent > LONG_S:
                self._stopped.wait(min(self._rests * spent, LONGEST_REST_S))
                spent = 0.0
            ended = time.monotonic()

    def _attempt(self, shard: int, task: T) -> None:
        for pause_s in PAUSES_S:
            try:
                self._work(shard, task)
            except OSError as error:
                log.warning("a task is tried again", thread=self._name, error=str(error), again_in_s=pause_s)
                if self._stopped.wait(pause_s):
                    return
            else:
                return
        self._work(shard, task)


class _Plugins:
    """The worker process."""

    def __init__(self, timeout_ms: Millis) -> None:
        self._timeout_ms = timeout_ms
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def ask(self, task: AssignmentAsked) -> Result:
        try:
            process = self._running()
        except OSError as error:  # no memory, no file descriptors
            return f"its process cannot be started: {error}"
        if process is None:
            return "the server stops"
        late = threading.Event()
        timer = threading.Timer(self._timeout_ms / 1000, self._give_up, (process, late))
        timer.daemon = True
        try:
            timer.start()
            write_frame(_pipe(process.stdin), Question(task.assignor, task.spec))
            answer = read_frame(_pipe(process.stdout), Answer)
        except Exception as error:  # a broken pipe, bytes that are not an answer, or no thread for the timer
            answer = None
            why = f"{type(error).__name__}: {error}"
        else:
            why = "its process has ended"
        finally:
            timer.cancel()
        if answer is None:
            process.kill()
            process.wait()
            return f"no answer in {self._timeout_ms} ms" if late.is_set() else why
        return answer.why or checked(task.spec, answer.assignment)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                for pipe in (self._process.stdin, self._process.stdout):
                    _pipe(pipe).close()

    def _running(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopped:
                return None
            if self._process is None or self._process.poll() is not None:
                command = [sys.executable, "-m", "kohort.server.assignor_worker"]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return self._process

    def _give_up(self, process: subprocess.Popen[bytes], late: threading.Event) -> None:
        late.set()
        process.kill()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
