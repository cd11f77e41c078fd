"""Work that would take the turn loop too long: two threads, and a process for the code of others.

Assignors that are built in run in a thread of their own: they are known to end. One that another package brings may
raise, loop or take the process with it, so it runs in a worker process (assignor_worker.py). That is started when it is
first needed, and killed when an answer takes too long; the next task starts another. In each thread one task follows
the other, in the order in which they were handed out.

Every task has an outcome, and it arrives as any other event does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import IO

from kohort.broker.turn import Arrived, HandedOut, TaskDone
from kohort.coordinator.assignors.check import Result, assigned, checked
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.events import AssignmentAsked, AssignmentMade, Millis
from kohort.server.assignor_worker import Answer, Question, read_frame, write_frame


class OffLoop:
    def __init__(self, arrive: Callable[[Arrived], None], plugin_timeout_ms: Millis) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrive = arrive
        self._plugins = _Plugins(plugin_timeout_ms)
        self._own = _Line("kohort-assign", self._assign)
        self._others = _Line("kohort-plugins", self._ask_plugin)

    def start(self, tasks: Sequence[HandedOut]) -> None:
        for handed_out in tasks:
            line = self._own if handed_out.task.assignor in BUILT_IN else self._others
            line.put(handed_out)

    def stop(self) -> None:
        """Outcomes that are not there yet never come."""
        self._own.stop()
        self._others.stop()
        self._plugins.stop()

    def _assign(self, handed_out: HandedOut) -> None:
        task = handed_out.task
        self._done(handed_out, assigned(BUILT_IN[task.assignor], task.spec))

    def _ask_plugin(self, handed_out: HandedOut) -> None:
        self._done(handed_out, self._plugins.ask(handed_out.task))

    def _done(self, handed_out: HandedOut, result: Result) -> None:
        task = handed_out.task
        done = TaskDone(handed_out.shard, AssignmentMade(task.group_id, task.epoch, task.assignor, result))
        try:
            self._loop.call_soon_threadsafe(self._arrive, done)
        except RuntimeError:
            return  # the loop is closed: the server has stopped


class _Line:
    """A thread that does one task after the other. It starts with the first one."""

    def __init__(self, name: str, work: Callable[[HandedOut], None]) -> None:
        self._name = name
        self._work = work
        self._queue: SimpleQueue[HandedOut | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, handed_out: HandedOut) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(handed_out)

    def stop(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while (handed_out := self._queue.get()) is not None:
            self._work(handed_out)


class _Plugins:
    """The worker process."""

    def __init__(self, timeout_ms: Millis) -> None:
        self._timeout_ms = timeout_ms
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def ask(self, task: AssignmentAsked) -> Result:
        process = self._running()
        if process is None:
            return "the server stops"
        late = threading.Event()
        timer = threading.Timer(self._timeout_ms / 1000, self._give_up, (process, late))
        timer.daemon = True
        timer.start()
        try:
            write_frame(_pipe(process.stdin), Question(task.assignor, task.spec))
            answer = read_frame(_pipe(process.stdout), Answer)
        except Exception as error:  # a broken pipe, or bytes that are no answer
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
