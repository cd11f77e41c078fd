"""A share group for `kohort groups describe`: offsets and unfinished records on any cluster, the rest on kohort.

Deliveries are written as `6 × 1, 2 × 2`: six records in their first delivery, two in their second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kohort.cli.groups.wording import Document, Line, Names, as_document, brief, duration, instant, plain, show
from kohort.cli.output import Cell, Column, name, number, plural, print_table
from kohort.cli.places import words_of
from kohort.client.admin.groups import GroupDescription
from kohort.client.admin.share_groups import ShareOffset, ShareOffsets
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition

RANGES = 20
"""Ranges of each kind that are asked for."""
SHOWN = 10
"""Archived ranges that are shown; `-o json` has all that were asked for."""
HOLDERS = 50
"""Rows of what members hold."""
HOLDER_COLUMNS = (
    name("MEMBER"),
    Column("HOST", shrinks=True, spare=True),
    name("TOPIC"),
    number("PARTITION"),
    number("RECORDS"),
    Column("× DELIVERY"),
    number("LOCK-ENDS"),
)
ARCHIVED_COLUMNS = (
    name("TOPIC"),
    number("PARTITION"),
    number("OFFSETS"),
    Column("WHY"),
    number("DELIVERIES"),
    name("MEMBER"),
    Column("WHEN", spare=True),
)
DEAD_LETTER_COLUMN = Column("DEAD-LETTERS")
"""If one of the ranges has any, or should have."""
NO_RECORDS = "what is in flight, and what was archived, is not known: the coordinator is not kohort"


def share_offsets_of(cluster: Cluster, group_id: str, ranges: int = RANGES) -> ShareOffsets:
    return cluster.share_groups.offsets([group_id], ranges=ranges)[group_id]


def log_ends(cluster: Cluster, offsets: ShareOffsets) -> dict[TopicPartition, int]:
    """Where the logs end."""
    told = {place: one.records["log_end"] for place, one in offsets.partitions.items() if one.records is not None}
    missing = [place for place, one in offsets.partitions.items() if place not in told and not one.error]
    return told | (cluster.offsets(missing, "latest") if missing else {})


def print_share_group(group: GroupDescription, offsets: ShareOffsets, ends: Mapping[TopicPartition, int]) -> None:
    """Offsets, and what is known of records."""
    tells = offsets.tells_records
    if offsets.partitions:
        numbers = ["PARTITION", "START-OFFSET", "LOG-END-OFFSET", "LAG"]
        numbers += ["IN-FLIGHT", "GIVEN-BACK"] if tells else []
        rows: list[tuple[Cell, ...]] = []
        for place, one in sorted(offsets.partitions.items()):
            counts = (_of(one, "in_flight_records"), _of(one, "given_back_records")) if tells else ()
            rows.append((group.group_id, *place, one.start, ends.get(place), one.lag, *counts))
        print_table([Column("GROUP", shrinks=True, repeats=True), name("TOPIC"), *map(number, numbers)], rows)
    show([Line(summary(group, offsets))])
    names = Names(map(as_document, group.members))
    by_id = {member.member_id: as_document(member) for member in group.members}
    if holders := list(holder_rows(offsets, names, by_id)):
        show([Line(""), Line("In flight", bold=True)])
        print_table(HOLDER_COLUMNS, holders[:HOLDERS])
        if len(holders) > HOLDERS:
            show([Line(f"and {len(holders) - HOLDERS} more rows, with -o json")])
    if archived := archived_rows(offsets, names, by_id):
        show([Line(""), Line("Archived", bold=True)])
        has_letters = any(row[-1] for row in archived)
        columns = (*ARCHIVED_COLUMNS, DEAD_LETTER_COLUMN) if has_letters else ARCHIVED_COLUMNS
        print_table(columns, [row[: len(columns)] for row in archived[:SHOWN]])
        if len(archived) > SHOWN:
            show([Line(f"and {len(archived) - SHOWN} earlier ranges, with -o json")])
    show(Line(f"{group.group_id}: {text}") for text in notes(offsets))


def _of(one: ShareOffset, key: str) -> int | None:
    return None if one.records is None else int(one.records.get(key, 0))


def summary(group: GroupDescription, offsets: ShareOffsets) -> str:
    parts = [group.state, plural(len(group.members), "member")]
    if offsets.lag is not None:
        parts.append(plural(offsets.lag, "unfinished record"))
    if offsets.tells_records:
        parts.append(f"{sum(one.in_flight or 0 for one in offsets.partitions.values())} of them in flight")
    return f"{group.group_id}: {', '.join(parts)}"


def notes(offsets: ShareOffsets) -> list[str]:
    """What the tables do not say."""
    found = []
    if unread := [place for place, one in offsets.partitions.items() if one.start is None and not one.error]:
        found.append(f"not read yet, so without a start offset: {words_of(unread)}")
    if refused := [(place, one.error) for place, one in offsets.partitions.items() if one.error]:
        found.append(f"not known, because of {refused[0][1].name}: {words_of(place for place, _ in refused)}")
    if full := [place for place, one in offsets.partitions.items() if is_full(one)]:
        found.append(f"the window is full, so nothing new is handed out: {words_of(full)}")
    if awaiting := sum((one.records or {}).get("awaiting_dead_letters", 0) for one in offsets.partitions.values()):
        found.append(f"waiting for dead letters: {plural(awaiting, 'record')}")
    counts = counted(offsets)
    if counts:
        words = ", ".join(f"{count} {word}" for word, count in counts.items())
        found.append(f"records since the server loaded the group: {words}")
    if offsets.partitions and not offsets.tells_records:
        found.append(NO_RECORDS)
    return found


def is_full(one: ShareOffset) -> bool:
    """True if no further offset may be open: the window is full (SH37)."""
    if one.records is None or one.start is None:
        return False
    return bool(one.records["next_offset"] - one.start >= one.records["window"])


def counted(offsets: ShareOffsets) -> dict[str, int]:
    """Over all partitions, by outcome."""
    found: dict[str, int] = {}
    for one in offsets.partitions.values():
        for word, count in (one.records or {}).get("counts", {}).items():
            found[word] = found.get(word, 0) + count
    return found


def holder_rows(offsets: ShareOffsets, names: Names, by_id: Mapping[str, Document]) -> Iterator[tuple[Cell, ...]]:
    """What each member holds of each partition; members that have left are named by their ids."""
    for place, one in sorted(offsets.partitions.items()):
        for member_id, held in sorted((one.records or {}).get("holders", {}).items()):
            member = by_id.get(member_id)
            who, host = member_words(member_id, names, by_id), str((member or {}).get("host", ""))
            ends = brief(held["next_end_ms"])
            yield who, host, *place, held["records"], deliveries_words(held["deliveries"]), ends


def deliveries_words(deliveries: Mapping[str, int]) -> str:
    ordered = sorted((int(count), records) for count, records in deliveries.items())
    return ", ".join(f"{records} × {count}" for count, records in ordered)


def member_words(member_id: str, names: Names, by_id: Mapping[str, Document]) -> str:
    return plain(names.of(by_id[member_id]) if member_id in by_id else member_id)


def archived_rows(offsets: ShareOffsets, names: Names, by_id: Mapping[str, Document]) -> list[tuple[Cell, ...]]:
    """The newest first; the last cell says where their dead letters are."""
    found = [
        (at_ms, place, first, last, deliveries, why, member_id, str(letters[0]) if letters else "")
        for place, one in sorted(offsets.partitions.items())
        for first, last, deliveries, why, member_id, at_ms, *letters in (one.records or {}).get("archived", ())
    ]
    found.sort(key=lambda row: -row[0])
    return [
        (
            *place,
            offsets_words(first, last),
            why,
            deliveries,
            member_words(member_id, names, by_id),
            instant(at_ms),
            plain(letters),
        )
        for at_ms, place, first, last, deliveries, why, member_id, letters in found
    ]


def offsets_words(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def stuck_words(one: ShareOffset) -> str:
    """What is known of the record at the start offset."""
    records = one.records or {}
    count = records.get("first_deliveries", 0)
    who = f", held by {records['first_member']}" if records.get("first_member") else ""
    times = f", delivered {count} ×" if count else ", never delivered"
    return f"offset {one.start}{times}{who}, for {duration(records.get('stands_ms', 0))}"


def share_document(offsets: ShareOffsets, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    partitions = sorted(offsets.partitions.items())
    return {
        "total_lag": offsets.lag,
        "in_flight": sum(one.in_flight or 0 for _, one in partitions) if offsets.tells_records else None,
        "counts": counted(offsets),
        "offsets": [
            {
                "topic": place[0],
                "partition": place[1],
                "start_offset": one.start,
                "log_end_offset": ends.get(place),
                "lag": one.lag,
                "error": one.error.name if one.error else None,
                "records": _readable(one.records),
            }
            for place, one in partitions
        ],
    }


IN_FLIGHT = ("first", "last", "member", "deliveries", "lock_ends_in_ms")
GIVEN_BACK = ("first", "last", "deliveries")
ARCHIVED = ("first", "last", "deliveries", "why", "member", "at_ms", "dead_letter")


def _readable(records: Document | None) -> Document | None:
    """With names instead of rows."""
    if records is None:
        return None
    kinds = {"in_flight": IN_FLIGHT, "given_back": GIVEN_BACK, "archived": ARCHIVED}
    named = {key: _named(records.get(key, ()), fields) for key, fields in kinds.items()}
    return {**records, **named}


def _named(rows: Iterable[Iterable[Any]], fields: tuple[str, ...]) -> list[Document]:
    return [dict(zip(fields, row, strict=False)) for row in rows]
