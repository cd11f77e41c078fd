"""`kohort groups redeliver`: finished records of a share group are delivered again, while the group goes on.

Records that were archived because they were rejected or delivered too often, or that were accepted by mistake. The
start offset goes back to the first of them; what is finished behind it stays so. Only kohort does this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from kohort.cli.confirmation import DRY_RUN, Execute, YesToExecute, confirm
from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    FAILED,
    ClusterOptions,
    Group,
    complain,
    complete_topics,
    connected,
    fail,
)
from kohort.cli.groups.shares.describing import offsets_words, share_offsets_of
from kohort.cli.groups.shares.targets import chosen, share_group
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import choice
from kohort.cli.output import Cell, Column, Format, Output, name, number, plural, print_document, print_table
from kohort.cli.places import TOPIC_PARTITIONS, scope_of, words_of
from kohort.client.admin.share_groups import ShareOffsets
from kohort.client.metadata import TopicPartition
from kohort.wire.errors import ErrorCode

UNCHANGED = "nothing is delivered again"
ONLY_KOHORT = (
    "only kohort delivers finished records again; elsewhere stop the members, and use kohort groups reset-offsets"
)
REASONS = ("rejected", "delivered too often")
KNOWN = 1_000
"""Archived ranges of a partition that are asked for."""
MOST_RANGES = 500
"""Of one partition, as the server takes them."""
LARGEST_OFFSET = 2**62
COLUMNS = (name("TOPIC"), number("PARTITION"), Column("OFFSETS", right=True), number("RECORDS"), Column("WHY"))


class Again(NamedTuple):
    """A range that is to be delivered again. `why`: for what it was archived, empty if that is not known."""

    place: TopicPartition
    first: int
    last: int
    why: str = ""

    @property
    def records(self) -> int:
        return self.last - self.first + 1


def redeliver(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar=TOPIC_PARTITIONS,
            help="Only of this topic, or of these partitions of it; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    offset: Annotated[
        list[str] | None, typer.Option(metavar="N|N-M", help="These offsets of one partition; repeatable.")
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="The archived records that groups describe knows.")
    ] = False,
    why: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="With --archived: only those archived for this.", **choice(REASONS)),
    ] = None,
    execute: Execute = False,
    yes: YesToExecute = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Deliver finished records of a share group again.

    Archived ones, or any by their offsets, while members go on; only kohort does this. Shows what would be done;
    --execute does it, and asks first.
    """
    scope = scope_of("--topic", topic or ())
    ranges = [range_of(text) for text in offset or ()]
    if archived == bool(ranges):
        raise typer.BadParameter("which records? Add --archived, or --topic TOPIC:P --offset 5-7")
    if why is not None and not archived:
        raise typer.BadParameter("--why goes with --archived")
    if ranges and (len(scope) != 1 or len(next(iter(scope.values())) or ()) != 1):
        raise typer.BadParameter("--offset needs one partition: --topic TOPIC:P")
    done: Mapping[TopicPartition, int] = {}
    refused: Mapping[TopicPartition, ErrorCode] = {}
    with connected(where) as cluster:
        share_group(cluster, group, UNCHANGED)
        offsets = share_offsets_of(cluster, group, KNOWN)
        places = chosen(group, offsets.partitions, scope, UNCHANGED)
        if not offsets.tells_records:
            fail(f"{ONLY_KOHORT}; {UNCHANGED}")
        if archived:
            wanted, missing = archived_of(offsets, places, why), "no archived records are known there"
        else:
            wanted, missing = finished_of(offsets, places[0], ranges), "none of these records is finished"
        if not wanted:
            fail(f"{missing}; {UNCHANGED}")
        if output == Format.TABLE:
            print_table(COLUMNS, map(cells, wanted))
            show(map(Line, warnings(offsets, wanted)))
        if execute:
            count = sum(one.records for one in wanted)
            question = f"Deliver {plural(count, 'record')} of group {group} again?"
            confirm(question, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            done, refused = cluster.share_groups.redeliver(group, by_place(wanted))
    if output != Format.TABLE:
        print_document(document(group, wanted, done, refused, executed=execute), output)
    elif not execute:
        show([Line(f"{UNCHANGED}: {DRY_RUN}")])
    elif done:
        show([Line(done_words(group, done))])
    for code in dict.fromkeys(refused.values()):
        where_refused = words_of(place for place, one in refused.items() if one == code)
        complain(f"not done, because of {code.name}: {code.message}: {where_refused}")
    if refused:
        raise typer.Exit(FAILED)


def range_of(text: str) -> tuple[int, int]:
    """`7`, `5-9`. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", text, re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (1, 0)
    if not 0 <= first <= last < LARGEST_OFFSET:
        raise typer.BadParameter(f"{text!r} is neither an offset nor a range such as 5-9", param_hint=["--offset"])
    return first, last


def archived_of(offsets: ShareOffsets, places: Sequence[TopicPartition], why: str | None) -> list[Again]:
    """What the server knows of, in order."""
    found = {
        Again(place, first, last, reason)
        for place in places
        for first, last, _, reason, *_ in (offsets.partitions[place].records or {}).get("archived", ())
        if why in (None, reason)
    }
    kept: list[Again] = []
    for place in places:
        kept += sorted(one for one in found if one.place == place)[:MOST_RANGES]
    return kept


def finished_of(offsets: ShareOffsets, place: TopicPartition, ranges: Sequence[tuple[int, int]]) -> list[Again]:
    """The parts of ranges that are in the log, and that were delivered and are over."""
    records = offsets.partitions[place].records or {}
    low, high = records.get("log_start", 0), records.get("next_offset", 0) - 1
    open_ones = sorted((row[0], row[1]) for key in ("in_flight", "given_back") for row in records.get(key, ()))
    found: list[Again] = []
    for first, last in sorted(ranges):
        at, end = max(first, low), min(last, high)
        for begin, stop in open_ones:
            if stop < at or begin > end:
                continue
            if at < begin:
                found.append(Again(place, at, begin - 1))
            at = stop + 1
        if at <= end:
            found.append(Again(place, at, end))
        low = max(low, end + 1)
    return found[:MOST_RANGES]


def warnings(offsets: ShareOffsets, wanted: Sequence[Again]) -> list[str]:
    """Where nothing new is handed out until these records are finished."""
    firsts: dict[TopicPartition, int] = {}
    for one in wanted:
        firsts[one.place] = min(one.first, firsts.get(one.place, one.first))
    wide = []
    for place, first in firsts.items():
        records = offsets.partitions[place].records or {}
        if records and records["next_offset"] - first >= records["window"]:
            wide.append(place)
    lines = [
        f"no new records are handed out until these are finished, because the window is full then: {words_of(wide)}"
    ]
    return lines if wide else []


def by_place(wanted: Sequence[Again]) -> dict[TopicPartition, list[tuple[int, int]]]:
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for one in wanted:
        found.setdefault(one.place, []).append((one.first, one.last))
    return found


def cells(one: Again) -> tuple[Cell, ...]:
    return *one.place, offsets_words(one.first, one.last), one.records, one.why


def done_words(group: str, done: Mapping[TopicPartition, int]) -> str:
    count = sum(done.values())
    which = words_of(place for place, records in done.items() if records)
    verb = "is" if count == 1 else "are"
    if not count:
        return f"none of these records of group {group} is finished; {UNCHANGED}"
    return f"{plural(count, 'record')} of group {group} {verb} delivered again: {which}"


def document(
    group: str,
    wanted: Sequence[Again],
    done: Mapping[TopicPartition, int],
    refused: Mapping[TopicPartition, ErrorCode],
    *,
    executed: bool,
) -> dict[str, Any]:
    return {
        "group": group,
        "executed": executed,
        "ranges": [
            {
                "topic": one.place[0],
                "partition": one.place[1],
                "first_offset": one.first,
                "last_offset": one.last,
                "why": one.why or None,
            }
            for one in wanted
        ],
        "partitions": [
            {
                "topic": place[0],
                "partition": place[1],
                "redelivered": done.get(place),
                "error": refused[place].name if place in refused else None,
            }
            for place in by_place(wanted)
        ]
        if executed
        else [],
    }
