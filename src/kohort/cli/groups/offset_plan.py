"""What a command would do to a group's committed offsets: the moves, their table, and how to undo them.

Offsets outside of the log are clamped to its start or end, as Kafka's tool does. A preview reads the first record at
each new offset.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from kohort.cli.groups.wording import Line, instant, plain, show
from kohort.cli.output import Cell, name, number, plural, print_table, shorten, terminal_width
from kohort.cli.places import options_of, words_of
from kohort.client.admin.commit_metadata import group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.client.records import FetchedRecord, next_position, records

TO_START = "before the start of the log, so the start"
TO_END = "after the end of the log, so the end"
NO_RECORD = "no record at or after that time, so the end of the log"
NO_OFFSET = "no committed offset, so the end of the log"

PREVIEW_S = 10.0
"""The longest time for reading the previews."""
SHOWN_KEY, SHOWN_VALUE = 24, 160
PREVIEW_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's offset. `old` is None if the group has none; `note` says why `new` is not what was asked for."""

    topic: str
    partition: int
    old: Committed | None
    new: Committed
    note: str = ""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def difference(self) -> int | None:
        return None if self.old is None else self.new.offset - self.old.offset


def clamped(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, str]]:
    """The offset within each log that is nearest to the wanted one, and a note if it is another."""
    starts, ends = cluster.offsets(wanted, "earliest"), cluster.offsets(wanted, "latest")
    found = {}
    for place, offset in wanted.items():
        if offset > ends[place]:
            found[place] = ends[place], TO_END
        elif offset < starts[place]:
            found[place] = starts[place], TO_START
        else:
            found[place] = offset, ""
    return found


def documents(
    moves: Iterable[Move], first: Mapping[TopicPartition, FetchedRecord | None] | None
) -> list[dict[str, Any]]:
    found = []
    for move in moves:
        document: dict[str, Any] = {
            "topic": move.topic,
            "partition": move.partition,
            "old": move.old.offset if move.old else None,
            "new": move.new.offset,
            "difference": move.difference,
            "note": move.note or None,
        }
        if first is not None:
            document["first_record"] = _record_document(first.get(move.place))
        found.append(document)
    return found


MOVE_COLUMNS = (name("TOPIC"), *map(number, ("PARTITION", "OLD", "NEW", "DIFFERENCE")))


def move_cells(move: Move) -> tuple[Cell, ...]:
    """The cells of MOVE_COLUMNS."""
    difference = None if move.difference is None else f"{move.difference:+d}" if move.difference else "0"
    return move.topic, move.partition, move.old.offset if move.old else None, move.new.offset, difference


def move_notes(moves: Sequence[Move]) -> list[str]:
    """Why some offsets are others than were asked for, and who commits over them."""
    notes = dict.fromkeys(move.note for move in moves if move.note)
    lines = [f"{note}: {words_of(move.place for move in moves if move.note == note)}" for note in notes]
    holders = {str(group_reader_of(move.old.metadata) or "") for move in moves if move.old} - {""}
    return lines + [f"committed by {holder}, which commits over a reset while it runs" for holder in sorted(holders)]


def print_moves(moves: Sequence[Move], first: Mapping[TopicPartition, FetchedRecord | None] | None) -> None:
    print_table(MOVE_COLUMNS, map(move_cells, moves))
    show(map(Line, move_notes(moves)))
    if first is None:
        return
    typer.secho("first record at each new offset:", bold=True)
    width = terminal_width()
    for move in moves:
        place, words = f"{move.topic}-{move.partition}", record_words(first.get(move.place))
        typer.echo(f"  {place}: {words}" if width is None else _cut(f"  {shorten(place, width // 3)}: {words}", width))


def undo_lines(group_id: str, moves: Sequence[Move], *undo: str | None) -> list[Line]:
    """How to take back the moves that were made. `undo` are the commands that do it, as far as there are any."""
    lines = []
    commands = list(filter(None, undo))
    new = [move.place for move in moves if move.old is None]
    if any(move.old not in (None, move.new) for move in moves):
        lines += [f"{'or' if at else 'to undo'}: {command}" for at, command in enumerate(commands)]
        lines += [] if commands else ["the old offsets are only above; --backup FILE would have kept them in a file"]
    if new:
        which = "had no offset before" if len(new) == 1 else "had no offsets before"
        command = f"kohort groups delete-offsets {shlex.quote(group_id)} {options_of('--topic', new)}"
        lines.append(f"{words_of(new)} {which}; to undo that: {command}")
    return [Line(line, whole=True) for line in lines]


def set_words(group_id: str, moves: Sequence[Move]) -> str:
    return f"set {plural(len(moves), 'offset')} of group {group_id}"


# -- the first record at an offset


def first_records(cluster: Cluster, moves: Iterable[Move]) -> dict[TopicPartition, FetchedRecord | None]:
    """The first record at or after each new offset; None at the end of a log. Leaves out what takes too long."""
    positions = {move.place: move.new.offset for move in moves}
    ends = cluster.offsets(positions, "latest")
    found: dict[TopicPartition, FetchedRecord | None] = {}
    deadline = time.monotonic() + PREVIEW_S
    while time.monotonic() < deadline:
        found |= {place: None for place, position in positions.items() if position >= ends[place]}
        positions = {place: position for place, position in positions.items() if place not in found}
        if not positions:
            break
        for part in cluster.fetch(positions, max_wait_ms=100, partition_max_bytes=PREVIEW_BYTES):
            place = (part.topic, part.partition)
            if part.error:
                positions.pop(place)
            elif (record := next(records(part, positions[place]), None)) is not None:
                found[place] = record
                positions.pop(place)
            else:
                positions[place] = next_position(part, positions[place])
    return found


def record_words(record: FetchedRecord | None) -> str:
    """The beginning of a record, on one line."""
    if record is None:
        return "none yet"
    key = "" if record.key is None else f" key {_text(record.key, SHOWN_KEY)}"
    value = "no value" if record.value is None else _text(record.value, SHOWN_VALUE)
    return f"{record.offset} at {instant(record.timestamp)}{key}: {value}"


def _record_document(record: FetchedRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else _text(record.key, SHOWN_KEY),
        "value": None if record.value is None else _text(record.value, SHOWN_VALUE),
    }


def _text(data: bytes, width: int) -> str:
    """The beginning of the bytes as text, without control characters."""
    return _cut(plain(data[: width * 4].decode(errors="replace")), width)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
