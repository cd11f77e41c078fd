"""`kohort transactions find-hanging`: search partitions for transactions that nobody will end.

It is Kafka's own search (KIP-664): what is open in a partition and has not been written to for some time is compared
with what the coordinators have. The cluster leaves out topics that the user may not describe, without an error. So a
search that saw no partition at all is a failure.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    FAILED,
    ClusterOptions,
    complain,
    complete_topics,
    connected,
    missing,
)
from kohort.cli.groups.wording import Line, duration, show
from kohort.cli.option_objects import milliseconds
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table_of
from kohort.cli.stable_offsets import age
from kohort.client.admin.open_transactions import OpenTransaction, idle
from kohort.client.metadata import NO_LEADER

SEARCH = "kohort transactions find-hanging"
NO_PARTITION = (
    "no partition is visible: the cluster has no topics, or the user may not describe them; nothing was searched"
)


def find_hanging(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only in this topic; repeatable [default: all].", autocompletion=complete_topics
        ),
    ] = None,
    idle_for: Annotated[
        str, typer.Option(metavar="TIME", help="Only without a write for longer than this, as 30s, 5m or 1h.")
    ] = "15m",
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Find open transactions that nobody will end.

    They are open in a partition, and no coordinator has them. Exit code 0 also if some are found; 1 if a partition was
    not searched.
    """
    idle_for_ms = milliseconds("--idle-for", idle_for)
    with connected(where) as cluster:
        topics = cluster.topics(topic or None, internal=True).values()
        parts = [part for one in topics for part in one.partitions]
        places = [(part.topic, part.index) for part in parts if part.leader != NO_LEADER]
        opened = cluster.open_transactions(places, with_ids=False)
        candidates = idle(opened, idle_for_ms)
        found = cluster.hanging_transactions([one.place for one in candidates], idle_for_ms=idle_for_ms)
    if output != Format.TABLE:
        print_document([asdict(one) for one in found], output)
    elif places:
        checked = {(one.place, one.producer_id) for one in candidates}
        unchecked = {one.producer_id for one in opened if (one.place, one.producer_id) not in checked}
        _print(found, len(places), len(unchecked), idle_for_ms)
    errors = [missing(one).removesuffix(".") for one in topics if one.error]
    errors += [f"{part.topic}-{part.index} has no leader" for part in parts if part.leader == NO_LEADER]
    for error in errors:
        complain(f"{error}; not searched")
    if not places and not errors:
        complain(NO_PARTITION)
    if errors or not places:
        raise typer.Exit(FAILED)


def _print(found: list[OpenTransaction], searched: int, unchecked: int, idle_for_ms: int) -> None:
    if found:
        print_table_of(
            found,
            {
                name("TOPIC"): lambda row: row.topic,
                number("PARTITION"): lambda row: row.partition,
                number("START-OFFSET"): lambda row: row.start_offset,
                number("PRODUCER-ID"): lambda row: row.producer_id,
                number("EPOCH"): lambda row: row.producer_epoch,
                number("LAST-WRITE"): lambda row: f"{age(row.last_timestamp_ms)} ago",
                name("TRANSACTIONAL-ID"): lambda row: row.transactional_id,
            },
        )
    show([Line(f"{plural(searched, 'partition')}: {plural(len(found), 'hanging transaction')}")])
    if unchecked:
        young = f"{plural(unchecked, 'open transaction')} with a write in the last {duration(idle_for_ms)}"
        show([Line(f"not checked: {young}; --idle-for TIME checks more recent ones")])
    if found:
        first = found[0]
        show(
            [
                Line(
                    f"to abort the first one: kohort transactions abort --topic {first.topic} "
                    f"--partition {first.partition} --start-offset {first.start_offset}"
                )
            ]
        )
