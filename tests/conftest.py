"""Options of the tests; Apache Kafka, for those that run beside it or against it.

A test that takes `servers` runs against kohort, which is the `server` of its folder or module, and against Apache
Kafka; Kafka's turn has the marker `peers`. A test that takes `servers_of_kohort` or `server` is about what kohort alone
promises or lets a test do, one with `servers_of_kafka` about what is different there.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from kafka_peer import EVERYWHERE, LIKE_KOHORT
from postgres_server import PostgresServer, postgres
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from kohort import compiled

# Folders whose tests only compute, so that no clock decides their outcome.
COMPUTING = {"broker", "coordinator", "fuzz", "simulator", "storage", "structure", "wire"}
# Folders whose tests share what takes long to start: a session of Spark, the process in which bugs are planted.
SHARING = ["spark", "mutations"]
# The tests of these share what takes long to make.
TOGETHER = {"structure/test_site.py"}
# Tests of these start all they need, or need nothing.
ALONE = {
    f"spark/{place}.py"
    for place in (
        "arrow/test_arrow",
        "history/test_coverage",
        "history/test_history",
        "history/test_history_decode",
        "source/test_member_reader",
        "source/test_stream_reader",
        "test_cluster",
    )
}

TESTS = Path(__file__).parent

# How long an example takes says more about the machine than about the code. Examples are the same in each run: a run
# that fails has met a change. Fresh ones are what `make fuzz` and `make test-long` are for.
hypothesis.settings.register_profile(
    "kohort",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("kohort")
# Hypothesis also draws constants from all imported modules, and these differ between processes.
providers._get_local_constants = lambda: providers._local_constants  # which is empty


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print as what they expect")


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT, and so would all processes that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Groups(LoadScopeScheduling):
    """With `--dist loadgroup`: the tests of a group run one after the other in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Forget the groups that are done: all of a process's groups are counted after each test, thousands of them."""
        work = self.assigned_work[node]
        for scope in [scope for scope, tests in work.items() if all(tests.values())]:
            del work[scope]
        super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    # The groups of pytest-xdist's own go by `item._nodeid`, which pytest 9 does not look at any more.
    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that wait come before those that compute.

    Where hot modules run compiled (make test-compiled), tests that need them as Python are left out.
    """
    items.sort(key=rank_of)
    pure = [item for item in items if item.get_closest_marker("pure")] if compiled.in_use else []
    if pure:
        config.hook.pytest_deselected(items=pure)
        items[:] = [item for item in items if item not in set(pure)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def group_of(nodeid: str) -> str:
    """A folder, a file, or the test itself."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    folder = path.partition("/")[0]
    if path in ALONE:
        return path
    if folder in SHARING:
        return folder
    return nodeid if folder in COMPUTING and path not in TOGETHER else path


def rank_of(item: pytest.Item) -> int:
    """The longest tests come first and the short ones last, so that the processes end at about the same time."""
    group = group_of(item.nodeid)
    return SHARING.index(group) if group in SHARING else len(SHARING) + (group == item.nodeid)


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
    """The bootstrap servers of kohort, and of Apache Kafka."""
    found: str = request.getfixturevalue(f"servers_of_{request.param}")
    return found


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test process."""
    with postgres() as server:
        yield server


_databases = count(1)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty database of the test's own."""
    return postgres_server.create(f"test{next(_databases)}")
