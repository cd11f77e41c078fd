"""The programs of coordinator.md, leader-election.md and work-sharding.md run unchanged, except for the address."""

from __future__ import annotations

import re
from typing import Any

import pytest
from page_programs import definitions
from running_tasks import running, until


class Printed:
    """The lines that were printed so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.lines: list[str] = []

    def __len__(self) -> int:
        self.lines += self.capsys.readouterr().out.splitlines()
        return len(self.lines)


async def test_the_crawlers_of_the_coordinator(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/coordinator.md", three_brokers.bootstrap_servers)
    crawlers: list[Any] = []

    class Known(page["Crawler"]):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            crawlers.append(self)

    page["Crawler"] = Known
    async with running(page["main"](), page["main"]()) as tasks:
        await until(lambda: sorted(len(crawler.sites) for crawler in crawlers) == [2, 2])
        assert sorted(site for crawler in crawlers for site in crawler.sites) == page["SITES"]
        tasks[0].cancel()
        await until(lambda: len(crawlers[1].sites) == 4)
    assert "I crawl a.example" in capsys.readouterr().out


async def test_the_nightly_report(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/leader-election.md", three_brokers.bootstrap_servers)
    printed = Printed(capsys)
    async with running(page["main"]()) as [first]:
        await until(lambda: len(printed) == 1)
        async with running(page["main"]()):
            first.cancel()
            await until(lambda: len(printed) == 2)
    tokens = [int(re.findall(r"term (\d+)", line)[0]) for line in printed.lines]
    assert tokens[0] < tokens[1]


async def test_the_crawlers_that_share_sites(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/work-sharding.md", three_brokers.bootstrap_servers)
    printed = Printed(capsys)
    async with running(page["main"]()) as [first]:
        await until(lambda: len(printed) == 5)
        async with running(page["main"]()):
            await until(lambda: len(printed) == 9)  # two are given up, and taken
            first.cancel()
            await until(lambda: len(printed) == 15)  # three are given up, and taken
    tokens: dict[str, int] = {}
    for line in printed.lines:
        item, _, token = line.partition(": mine, with token ")
        if token:
            assert int(token) > tokens.get(item, 0)
            tokens[item] = int(token)
    assert set(tokens) == set(page["SITES"])
