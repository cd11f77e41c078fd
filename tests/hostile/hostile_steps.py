"""What holds a server's event loop: run in the server's process by `python tests/hostile --steps`, and read by it.

Each part of the work is timed by the CPU that its thread took and by the wall clock. The CPU of the longest part says
how long all other clients had to wait for it; it hardly depends on what else the machine does. What differs between
the two is waiting: for the interpreter's lock, the disk, or the processor.

Parts nest: a turn has requests in it, and these have encodings. `handle`, `steps` and `answer fetch` name the request.
"""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

BEFORE = "import sys; sys.path.insert(0, {directory!r}); import hostile_steps; hostile_steps.begin({report!r}); "
"""What the server's process runs first."""


@dataclass(slots=True)
class Part:
    count: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    longest_cpu_s: float = 0.0
    longest_wall_s: float = 0.0


class Steps:
    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}

    def note(self, name: str, cpu_s: float, wall_s: float) -> None:
        part = self.parts.get(name)
        if part is None:
            part = self.parts[name] = Part()
        part.count += 1
        part.cpu_s += cpu_s
        part.wall_s += wall_s
        part.longest_cpu_s = max(part.longest_cpu_s, cpu_s)
        part.longest_wall_s = max(part.longest_wall_s, wall_s)

    def time(self, owner: Any, method: str, name: Callable[..., str]) -> None:
        """Time each call of a method. `name` gets its arguments."""
        timed = getattr(owner, method)

        @wraps(timed)
        def call(*given: Any, **named: Any) -> Any:
            cpu, wall = time.thread_time(), time.perf_counter()
            what = name(*given)
            try:
                return timed(*given, **named)
            finally:
                self.note(what, time.thread_time() - cpu, time.perf_counter() - wall)

        setattr(owner, method, call)


def begin(report: str) -> None:
    """Time what the server of this process does. The report is a line of JSON for each moment at which the file
    REPORT.ask is there."""
    import os

    os.environ["KOHORT_PURE"] = "1"  # compiled modules call each other directly
    from kohort.broker import broker
    from kohort.broker.apis import APIS
    from kohort.broker.broker import Broker
    from kohort.broker.group_shards import GroupShards
    from kohort.broker.state import BrokerState
    from kohort.broker.upkeep import Upkeep
    from kohort.broker.works import Works
    from kohort.server import off_loop, reading, turns
    from kohort.server.connection import Connection
    from kohort.server.connections import Connections
    from kohort.storage.checkpoint import Checkpointer
    from kohort.storage.sqlite import SqliteStorage

    steps = Steps()

    def api(key: int) -> str:
        return APIS[key].name if key in APIS else f"API {key}"

    def fixed(name: str) -> Callable[..., str]:
        return lambda *given: name

    steps.time(Broker, "step", fixed("turn"))
    steps.time(Broker, "at_once", fixed("at once"))
    steps.time(Broker, "_take", lambda _, event: f"event {type(event).__name__}")
    steps.time(Broker, "_handle", lambda _, connection, frame: f"handle {api(int.from_bytes(frame[:2], 'big'))}")
    steps.time(Broker, "_answer_fetch", fixed("answer fetch"))
    steps.time(Broker, "_serve_deadlines", fixed("deadlines"))
    steps.time(Broker, "_send", lambda _, connection, context, *rest: f"encode {api(context.api_key)}")
    steps.time(Upkeep, "step", fixed("upkeep"))
    steps.time(GroupShards, "tell_topics", fixed("tell topics"))
    steps.time(broker, "write_journal", fixed("journal"))
    steps.time(BrokerState, "end_turn", fixed("end of turn"))
    steps.time(Connections, "deliver", fixed("deliver"))
    steps.time(Connections, "_sweep", fixed("sweep"))
    steps.time(Connection, "data_received", fixed("data received"))
    steps.time(Connection, "connection_made", fixed("connection made"))
    steps.time(SqliteStorage, "commit", fixed("commit (writer)"))
    steps.time(Checkpointer, "_checkpoint", fixed("checkpoint (thread)"))
    steps.time(reading.Reading, "_read", fixed("read (thread)"))
    steps.time(off_loop.OffLoop, "_assign", fixed("assign (thread)"))
    steps.time(off_loop.OffLoop, "_resolve", fixed("patterns (thread)"))

    go_on = Works.go_on

    def timed_go_on(works: Any, connection: Any, most: int, is_over: Callable[[], bool]) -> Any:
        """Each step by itself."""
        name = f"one step of {api(connection.work.context.api_key)}"
        begun = [time.thread_time(), time.perf_counter()]

        def note_step() -> None:
            cpu, wall = time.thread_time(), time.perf_counter()
            steps.note(name, cpu - begun[0], wall - begun[1])
            begun[:] = cpu, wall

        def asked() -> bool:
            note_step()
            return is_over()

        try:
            return go_on(works, connection, most, asked)
        finally:
            note_step()

    Works.go_on = timed_go_on  # type: ignore[method-assign]

    asked_at = threading.local()
    verdict = turns.Budget.verdict

    def timed_verdict(budget: Any) -> int:
        cpu, wall = time.thread_time(), time.perf_counter()
        began = getattr(asked_at, "last", None)
        if began is not None:
            steps.note("between two looks at the clock", cpu - began[0], wall - began[1])
        asked_at.last = (cpu, wall)
        return verdict(budget)

    turns.Budget.verdict = timed_verdict  # type: ignore[method-assign]
    begin_turn = turns.TurnLoop._begin

    def timed_begin(loop: Any) -> None:
        asked_at.last = (time.thread_time(), time.perf_counter())
        begin_turn(loop)
        asked_at.last = None

    turns.TurnLoop._begin = timed_begin  # type: ignore[method-assign]

    collecting: list[float] = []

    def collected(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            collecting[:] = time.thread_time(), time.perf_counter()
        elif collecting:
            name = f"collector, generation {info['generation']}"
            steps.note(name, time.thread_time() - collecting[0], time.perf_counter() - collecting[1])

    gc.callbacks.append(collected)
    threading.Thread(target=_serve_reports, args=(steps, Path(report)), daemon=True).start()


def _serve_reports(steps: Steps, report: Path) -> None:
    ask = report.with_suffix(".ask")
    while True:
        if ask.exists():
            parts, steps.parts = steps.parts, {}
            told = {
                name: [part.count, part.cpu_s, part.wall_s, part.longest_cpu_s, part.longest_wall_s]
                for name, part in parts.items()
            }
            with report.open("a") as out:
                out.write(json.dumps(told) + "\n")
            ask.unlink()
        time.sleep(0.02)


def ask(report: Path, limit_s: float = 10.0) -> dict[str, list[float]]:
    """What the server has done since the last question."""
    question = report.with_suffix(".ask")
    question.touch()
    until = time.monotonic() + limit_s
    while question.exists():
        if time.monotonic() > until:
            raise AssertionError("the server does not report its steps")
        time.sleep(0.01)
    told: dict[str, list[float]] = json.loads(report.read_text().splitlines()[-1])
    return told


def table(told: dict[str, list[float]], at_least_ms: float = 0.5) -> list[str]:
    """Lines for the parts whose longest took this long, the longest first."""
    lines = [f"    {'longest: CPU ms':>16} {'wall ms':>8} {'all: CPU ms':>12} {'wall ms':>8} {'times':>8}"]
    for name, (count, cpu_s, wall_s, longest_cpu_s, longest_wall_s) in sorted(told.items(), key=lambda row: -row[1][3]):
        if max(longest_cpu_s, longest_wall_s) * 1000 >= at_least_ms:
            lines.append(
                f"    {1000 * longest_cpu_s:16.1f} {1000 * longest_wall_s:8.1f} {1000 * cpu_s:12.0f} "
                f"{1000 * wall_s:8.0f} {count:8.0f}  {name}"
            )
    return lines
