"""`kohort groups describe` and `explain` of groups that are no consumers: elections, shardings, Connect, registries."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any

import pytest
from group_member import GroupMember as JoinedMember
from run_command import Kohort

from kohort.cli.groups.subjects import subject_of
from kohort.client import lead, shards
from kohort.client.admin.explanations import GroupExplanation
from kohort.client.admin.groups import GroupDescription, GroupMember
from kohort.client.cluster import Cluster


@contextmanager
def on_a_loop(main: Callable[[Callable[[], None]], Awaitable[None]]) -> Iterator[None]:
    """Run `main(ready)` in a thread until the block ends; the block begins when it has called `ready`."""
    ready = threading.Event()
    tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def run() -> None:
        task = asyncio.ensure_future(main(ready.set))
        tasks.append((asyncio.get_running_loop(), task))  # type: ignore[arg-type]
        await asyncio.wait((task,))
        ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(20)
    try:
        yield
    finally:
        loop, task = tasks[0]
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


def test_an_election(kohort: Kohort, bootstrap: str, unique: str) -> None:
    tokens: list[int] = []

    async def main(ready: Callable[[], None]) -> None:
        async with lead(bootstrap, unique, client_id="first") as election:
            tokens.append((await election.next_term()).token)
            async with lead(bootstrap, unique, client_id="second"):
                while not all(m.assignment for m in described(bootstrap, unique, 2)):
                    await asyncio.sleep(0.01)
                ready()
                await asyncio.Event().wait()

    with on_a_loop(main):
        out = kohort("groups", "describe", unique, "--state").out
        told = re.search(
            r"leader: first on 127\.0\.0\.1; token (\d+); its term began [-: 0-9]+, [\d.]+ m?s ago; "
            r"lease: ([\d.]+) s left at most",
            out,
        )
        assert told is not None, out
        assert int(told[1]) == tokens[0]
        assert 5 < float(told[2]) <= 10
        assert "other candidates: second" in out
        assert told[0].split(";")[0] in kohort("groups", "explain", unique).out
        heading, *rows, _, _, _ = kohort("groups", "describe", unique, "--members").out.splitlines()
        assert heading.split()[-2:] == ["CLIENT-ID", "LEADS"]
        assert f"{unique}: Stable, 2 members\n" in kohort("groups", "describe", unique).out
        assert [row.split()[-1] for row in rows if "first" in row] == ["yes"]
        for command in ("describe", "explain"):
            found = json.loads(kohort("groups", command, unique, "-o", "json").out)
            about = (found[0] if command == "describe" else found)["about"]
            assert (about["kind"], about["token"]) == ("election", tokens[0])
            assert about["leader"].startswith("first")
            assert 5_000 < about["lease_left_ms"] <= 10_000
            assert about["term_began_ms"] > 0


def described(bootstrap: str, group_id: str, members: int) -> tuple[GroupMember, ...]:
    with Cluster(bootstrap) as cluster:
        found = cluster.describe_groups([group_id])[group_id]
        return found.members if found.state == "Stable" and len(found.members) == members else (NOBODY,)


NOBODY = GroupMember("", None, "", "", b"", b"", (), {})


@pytest.mark.parametrize(
    ("items", "weights"), [({"a": 1, "b": 2.5, "c": 1.0}, {"a": "1", "b": "2.5", "c": "1"}), (["a", "b"], None)]
)
def test_a_sharding(kohort: Kohort, bootstrap: str, unique: str, items: Any, weights: dict[str, str] | None) -> None:
    working: dict[str, int] = {}

    async def main(ready: Callable[[], None]) -> None:
        async def work(shard: Any) -> None:
            working[shard.item] = shard.token
            if len(working) == len(items):
                ready()
            await asyncio.sleep(60)

        async with shards(bootstrap, unique, items, client_id="worker", capacity=2) as sharding:
            await sharding.run(work)

    with on_a_loop(main):
        lines = kohort("groups", "describe", unique).out.splitlines()
        assert f"    {len(items)} items, 1 worker" in lines
        heading = lines.index(next(line for line in lines if line.startswith("ITEM")))
        rows = [line.split() for line in lines[heading + 1 :]]
        expected = [[i, (weights or {}).get(i, "1"), str(working[i]), "worker", "127.0.0.1"] for i in sorted(items)]
        assert rows == expected
        told = kohort("groups", "explain", unique).out
        assert ("worker has a, b (weight 2.5), c" if weights else "worker has a, b\n") in told
        row = kohort("groups", "describe", unique, "--members").out.splitlines()[1].split()
        assert row[-3:] == [str(len(items)), "4.5" if weights else "2", "2"]
        [found] = json.loads(kohort("groups", "describe", unique, "-o", "json").out)
        assert [one["item"] for one in found["about"]["items"]] == sorted(items)
        assert found["about"]["workers"][0]["capacity"] == 2


# -- the formats of other programs, from their bytes


def group(protocol_type: str, **members: tuple[bytes, bytes]) -> GroupDescription:
    found = tuple(
        GroupMember(member_id, None, f"client-of-{member_id}", "/10.0.0.1", said, got, (), {})
        for member_id, (said, got) in members.items()
    )
    return GroupDescription("g", "Stable", protocol_type, "p", found, 1, "classic")


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def connect_assignment(*connectors: tuple[str, list[int]], more: bytes = b"", version: int = 1) -> bytes:
    rows = b"".join(text(one) + pack(f">i{len(tasks)}i", len(tasks), *tasks) for one, tasks in connectors)
    head = pack(">hh", version, 0) + text("w1") + text("http://one:8083/") + pack(">q", 7)
    return head + pack(">i", len(connectors)) + rows + more


@pytest.mark.parametrize("version", [0, 1, 2])
def test_connect(version: int) -> None:
    # Versions 1 and 2 append the worker's present assignment to the metadata, and revocations to the assignment.
    more = b"" if version == 0 else pack(">ii", -1, 0)
    said = [pack(">h", version) + text(f"http://{host}:8083/") + pack(">q", 7) + more[:4] for host in ("one", "two")]
    subject = subject_of(
        group(
            "connect",
            w1=(said[0], connect_assignment(("files", [-1, 0, 2]), ("jdbc", [1]), more=more, version=version)),
            w2=(said[1], connect_assignment(("jdbc", [-1]), more=more, version=version)),
        ),
        None,
    )
    assert subject is not None
    assert subject.lines == (
        "leader: http://one:8083/ (client-of-w1 on 10.0.0.1)",
        "workers: http://one:8083/, http://two:8083/",
    )
    assert subject.cells == {"w1": ("yes", "http://one:8083/", 1, 3), "w2": ("", "http://two:8083/", 1, 0)}
    assert subject.document["workers"][0]["tasks"] == {"files": [0, 2], "jdbc": [1]}


def test_a_schema_registry() -> None:
    def identity(host: str, eligible: bool = True) -> dict[str, Any]:
        return {"version": 1, "host": host, "port": 8081, "master_eligibility": eligible, "scheme": "https"}

    said = {name: json.dumps(identity(host)).encode() for name, host in (("m1", "one"), ("m2", "two"))}
    got = json.dumps({"version": 1, "error": 0, "master": "m2", "master_identity": identity("two")}).encode()
    subject = subject_of(group("sr", m1=(said["m1"], got), m2=(said["m2"], got)), None)
    assert subject is not None
    assert subject.lines == (
        "leader: https://two:8081 (client-of-m2 on 10.0.0.1)",
        "instances: https://one:8081, https://two:8081",
    )
    nobody = json.dumps({"version": 1, "error": 1, "master": None, "master_identity": None}).encode()
    subject = subject_of(group("sr", m1=(said["m1"], nobody)), None)
    assert subject is not None
    assert subject.lines[0] == "leader: none: no instance may lead"


@pytest.mark.parametrize("protocol_type", ["kohort-election", "kohort-shards", "connect", "sr", "mine"])
@pytest.mark.parametrize(
    "said", [b"", b"{}", b"\x00\x01", b"\xff" * 40, b"[1]", b"null", b'{"host": 1}', b"[" * 99_999]
)
def test_bytes_that_nothing_can_read_are_told_by_their_size(protocol_type: str, said: bytes) -> None:
    subject = subject_of(group(protocol_type, m1=(said, said)), None)
    assert subject is not None
    assert subject.lines == (
        f"protocol type {protocol_type}: subscriptions of {len(said)} bytes, assignments of {len(said)} bytes",
    )
    assert subject.cells == {"m1": (f"{len(said)} bytes", f"{len(said)} bytes")}


@pytest.mark.parametrize("capacity", ["1e999", '"a"', "[]", f"1{'0' * 400}"])
def test_a_worker_may_say_anything(capacity: str) -> None:
    said = zlib.compress(f'{{"capacity": {capacity}, "claims": {{"a": 1}}}}'.encode())
    subject = subject_of(group("kohort-shards", m1=(said, zlib.compress(b'{"a": 1e999}'))), None)
    assert subject is not None


def test_items_that_are_being_given_up_are_moving() -> None:
    said = zlib.compress(b'{"capacity": 1, "claims": {"a": 1, "b": 2}}')
    subject = subject_of(group("kohort-shards", m1=(said, zlib.compress(b'["b"]'))), None)
    assert subject is not None
    assert subject.lines == ("1 item, 1 worker", "moving: a")
    assert subject.items == (("b", "1", 2, "client-of-m1", "10.0.0.1"),)


def test_without_a_journal_a_leaders_token_is_its_claim() -> None:
    for claim, told in ((7, "; token 7"), (-1, "")):
        found = group("kohort-election", m1=(claim.to_bytes(8, "big", signed=True), b"m1"))
        subject = subject_of(found, None)
        assert subject is not None
        assert subject.lines == (f"leader: client-of-m1 on 10.0.0.1{told}",)


def test_the_term_is_older_than_the_generation_that_a_new_candidate_began() -> None:
    found = group("kohort-election", m1=((3).to_bytes(8, "big"), b"m1"), m2=(b"\xff" * 8, b"m1"))
    stories = tuple({"number": n, "started_ms": 1000 * n, "took_ms": 5, "generation_after": n} for n in (2, 3, 4))
    status = {"generation": 4, "members": [{"member_id": "m1", "session_remaining_ms": 9_000}]}
    subject = subject_of(found, GroupExplanation(found, 10_000, None, status, None, stories))
    assert subject is not None
    assert subject.document["token"] == 3
    assert subject.document["term_began_ms"] == 3_005
    assert subject.lines[0].endswith("7.0 s ago; lease: 9.0 s left at most")


def test_a_rebalancing_group_says_so() -> None:
    found = group("connect", m1=(b"", b""))
    subject = subject_of(GroupDescription("g", "PreparingRebalance", "connect", "", found.members, 1), None)
    assert subject is not None
    assert subject.lines == ("what its members have is known once it is Stable: it is PreparingRebalance",)


def test_a_consumers_unreadable_subscription_is_told_by_its_size(kohort: Kohort, bootstrap: str, unique: str) -> None:
    kohort("topics", "create", unique)
    member = JoinedMember(bootstrap, unique, {unique: (0,)})
    try:
        assert "SUBSCRIPTION" not in kohort("groups", "describe", unique, "--members").out
        member.rejoin(b"\x00\x01\x7f")
        heading, row, _ = kohort("groups", "describe", unique, "--members").out.splitlines()
        assert heading.endswith("SUBSCRIPTION")
        assert row.endswith("3 bytes, unreadable")
    finally:
        member.leave()


def on_a_terminal(width: int, *arguments: str) -> list[str]:
    """The lines that a command prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "dumb"}
    command = [sys.executable, "-m", "kohort", *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    found = b""
    while True:
        try:
            read = os.read(ours, 65_536)
        except OSError:  # Linux: the other end is closed
            break
        if not read:
            break
        found += read
    os.close(ours)
    assert process.wait() == 0, found
    return re.sub(r"\x1b\[[0-9;]*m", "", found.decode()).splitlines()


def test_nothing_is_wider_than_a_terminal_of_80_columns(bootstrap: str, unique: str) -> None:
    group = f"{unique}-of-the-warehouse-that-has-a-long-name"

    async def main(ready: Callable[[], None]) -> None:
        async with lead(bootstrap, group, client_id="first-candidate-on-host-17.rack-4.example.org") as election:
            await election.next_term()
            async with lead(bootstrap, group, client_id="second-candidate-on-host-18.rack-4.example.org"):
                while not all(m.assignment for m in described(bootstrap, group, 2)):
                    await asyncio.sleep(0.01)
                ready()
                await asyncio.Event().wait()

    with on_a_loop(main):
        for command in (
            ("groups", "describe", group),
            ("groups", "describe", group, "--members"),
            ("groups", "explain", group),
        ):
            lines = on_a_terminal(80, *command, "--bootstrap-server", bootstrap)
            assert any("leader" in line for line in lines), lines
            assert [line for line in lines if len(line) > 80] == []
