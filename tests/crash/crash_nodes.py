"""`kohort serve` as nodes on one PostgreSQL, in place of a `CrashServer`: one node, or one that serves and stand-bys.

A kill hits the node that serves, or, if none does, the one that was started last. It is started again as a stand-by,
while another one takes over. With several nodes a kill may be another fault, after which a node must be deposed and end
by itself: its process stands still, or it is cut off from the database, with or without a closed connection.

With `blips` the connections to the database are closed all the time, each time after some answers of the database were
lost: many commits have an unknown outcome."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from crash_proxy import Proxy
from crash_server import PROGRAM, READY_S, CrashServer, free_port
from postgres_server import USER, PostgresServer

LEASES = {"broker.session.timeout.ms": "2500", "broker.heartbeat.interval.ms": "400"}
"""Shorter than the sessions of the members, so that members keep what they have over a takeover."""

DATABASE = "crash"
DEPOSED = 75
"""The exit code."""
KNOWN_S = 3.0
"""A renewal, and the metadata that clients get every two seconds."""


class CrashNodes(CrashServer):
    def __init__(
        self, postgres: PostgresServer, count: int, log: Path, settings: dict[str, str], *, blips: bool = False
    ) -> None:
        super().__init__(Path(), log, settings | LEASES)
        self._url = postgres.create(DATABASE)
        self._proxies = [Proxy(postgres.folder) for _ in range(count)]
        self._chance = random.Random()
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self._ends = threading.Event()
        self._blips = threading.Thread(target=self._blip, daemon=True)
        if blips:
            self._blips.start()
        self._ports = [free_port() for _ in range(count)]
        self._nodes: list[subprocess.Popen[str] | None] = [None] * count
        self._serving: int | None = None
        self._stands_by: dict[int, float] = {}
        """Since when these nodes stand by."""
        self._started = 0

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def spawn(self, before: str = "") -> None:
        """Starts every node that does not run."""
        for number, node in enumerate(self._nodes):
            if node is None or node.poll() is not None:
                self._nodes[number] = self._spawned(number, before)
                self._started = number

    def _spawned(self, number: int, before: str) -> subprocess.Popen[str]:
        settings = self._settings | {"broker.id": str(number + 1)}
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with self._log.open("a") as errors:
            node = subprocess.Popen(
                [sys.executable, "-c", before + PROGRAM, "serve"]
                + ["--storage", f"postgresql://{USER}@127.0.0.1:{self._proxies[number].port}/{DATABASE}"]
                + ["--listeners", f"127.0.0.1:{self._ports[number]}", *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._watch, args=(number, node), daemon=True).start()
        return node

    def _watch(self, number: int, node: subprocess.Popen[str]) -> None:
        assert node.stdout is not None
        with node.stdout, self._log.open("a", buffering=1) as log:
            for line in node.stdout:
                log.write(f"node={number + 1} {line}")
                if "waiting as a stand-by" in line:
                    self._stands_by[number] = time.monotonic()
                if "kohort is ready" in line:
                    self._stands_by.pop(number, None)
                    self._serving = number
                    self.ready_at = time.monotonic()

    def wait_ready(self) -> None:
        end = time.monotonic() + READY_S
        while not self.is_ready:
            assert time.monotonic() < end, f"no node serves; their log is {self._log}"
            time.sleep(0.01)

    def is_running(self) -> bool:
        """Nodes that have been deposed end by themselves."""
        return any(node is not None and node.poll() is None for node in self._nodes)

    def kill(self) -> None:
        if self._serving is not None:
            self._wait_until_known()
        number = self._started if self._serving is None else self._serving
        node = self._nodes[number]
        assert node is not None
        fault = "kill"
        if self._serving is not None and len(self._nodes) > 1:
            fault = self._chance.choice(("kill", "kill", "stop", "cut", "hang"))
        self.ready_at, self._serving = 0.0, None
        self._stands_by.pop(number, None)
        self.kills += 1
        self.faults[fault] += 1
        match fault:
            case "kill":
                node.send_signal(signal.SIGKILL)
                node.wait()
            case "stop":
                node.send_signal(signal.SIGSTOP)
                self._depose(number, node, lambda: node.send_signal(signal.SIGCONT))
            case "cut":
                self._proxies[number].cut()
                self._depose(number, node, self._proxies[number].heal)
            case "hang":
                self._proxies[number].hang()
                self._depose(number, node, self._proxies[number].heal)

    def _depose(self, number: int, node: subprocess.Popen[str], heal: Callable[[], None]) -> None:
        """When another node serves, the fault ends, and the node must end too."""

        def watch() -> None:
            while not self.is_ready and not self._ends.wait(0.01):
                pass
            self._ends.wait(self._chance.uniform(0, 1))
            heal()
            try:
                code = node.wait(READY_S)
            except subprocess.TimeoutExpired:
                code = 0
            if code not in (DEPOSED, -signal.SIGKILL) and not self._ends.is_set():
                self.violations.append(f"node {number + 1} was deposed and ended with {code}")
            if not self._ends.is_set():
                self.spawn()

        threading.Thread(target=watch, daemon=True).start()

    def _blip(self) -> None:
        while not self._ends.wait(self._chance.uniform(0.5, 4)):
            serving = self._serving
            if serving is not None:
                self._proxies[serving].blip(self._chance.uniform(0, 0.1))
                self.faults["blip"] += 1

    def _wait_until_known(self) -> None:
        """A client that never asks its bootstrap servers again must have learned of the node that takes over."""
        end = time.monotonic() + READY_S
        while len(self._stands_by) < len(self._nodes) - 1 or any(
            time.monotonic() - since < KNOWN_S for since in self._stands_by.values()
        ):
            assert time.monotonic() < end, f"no node stands by; their log is {self._log}"
            self.spawn()  # what a blip has deposed
            time.sleep(0.05)

    def stop(self) -> None:
        self._ends.set()
        for node in self._nodes:
            if node is not None and node.poll() is None:
                node.kill()
                node.wait()
        for proxy in self._proxies:
            proxy.close()
        if self.violations:
            raise AssertionError("; ".join(self.violations))

    def logs(self) -> tuple[int, int]:
        with psycopg.connect(self._url) as connection:
            row: Any = connection.execute(
                "SELECT sum(ends), sum(size) FROM (SELECT max(last_offset) + 1 AS ends, sum(octet_length(data)) "
                "AS size FROM kohort.batch GROUP BY log) AS of_logs"
            ).fetchone()
        return int(row[0]), int(row[1])
