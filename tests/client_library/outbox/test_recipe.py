"""The outbox's recipe in a world of its own: every order of the requests, every death, every lost answer.

After each history a last process recovers; then each value of the database is exactly once among the committed records,
and no other record is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from outbox_world import Process, World, finish

from kohort.client.outbox.recipe import Execute, Kafka, Recipe, Step, Steps
from kohort.client.transactions.identity import Prepared

SEEDS = 3_000
PROTOCOLS = pytest.mark.parametrize("protocol", [1, 2])


def check(world: World, processes: list[Process], history: str) -> None:
    finish(world)
    assert (wrong := world.violation()) is None, f"{wrong}\n{history}"
    for process in processes:
        missing = [value for value in process.claimed_committed if value not in world.rows.values]
        assert not missing, f"{process.name} reported {missing} as committed\n{history}"
        kept = [value for value in process.claimed_rolled_back if value in world.rows.values]
        assert not kept, f"{process.name} reported {kept} as rolled back\n{history}"


def steps_of(protocol: int) -> int:
    """How many requests one process has without any other."""
    process = Process(World(protocol), "a", 2)
    return sum(1 for _ in iter(process.go_on, None))


@PROTOCOLS
def test_nothing_fails(protocol: int) -> None:
    world = World(protocol)
    process = Process(world, "a", 2)
    history = list(iter(process.go_on, None))
    assert world.violation() is None
    assert world.coordinator.committed == ["a0x", "a0y", "a1x", "a1y"]
    check(world, [process], " ".join(history))


@PROTOCOLS
def test_death_before_every_request(protocol: int) -> None:
    for death in range(steps_of(protocol)):
        for times_out in (False, True):
            world = World(protocol)
            process = Process(world, "a", 2)
            history = [process.go_on() for _ in range(death + 1)]
            process.die()
            if times_out:
                world.coordinator.time_out()
            check(world, [process], f"{history} and death, {times_out=}")


@PROTOCOLS
def test_deaths_of_a_process_and_of_its_successor(protocol: int) -> None:
    for first, second in itertools.product(range(steps_of(protocol)), range(steps_of(protocol))):
        world = World(protocol)
        processes = [Process(world, "a", 2), Process(world, "b", 1)]
        for process, death in zip(processes, (first, second), strict=True):
            for _ in range(death + 1):
                process.go_on()
            process.die()
        check(world, processes, f"{first}, {second}")


@PROTOCOLS
def test_a_timeout_before_every_request(protocol: int) -> None:
    for timeout in range(steps_of(protocol)):
        world = World(protocol)
        process = Process(world, "a", 2)
        for number in itertools.count():
            if number == timeout:
                world.coordinator.time_out()
            if process.go_on() is None:
                break
        assert process.claimed_committed == ["a0x", "a0y", "a1x", "a1y"]
        assert world.violation() is None
        check(world, [process], f"{timeout=}")


@PROTOCOLS
def test_a_process_is_suspended_while_another_one_recovers(protocol: int) -> None:
    """The zombie stops before every request, and goes on at every request of its successor."""
    for stop, resume in itertools.product(range(steps_of(protocol)), range(steps_of(protocol) + 1)):
        world = World(protocol)
        zombie, successor = Process(world, "z", 2), Process(world, "s", 2)
        history = [zombie.go_on() for _ in range(stop + 1)]
        for _ in range(resume):
            history.append(successor.go_on())
        while zombie.go_on() is not None:
            if world.rows.holder is successor._session:  # it waits for the lock
                successor.go_on()
        while successor.go_on() is not None:
            pass
        check(world, [zombie, successor], f"{stop} {resume} {history}")


def random_history(seed: int, protocol: int, recipe: Any = Recipe) -> None:
    """Three processes in random order; deaths, timeouts, failed commits and lost answers."""
    random = Random(seed)
    world = World(protocol, random, random.choice((0.0, 0.05, 0.3)))
    processes = [Process(world, name, random.randint(1, 3), recipe) for name in "abc"]
    history: list[str | None] = []
    while alive := [process for process in processes if not process.done]:
        chance = random.random()
        process = random.choice(alive[:2])
        if chance < 0.02:
            process.die()
            history.append(f"{process.name} dies")
        elif chance < 0.06:
            world.coordinator.time_out()
            history.append("timeout")
        else:
            for _ in range(random.choice((1, 1, 5))):
                history.append(f"{process.name}: {process.go_on()}")
    check(world, processes, f"seed {seed}\n" + "\n".join(map(str, history)))


@PROTOCOLS
def test_random_histories(protocol: int) -> None:
    for seed in range(SEEDS):
        random_history(seed, protocol)


Change = Callable[[Step], Iterable[Step | None]]
"""What is done instead of a step. None: nothing, and the row is there."""


class Planted(Recipe):
    """A recipe without one of its rules."""

    def instead_of(self, step: Step) -> Iterable[Step | None]:
        return (step,)

    def recover(self, *arguments: Any) -> Steps:
        return changed(super().recover(*arguments), self.instead_of)

    def begin(self) -> Steps:
        return changed(super().begin(), self.instead_of)

    def commit(self, *arguments: Any) -> Steps:
        return changed(super().commit(*arguments), self.instead_of)


def changed(steps: Steps, instead_of: Change) -> Steps:
    try:
        step = next(steps)
        while True:
            result: Any = [(0,)]
            try:
                for other in instead_of(step):
                    if other is not None:
                        result = yield other
            except GeneratorExit:
                raise
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration:
        return


class Anything:
    """Equals every session."""

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class IsNotFenced(Planted):
    """The statements change the row whatever session it has."""

    def instead_of(self, step: Step) -> Iterable[Step | None]:
        fenced = isinstance(step, Execute) and step.statement != "claim"
        return (Execute(step.statement, (*step.parameters[:-1], Anything())),) if fenced else (step,)  # type: ignore[union-attr]


class NeverSettles(Planted):
    """The row does not say that Kafka has committed."""

    def instead_of(self, step: Step) -> Iterable[Step | None]:
        return (None if isinstance(step, Execute) and step.statement == "settle" else step,)


class EndsFirst(Planted):
    """Kafka commits before the database does."""

    def instead_of(self, step: Step) -> Iterable[Step | None]:
        if isinstance(step, Execute) and step.statement == "note":
            return (Kafka("end", (Prepared(*step.parameters[:4]),)), step)
        return (step,)


class EndsInTheOtherProtocol(Planted):
    def instead_of(self, step: Step) -> Iterable[Step | None]:
        if isinstance(step, Kafka) and step.method == "end":
            (prepared,) = step.arguments
            return (Kafka("end", (replace(prepared, protocol=3 - prepared.protocol),)),)
        return (step,)


class HasOneTransactionalId(Planted):
    """All sessions share a transactional id, so a successor's InitProducerId may come at any time."""

    def transactional_id(self, session: int) -> str:
        return f"{self.name}-always"


@PROTOCOLS
@pytest.mark.parametrize(
    "recipe", [IsNotFenced, NeverSettles, EndsFirst, EndsInTheOtherProtocol, HasOneTransactionalId]
)
def test_planted_faults_are_caught(recipe: Any, protocol: int) -> None:
    for seed in range(SEEDS):
        try:
            random_history(seed, protocol, recipe)
        except AssertionError:
            return
    pytest.fail(f"{recipe.__name__} is not caught")
