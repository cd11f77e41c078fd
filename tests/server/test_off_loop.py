"""Work off the loop: assignors of other packages run in a process, and whatever they do, the task has an outcome."""

from __future__ import annotations

import asyncio
import textwrap
import time
from pathlib import Path

import pytest
from distribution import describe

from kohort.broker.turn import Arrived, HandedOut, TaskDone
from kohort.coordinator.assignors.spec import GroupSpec, MemberSpec, TopicSpec
from kohort.coordinator.events import AssignmentAsked, AssignmentMade, Found, PatternsAsked, PatternsResolved
from kohort.server.assignor_plugins import GROUP
from kohort.server.off_loop import OffLoop

TOPIC = b"t" * 16
PACKAGE = """
    import os, sys, time

    class Assignor:
        def __init__(self, name, assign):
            self.name, self.assign = name, assign

    def everything_to_the_first(group):
        first = min(group.members)
        return {first: {topic.topic_id: tuple(range(topic.partitions)) for topic in group.topics.values()}}

    def printing(group):
        print("x" * 100_000)
        sys.stdout.flush()
        return everything_to_the_first(group)

    def raising(group):
        raise ValueError("no luck")

    def looping(group):
        while True:
            pass

    def exiting(group):
        os._exit(3)

    def nonsense(group):
        return {"nobody": {}}

    def foreign(group):
        return object()

    first = Assignor("first", everything_to_the_first)
    printing = Assignor("printing", printing)
    raising = Assignor("raising", raising)
    looping = Assignor("looping", looping)
    exiting = Assignor("exiting", exiting)
    nonsense = Assignor("nonsense", nonsense)
    foreign = Assignor("foreign", foreign)
"""
NAMES = ("first", "printing", "raising", "looping", "exiting", "nonsense", "foreign")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_assignors.py").write_text(textwrap.dedent(PACKAGE))
    describe(tmp_path, "odd-assignors", "1.0", {GROUP: {name: f"odd_assignors:{name}" for name in NAMES}})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")


def spec(members: int = 2, partitions: int = 4) -> GroupSpec:
    topic = TopicSpec(TOPIC, "t", partitions, lag=(0,) * partitions)
    names = [f"m{number}" for number in range(members)]
    return GroupSpec({name: MemberSpec(name, topics=(TOPIC,)) for name in names}, {TOPIC: topic})


async def outcomes(*names: str, group: GroupSpec | None = None, timeout_ms: int = 5_000) -> list[AssignmentMade]:
    """The outcomes of these tasks, one for each assignor, in the order in which they end."""
    done: list[AssignmentMade] = []
    all_done = asyncio.Event()

    def arrive(event: Arrived) -> None:
        assert isinstance(event, TaskDone)
        done.append(event.event)
        if len(done) == len(names):
            all_done.set()

    off_loop = OffLoop(arrive, timeout_ms)
    try:
        tasks = [AssignmentAsked(f"g{i}", i, name, group or spec()) for i, name in enumerate(names)]
        off_loop.start([HandedOut(0, task) for task in tasks])
        await asyncio.wait_for(all_done.wait(), 60)
    finally:
        off_loop.stop()
    return done


EVERYTHING = {"m0": {TOPIC: (0, 1, 2, 3)}, "m1": {}}


@pytest.mark.usefixtures("plugins")
def test_a_process_that_cannot_be_started_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    first, second = asyncio.run(outcomes("first", "printing"))
    assert isinstance(first.result, str)
    assert first.result.startswith("its process cannot be started")
    assert second.result == first.result


def test_a_bug_in_a_thread_is_raised_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a bug stops the server, so that no request waits for an outcome that never comes."""

    def bug(task: PatternsAsked) -> PatternsResolved:
        raise ZeroDivisionError

    monkeypatch.setattr("kohort.server.off_loop.search", bug)

    async def raised() -> object:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[object] = loop.create_future()
        loop.set_exception_handler(lambda _, context: found.set_result(context["exception"]))
        off_loop = OffLoop(lambda event: None, 5_000)
        try:
            off_loop.start([HandedOut(0, PatternsAsked(1, (("a", ("b",)),)))])
            return await asyncio.wait_for(found, 60)
        finally:
            off_loop.stop()

    assert isinstance(asyncio.run(raised()), ZeroDivisionError)


@pytest.mark.usefixtures("plugins")
def test_an_assignor_of_another_package_serves() -> None:
    made = asyncio.run(outcomes("first", "printing"))
    assert [(m.group_id, m.epoch, m.assignor, m.result) for m in made] == [
        ("g0", 0, "first", EVERYTHING),
        ("g1", 1, "printing", EVERYTHING),
    ]


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raising", "ValueError: no luck"),
        ("exiting", "its process has ended"),
        ("nonsense", "unknown member 'nobody'"),
        ("foreign", "the answer is a object, not a mapping of members to their partitions"),
        ("absent", "it is not installed any more"),
    ],
)
def test_a_failing_assignor_is_refused_and_the_next_one_serves(name: str, why: str) -> None:
    failed, after = asyncio.run(outcomes(name, "first"))
    assert failed.result == why
    assert after.result == EVERYTHING


@pytest.mark.usefixtures("plugins")
def test_an_assignor_that_takes_too_long_is_stopped() -> None:
    # The worker's start counts too, and the machine may be busy.
    failed, after = asyncio.run(outcomes("looping", "first", timeout_ms=3_000))
    assert failed.result == "no answer in 3000 ms"
    assert after.result == EVERYTHING


def test_a_large_group_is_assigned_beside_the_loop() -> None:
    """1,000 members and 10,000 partitions: the loop runs on meanwhile."""

    async def run() -> tuple[AssignmentMade, float]:
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0)
                longest = max(longest, time.perf_counter() - before)

        watcher = asyncio.create_task(watch())
        (made,) = await outcomes("uniform", group=spec(1_000, 10_000))
        watcher.cancel()
        return made, longest

    made, longest = asyncio.run(run())
    assert not isinstance(made.result, str)
    assert {len(partitions.get(TOPIC, ())) for partitions in made.result.values()} == {10}
    # Threads take turns every 5 ms; a loaded machine may take longer, but not as long as a loop that waits.
    assert longest < 1.0


def test_topics_that_match_are_found_beside_the_loop_and_a_stop_waits_for_nothing_else() -> None:
    expensive = PatternsAsked(2, (("(?:(?:[ab]{0,30}){0,30}a)", tuple("ab" * 120 + str(n) for n in range(1_000))),))

    async def found() -> list[Arrived]:
        done: list[Arrived] = []
        first = asyncio.Event()

        def arrive(event: Arrived) -> None:
            done.append(event)
            first.set()

        off_loop = OffLoop(arrive, 5_000)
        off_loop.start(
            [HandedOut(3, PatternsAsked(1, (("t.", ("t1", "u1")), ("(", ("t1",))))), *[HandedOut(0, expensive)] * 500]
        )
        await asyncio.wait_for(first.wait(), 60)
        off_loop.stop()
        await asyncio.sleep(0)
        return done

    start = time.monotonic()
    done = asyncio.run(found())
    assert time.monotonic() - start < 20, "all of them take minutes"
    assert done[0] == TaskDone(3, PatternsResolved(1, (Found(2, ("t1",)), None)))
    assert len(done) < 100
