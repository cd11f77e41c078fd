"""Our consumers and librdkafka's share a group, in both protocols: every record is read once; one of ours is killed."""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

import pytest
from shared_readers import PARTITIONS, Librdkafka, Ours, Program, Records, share, shared, until

from kohort.testing import KohortServer

pytestmark = pytest.mark.client

CLASSIC = {"group_protocol": "classic"}
KINDS = {
    "range": ({**CLASSIC, "assignors": ("range",)}, {"partition.assignment.strategy": "range"}),
    "cooperative-sticky": (
        {**CLASSIC, "assignors": ("cooperative-sticky",)},
        {"partition.assignment.strategy": "cooperative-sticky"},
    ),
    "KIP-848": ({"group_protocol": "consumer"}, {"group.protocol": "consumer"}),
    "mixed": ({"group_protocol": "consumer"}, {"partition.assignment.strategy": "cooperative-sticky"}),
}


@pytest.mark.parametrize("first", ["ours", "librdkafka"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_read_once(kohort_server: KohortServer, kind: str, first: str) -> None:
    servers, name = kohort_server.bootstrap_servers, f"g-{uuid.uuid4()}"
    records = Records(servers, name)

    async def story() -> None:
        mine, theirs = KINDS[kind]
        readers = [Ours(servers, name, [name], **mine), Librdkafka(servers, name, name, **theirs)]
        await share(records, readers if first == "ours" else readers[::-1])

    asyncio.run(story())


KILLED = """
import asyncio, contextlib, sys
from kohort.client import NotOwned
from working_consumer import Working

class Told(Working):
    async def read(self):
        await super().read()
        if self.positions:
            with contextlib.suppress(NotOwned):  # given up meanwhile
                await self.commit(dict(self.positions))
        print("owns", *(index for _, index in self.positions), flush=True)
        if self.values:
            print("read", *(value.decode() for value in self.values), flush=True)
        self.values.clear()

servers, group, protocol = sys.argv[1:]
member = Told(servers, group, [group], group_protocol=protocol, session_timeout_ms=3_000, heartbeat_interval_ms=200)
asyncio.run(member.run())
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_killed_member_is_replaced_when_its_session_is_over(protocol: str) -> None:
    settings = {"group_min_session_timeout_ms": 100, "group_consumer_min_session_timeout_ms": 100}
    settings |= {"group_consumer_session_timeout_ms": 3_000, "group_consumer_min_heartbeat_interval_ms": 100}
    settings |= {"group_consumer_heartbeat_interval_ms": 200}
    with KohortServer(**settings) as server:
        servers, name = server.bootstrap_servers, "g"
        records = Records(servers, name)
        paths = [Path(__file__).parents[2] / "src", Path(__file__).parents[1] / "client_library"]
        code = f"import sys; sys.path[:0] = {[str(path) for path in paths]}\n{KILLED}"
        killed = Program(sys.executable, "-c", code, servers, name, protocol)

        async def story() -> None:
            survivor = Ours(
                servers, name, [name], group_protocol=protocol, session_timeout_ms=3_000, heartbeat_interval_ms=200
            )
            tasks = [asyncio.create_task(member.run()) for member in (killed, survivor)]
            try:
                await until(shared([killed, survivor]), "shared", tasks)
                await records.write(140)
                await until(lambda: len(killed.values) + len(survivor.values) >= 140, "read", tasks)
                killed.kill()
                await records.write(140)
                await until(lambda: len(survivor.held) == PARTITIONS, "it has all", tasks)
                await until(lambda: len(set(survivor.values)) + len(killed.values) >= 280, "all is read", tasks)
            finally:
                killed.kill()
                tasks[1].cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert {*survivor.values, *killed.values} == {b"%d" % n for n in range(280)}

        asyncio.run(story())
