"""`kohort transactions`: list and describe transactions over the public protocol.

`describe` puts together what the coordinator knows (state, time-out, partitions) and what the partitions know (where
the transaction begins, where readers of committed records have to stop). From kohort's journal it adds the transactions
of the id that the coordinator aborted because they timed out or another producer fenced theirs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    EXIT_CODES,
    FAILED,
    ClusterOptions,
    complain,
    complete_transactions,
    connected,
)
from kohort.cli.groups.wording import Line, duration, instant, show
from kohort.cli.groups.wording import partitions as partition_ranges
from kohort.cli.option_objects import App, choice, milliseconds
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table, print_table_of
from kohort.cli.transactions.abort import abort
from kohort.cli.transactions.find_hanging import SEARCH, find_hanging
from kohort.client.admin.transactions import ANY, OPEN_STATES, STATES, TransactionDescription
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.client.metadata import Node, TopicPartition
from kohort.wire.errors import ErrorCode

app = App(epilog=EXIT_CODES, no_args_is_help=True)

HINT = f"if a partition has one open nevertheless, it hangs: {SEARCH}"
MOST_PRODUCER_ID = 2**63 - 1


def _producer_id(given: str) -> int:
    if not (given.isascii() and given.isdigit() and int(given) <= MOST_PRODUCER_ID):
        raise typer.BadParameter(f"{given!r} is no producer id; a producer id is a whole number")
    return int(given)


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only in this state, such as Ongoing; repeatable.", **choice(STATES)),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", parser=_producer_id, help="Only of this producer id; repeatable."),
    ] = None,
    open_for: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only open for longer than this, as 30s, 5m or 1h (Kafka 3.8 and later)."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match this as a whole (Kafka 4.1 and later)."),
    ] = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List transactional ids and their states."""
    longer_than_ms = ANY if open_for is None else milliseconds("--open-for", open_for)
    states = state or (() if open_for is None else OPEN_STATES)
    with connected(where) as cluster:
        try:
            listed = cluster.list_transactions(
                states, producer_id or (), longer_than_ms=longer_than_ms, pattern=pattern
            )
        except ServerError as error:
            if error.code != ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise
            raise typer.BadParameter(f"{pattern!r} is no regular expression of RE2", param_hint=["--pattern"]) from None
    rows = [(one.transactional_id, one.producer_id, one.state, one.coordinator) for one in listed]
    if output != Format.TABLE:
        names = ("transactional_id", "producer_id", "state", "coordinator")
        print_document([dict(zip(names, row, strict=True)) for row in rows], output)
        return
    print_table([name("TRANSACTIONAL-ID"), number("PRODUCER-ID"), name("STATE"), number("COORDINATOR")], rows)


@app.command("describe")
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL-ID", autocompletion=complete_transactions)],
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", min=0, max=10_000, help="Number of fenced and timed out transactions, the newest."
        ),
    ] = 5,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Describe transactions: state, age, producer, partitions.

    Also shows where readers of committed records wait, and which transactions of the id were fenced or timed out.
    """
    documents: list[dict[str, Any]] = []
    with connected(where) as cluster:
        found = cluster.describe_transactions(names, aborts=last)
        for index, one in enumerate(found.values()):
            document = _document(one, cluster.nodes(), _partitions(cluster, one))
            documents.append(document)
            if output == Format.TABLE:
                if index:
                    typer.echo("")
                _print(one, document)
    if output != Format.TABLE:
        print_document(documents, output)
    missing = [wanted for wanted in dict.fromkeys(names) if wanted not in found]
    for wanted in missing:
        complain(f"transactional id {wanted} does not exist")
    if missing:
        raise typer.Exit(FAILED)


app.command("abort")(abort)
app.command("find-hanging")(find_hanging)


def _partitions(cluster: Cluster, transaction: TransactionDescription) -> list[dict[str, Any]]:
    """The transaction's partitions; unknown values are None."""
    topics = cluster.topics({topic for topic, _ in transaction.partitions})
    led = {(part.topic, part.index) for topic in topics.values() for part in topic.partitions if part.leader >= 0}
    places = [place for place in transaction.partitions if place in led]
    starts = _starts(cluster, places, transaction.producer_id)
    ends = cluster.offsets(places, "latest")
    stable = cluster.offsets(places, "latest", isolation="read_committed")
    return [
        {
            "topic": place[0],
            "partition": place[1],
            "start_offset": starts.get(place),
            "last_stable_offset": stable.get(place),
            "log_end_offset": ends.get(place),
        }
        for place in transaction.partitions
    ]


def _starts(cluster: Cluster, places: list[TopicPartition], producer_id: int) -> dict[TopicPartition, int]:
    """First offsets; none where the cluster does not tell them to this client."""
    try:
        found = cluster.open_transactions(places, with_ids=False)
    except (UnsupportedVersion, ServerError) as error:
        complain(f"first offsets are not shown: {error.message}")
        return {}
    return {one.place: one.start_offset for one in found if one.producer_id == producer_id}


def _document(
    transaction: TransactionDescription, nodes: Mapping[int, Node], partitions: list[dict[str, Any]]
) -> dict[str, Any]:
    node = nodes.get(transaction.coordinator)
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": {"id": transaction.coordinator, "address": node.address if node else None},
        "timeout_ms": transaction.timeout_ms,
        "started_ms": transaction.started_ms,
        "open_for_ms": open_for_ms(transaction),
        "partitions": partitions,
        "aborts": list(transaction.aborts),
    }


def open_for_ms(transaction: TransactionDescription) -> int | None:
    """By this machine's clock; None if no transaction is open."""
    if not transaction.open or transaction.started_ms is None:
        return None
    return max(time.time_ns() // 1_000_000 - transaction.started_ms, 0)


def _print(transaction: TransactionDescription, document: Mapping[str, Any]) -> None:
    coordinator = document["coordinator"]
    show(
        [
            Line(f"{transaction.transactional_id}: {_state(transaction, document['open_for_ms'])}", bold=True),
            Line(
                f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}; "
                f"coordinator {coordinator['address'] or 'unknown'} ({coordinator['id']})",
                2,
            ),
            *([] if transaction.open else [Line(HINT, 2)]),
        ]
    )
    if document["partitions"]:
        print_table_of(
            document["partitions"],
            {
                name("TOPIC"): lambda row: row["topic"],
                number("PARTITION"): lambda row: row["partition"],
                number("START-OFFSET"): lambda row: row["start_offset"],
                number("LAST-STABLE-OFFSET"): lambda row: row["last_stable_offset"],
                number("LOG-END-OFFSET"): lambda row: row["log_end_offset"],
            },
        )
    if transaction.aborts:
        show([Line("Aborted by the coordinator", 2), *(Line(_abort(entry), 4) for entry in transaction.aborts)])


def _abort(entry: Mapping[str, Any]) -> str:
    open_for = duration(entry["open_for_ms"])
    if entry["what"] == "timed out":
        why = f"timed out after {open_for} (time-out {duration(entry['timeout_ms'])})"
    else:
        client, host = entry.get("client_id", ""), entry.get("host", "")
        who = f"client {client} at {host}" if client else f"a client at {host}"
        why = f"fenced after {open_for}: {who} asked for the id"
    places = partition_ranges(entry.get("partitions"))
    left = entry["partitions_count"] - sum(len(indexes) for indexes in entry.get("partitions", {}).values())
    more = f" and {plural(left, 'more partition')}" if left else ""
    producer = f"producer {entry['producer_id']}, epoch {entry['producer_epoch']}"
    return f"{instant(entry['at_ms'])}  {why}; {producer}; {places}{more}"


def _state(transaction: TransactionDescription, age_ms: int | None) -> str:
    if not transaction.open:
        return f"{transaction.state}, no transaction is open"
    age = "" if age_ms is None else f" for {duration(age_ms)}"
    if transaction.state != "Ongoing":
        left = plural(len(transaction.partitions), "partition")
        return f"{transaction.state}{age}, {left} without marker"
    if transaction.started_ms is None:
        return f"{transaction.state}{age}"
    ends_ms = transaction.started_ms + transaction.timeout_ms
    return f"{transaction.state}{age}, times out at {instant(ends_ms)} (time-out {duration(transaction.timeout_ms)})"
