"""docs/consumer.md: its program runs as it stands, but for the address."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from working_consumer import until

from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord

PAGE = Path(__file__).parents[2] / "docs" / "consumer.md"


def test_the_program(three_brokers: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", three_brokers.bootstrap_servers), page)
    consumers: list[Any] = []

    class Known(page["Orders"]):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            consumers.append(self)

    page["Orders"] = Known
    cluster.create_topic("orders", 4)
    for partition in range(4):
        cluster.produce("orders", partition, [NewRecord(None, b"v", 0)] * 25)

    async def story() -> None:
        tasks = [asyncio.create_task(page["main"]())]
        await until(lambda: consumers and len(consumers[0].positions) == 4)
        tasks.append(asyncio.create_task(page["main"]()))
        await until(lambda: [len(consumer.positions) for consumer in consumers] == [2, 2])
        tasks[0].cancel()
        await until(lambda: len(consumers[1].positions) == 4)
        await until(lambda: all(offset == 25 for offset in consumers[1].positions.values()))
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    assert sum(entry.offset for entry in cluster.committed("billing").values()) == 100
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("orders ")]
    assert len(lines) == len(set(lines)) == 100
