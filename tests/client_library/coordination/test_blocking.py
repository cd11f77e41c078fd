"""The coordinator for threads, against a real server."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from recording_coordinator import BlockingRecording
from running_tasks import wait_until

from kohort.client import Closed, Misuse, ServerError
from kohort.client.admin.groups import Committer
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode


class Worker(BlockingRecording):
    def run(self) -> None:
        with contextlib.suppress(Closed):
            while True:
                self.ensure_active_group()
                self.wait_for_rejoin()


@contextlib.contextmanager
def working(*workers: Worker) -> Iterator[None]:
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def test_the_calls_and_their_thread(servers: str, unique: str) -> None:
    threads: set[int] = set()

    class Watched(Worker):
        def on_join_prepare(self, *arguments: Any) -> None:
            threads.add(threading.get_ident())
            super().on_join_prepare(*arguments)

    with Watched(servers, unique) as worker:
        assert worker.ensure_active_group()
        assert worker.ensure_active_group()
        assert not worker.rejoin_needed
        assert not worker.wait_for_rejoin(10)
        assert worker.generation_if_stable == worker.generation
        worker.request_rejoin("again")
        assert worker.wait_for_rejoin()
        assert worker.ensure_active_group()
        [loop] = [thread for thread in threading.enumerate() if thread.name == f"kohort-group-{unique}"]
        assert loop.daemon
    assert [call[:2] for call in worker.calls] == [
        *[("prepare", -1), ("metadata",), ("perform", "first"), ("complete", 1)],
        *[("prepare", 1), ("metadata",), ("perform", "first"), ("complete", 2)],
        ("leave",),
    ]
    assert threads == {threading.get_ident()}
    assert not loop.is_alive()
    assert worker.generation_if_stable is None


def test_workers_come_and_go(servers: str, unique: str) -> None:
    a, b = Worker(servers, unique, "a"), Worker(servers, unique, "b")
    with working(b):
        with working(a):
            wait_until(lambda: (a.assignment, b.assignment) == (b"0 of 2", b"1 of 2"))
        wait_until(lambda: b.assignment == b"0 of 1")


def test_heartbeats_go_on_while_the_program_works(servers: str, unique: str) -> None:
    with Worker(servers, unique, session_timeout_ms=3_000, heartbeat_interval_ms=50) as worker:
        worker.ensure_active_group()
        time.sleep(4)  # longer than the session
        assert worker.generation_if_stable is not None
        assert worker.lost == []


def test_a_program_that_does_not_come_back_leaves(servers: str, unique: str) -> None:
    with Worker(servers, unique, rebalance_timeout_ms=3_000) as hangs:
        hangs.ensure_active_group()
        for _ in range(3):
            time.sleep(1.2)
            hangs.poll()
        assert hangs.lost == []
        assert not hangs.wait_for_rejoin(4_000)  # waiting counts as a sign of life
        wait_until(lambda: hangs.lost != [])
        assert hangs.generation_if_stable is None
        with Worker(servers, unique, "b") as other:
            assert other.ensure_active_group()
            assert other.assignment == b"0 of 1"
        hangs.ensure_active_group()
        assert hangs.generation_if_stable is not None
        assert [call[1] for call in hangs.calls if call[0] == "prepare"] == [-1, -1]


def test_sys_exit_in_on_lost_does_not_end_the_thread(servers: str, unique: str) -> None:
    class Leaving(Worker):
        def on_lost(self, *arguments: Any) -> None:
            super().on_lost(*arguments)
            sys.exit("not here")

    with Leaving(servers, unique, heartbeat_interval_ms=50) as worker:
        assert worker.ensure_active_group(20_000)
        with Cluster(servers) as cluster:
            cluster.leave_as(unique, Committer(worker.member_id, -1), classic=True)
        assert worker.wait_for_rejoin(20_000)
        assert worker.lost
        assert worker.ensure_active_group(20_000)


def test_ensuring_within_a_time(unique: str) -> None:
    with (
        KohortServer(compatibility="kafka", group_initial_rebalance_delay_ms=1_000) as server,
        Worker(server.bootstrap_servers, unique) as worker,
    ):
        assert not worker.ensure_active_group(200)
        assert worker.ensure_active_group()
        assert worker.names.count("metadata") == 1


def test_a_callback_that_raises_is_called_again(servers: str, unique: str) -> None:
    with Worker(servers, unique) as worker:
        kept = worker.on_join_complete

        def on_join_complete(*_: Any) -> None:
            raise LookupError("of my own")

        worker.on_join_complete = on_join_complete  # type: ignore[method-assign]
        with pytest.raises(LookupError, match="of my own"):
            worker.ensure_active_group()
        worker.on_join_complete = kept  # type: ignore[method-assign]
        assert worker.ensure_active_group()
        assert worker.assignment == b"0 of 1"


def test_the_server_restarts(own_server: Any, unique: str) -> None:
    times = {"session_timeout_ms": 120_000, "rebalance_timeout_ms": 120_000, "heartbeat_interval_ms": 50}
    with Worker(own_server.bootstrap_servers, unique, **times) as worker:
        worker.ensure_active_group()
        generation = worker.generation
        own_server.restart()
        other = Worker(own_server.bootstrap_servers, unique, "b")
        with working(other):
            worker.wait_for_rejoin()
            assert worker.generation_if_stable == generation
            worker.ensure_active_group()
            assert worker.assignment == b"0 of 2"


def test_a_fenced_instance(servers: str, unique: str) -> None:
    with (
        Worker(servers, unique, group_instance_id="i", heartbeat_interval_ms=50) as former,
        Worker(servers, unique, group_instance_id="i") as successor,
    ):
        former.ensure_active_group()
        successor.ensure_active_group()
        former.wait_for_rejoin()
        for _ in range(2):
            with pytest.raises(ServerError) as caught:
                former.ensure_active_group()
            assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID


def test_closing_ends_a_call_in_another_thread(unique: str) -> None:
    with KohortServer(compatibility="kafka", group_initial_rebalance_delay_ms=60_000) as server:
        worker = Worker(server.bootstrap_servers, unique)
        with working(worker):
            wait_until(lambda: "metadata" in worker.names)


def test_misuse(servers: str, unique: str) -> None:
    with Worker(servers, unique) as worker:
        for call in (worker.ensure_active_group, worker.close):

            def on_join_prepare(*_: Any, call: Any = call) -> None:
                call()

            worker.on_join_prepare = on_join_prepare  # type: ignore[method-assign]
            with pytest.raises(Misuse, match="inside a callback"):
                worker.ensure_active_group()

        async def coroutine(*_: Any) -> None:
            pass

        worker.on_join_prepare = coroutine  # type: ignore[assignment,method-assign]
        with pytest.raises(Misuse, match="coroutine function"):
            worker.ensure_active_group()
    worker.close()
    for after in (worker.ensure_active_group, worker.wait_for_rejoin, worker.poll):
        with pytest.raises(Closed):
            after()
    with pytest.raises(Closed):
        worker.request_rejoin("why not")


PROGRAM = """
import sys
from kohort.client import BlockingCoordinator

class Worker(BlockingCoordinator):
    protocol_type = "workers"
    def metadata(self): return {"p": b""}
    def perform_assignment(self, leader_id, protocol, members): return {}
    def on_join_complete(self, *_): print("joined", flush=True)

worker = Worker(sys.argv[1], sys.argv[2])
worker.ensure_active_group()
sys.stdin.readline()
"""


def test_a_program_that_ends_leaves_its_groups(servers: str, unique: str) -> None:
    with (
        Cluster(servers) as cluster,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, servers, unique],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        assert cluster.describe_groups([unique])[unique].state == "Stable"
        _, errors = process.communicate("\n", timeout=20)
        assert (process.returncode, errors) == (0, "")
        assert cluster.describe_groups([unique])[unique].state in ("Empty", "Dead")
