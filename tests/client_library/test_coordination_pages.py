"""docs/coordinator.md, leader-election.md, work-sharding.md: their programs run as they are, but for the address."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from recording_coordinator import until

DOCS = Path(__file__).parents[2] / "docs"


def run(page: str, brokers: Any) -> dict[str, Any]:
    """The definitions of a page's program."""
    [program] = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", brokers.bootstrap_servers), found)
    return found


def test_the_crawlers_of_the_coordinator(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = run("coordinator.md", three_brokers)
    crawlers: list[Any] = []

    class Known(page["Crawler"]):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            crawlers.append(self)

    page["Crawler"] = Known

    async def story() -> None:
        tasks = [asyncio.create_task(page["main"]()) for _ in range(2)]
        await until(lambda: sorted(len(crawler.sites) for crawler in crawlers) == [2, 2])
        assert sorted(site for crawler in crawlers for site in crawler.sites) == page["SITES"]
        tasks[0].cancel()
        await until(lambda: len(crawlers[1].sites) == 4)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    assert "I crawl a.example" in capsys.readouterr().out


def test_the_nightly_report(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = run("leader-election.md", three_brokers)
    printed: list[str] = []

    def written() -> int:
        printed.extend(capsys.readouterr().out.splitlines())
        return len(printed)

    async def story() -> None:
        tasks = [asyncio.create_task(page["main"]())]
        await until(lambda: written() == 1)
        tasks.append(asyncio.create_task(page["main"]()))
        tasks[0].cancel()
        await until(lambda: written() == 2)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    tokens = [int(re.findall(r"term (\d+)", line)[0]) for line in printed]
    assert tokens[0] < tokens[1]


def test_the_crawlers_that_share_sites(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = run("work-sharding.md", three_brokers)
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
