"""The report of a failed test tells the rebalances of its groups, and is silent where there are none."""

from __future__ import annotations

import pytest

from kohort.testing import rebalance_report

pytest_plugins = ["pytester"]

QUICK = ("-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:xdist.looponfail", "-p", "no:anyio")
"""Without plugins that take as long as pytest itself."""
SECTION = "kohort: rebalances of the groups on"
TESTS = """
import pytest

from kohort.client import BlockingGroupConsumer
from kohort.testing import KohortServer


def rebalance(server, group):
    server.produce(group, "a record")
    settings = {"group_protocol": "classic", "heartbeat_interval_ms": 100, "client_id": "worker-1"}
    with BlockingGroupConsumer(server.bootstrap_servers, group, **settings) as consumer:
        consumer.subscribe([group])
        server.wait_stable(group, members=1)


@pytest.fixture(scope="module")
def shared():
    with KohortServer() as server:
        yield server


@pytest.fixture
def failing(kohort_server):
    rebalance(kohort_server, "of-a-fixture")
    raise ValueError
"""


def run(pytester: pytest.Pytester, body: str, **outcomes: int) -> str:
    pytester.makepyfile(TESTS + body)
    result = pytester.runpytest_subprocess("-q", *QUICK, timeout=60)
    result.assert_outcomes(**outcomes)
    return str(result.stdout)


def test_the_rebalances_of_a_failed_test(pytester: pytest.Pytester) -> None:
    body = """
def test_it(kohort_server):
    rebalance(kohort_server, "billing")
    assert False

def test_with_an_error(failing):
    pass

def test_that_passes(kohort_server):
    rebalance(kohort_server, "quiet")
"""
    out = run(pytester, body, failed=1, passed=1, errors=1)
    assert out.count(SECTION) == 2
    assert "billing: Empty, members: 0" in out
    assert "worker-1 on 127.0.0.1 joined" in out
    assert "worker-1 on 127.0.0.1 left" in out
    assert "of-a-fixture: Stable" in out or "of-a-fixture: Empty" in out
    assert "quiet" not in out


def test_a_shared_server_tells_only_what_happened_in_the_test(pytester: pytest.Pytester) -> None:
    body = """
def test_before(shared):
    rebalance(shared, "earlier")

def test_it(shared, kohort_server_factory):
    rebalance(shared, "billing")
    assert not kohort_server_factory().bootstrap_servers
"""
    out = run(pytester, body, failed=1, passed=1)
    assert out.count(SECTION) == 1
    assert "billing: Empty" in out
    assert "earlier" not in out.split(SECTION)[1]


def test_silence(pytester: pytest.Pytester) -> None:
    body = """
def test_without_a_server():
    assert False

def test_without_groups(kohort_server):
    kohort_server.create_topic("orders")
    assert False

def test_with_a_server_that_has_stopped(kohort_server):
    rebalance(kohort_server, "billing")
    kohort_server.stop()
    assert False

def test_with_a_broker_that_does_not_listen(kohort_server):
    rebalance(kohort_server, "billing")
    kohort_server.stop_broker(1)
    assert False
"""
    assert SECTION not in run(pytester, body, failed=4)


def test_the_section_has_limits(pytester: pytest.Pytester) -> None:
    body = """
def test_it(kohort_server):
    for number in range(8):
        for _ in range(4):
            rebalance(kohort_server, f"g{number}")
    assert False
"""
    section = run(pytester, body, failed=1).split(SECTION)[1].split("=====")[0]
    assert "more lines" in section
    assert len(section.splitlines()) <= rebalance_report.MAX_LINES + 2
