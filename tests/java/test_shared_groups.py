"""A group shared by our consumer, librdkafka's and Java's, each leading in turn: every record is read once."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from shared_readers import Librdkafka, Ours, Records, share

from kohort.testing import KohortServer

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

CLASSES = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}
ORDERS = {"ours": (0, 1, 2), "librdkafka": (1, 2, 0), "java": (2, 0, 1)}


class Java:
    def __init__(self, classpath: str, *arguments: str) -> None:
        self.held: set[int] = set()
        self.values: list[bytes] = []
        self._command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath]
        self._command += ["SharedConsumer", *arguments]

    async def run(self) -> None:
        """Until it is cancelled; then it leaves."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        hearing = asyncio.create_task(self._hear(process))
        try:
            await asyncio.shield(hearing)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await hearing
            await process.wait()

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            what, *rest = line.split()
            assert what in (b"owns", b"read"), line
            if what == b"read":
                self.values += rest
            else:
                self.held = set(map(int, rest))


@pytest.mark.parametrize("first", ORDERS)
@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "KIP-848"])
def test_a_group_shared_three_ways(classpath: str, server: KohortServer, kind: str, first: str) -> None:
    servers, name = server.bootstrap_servers, f"g-{uuid.uuid4()}"
    records = Records(servers, name)

    async def story() -> None:
        readers: list[Any]
        if kind == "KIP-848":
            readers = [
                Ours(servers, name, [name], group_protocol="consumer"),
                Librdkafka(servers, name, name, **{"group.protocol": "consumer"}),
                Java(classpath, servers, name, name, "consumer"),
            ]
        else:
            readers = [
                Ours(servers, name, [name], group_protocol="classic", assignors=(kind,)),
                Librdkafka(servers, name, name, **{"partition.assignment.strategy": kind}),
                Java(classpath, servers, name, name, "classic", CLASSES[kind]),
            ]
        led: list[bool] = []
        order = [readers[n] for n in ORDERS[first]]
        await share(records, order, lambda: led.append(readers[0].leads))
        if kind != "KIP-848":
            # The oldest member leads: ours does in its turn, and only then.
            turn = order.index(readers[0])
            assert led[turn]
            assert not any(led[:turn])

    asyncio.run(story())
