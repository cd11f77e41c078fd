"""Files of committed offsets: the JSON of `kohort groups export`, and the CSV of Kafka's kafka-consumer-groups.sh.

The JSON is a list of groups, each with its offsets, leader epochs and metadata. The CSV has no heading; a line is
`topic,partition,offset`, or `group,topic,partition,offset` for several groups.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from kohort.cli.connect import fail
from kohort.client.admin.groups import Committed
from kohort.client.metadata import TopicPartition

GroupOffsets = dict[str | None, dict[TopicPartition, Committed]]
"""Offsets by group; None is the group of a CSV file that names none."""

LARGEST = 2**63 - 1


def document_of(groups: Mapping[str, Mapping[TopicPartition, Committed]]) -> list[dict[str, Any]]:
    return [
        {
            "group": group_id,
            "offsets": [
                {
                    "topic": topic,
                    "partition": index,
                    "offset": committed.offset,
                    "leader_epoch": committed.leader_epoch,
                    "metadata": committed.metadata,
                }
                for (topic, index), committed in sorted(offsets.items())
            ],
        }
        for group_id, offsets in groups.items()
    ]


def csv_of(groups: Mapping[str, Mapping[TopicPartition, Committed]]) -> str:
    """Kafka's tool reads it: with the group in each line if there are several."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    for group_id, offsets in groups.items():
        for (topic, index), committed in sorted(offsets.items()):
            rows.writerow([*([group_id] if len(groups) > 1 else []), topic, index, committed.offset])
    return written.getvalue()


def check_new(flag: str, file: Path | None) -> None:
    """Raises BadParameter for a file that exists: it may be the backup of an earlier change."""
    if file is not None and file.exists():
        raise typer.BadParameter(f"{file} exists; name a new file", param_hint=[flag])


def write_backup(file: Path, groups: Mapping[str, Mapping[TopicPartition, Committed]]) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            json.dump(document_of(groups), opened, indent=2, ensure_ascii=False)
            opened.write("\n")
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}; nothing was changed")


def read_offsets(flag: str, file: Path) -> GroupOffsets:
    """The offsets in a file, - for stdin. Raises BadParameter."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise typer.BadParameter(f"cannot read {file}: {why}", param_hint=[flag]) from None
    try:
        found = _of_json(text) if text.lstrip()[:1] in ("[", "{") else _of_csv(text)
    except (ValueError, csv.Error) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint=[flag]) from None
    if not found:
        raise typer.BadParameter(f"{file} has no offsets", param_hint=[flag])
    return found


def _of_json(text: str) -> GroupOffsets:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    found: GroupOffsets = {}
    for number, entry in enumerate([document] if isinstance(document, dict) else document):
        match entry:
            case {"group": str(group_id), "offsets": list(rows)}:
                _add(
                    found,
                    group_id,
                    (_of_row(row, f"offset {place} of group {group_id}") for place, row in enumerate(rows)),
                )
            case _:
                raise ValueError(
                    f'entry {number} is not {{"group": …, "offsets": […]}}, as kohort groups export writes it'
                )
    return found


def _of_row(row: Any, where: str) -> tuple[TopicPartition, Committed]:
    match row:
        case {"topic": str(topic), "partition": int(index), "offset": int(offset)}:
            metadata = row.get("metadata") or ""
            numbers = not isinstance(index, bool) and not isinstance(offset, bool)
            if topic and numbers and 0 <= index < 2**31 and 0 <= offset <= LARGEST and isinstance(metadata, str):
                return (topic, index), Committed(offset, -1, metadata)
    raise ValueError(f"{where} has no valid topic, partition and offset")


def _of_csv(text: str) -> GroupOffsets:
    found: GroupOffsets = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) not in (3, 4):
            raise ValueError(f"line {number} is not topic,partition,offset")
        group_id = cells.pop(0) if len(cells) == 4 else None
        topic, index, offset = cells
        if not (topic and index.isdecimal() and offset.isdecimal() and int(index) < 2**31 and int(offset) <= LARGEST):
            raise ValueError(f"line {number} is not topic,partition,offset")
        _add(found, group_id, [((topic, int(index)), Committed(int(offset)))])
    return found


def _add(found: GroupOffsets, group_id: str | None, rows: Iterable[tuple[TopicPartition, Committed]]) -> None:
    _check_text(group_id or "")
    offsets = found.setdefault(group_id, {})
    for place, committed in rows:
        _check_text(place[0] + committed.metadata)
        if place in offsets:
            raise ValueError(f"{place[0]}-{place[1]} is there twice")
        offsets[place] = committed


def _check_text(text: str) -> None:
    """Raises ValueError for half a character: JSON can write it, and the protocol cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} has no UTF-8 form") from None
