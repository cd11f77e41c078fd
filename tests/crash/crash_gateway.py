"""`kohort gateway` before a `kohort serve`, in place of a `CrashServer`. A kill hits one of the two, or both."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from crash_server import READY_S, CrashServer, free_port

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError

FAULTS = ("gateway", "upstream", "both")


class CrashGateway(CrashServer):
    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        super().__init__(directory / "gateway", directory / "server.log", settings)
        self._upstream = CrashServer(directory / "upstream", directory / "upstream.log", {"log.format": "logfmt"})
        self._broker_port = free_port()
        self._chance = random.Random()
        self.faults: Counter[str] = Counter()

    def _words(self) -> list[str]:
        where = ["--listen", self.address, "--broker-ports", str(self._broker_port)]
        return ["gateway", "--upstream", self._upstream.address, *where]

    def spawn(self, before: str = "") -> None:
        """Starts the one that does not run."""
        if not self._upstream.is_running():
            self._upstream.spawn()
        if not super().is_running():
            super().spawn(before)

    def wait_ready(self) -> None:
        """Until requests for the upstream pass."""
        self._upstream.wait_ready()
        end = time.monotonic() + READY_S
        while True:
            with suppress(KafkaError), Cluster(self.address) as cluster:
                cluster.topics()
                break
            assert time.monotonic() < end, f"the gateway does not serve; its log is {self._log}"
            time.sleep(0.02)
        self.ready_at = time.monotonic()

    def is_running(self) -> bool:
        return super().is_running() and self._upstream.is_running()

    def kill(self) -> None:
        fault = self._chance.choice(FAULTS) if self.is_ready else "both"
        self.faults[fault] += 1
        if fault != "upstream":
            super().kill()
        if fault != "gateway":
            self._upstream.kill()
        self.kills += fault == "upstream"
        self.ready_at = 0.0

    def stop(self) -> None:
        super().stop()
        self._upstream.stop()
