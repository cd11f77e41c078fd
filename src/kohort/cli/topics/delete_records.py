"""`kohort topics delete-records`: delete the records of partitions before an offset or a time.

The command shows the new start of each log, and asks. The end of a log is looked up before the question, so records
that arrive later stay.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, complete_topics, connected, fail
from kohort.cli.groups.wording import Line, show
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table
from kohort.cli.places import TOPIC_PARTITIONS, instant_of, partitions_in, scope_of, words_of
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition

UNDELETED = "nothing was deleted"
END = "end"


def delete_records(
    topic: Annotated[
        str,
        typer.Argument(metavar=TOPIC_PARTITIONS, help="All or some partitions.", autocompletion=complete_topics),
    ],
    before: Annotated[
        str | None, typer.Option(metavar=f"OFFSET|{END}", help="The first offset to keep, or the end of each log.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The time of the first record to keep (ISO 8601; local without a zone)."),
    ] = None,
    yes: Yes = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete the records before an offset or a time.

    Shows what would be deleted and asks; without a terminal it needs --yes.
    """
    scope = scope_of(TOPIC_PARTITIONS, [topic])
    if (before is None) == (before_time is None):
        raise typer.BadParameter("choose one of --before and --before-time")
    offset = _offset(before) if before is not None else None
    moment = instant_of("--before-time", before_time) if before_time is not None else None
    if moment is not None and moment[0] > time.time() * 1000:
        everything = f"to delete all records: --before {END}"
        raise typer.BadParameter(f"{moment[1]} is in the future; {everything}", param_hint=["--before-time"])
    with connected(where) as cluster:
        places = partitions_in(cluster, scope, UNDELETED)
        starts, ends = cluster.offsets(places, "earliest"), cluster.offsets(places, "latest")
        wanted = dict(ends) if offset is None else dict.fromkeys(places, offset)
        beyond: list[TopicPartition] = []
        if moment is not None:
            found = cluster.offsets(places, moment[0])
            beyond = [place for place in places if found[place] < 0]
            wanted = {place: ends[place] if found[place] < 0 else found[place] for place in places}
        elif after := [place for place in places if wanted[place] > ends[place]]:
            ended = ", ".join(f"{one}-{index} ends at {ends[one, index]}" for one, index in after)
            fail(f"offset {offset} is after the end of the log: {ended}; {UNDELETED}")
        wanted = {place: max(wanted[place], starts[place]) for place in places}
        count = sum(wanted[place] - starts[place] for place in places)
        if output == Format.TABLE:
            columns = [name("TOPIC"), *map(number, ("PARTITION", "START", "END", "NEW-START", "DELETED"))]
            print_table(
                columns,
                [
                    (*place, starts[place], ends[place], wanted[place], wanted[place] - starts[place])
                    for place in places
                ],
            )
            if moment is not None:
                show([Line(f"new starts: the first records at or after {moment[1]}")])
            if beyond:
                show([Line(f"no record at or after that time, so the end of the log: {words_of(beyond)}")])
        deleted = _delete(cluster, wanted, starts, count, yes, output)
    if output != Format.TABLE:
        rows = [
            {"topic": one, "partition": index, "old_start": starts[one, index], "new_start": deleted[one, index]}
            for one, index in places
        ]
        print_document(rows, output)


def _delete(
    cluster: Cluster,
    wanted: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    count: int,
    yes: bool,
    output: Format,
) -> dict[TopicPartition, int]:
    """Where each log begins afterwards."""
    changed = {place: offset for place, offset in wanted.items() if offset > starts[place]}
    if changed:
        # An offset may be no record: compaction removes records, and transactions have markers.
        what = f"{plural(count, 'record')} (at most) of {words_of(changed)}"
        question = f"Delete {what}? They cannot be restored."
        confirm(question, yes=yes, declined=UNDELETED, err=output != Format.TABLE)
        wanted = wanted | cluster.delete_records(changed)
    if output == Format.TABLE:
        places = words_of(changed)
        show([Line(f"deleted the records before the new starts: {places}" if changed else f"{UNDELETED}")])
    return wanted


def _offset(text: str) -> int | None:
    """None for the end."""
    if text.lower() == END:
        return None
    if not text.isdecimal() or int(text) >= 2**63:
        raise typer.BadParameter(f"{text!r} is no offset and not {END!r}", param_hint=["--before"])
    return int(text)
