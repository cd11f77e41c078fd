"""Options of the tests; Apache Kafka, for those that run beside it or against it.

A test that takes `servers` runs against kohort, which is the `server` of its folder or module, and against Apache
Kafka; Kafka's turn has the marker `peers`. A test that takes `servers_of_kohort` or `server` is about what kohort alone
promises or lets a test do, one with `servers_of_kafka` about what is different there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import hypothesis
import pytest
from kafka_peer import EVERYWHERE, LIKE_KOHORT

from kohort import compiled

# Folders whose tests compute, and no clock decides what comes of them.
COMPUTING = {"broker", "coordinator", "fuzz", "simulator", "storage", "structure", "wire"}
# Tests that use one of these fixtures share what takes long to start.
SHARED = ("spark", "catchers")


TESTS = Path(__file__).parent

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile(
    "kohort",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("kohort")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print as what they expect")


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT, and so would all processes that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts tests in groups of pytest-xdist and in order: those that wait come before those that compute.

    Where hot modules run compiled (make test-compiled), tests that need them as Python are left out.
    """
    for item in items:
        if group := _group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_rank_of)
    pure = [item for item in items if item.get_closest_marker("pure")] if compiled.in_use else []
    if pure:
        config.hook.pytest_deselected(items=pure)
        items[:] = [item for item in items if item not in set(pure)]


def _group_of(item: pytest.Item) -> str:
    """The tests of a group run one after the other in one process. "" is no group: each test runs anywhere."""
    for fixture in SHARED:
        if fixture in getattr(item, "fixturenames", ()):
            return fixture
    path = item.path.relative_to(TESTS)
    return "" if path.parts[0] in COMPUTING else str(path)


def _rank_of(item: pytest.Item) -> int:
    """What takes longest comes first, and what is in small pieces last: the processes end at about the same time."""
    group = _group_of(item)
    return SHARED.index(group) if group in SHARED else len(SHARED) + (not group)


_counter = count()


@pytest.fixture
def unique() -> str:
    """A word that no other test of this run uses, for names of topics and groups."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    return f"t{worker}n{next(_counter)}"


@pytest.fixture(scope="session")
def class_path() -> str:
    """Apache Kafka's jars from Maven."""
    import java_libraries

    return java_libraries.kafka()


@pytest.fixture(scope="session")
def servers_of_kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    """Apache Kafka: the one that `make test-peers` has started, or one of this process's own."""
    if running := os.environ.get("KAFKA_SERVERS"):
        yield running
        return
    from bench import _kafka

    settings = request.getfixturevalue("class_path"), LIKE_KOHORT
    with _kafka.kafka(*settings, java_options=_kafka.BRIEF) as (_, (host, port)):
        yield f"{host}:{port}"


@pytest.fixture
def servers_of_kohort(request: pytest.FixtureRequest) -> str:
    """The `server` of the module or folder."""
    servers: str = request.getfixturevalue("server").bootstrap_servers
    return servers


@pytest.fixture(params=EVERYWHERE)
def servers(request: pytest.FixtureRequest) -> str:
    """Of kohort, and of Apache Kafka."""
    found: str = request.getfixturevalue(f"servers_of_{request.param}")
    return found
