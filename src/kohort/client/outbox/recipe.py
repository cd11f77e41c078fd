"""The order in which an outbox does things to the database and to Kafka. Without IO.

A generator yields a step and gets its result, or the exception that it raised; `outbox.py` and `blocking.py` carry the
steps out, the one awaiting, the other blocking. `transaction` is:

    begin             the database transaction; the program's own statements follow
    prepare           all records are in Kafka, in an open transaction (producer id, epoch)
    note              in the database transaction: the row says that Kafka must commit it
    commit            the database; this decides
    end               Kafka commits
    settle            the row says that Kafka has committed

A process that dies before the database commits leaves no row, and Kafka aborts the transaction. If it dies later, the
row is there: `recover` lets Kafka commit it. EndTxn may be repeated, until it is noted. If Kafka has aborted the
transaction meanwhile, because it was open for too long, the records in the row are sent again.

Every statement names the session that this process has begun, and `recover` begins a new one first. So from then on the
process of the old session can neither commit nor settle; what it has prepared is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NoReturn

from kohort.client.errors import KafkaError, Misuse
from kohort.client.outbox.errors import CommitUnknown, OutboxTakenOver, OutcomeForgotten
from kohort.client.outbox.payload import Outgoing, packed, unpacked
from kohort.client.outbox.table import Row, read_row
from kohort.client.transactions.endings import Outcome
from kohort.client.transactions.identity import Prepared

log = logging.getLogger("kohort.client")

RESENDS = 3
"""How often records are sent again in one call, if Kafka aborts one transaction after the other."""

Forgotten = Literal["raise", "send", "drop"]


class Database(Enum):
    """Steps of the database: a transaction of its own for each `begin`."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Execute:
    """A statement of `table.Statements`, by its name. The result is the list of its rows."""

    statement: str
    parameters: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Kafka:
    """A method of `KafkaSide`. The result is what it returns."""

    method: str
    arguments: tuple[Any, ...]


Step = Database | Execute | Kafka
Steps = Generator[Step, Any, Any]


class Recipe:
    """An outbox's state between its steps. Transactions and recoveries do not overlap."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: int | None = None
        """The session that this process has begun; None if it has none, or not any more."""
        self.unfinished = False
        """True if the row may have a transaction that Kafka has not committed yet, or not as far as is known."""
        self._taken_over = False

    # -- what the program calls

    def create_table(self) -> Steps:
        yield Database.BEGIN
        yield from self._within(Execute("create", ()))
        yield Database.COMMIT

    def recover(self, forgotten: Forgotten = "raise") -> Steps:
        """Begin a new session, and finish what the one before has left. Raises OutcomeForgotten."""
        found = yield from self._alone(Execute("claim", (self.name,)))
        self._taken_over = False
        yield from self._begin_session(read_row(found[0]), forgotten)

    def begin(self) -> Steps:
        """The steps at the beginning of the block."""
        if self._taken_over:
            raise OutboxTakenOver(self.name)
        if self.session is None:
            raise Misuse(f"outbox {self.name}: call recover once before the first transaction")
        if self.unfinished:
            yield from self._finish_own()
        yield Database.BEGIN

    def roll_back(self) -> Steps:
        """The block has raised an exception: nothing of it has reached Kafka."""
        try:
            yield Database.ROLLBACK
        except Exception as error:  # the connection is lost, which rolls back too
            log.info("outbox %s: rollback: %s", self.name, error)

    def commit(self, records: Sequence[Outgoing]) -> Steps:
        """The steps at the end of the block. Returns once the database has committed; raises if it has not."""
        if not records:
            yield from self._within(Database.COMMIT)
            return
        self.unfinished = True
        prepared, data = yield from self._prepare(records)
        finishing = self._finish(prepared, data, "raise")
        try:
            yield Database.COMMIT
        except Exception as error:
            row = yield from self._after_failed_commit(prepared, error)
            finishing = self._begin_session(row, "raise")
        try:
            yield from finishing
        except OutboxTakenOver:
            log.info("outbox %s: another process finishes the last transaction", self.name)
        except Exception as error:
            log.warning("outbox %s: committed; the records will be visible later: %s", self.name, error)

    # -- parts of a transaction

    def _prepare(self, records: Sequence[Outgoing]) -> Generator[Step, Any, tuple[Prepared, bytes]]:
        """Everything before the database's commit; undone if it fails."""
        try:
            prepared, batches = yield Kafka("prepare", (records,))
            data = packed(batches)
            noted = yield self._note(prepared, data)
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._undo()
            raise
        if not noted:
            yield from self._undo()
            self._lose()
        return prepared, data

    def _undo(self) -> Steps:
        try:
            yield Database.ROLLBACK
        except Exception as error:  # the connection is lost, which rolls back too
            log.info("outbox %s: rollback: %s", self.name, error)
        yield Kafka("give_up", ())
        self.unfinished = False

    def _after_failed_commit(self, prepared: Prepared, error: Exception) -> Generator[Step, Any, Row]:
        """Ask the database what has happened. Returns the row if it has committed; raises `error` if it has not."""
        try:
            yield Database.ROLLBACK
        except Exception as failure:
            log.debug("outbox %s: rollback: %s", self.name, failure)
        try:
            row = yield from self._claim_again()
        except Exception:  # also if another process has the outbox, which knows more
            raise CommitUnknown(self.name, error) from error
        if row.prepared == prepared:
            return row
        try:
            yield from self._begin_session(row, "raise")
        except KafkaError as failure:
            log.info("outbox %s: the next transaction begins a session: %s", self.name, failure)
        raise error

    def _finish_own(self) -> Steps:
        """Settle the last transaction of this process, of which something is unknown."""
        row = yield from self._claim_again()
        yield from self._begin_session(row, "raise")

    def _claim_again(self) -> Generator[Step, Any, Row]:
        found = yield from self._alone(Execute("claim_again", (self.name, self.session)))
        if not found:
            self._lose()
        row = read_row(found[0])
        self.session = row.session
        return row

    # -- sessions

    def transactional_id(self, session: int) -> str:
        return f"{self.name}-{session}"

    def _begin_session(self, row: Row, forgotten: Forgotten) -> Steps:
        """The row says that this process has the outbox. Finish the transaction in it, if there is one."""
        self.session = row.session
        self.unfinished = True
        before = self.transactional_id(row.session - 1)
        free = row.session > 1 and (row.prepared is None or row.prepared.transactional_id != before)
        yield Kafka("open_session", (self.transactional_id(row.session), before if free else None))
        if row.prepared is not None:
            assert row.records is not None
            yield from self._finish(row.prepared, row.records, forgotten)
        self.unfinished = False

    def _finish(self, prepared: Prepared, data: bytes, forgotten: Forgotten) -> Steps:
        """The database has committed: Kafka must. Raises KafkaError; then it is not finished."""
        for _ in range(1 + RESENDS):
            outcome = yield Kafka("end", (prepared,))
            if outcome is Outcome.FORGOTTEN and forgotten == "raise":
                raise OutcomeForgotten(self.name, prepared.transactional_id)
            if outcome is Outcome.DONE or (outcome is Outcome.FORGOTTEN and forgotten == "drop"):
                settled = yield from self._alone(Execute("settle", (self.name, self.session)))
                if not settled:
                    self._lose()
                self.unfinished = False
                return
            log.warning("outbox %s: Kafka has aborted a committed transaction; its records are sent again", self.name)
            prepared = yield Kafka("prepare_batches", (unpacked(data),))
            if not (yield from self._alone(self._note(prepared, data))):
                yield Kafka("give_up", ())
                self._lose()
        raise KafkaError(
            None,
            f"outbox {self.name}: Kafka has aborted the transaction {1 + RESENDS} times before it was committed; is "
            "transaction_timeout_ms too short?",
        )

    def _note(self, prepared: Prepared, data: bytes) -> Execute:
        return Execute(
            "note",
            (
                prepared.transactional_id,
                prepared.producer_id,
                prepared.epoch,
                prepared.protocol,
                data,
                self.name,
                self.session,
            ),
        )

    def _lose(self) -> NoReturn:
        self.session = None
        self.unfinished = False
        self._taken_over = True
        raise OutboxTakenOver(self.name)

    # -- transactions of the database

    def _alone(self, statement: Execute) -> Generator[Step, Any, list[Any]]:
        """The statement in a transaction of its own."""
        yield Database.BEGIN
        found: list[Any] = yield from self._within(statement)
        yield from self._within(Database.COMMIT)
        return found

    def _within(self, step: Step) -> Steps:
        """The step in the open transaction, which is rolled back if the step fails."""
        try:
            return (yield step)
        except GeneratorExit:
            raise
        except BaseException:
            try:
                yield Database.ROLLBACK
            except Exception as error:
                log.debug("outbox %s: rollback: %s", self.name, error)
            raise
