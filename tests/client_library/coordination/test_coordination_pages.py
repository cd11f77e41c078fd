"""The programs of coordinator.md, leader-election.md and work-sharding.md run unchanged, except for the address."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import Any

import pytest
from page_programs import definitions
from running_tasks import running, until, wait_until

from kohort.client import Closed


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
    page = definitions("how-to/leader-election.md", three_brokers.bootstrap_servers, 1, of=3)
    printed = Printed(capsys)
    async with running(page["main"]()) as [first]:
        await until(lambda: len(printed) == 1)
        async with running(page["main"]()):
            first.cancel()
            await until(lambda: len(printed) == 2)
    tokens = [int(re.findall(r"term (\d+)", line)[0]) for line in printed.lines]
    assert tokens[0] < tokens[1]


async def test_the_crawlers_that_share_sites(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/work-sharding.md", three_brokers.bootstrap_servers, 1, of=2)
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


def in_threads(page: dict[str, Any], call: str, count: int) -> tuple[list[Any], list[threading.Thread]]:
    """Runs the page's `main` in threads. Returns the members that `call` makes, and the threads."""
    members: list[Any] = []
    made = page[call]

    def make(*arguments: Any) -> Any:
        members.append(made(*arguments))
        return members[-1]

    def main() -> None:
        with contextlib.suppress(Closed):
            page["main"]()

    page[call] = make
    threads = [threading.Thread(target=main, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
        wait_until(lambda: len(members) > threads.index(thread))  # noqa: B023  # called in this turn of the loop
    return members, threads


def test_the_nightly_report_of_a_thread(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/leader-election.md", three_brokers.bootstrap_servers, 2, of=3)
    printed = Printed(capsys)
    elections, threads = in_threads(page, "blocking_lead", 2)
    wait_until(lambda: len(printed) == 1)
    leader = next(election for election in elections if election.term is not None)
    leader.close()
    wait_until(lambda: len(printed) == 2)
    for election in elections:
        election.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    tokens = [int(re.findall(r"term (\d+)", line)[0]) for line in printed.lines]
    assert tokens[0] < tokens[1]


def test_the_nightly_report_of_a_scheduler(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/leader-election.md", three_brokers.bootstrap_servers, 3, of=3)
    page["job"]()
    page["begin"]()
    wait_until(lambda: page["election"].term is not None)
    page["job"]()
    page["end"]()
    page["job"]()
    assert len(Printed(capsys)) == 1


def test_the_crawlers_that_share_sites_in_threads(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = definitions("how-to/work-sharding.md", three_brokers.bootstrap_servers, 2, of=2)
    printed = Printed(capsys)
    workers, threads = in_threads(page, "blocking_shards", 2)
    wait_until(lambda: sorted(len(worker.shards) for worker in workers) == [2, 3])
    workers[0].close()
    wait_until(lambda: len(workers[1].shards) == 5)
    workers[1].close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(printed)
    taken = [line for line in printed.lines if "mine" in line]
    assert len(taken) == len(printed.lines) - len(taken), "what was taken was given up"
