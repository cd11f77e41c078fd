"""The driver's part of `delivery=exactly-once`: commits the transactions of a batch whose tasks are all prepared.

A batch is several transactions, and they cannot be committed in one step. So the decision to commit is written down
first (`ledger.py`), and a batch that comes again is compared with it:

    the newest decision is of   done transactions   what happens
    no or an older batch        -                   decide, commit all
    this batch                  all                 an earlier run has written it: abort what was prepared now
    this batch                  none                decide again, commit all
    this batch                  some                commit the tasks that are missing, abort the others
    a newer batch               -                   refuse

"Some" happens only if the driver dies, or a transaction ends by its timeout, between the first and the last commit. In
that case the rows of a missing task must be the ones that it had then. So the batch must have the same number of tasks,
else it is refused; Spark divides a repeated batch as before unless options or code have changed.

Before anything is looked up, no other process can change it: the newest attempt of each task has fenced the earlier
ones, the new decision has fenced older drivers, and tasks that wrote nothing this time are fenced here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from kohort.client.errors import KafkaError
from kohort.client.transactions import Outcome, Prepared, end_prepared, renew_connections
from kohort.client.wire.routing import Router
from kohort.spark.options.sink import SinkOptions
from kohort.spark.runtime.failures import warn
from kohort.spark.sink.failures import NotCommitted
from kohort.spark.sink.ledger import Decision, Ledger, ensure_topic
from kohort.spark.sink.transactional_task import InTransaction, router_of

_prepared: set[tuple[str, str]] = set()
"""Clusters and topics that this process has seen."""


def prepare(options: SinkOptions) -> None:
    """Make what the tasks need, before they run. Raises OptionError, KafkaError."""
    exactly_once = options.exactly_once
    assert exactly_once is not None
    place = exactly_once.bootstrap_servers, exactly_once.ledger_topic
    if place not in _prepared:
        ensure_topic(router_of(exactly_once, options.security), exactly_once.ledger_topic)
        _prepared.add(place)


def commit(options: SinkOptions, messages: Sequence[object], batch: int) -> None:
    """Commit a batch: each of its rows is written once, however often the batch was tried. Raises NotCommitted,
    KafkaError; then the batch may be written in part, and must be repeated."""
    reports = [message for message in messages if isinstance(message, InTransaction)]
    prepared = {report.task: report.prepared for report in reports if report.prepared is not None}
    if not prepared:
        return
    exactly_once = options.exactly_once
    assert exactly_once is not None
    router = _router(options, prepared.values())
    application = reports[0].application
    ledger = Ledger(router, exactly_once.ledger_topic, application, exactly_once.timeout_ms)
    what = f"{application}, batch {batch}"
    done = _done(ledger, Decision(batch, len(messages), len(prepared)), prepared.keys(), what)
    for task, transaction in sorted(prepared.items()):
        if task in done:
            _abort(router, transaction)
        else:
            _commit(router, transaction, f"{what}, task {task}")


def _done(ledger: Ledger, now: Decision, tasks: Set[int], what: str) -> set[int]:
    """The tasks whose rows are written already. The decision is durable then. Raises NotCommitted."""
    before = ledger.newest()
    if before is not None and before.batch > now.batch:
        raise NotCommitted(
            f"{what} comes after batch {before.batch} of the same application: another run of the query is active, or "
            "its checkpoint was set back. To write the batches again, set the option txnAppId to a new name"
        )
    if before is not None and before.batch == now.batch:
        ledger.fence(set(range(max(before.tasks, now.tasks))).difference(tasks))
        done = ledger.written(now.batch, before.tasks)
        if len(done) == before.transactions:
            return done | set(tasks)
        if done and before.tasks != now.tasks:
            raise NotCommitted(
                f"{what} was written in part by {before.tasks} tasks, and has {now.tasks} now, so its rows are divided "
                "in another way. Repeat it with the options and the code of the first attempt"
            )
        if done:
            return done
    ledger.decide(now)
    return set()


def _commit(router: Router, transaction: Prepared, what: str) -> None:
    if end_prepared(router, transaction) is not Outcome.DONE:
        raise NotCommitted(
            f"the transaction of {what} has ended without a commit: the batch took longer than "
            "kafka.transaction.timeout.ms, or a second attempt of the task began (spark.speculation). The batch must "
            "be repeated"
        )


def abort(options: SinkOptions, messages: Sequence[object]) -> None:
    """Abort what the tasks of a failed batch have prepared. Never fails."""
    reports = (message for message in messages if isinstance(message, InTransaction))
    prepared = [report.prepared for report in reports if report.prepared is not None]
    router = _router(options, prepared)
    for transaction in prepared:
        _abort(router, transaction)


def _router(options: SinkOptions, prepared: Collection[Prepared]) -> Router:
    """For the ends of these transactions."""
    assert options.exactly_once is not None
    router = router_of(options.exactly_once, options.security)
    renew_connections(router, prepared)
    return router


def _abort(router: Router, transaction: Prepared) -> None:
    try:
        end_prepared(router, transaction, committed=False)
    except KafkaError as error:
        warn(f"the transaction {transaction.transactional_id} stays open until its timeout: {error}")
