"""The pytest plugin: `kohort_server` is a new server for one test, `kohort_server_factory` starts any number.

    def test_orders(kohort_server):
        producer = Producer({"bootstrap.servers": kohort_server.bootstrap_servers})

    def test_moves(kohort_server_factory):
        server = kohort_server_factory(brokers=3, num_partitions=6)

`--kohort-compatibility=kafka`, or `kohort_compatibility = kafka` in pytest's configuration, makes the servers of both
strict: they answer as Apache Kafka (`compatibility` of KohortServer). An argument of the factory goes first.

For a server that several tests share, write your own fixture: `with KohortServer() as server: yield server`.
The plugin imports the server when a test uses it, so it does not slow down the start of pytest.

The report of a failed test has a section with the rebalances of its groups, for each server that still runs then,
whichever fixture started it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.testing.server import KohortServer

BEGAN = pytest.StashKey[dict["KohortServer", int]]()
"""The clocks of the servers that ran when the test began."""


def pytest_addoption(parser: pytest.Parser) -> None:
    doc = "what the servers of kohort_server and kohort_server_factory are: kohort (default), or kafka for strict ones"
    parser.addini("kohort_compatibility", doc, default="kohort")
    parser.getgroup("kohort").addoption("--kohort-compatibility", choices=("kohort", "kafka"), help=doc)


def _compatibility(config: pytest.Config) -> str:
    return str(config.getoption("--kohort-compatibility") or config.getini("kohort_compatibility"))


def _running() -> list[KohortServer]:
    server = sys.modules.get("kohort.testing.server")  # imported by the tests that use it
    return [] if server is None else list(server.running)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGAN] = {server: server.now_ms() for server in _running()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (running := _running()):
        from kohort.testing.rebalance_report import section

        began = item.stash.get(BEGAN, {})
        for server in running:
            if found := section(server, began.get(server, 0)):
                report.sections.append(found)
    return report


@pytest.fixture
def kohort_server(pytestconfig: pytest.Config) -> Iterator[KohortServer]:
    """A running server of one broker, in memory; stopped after the test."""
    from kohort.testing.server import KohortServer

    with KohortServer(compatibility=_compatibility(pytestconfig)) as server:
        yield server


@pytest.fixture
def kohort_server_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., KohortServer]]:
    """A function that starts a server; it takes KohortServer's arguments. Servers stop after the test."""
    from kohort.testing.server import KohortServer

    with ExitStack() as running:

        def make(**settings: Any) -> KohortServer:
            settings.setdefault("compatibility", _compatibility(pytestconfig))
            return running.enter_context(KohortServer(**settings))

        yield make
