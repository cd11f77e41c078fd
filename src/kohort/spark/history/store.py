"""The directory of a history: what is where in it, on a local disk or in a store that pyarrow knows (s3, gs, hdfs).

    records/live/of=commits/in=12/    log records that the streaming query has read; `of` is commits or groups
    records/files/of=groups/in=12/    the same out of dumps, a file an input
    checkpoint/                       where the streaming query goes on
    tables/NAME/part-00012.parquet    the tables, a file a log partition
    report.html

A file is written beside its place and then moved there, so nobody sees half of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kohort.spark.history.decoding.decode import SCHEMA
from kohort.spark.source.read import converted_schema

ROWS = converted_schema(SCHEMA)
"""A log record as it is kept."""
OF = ("commits", "groups")
_TEXTS = ["group", "commit_topic", "metadata", "member_id"]
_IN = re.compile(r"of=(commits|groups)/in=(-?\d+)/")


class Store:
    """Reads and writes below `root`, a path or an address. Picklable."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def _open(self, place: str) -> tuple[fs.FileSystem, str]:
        return filesystem(f"{self.root}/{place}")

    def write(self, place: str, table: pa.Table) -> None:
        """Write a Parquet file, whole."""
        system, path = self._open(place)
        system.create_dir(path.rpartition("/")[0], recursive=True)
        with system.open_output_stream(f"{path}.partial") as out:
            pq.write_table(table, out, **encoding(table.schema))
        system.move(f"{path}.partial", path)

    def write_text(self, place: str, text: str) -> None:
        system, path = self._open(place)
        system.create_dir(path.rpartition("/")[0], recursive=True)
        with system.open_output_stream(f"{path}.partial") as out:
            out.write(text.encode())
        system.move(f"{path}.partial", path)

    def read_json(self, place: str) -> Any:
        """None where there is no such file."""
        system, path = self._open(place)
        if system.get_file_info(path).type != fs.FileType.File:
            return None
        with system.open_input_stream(path) as file:
            return json.loads(file.read())

    def delete(self, place: str) -> None:
        system, path = self._open(place)
        if system.get_file_info(path).type == fs.FileType.File:
            system.delete_file(path)

    def files(self, place: str) -> list[str]:
        """All Parquet files below a directory, as addresses; none where there is no such directory."""
        system, path = self._open(place)
        found = system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        base = f"{self.root}/{place}"
        return sorted(
            base + one.path[len(path) :]
            for one in found
            if one.type == fs.FileType.File and one.path.endswith(".parquet")
        )

    def table(self, name: str, columns: list[str] | None = None, filters: Any = None) -> pa.Table | None:
        """One of the tables; None where it has never been written."""
        files = self.files(f"tables/{name}")
        if not files:
            return None
        parts = []
        for file in files:
            system, path = filesystem(file)
            parts.append(pq.read_table(path, filesystem=system, columns=columns, filters=filters))
        return pa.concat_tables(parts, promote_options="permissive")


def encoding(schema: pa.Schema) -> dict[str, Any]:
    """How pyarrow writes a table: numbers that rise as their differences, which is small and fast, the rest by
    dictionary. Files say nothing of Arrow, so every reader sees the same types."""
    plain: dict[str, Any] = {"compression": "snappy", "store_schema": False}
    if any(pa.types.is_nested(field.type) for field in schema):
        return plain
    rising = [f.name for f in schema if pa.types.is_int64(f.type) or pa.types.is_timestamp(f.type)]
    return plain | {
        "use_dictionary": [f.name for f in schema if f.name not in rising and not pa.types.is_floating(f.type)],
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    }


def filesystem(address: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or an address, and the path in it."""
    parsed = urlparse(address)
    if len(parsed.scheme) < 2:  # none, or a drive
        return fs.LocalFileSystem(), address
    if parsed.scheme == "file":
        return fs.LocalFileSystem(), unquote(parsed.path)
    return fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", address))  # type: ignore[no-any-return]


def by_partition(files: Iterable[str]) -> dict[int, dict[str, list[str]]]:
    """Files of records by log partition, and by what they are of."""
    found: dict[int, dict[str, list[str]]] = {}
    for file in files:
        place = _IN.search(file)
        if place is not None:
            of = found.setdefault(int(place[2]), {name: [] for name in OF})
            of[place[1]].append(file)
    return found


def read_records(files: Iterable[str], of: str) -> pa.Table:
    """Log records out of files: with all columns for groups, without those of groups for commits."""
    schema = ROWS if of == "groups" else pa.schema([field for field in ROWS if field.name not in _OF_GROUPS])
    parts = []
    for file in files:
        system, path = filesystem(file)
        read = pq.read_table(path, filesystem=system, columns=schema.names, read_dictionary=_TEXTS, partitioning=None)
        parts.append(_as(read, schema))
    if not parts:
        return schema.empty_table()
    return pa.concat_tables(parts).unify_dictionaries()


_OF_GROUPS = frozenset(
    [
        "member_id",
        "epoch",
        "previous_epoch",
        "state",
        "state_time",
        "hash",
        "protocol_type",
        "protocol",
        "leader",
        "regex",
        "members",
    ]
)


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the types of the schema: Spark and pyarrow name the items of lists differently."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if field.name in _TEXTS:
            kind = pa.dictionary(pa.int32(), pa.string())
            columns.append(column if column.type == kind else column.cast(kind))
        else:
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, names=schema.names)
