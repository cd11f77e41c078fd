"""One server, the clients that must not suffer, and hostile ones beside them: what they feel and what is allowed.

`Round` is the life of a server: `base` measures the victims alone, `attack` beside hostile clients, as often as wanted,
and `end` sends SIGTERM while the last ones are still at work, starts the server again, and looks for what it had
acknowledged.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from crash_server import CrashServer
from hostile_steps import BEFORE, ask, table
from hostile_victim import missing

HERE = Path(__file__).parent
KILL_AT_MB = 3_000
"""The server is killed when it takes this much memory: the machine is needed for more."""
ALONE = "(alone)"
ANSWER_S = 60.0
"""A process that says nothing for this long has failed."""
KINDS = ("heartbeat", "commit", "newcomer")


@dataclass(frozen=True, slots=True)
class Limits:
    """Milliseconds beyond the base for the 99th percentile of each kind of request, megabytes, and seconds to the end
    after SIGTERM."""

    heartbeat: float
    commit: float
    newcomer: float
    memory_mb: float = 448.0
    """memory.max.bytes."""
    exit_s: float = 2.0


STRICT = Limits(heartbeat=50.0, commit=100.0, newcomer=500.0)
LENIENT = Limits(heartbeat=3_500.0, commit=3_500.0, newcomer=3_500.0, memory_mb=512.0, exit_s=6.0)
"""For machines that do other work: they find seconds, not milliseconds. Sessions and data are as strict."""


@dataclass(slots=True)
class Figures:
    """What one attack did to the victims. Times in milliseconds."""

    name: str
    p50: dict[str, float]
    p99: dict[str, float]
    slowest: dict[str, float]
    violations: list[str]
    memory_mb: float
    did: dict[str, int] = field(default_factory=dict)
    exit_s: float | None = None
    steps: list[str] = field(default_factory=list)
    """Lines about the parts of the server's work."""

    def exceeds(self, limits: Limits, base: Figures) -> list[str]:
        """What is not within the limits."""
        found = list(self.violations)
        for kind in KINDS:
            beyond = self.p99[kind] - base.p99[kind]
            allowed = getattr(limits, kind)
            if beyond > allowed:
                found.append(f"{kind} p99 is {beyond:.0f} ms beyond the base, {allowed:.0f} are allowed")
        if self.memory_mb > limits.memory_mb:
            found.append(f"the server took {self.memory_mb:.0f} MB, {limits.memory_mb:.0f} are allowed")
        if self.exit_s is not None and self.exit_s > limits.exit_s:
            found.append(f"the server ended {self.exit_s:.1f} s after SIGTERM, {limits.exit_s:.0f} are allowed")
        return found


class Helper:
    """A process of ours that speaks in lines."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self, limit_s: float = ANSWER_S) -> str:
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended, limit_s)
            if not self._lines:
                raise AssertionError(f"{self._process.args!r} said nothing in {limit_s:.0f} s")
            return self._lines.pop(0)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class Memory(threading.Thread):
    """The most memory that a process had resident."""

    def __init__(self, server: CrashServer) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0
        self.killed = False
        self._server = server
        self._pid = server.pid

    def run(self) -> None:
        status = Path(f"/proc/{self._pid}/status")
        while True:
            try:
                lines = status.read_text().splitlines()
            except OSError:
                return
            self.peak_mb = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0) or (
                self.peak_mb
            )
            if self.peak_mb > KILL_AT_MB:
                self.killed = True
                self._server.stop()
                return
            time.sleep(0.05)


class Round:
    def __init__(self, *, steps: bool = False) -> None:
        """`steps`: the server times what it does (hostile_steps.py)."""
        self._directory = Path(tempfile.mkdtemp(prefix="kohort-hostile-"))
        self._server = CrashServer(self._directory / "data", self._directory / "server.log", {})
        self._steps = self._directory / "steps" if steps else None
        self._server.spawn(BEFORE.format(directory=str(HERE), report=str(self._steps)) if steps else "")
        self._helpers: list[Helper] = []
        try:
            self._server.wait_ready()
            self._memory = Memory(self._server)
            self._memory.start()
            self._victim = self._helper("hostile_victim.py")
            self._attacker = self._helper("hostile_attack.py")
            self._victim.answer()
        except BaseException:
            self.close()
            raise
        self._acknowledged: tuple[int, int] = (0, -1)
        self._last_violations: list[str] = []

    def _helper(self, script: str) -> Helper:
        helper = Helper(script, self._server.address)
        self._helpers.append(helper)
        return helper

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        for helper in self._helpers:
            helper.kill()
        self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def base(self, seconds: float) -> Figures:
        self._victim.say("mark")
        time.sleep(seconds)
        return self._figures(ALONE)

    def attack(self, names: Sequence[str], seconds: float, prepare: Sequence[str] = ()) -> Figures:
        """The hostile clients go on for half a second after the measurement, in which `end` may be called. `prepare`:
        clients that attack later. What they need must be there before limits of state are reached."""
        name = " + ".join(names)
        try:
            self._attacker.say(json.dumps({"clients": names, "seconds": seconds + 0.5, "prepare": prepare}))
            self._attacker.answer()
            if self._steps is not None:
                ask(self._steps)
            self._victim.say("mark")
            self._attacker.say("go")
            time.sleep(seconds)
            figures = self._figures(name)
            if self._steps is not None:
                figures.steps = table(ask(self._steps))
            return figures
        except AssertionError as error:
            return self._failed(name, str(error))

    def rest(self, figures: Figures) -> None:
        """Wait for the end of the attack, which must have taken place."""
        try:
            figures.did = json.loads(self._attacker.answer())
        except AssertionError as error:
            figures.violations.append(str(error))
        if not figures.did.get("connections"):
            figures.violations.append(f"the attack failed: {figures.did}")

    def _failed(self, name: str, why: str) -> Figures:
        infinite = dict.fromkeys(KINDS, float("inf"))
        return Figures(name, infinite, infinite, infinite, [why, *self._deaths()], self._memory.peak_mb)

    def _deaths(self) -> list[str]:
        if self._memory.killed:
            return [f"the server took more than {KILL_AT_MB} MB and was killed"]
        return [] if self._server.is_running() else ["the server has ended"]

    def _figures(self, name: str) -> Figures:
        self._victim.say("report")
        report: dict[str, Any] = json.loads(self._victim.answer())
        self._acknowledged = tuple(report["acknowledged"])
        times = {kind: sorted(1_000 * t for t in report["times"][kind]) for kind in KINDS}
        fresh = [violation for violation in report["violations"] if violation not in self._last_violations]
        self._last_violations += fresh

        def quantile(share: float) -> dict[str, float]:
            return {
                k: found[min(int(share * len(found)), len(found) - 1)] if found else 0.0 for k, found in times.items()
            }

        return Figures(name, quantile(0.5), quantile(0.99), quantile(1.0), fresh + self._deaths(), self._memory.peak_mb)

    def end(self, figures: Figures) -> None:
        """SIGTERM, whatever is under way; then what was acknowledged must be there after a start."""
        if not self._server.is_running():
            return
        began = time.monotonic()
        try:
            code = self._server.terminate()
        except subprocess.TimeoutExpired:
            code = None
        figures.exit_s = time.monotonic() - began
        figures.memory_mb = max(figures.memory_mb, self._memory.peak_mb)
        if figures.name != ALONE:
            self.rest(figures)
        for helper in self._helpers:
            helper.kill()
        if code:
            figures.violations.append(f"the server ended with code {code}")
        elif code is None:
            figures.violations.append("SIGTERM had no effect")
            return
        self._server.spawn()
        self._server.wait_ready()
        figures.violations += missing(self._server.address, *self._acknowledged)
