"""`blocking_lead` against a real server: the promises of `lead`, without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from running_tasks import wait_until

from kohort.client import BlockingTerm, Closed, Misuse, ServerError, Unreachable, blocking_lead, lead
from kohort.client.cluster import Cluster
from kohort.client.coordination.election import Election

QUICK = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 100}


def test_leaders_follow_each_other(servers: str, unique: str) -> None:
    with blocking_lead(servers, unique, **QUICK) as first:
        term = first.next_term()
        assert term is not None
        assert term.valid
        assert first.term is term
        with blocking_lead(servers, unique, **QUICK) as second:
            wait_until(lambda: second.leader_id == first.member_id != "")
            assert second.term is None
            assert second.next_term(50) is None
            first.close()
            assert not term.valid
            assert term.wait_ended()
            later = second.next_term()
            assert later is not None
            assert later.token > term.token
            assert type(later.token) is type(term.token)


def test_work_that_returns_makes_room_for_another_candidate(servers: str, unique: str) -> None:
    order: list[str] = []

    def candidate(name: str) -> None:
        with blocking_lead(servers, unique, **QUICK) as election:
            present.wait()
            for term in election:
                term.run(lambda _: order.append(name))
                if len(order) >= 6:
                    return

    present = threading.Barrier(2)
    threads = [threading.Thread(target=candidate, args=(name,), daemon=True) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert set(order) == {"a", "b"}


def test_the_work_runs_in_this_thread_and_learns_of_the_end(own_server: Any, unique: str) -> None:
    seen: list[Any] = []

    def work(term: BlockingTerm[Any]) -> None:
        seen.append(threading.current_thread())
        assert not term.wait_ended(10)
        own_server.kill()
        assert term.wait_ended(30_000)
        assert not term.valid

    with blocking_lead(own_server.bootstrap_servers, unique, session_timeout_ms=1_500) as election:
        [term] = [election.next_term()]
        assert term is not None
        assert term.run(work) is False
        assert term.run(work) is False, "work begins in a term that is over"
        own_server.start()
        later = election.next_term()
        assert later is not None
        assert later.token > term.token
    assert seen == [threading.current_thread()]


def test_work_that_ends_or_fails(servers: str, unique: str) -> None:
    def fails(_: Any) -> None:
        raise LookupError("of my own")

    async def coroutine(_: Any) -> None:
        pass

    with blocking_lead(servers, unique, **QUICK) as election:
        for work, error in ((fails, LookupError), (coroutine, Misuse)):
            term = election.next_term()
            assert term is not None
            assert term.run(lambda term: None, keep_term=True) is True
            assert term.valid
            with pytest.raises(error):
                term.run(work)
            assert not term.valid


def test_heartbeats_go_on_while_the_work_blocks(servers: str, unique: str) -> None:
    with blocking_lead(servers, unique, session_timeout_ms=1_000) as election:
        term = election.next_term()
        assert term is not None
        assert term.run(lambda _: time.sleep(1.5)) is True


def test_closing_ends_the_wait_of_another_thread(servers: str, unique: str) -> None:
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            for _ in election:
                pass
        except Closed as closed:
            raised.append(closed)

    with blocking_lead(servers, unique) as election:
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: election.term is not None)
    thread.join(20)
    assert len(raised) == 1
    for call in (election.start, election.next_term):
        with pytest.raises(Closed, match=unique):
            call()
    election.close()


def test_reprs(servers: str, unique: str) -> None:
    election = blocking_lead(servers, unique)
    assert repr(election) == f"<blocking election of {unique!r}, not begun>"
    with election:
        term = election.next_term()
        assert term is not None
        assert repr(term) == f"<blocking term of {unique!r}, token {term.token}>"
    assert repr(election) == f"<blocking election of {unique!r}, closed>"
    assert repr(term) == f"<blocking term of {unique!r}, token {term.token}, over>"


def test_misuse_and_failures(servers: str, unique: str) -> None:
    outside = blocking_lead(servers, unique)
    with pytest.raises(Misuse, match="call `start` first"):
        outside.next_term()
    outside.close()
    with pytest.raises(TypeError, match="blocking_lead: unknown setting session_timeout; did you mean"):
        blocking_lead(servers, unique, session_timeout=1)
    with blocking_lead(servers, unique, session_timeout_ms=3_000_000) as refused:
        with pytest.raises(ServerError, match="INVALID_SESSION_TIMEOUT"):
            refused.next_term()
        assert isinstance(refused.failure, ServerError)
        assert refused.term is None


def test_a_failure_that_a_call_waits_for_is_not_logged(
    unique: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    election = blocking_lead("localhost:1", unique)

    async def fail_once_asked(_: object) -> None:
        while not election._asking:
            await asyncio.sleep(0.005)
        raise Unreachable("localhost:1", "nobody answers")

    monkeypatch.setattr(Election, "_take_part", fail_once_asked)
    with election, pytest.raises(Unreachable):
        election.next_term()
    assert caplog.messages == []


def test_a_failure_that_no_call_waits_for_is_logged(unique: str, caplog: pytest.LogCaptureFixture) -> None:
    with blocking_lead("localhost:1", unique, bootstrap_timeout_ms=50) as election:
        wait_until(lambda: election.failure is not None)
    [message] = caplog.messages
    assert message.startswith(f"group {unique}: this process is no candidate any more: cannot reach the cluster")


async def test_both_kinds_of_candidates_share_a_group(servers: str, unique: str) -> None:
    async with lead(servers, unique, heartbeat_interval_ms=100) as first:
        term = await first.next_term()
        with blocking_lead(servers, unique, **QUICK) as second:
            assert await asyncio.to_thread(second.next_term, 50) is None
            term.resign()
            later = await asyncio.to_thread(second.next_term)
            assert later is not None
            assert later.token > term.token
            await asyncio.to_thread(later.resign)
            assert (await first.next_term()).token > later.token
            await asyncio.to_thread(second.close)


FORKED = """
import os, sys
from kohort.client import Misuse, blocking_lead

with blocking_lead(sys.argv[1], sys.argv[2]) as election:
    term = election.next_term()
    child = os.fork()
    if child == 0:
        for call in (election.next_term, election.start, election.close, term.resign):
            try:
                call()
            except Misuse as misuse:
                print(misuse, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("valid" if term.valid else "over")
"""


def test_a_forked_child_is_refused(servers: str, unique: str) -> None:
    command = [sys.executable, "-c", FORKED, servers, unique]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    refused = "this member belongs to the process that forked this one"
    assert ran.stdout.splitlines() == [f"{call}: {refused}" for call in ("next_term", "start", "close", "resign")] + [
        "valid"
    ]


PROGRAM = """
import signal, sys
from kohort.client import blocking_lead

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

def work(term):
    print("leads", flush=True)
    term.wait_ended()

election = blocking_lead(sys.argv[1], sys.argv[2])
if sys.argv[3] == "with":
    with election:
        for term in election:
            term.run(work)
else:
    election.start()
    print("leads" if election.next_term() else "", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["with", "start"])
def test_a_program_that_ends_leaves_its_group(servers: str, unique: str, how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, servers, unique, how]
    with (
        Cluster(servers) as cluster,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "leads\n"
            assert cluster.describe_groups([unique])[unique].state == "Stable"
            if how == "with":
                process.terminate()
            process.communicate("\n", timeout=20)
            assert process.returncode == 0
            assert cluster.describe_groups([unique])[unique].state in ("Empty", "Dead")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
