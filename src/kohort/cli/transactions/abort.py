"""`kohort transactions abort`: end a transaction that holds back readers of committed records.

Two cases. A transaction that its coordinator has is named by its transactional id: InitProducerId makes the coordinator
abort it in all partitions, and fences its producer. A hanging transaction, which no coordinator has, is named by its
partition: the partition's leader gets the abort marker. The second way is refused for a transaction that a coordinator
has, because its other partitions could still be committed.

The command says what will happen, and acts after a confirmation on a terminal or with `--yes`. A transaction may end
while the question waits, and its producer may begin the next one, so the command looks again after the confirmation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    ClusterOptions,
    complete_topics,
    complete_transactions,
    connected,
    fail,
    partitions_of,
)
from kohort.cli.groups.wording import Line, partitions, show
from kohort.cli.stable_offsets import age, transaction_words
from kohort.cli.transactions.find_hanging import SEARCH
from kohort.client.admin.open_transactions import OpenTransaction
from kohort.client.admin.transactions import TransactionDescription
from kohort.client.cluster import Cluster
from kohort.wire.embedded import by_topic

WAYS = "a TRANSACTIONAL-ID, or --topic and --partition of a hanging transaction"
NOTHING_DONE = "nothing was aborted"
WRONG_USAGE = 2


def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="TRANSACTIONAL-ID", autocompletion=complete_transactions, show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Topic of a hanging transaction.", autocompletion=complete_topics),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Partition of a hanging transaction.")] = None,
    start_offset: Annotated[
        int | None, typer.Option(min=0, help="Where the hanging transaction begins, if several are open.")
    ] = None,
    yes: Yes = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Abort a transaction by its id or its partition.

    The partition is for a hanging transaction. Asks first on a terminal; without a terminal, --yes is needed.
    """
    by_partition = {"--topic": topic, "--partition": partition, "--start-offset": start_offset}
    given = [option for option, value in by_partition.items() if value is not None]
    if transactional_id is not None and given:
        raise typer.BadParameter(f"{transactional_id!r} and {given[0]} are given; name {WAYS}, not both")
    if transactional_id is not None:
        with connected(where) as cluster:
            _abort_by_id(cluster, transactional_id, yes)
        return
    if not given:
        raise typer.BadParameter(f"name {WAYS}")
    if topic is None or partition is None:
        raise typer.BadParameter(f"{'--topic' if topic is None else '--partition'} is missing beside {given[-1]}")
    with connected(where) as cluster:
        _abort_hanging(cluster, topic, partition, start_offset, yes)


def _agreed(plan: Sequence[str], yes: bool) -> None:
    """Show what will happen; end the command unless the user wants it."""
    show(Line(line, 2 if number else 0) for number, line in enumerate(plan))
    confirm("Abort it?", yes=yes, declined=NOTHING_DONE)


# -- by transactional id


def _abort_by_id(cluster: Cluster, transactional_id: str, yes: bool) -> None:
    found = cluster.describe_transactions([transactional_id]).get(transactional_id)
    if found is None:
        fail(f"transactional id {transactional_id} does not exist; {NOTHING_DONE}")
    if found.state != "Ongoing":
        why = "it is decided, and its end is under way" if found.open else "no transaction is open"
        hint = "" if found.open else f"; to find one that hangs in a partition: {SEARCH}"
        fail(f"{transactional_id} is in state {found.state}: {why}; {NOTHING_DONE}{hint}")
    _agreed(_plan(found), yes)
    now = cluster.describe_transactions([transactional_id]).get(transactional_id)
    if now is None or _identity(now) != _identity(found):
        fail(f"the transaction of {transactional_id} has ended meanwhile; {NOTHING_DONE}")
    producer_id, epoch = cluster.fence_producer(transactional_id, timeout_ms=found.timeout_ms)
    done = f"aborted the transaction of {transactional_id}; the next producer is {producer_id}, epoch {epoch}"
    show([Line(done)])


def _identity(found: TransactionDescription) -> tuple[object, ...]:
    return found.state, found.started_ms, found.producer_id, found.producer_epoch


def _plan(found: TransactionDescription) -> list[str]:
    began = "" if found.started_ms is None else f", began {age(found.started_ms)} ago"
    places = partitions(dict(by_topic(found.partitions))) or "no partition"
    return [
        f"{found.transactional_id}: producer {found.producer_id}, epoch {found.producer_epoch}{began}",
        f"The transaction is aborted in {places}: readers of committed records skip its records and go on, "
        "and offsets of groups that it would commit are dropped.",
        "Its producer is fenced: if it still runs, its requests fail, and it has to begin anew.",
    ]


# -- by partition


def _abort_hanging(cluster: Cluster, topic: str, partition: int, start_offset: int | None, yes: bool) -> None:
    partitions_of(cluster.topics([topic])[topic], [partition], NOTHING_DONE)
    place = (topic, partition)
    chosen = _chosen(cluster.open_transactions([place]), place, start_offset)
    if not _hangs(cluster, chosen):
        name = chosen.transactional_id
        by_id = f"its coordinator has it; use: kohort transactions abort {name}" if name else "it has ended meanwhile"
        fail(f"{transaction_words(chosen)} does not hang: {by_id}; {NOTHING_DONE}")
    _agreed(
        [
            f"{topic}-{partition}: {transaction_words(chosen)} hangs, open since offset {chosen.start_offset}",
            f"Its abort marker is written to {topic}-{partition} alone: readers of committed records skip the "
            f"producer's records from offset {chosen.start_offset} on.",
            "No coordinator takes part. This cannot be undone.",
        ],
        yes,
    )
    if not _hangs(cluster, chosen):
        fail(f"the transaction in {topic}-{partition} has ended meanwhile; {NOTHING_DONE}")
    cluster.abort_in_partition(chosen)
    stable = cluster.offsets([place], "latest", isolation="read_committed")[place]
    done = f"aborted the transaction in {topic}-{partition}; readers of committed records go on to offset {stable}"
    show([Line(done)])


def _hangs(cluster: Cluster, transaction: OpenTransaction) -> bool:
    hanging = cluster.hanging_transactions([transaction.place], idle_for_ms=None)
    return any(
        (one.producer_id, one.start_offset) == (transaction.producer_id, transaction.start_offset) for one in hanging
    )


def _chosen(found: Sequence[OpenTransaction], place: tuple[str, int], start_offset: int | None) -> OpenTransaction:
    name = f"{place[0]}-{place[1]}"
    offsets = ", ".join(str(one.start_offset) for one in found)
    fitting = [one for one in found if start_offset in (None, one.start_offset)]
    if not found:
        fail(f"no transaction is open in {name}; {NOTHING_DONE}")
    if not fitting:
        fail(f"no transaction begins at offset {start_offset} of {name}; open ones begin at {offsets}; {NOTHING_DONE}")
    if len(fitting) > 1:
        fail(f"{len(found)} transactions are open in {name}; name one by --start-offset: {offsets}; {NOTHING_DONE}")
    return fitting[0]
