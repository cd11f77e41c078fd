"""A world for the outbox's recipe: a database, a coordinator of transactions and processes, all of them in memory.

A process is a generator of requests; a schedule decides which process goes on, which one dies, which request fails and
when the coordinator's timeout ends a transaction. So every order of the requests of several processes can be tried. The
coordinator answers as Apache Kafka does (TransactionCoordinator.scala, 4.3), in both protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kohort.client.errors import ConnectionFailed
from kohort.client.outbox.payload import Outgoing, Placed, packed, unpacked
from kohort.client.outbox.recipe import Database, Execute, Kafka, Recipe, Step, Steps
from kohort.client.transactions.endings import Outcome
from kohort.client.transactions.identity import Prepared
from kohort.wire.batches import NewRecord, decode_records, encode_batch

NAME = "o"

Requests = Generator[str, None, Any]
"""Yields before each request, whose name it yields; another process may go on meanwhile."""


class Refused(Exception):
    """The coordinator's error."""


@dataclass
class _Transactions:
    """What the coordinator has of one transactional id."""

    producer_id: int
    epoch: int = -1
    state: str = "empty"
    open: list[str] = field(default_factory=list)


class Coordinator:
    """All of Kafka. `committed` is what readers of committed records get."""

    def __init__(self) -> None:
        self.ids: dict[str, _Transactions] = {}
        self.committed: list[str] = []

    def init(self, transactional_id: str) -> tuple[int, int]:
        of = self.ids.setdefault(transactional_id, _Transactions(len(self.ids)))
        self._abort(of)
        of.epoch += 1
        return of.producer_id, of.epoch

    def produce(self, transactional_id: str, epoch: int, values: Sequence[str]) -> None:
        of = self.ids[transactional_id]
        if epoch != of.epoch:
            raise Refused
        of.state = "ongoing"
        of.open += values

    def end(self, prepared: Prepared, *, commit: bool) -> int:
        """Returns the producer's next epoch."""
        of = self.ids[prepared.transactional_id]
        done = "committed" if commit else "aborted"
        if prepared.protocol == 2 and prepared.epoch + 1 == of.epoch:
            if of.state == done == "committed":
                return of.epoch
            raise Refused
        if prepared.epoch != of.epoch:
            raise Refused
        if of.state != "ongoing":
            if prepared.protocol == 1 and of.state == done == "committed":
                return of.epoch
            raise Refused
        if commit:
            self.committed += of.open
        of.open = []
        of.state = done
        of.epoch += prepared.protocol - 1
        return of.epoch

    def time_out(self) -> None:
        """The timeout of every open transaction passes."""
        for of in self.ids.values():
            if of.state == "ongoing":
                self._abort(of)

    def _abort(self, of: _Transactions) -> None:
        if of.state == "ongoing":
            of.open = []
            of.state = "aborted"
            of.epoch += 1


class Producer:
    """`KafkaSide`, as requests to the coordinator."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._id: str | None = None
        self._epoch: int | None = None
        self._used = False
        self._open: Prepared | None = None

    def open_session(self, transactional_id: str, abandoned: str | None) -> Requests:
        self._id, self._epoch, self._open = None, None, None
        if abandoned is not None:
            yield f"init {abandoned}"
            self._world.coordinator.init(abandoned)
        yield f"init {transactional_id}"
        _, self._epoch = self._world.coordinator.init(transactional_id)
        self._id, self._used = transactional_id, False

    def prepare(self, records: Sequence[Outgoing]) -> Requests:
        batches = [((record.topic, 0), encode_batch([record.record])) for record in records]
        prepared = yield from self.prepare_batches(batches)
        return prepared, batches

    def prepare_batches(self, batches: Sequence[Placed]) -> Requests:
        for attempt in range(2):
            try:
                return (yield from self._attempt(batches))
            except Refused:
                yield from self.give_up()
                if attempt:
                    raise ConnectionFailed("kafka", "fenced") from None
        raise AssertionError

    def _attempt(self, batches: Sequence[Placed]) -> Requests:
        assert self._id is not None
        if self._epoch is None or (self._used and self._world.protocol == 1):
            yield f"init {self._id}"
            _, self._epoch = self._world.coordinator.init(self._id)
        for value in values_of(batches):
            yield f"produce {value}"
            self._used = True
            self._world.coordinator.produce(self._id, self._epoch, [value])
        of = self._world.coordinator.ids[self._id]
        self._open = Prepared(self._id, of.producer_id, self._epoch, self._world.protocol)
        return self._open

    def end(self, prepared: Prepared) -> Requests:
        yield f"end {prepared.transactional_id}"
        own = prepared == self._open
        try:
            epoch = self._world.coordinator.end(prepared, commit=True)
        except Refused:
            if own:
                self._open, self._epoch = None, None
            return Outcome.OTHERWISE
        if self._world.fails("end"):
            raise ConnectionFailed("kafka", "no answer")
        if own:
            self._open, self._epoch = None, epoch
        return Outcome.DONE

    def give_up(self) -> Requests:
        self._open = None
        if self._id is not None and self._epoch is not None:
            yield f"abort {self._id}"
            of = self._world.coordinator.ids[self._id]
            try:
                self._epoch = self._world.coordinator.end(
                    Prepared(self._id, of.producer_id, self._epoch, self._world.protocol), commit=False
                )
            except Refused:
                self._epoch = None


class Locked(Exception):
    """Another process has the row's lock, so this one waits."""


class DatabaseFailure(Exception):
    """What a driver raises."""


class Rows:
    """A database: the outbox's row, the values of the program, and the row's lock."""

    def __init__(self) -> None:
        self.row: tuple[Any, ...] | None = None
        self.values: list[str] = []
        self.holder: Session | None = None


class Session:
    """A connection to the database; a lost one rolls back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rows = world.rows
        self._row: tuple[Any, ...] | None = None
        self._values: list[str] = []
        self._open = False

    def insert(self, value: str) -> None:
        self._values.append(value)

    def step(self, step: Database | Execute) -> Any:
        if isinstance(step, Execute):
            return getattr(self, step.statement)(*step.parameters)
        return getattr(self, step.value)()

    def begin(self) -> None:
        assert not self._open, "the recipe begins a transaction in a transaction"
        self._open, self._row, self._values = True, None, []

    def commit(self) -> None:
        assert self._open, "the recipe commits nothing"
        if self._world.fails("commit before"):
            self.lose()
            raise DatabaseFailure("refused")
        if self.holds:
            self._rows.row = self._row
        self._rows.values += self._values
        self.lose()
        if self._world.fails("commit after"):
            raise DatabaseFailure("no answer")

    def rollback(self) -> None:
        self.lose()

    def lose(self) -> None:
        self._open = False
        if self.holds:
            self._rows.holder = None

    @property
    def holds(self) -> bool:
        return self._rows.holder is self

    def claim(self, name: str) -> list[Any]:
        self._lock()
        present = self._row or (0, None, None, None, None, None)
        self._row = (present[0] + 1, *present[1:])
        return [self._row]

    def claim_again(self, name: str, session: int) -> list[Any]:
        return self._update(session, lambda row: (row[0] + 1, *row[1:]))

    def note(self, *parameters: Any) -> list[Any]:
        return self._update(parameters[6], lambda row: (row[0], *parameters[:5]))

    def settle(self, name: str, session: int) -> list[Any]:
        return self._update(session, lambda row: (row[0], None, None, None, None, None))

    def _update(self, session: int, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> list[Any]:
        self._lock()
        if self._row is None or self._row[0] != session:
            return []
        self._row = change(self._row)
        return [self._row]

    def _lock(self) -> None:
        assert self._open, "the recipe executes a statement outside of a transaction"
        if self._rows.holder not in (None, self):
            raise Locked
        if not self.holds:
            self._rows.holder, self._row = self, self._rows.row


class World:
    """One database and one cluster; `faults` chooses which requests fail."""

    def __init__(self, protocol: int, faults: Random | None = None, rate: float = 0.0) -> None:
        self.protocol = protocol
        self.coordinator = Coordinator()
        self.rows = Rows()
        self._faults, self._rate = faults, rate

    def fails(self, what: str) -> bool:
        return self._faults is not None and self._faults.random() < self._rate

    def violation(self) -> str | None:
        """What is wrong once everything is finished."""
        if self.rows.row is None or self.rows.row[1] is not None:
            return f"the row is not finished: {self.rows.row}"
        read = self.coordinator.committed
        if sorted(read) != sorted(self.rows.values):
            return f"the database has {self.rows.values}, readers have {read}"
        return None


class Process:
    """One process: recovers the outbox, then has transactions, each with two records, until an exception ends it."""

    def __init__(self, world: World, name: str, transactions: int, recipe: Callable[[str], Recipe] = Recipe) -> None:
        self.name = name
        self.done = False
        self.claimed_committed: list[str] = []
        """The values of the blocks that ended normally."""
        self.claimed_rolled_back: list[str] = []
        self._world = world
        self._transactions = transactions
        self._recipe = recipe(NAME)
        self._producer = Producer(world)
        self._session = Session(world)
        self._requests = self._run()

    def go_on(self) -> str | None:
        """Until before the next request, whose name is returned; None if the process has ended."""
        try:
            return next(self._requests)
        except StopIteration:
            self.done = True
            return None

    def die(self) -> None:
        self.done = True
        self._requests.close()
        self._session.lose()

    def _run(self) -> Iterator[str]:
        yield "start"
        yield from self._ended_by_errors(self._do(self._recipe.recover()))
        for number in range(self._transactions):
            yield from self._ended_by_errors(self._transaction(number))

    def _ended_by_errors(self, requests: Requests) -> Requests:
        """A program logs the error and goes on."""
        try:
            yield from requests
        except Exception as error:
            yield f"{type(error).__name__}"

    def _transaction(self, number: int) -> Requests:
        value = f"{self.name}{number}"
        records = [Outgoing("t", 0, NewRecord(None, f"{value}{part}".encode(), 1)) for part in "xy"]
        values = [f"{value}{part}" for part in "xy"]
        yield from self._do(self._recipe.begin())
        for each in values:
            self._session.insert(each)
        try:
            yield from self._do(self._recipe.commit(records))
        except Exception as error:
            if type(error).__name__ != "CommitUnknown":
                self.claimed_rolled_back += values
            raise
        self.claimed_committed += values

    def _do(self, steps: Steps) -> Requests:
        try:
            step = next(steps)
            while True:
                try:
                    result = yield from self._carry_out(step)
                except GeneratorExit:
                    raise
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration:
            return

    def _carry_out(self, step: Step) -> Requests:
        if isinstance(step, Kafka):
            return (yield from getattr(self._producer, step.method)(*step.arguments))
        while True:
            yield step.value if isinstance(step, Database) else step.statement
            try:
                return self._session.step(step)
            except Locked:
                continue


def values_of(batches: Sequence[Placed]) -> list[str]:
    assert unpacked(packed(batches)) == list(batches)
    return [(record.value or b"").decode() for _, batch in batches for record in decode_records(batch)]


def finish(world: World) -> None:
    """A last process recovers, without faults."""
    world._faults = None
    last = Process(world, "last", 0)
    while not last.done:
        last.go_on()
