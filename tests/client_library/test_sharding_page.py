"""docs/work-sharding.md: its program runs as it stands, but for the address."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from recording_coordinator import until

PAGE = Path(__file__).parents[2] / "docs" / "work-sharding.md"


def test_the_crawlers(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", three_brokers.bootstrap_servers), page)
    printed: list[str] = []

    def written() -> list[str]:
        printed.extend(capsys.readouterr().out.splitlines())
        return printed

    async def story() -> None:
        first = asyncio.create_task(page["main"]())
        await until(lambda: len(written()) == 5)
        second = asyncio.create_task(page["main"]())
        await until(lambda: len(written()) == 9)  # two are given up, and taken
        first.cancel()
        await until(lambda: len(written()) == 15)  # three are given up, and taken
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    asyncio.run(story())
    tokens: dict[str, int] = {}
    for line in printed:
        item, _, token = line.partition(": mine, with token ")
        if token:
            assert int(token) > tokens.get(item, 0)
            tokens[item] = int(token)
    assert set(tokens) == set(page["SITES"])
