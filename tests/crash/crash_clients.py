"""The worker processes (`crash_worker.py`): sends requests to all of them and merges their answers by group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ANSWER_S = 20.0
PARTITIONS = 6


class WorkerProcess:
    """A script of this folder: its argument is a JSON object, it prints a JSON document a line, and ends with its
    stdin."""

    def __init__(self, script: str, options: dict[str, Any], log: Path | None) -> None:
        with log.open("a") if log is not None else open(os.devnull, "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name(script)), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                if line.endswith("\n"):  # one that is killed may leave a part of a line
                    self.take(json.loads(line))

    def take(self, said: Any) -> None:
        """A line of the process, in the thread that reads them."""
        raise NotImplementedError

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)


class Worker(WorkerProcess):
    def __init__(self, options: dict[str, Any]) -> None:
        self.number: int = options["number"]
        self._said: dict[int, list[dict[str, Any]]] = {}
        self._changed = threading.Condition()
        super().__init__("crash_worker.py", options, None)

    def take(self, said: Any) -> None:
        with self._changed:
            self._said = {said["report"]: said["members"]}
            self._changed.notify_all()

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self, number: int) -> list[dict[str, Any]]:
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._said, ANSWER_S):
                raise AssertionError(f"worker {self.number} said nothing for {ANSWER_S} s")
            return self._said[number]


@dataclass(slots=True)
class GroupView:
    """The reports of a group's members at one moment, one entry for each worker."""

    members: dict[int, dict[str, Any]] = field(default_factory=dict)

    def is_shared_out(self) -> bool:
        """All members are in one generation, each partition has one owner, and every owner knows its position."""
        held = sorted(p for member in self.members.values() for p in member["assigned"])
        return (
            held == list(range(PARTITIONS))
            and len({member["generation"] for member in self.members.values()}) == 1
            and not any(member["unread"] for member in self.members.values())
        )

    def shares(self) -> dict[int, tuple[Any, ...]]:
        """The owners, and how often they have changed."""
        keys = ("member", "generation", "assigned", "assigns", "revokes", "fatals")
        return {number: tuple(member[key] for key in keys) for number, member in self.members.items()}

    def acks(self) -> dict[int, int]:
        """Acknowledged commits of each partition by its owners."""
        return {
            partition: member["places"][str(partition)]["acks"]
            for member in self.members.values()
            for partition in member["assigned"]
            if str(partition) in member["places"]
        }


class Workers:
    def __init__(self, count: int, options: dict[str, Any]) -> None:
        self._options = options
        self._reports = 0
        self.workers = [Worker({**options, "number": number}) for number in range(count)]

    def ask(self) -> dict[str, GroupView]:
        """The present reports of all members, by group."""
        self._reports += 1
        for worker in self.workers:
            worker.tell("report", self._reports)
        views: dict[str, GroupView] = {group["name"]: GroupView() for group in self._options["groups"]}
        for worker in self.workers:
            for member in worker.answer(self._reports):
                views[member["group"]].members[worker.number] = member
        return views

    def tell(self, word: str) -> None:
        for worker in self.workers:
            worker.tell(word)

    def replace(self, number: int) -> None:
        """kill -9 of a worker; another one takes its place."""
        self.workers[number].kill()
        self.workers[number] = Worker({**self._options, "number": number})

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()


def acks_of(views: dict[str, GroupView]) -> int:
    return sum(member["acks"] for view in views.values() for member in view.members.values())


def wait_until(condition: Any, limit_s: float, what: str, every_s: float = 0.1) -> float:
    """Seconds until it was true."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise AssertionError(f"not within {limit_s:.0f} s: {what}")
        time.sleep(every_s)
    return time.monotonic() - began
