"""The directory of a history, on a local disk or in a store that pyarrow knows (s3, gs, hdfs); a run's summary.

    records/live/of=commits/in=12/    log records that the streaming query has read; `of` is commits or groups
    records/files/of=groups/in=12/    log records from dumps, one file for each dump; those that were read without Spark
    records/cluster.json              the id of the cluster that was read; no run mixes it with another one
    records/files/notes/              for each dump its state when it was read; where reading without Spark continues
    checkpoint/                       the streaming query's checkpoint
    tables/NAME/part-00012.parquet    the tables; a file has the rows of whole log partitions, this one from 12 on
    report.html

A file is written under another name and then renamed, so a reader never sees half of a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from kohort.spark.files.arrow import ArrowDirectory, file_system
from kohort.spark.history.coverage import Coverage
from kohort.spark.history.decoding.decode import SCHEMA
from kohort.spark.history.report.findings import Finding
from kohort.spark.source.read import converted_schema

ROWS = converted_schema(SCHEMA)
"""A log record as it is kept."""
HOLDS = ("commits", "groups")
"""The content of a file of records: offset commits, or the records of groups."""
_TEXTS = ["group", "commit_topic", "metadata", "member_id"]
_LOGGED = re.compile(r"\d+(\.compact)?")
_PLACE = re.compile(r"of=(commits|groups)/in=(-?\d+)/")


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """The result of a run."""

    records: int
    """Log records in the history, those of earlier runs included."""
    partitions: int
    """Partitions of the log that have records."""
    groups: int
    in_trouble: int
    findings: tuple[Finding, ...]
    """The worst first."""
    since_ms: int
    until_ms: int
    """The first and last instant of the history; -1 if there are no records."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    left_out: int = 0
    """Records of dumps that belong to aborted transactions or to transactions without an end."""
    report: str = ""
    seconds: float = 0.0
    coverage: Coverage | None = None
    """What the run could see."""
    engine: str = "spark"


class HistoryFailed(RuntimeError):
    """The history cannot be made; the message says why."""


class TooLarge(HistoryFailed):
    """The log has more records than were allowed without Spark."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the log has more than {most:,} records")
        self.most = most


def _same(part: pa.Table) -> pa.Table:
    return part


class Store:
    """Reads and writes below `root`, a path or an address. Picklable."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def __truediv__(self, place: str) -> ArrowDirectory:
        return ArrowDirectory(f"{self.root}/{place}")

    def keep_to(self, cluster_id: str | None) -> None:
        """Note the cluster that is read into the directory. Raises HistoryFailed if it is not that of earlier runs,
        because partitions and offsets of the log identify records. A cluster without an id is not checked."""
        note = self / "records/cluster.json"
        if cluster_id is None:
            return
        if not note.exists():
            note.write_text(json.dumps({"cluster_id": cluster_id}))
        elif (kept := json.loads(note.read_text())["cluster_id"]) != cluster_id:
            raise HistoryFailed(
                f"{self.root} has the history of cluster {kept}, and this is cluster {cluster_id}; choose another "
                "directory; nothing was read"
            )

    def write(self, place: str, table: pa.Table) -> None:
        """Write a Parquet file."""
        with (self / place).new_file() as out:
            pq.write_table(table, out, **encoding(table.schema))

    def keep_parts(self, name: str, parts: Iterable[int]) -> None:
        """Remove the files of a table that an earlier run wrote for other parts."""
        kept = set(map(part_name, parts))
        for file in (self / f"tables/{name}").names():
            if file not in kept:
                (self / f"tables/{name}/{file}").remove()

    def files(self, place: str) -> list[str]:
        """The addresses of all Parquet files below a directory, which need not exist."""
        found = (f"{self.root}/{place}/{one.path}" for one in (self / place).files())
        return sorted(file for file in found if file.endswith(".parquet"))

    def streamed(self, place: str) -> list[str]:
        """The addresses of the files that a streaming query has written below a directory: those that the log of its
        sink names. Others come from batches that failed."""
        log = self / f"{place}/_spark_metadata"
        names = {int(name.partition(".")[0]): name for name in sorted(log.names()) if _LOGGED.fullmatch(name)}
        last = max((number for number, name in names.items() if name.endswith(".compact")), default=-1)
        found: dict[str, bool] = {}
        for number in sorted(number for number in names if number >= last):
            for line in (log / names[number]).read_text().splitlines()[1:]:
                entry = json.loads(line)
                path = entry["path"]
                found[unquote(path) if path.startswith("file:") else path] = entry.get("action", "add") == "add"
        return sorted(file for file, is_there in found.items() if is_there)

    def table(
        self,
        name: str,
        columns: list[str] | None = None,
        filters: Any = None,
        dictionaries: list[str] | None = None,
        each: Callable[[pa.Table], pa.Table] = _same,
    ) -> pa.Table | None:
        """The table of this name; None if it does not exist yet. The columns `dictionaries` are read as such. `each` is
        applied to the rows of each file: all rows of a group are in one of them."""
        files = self.files(f"tables/{name}")
        if not files:
            return None
        parts = []
        for file in files:
            system, path = file_system(file)
            read = pq.read_table(
                path, filesystem=system, columns=columns, filters=filters, read_dictionary=dictionaries
            )
            parts.append(each(read))
        return pa.concat_tables(parts, promote_options="permissive")


def encoding(schema: pa.Schema) -> dict[str, Any]:
    """Options of pyarrow's writer: 64-bit numbers and instants, which mostly ascend, as differences; the rest by
    dictionary. Files contain no Arrow schema, so every reader sees the same types."""
    plain: dict[str, Any] = {"compression": "snappy", "store_schema": False}
    if any(pa.types.is_nested(field.type) for field in schema):
        return plain
    rising = [f.name for f in schema if pa.types.is_int64(f.type) or pa.types.is_timestamp(f.type)]
    return plain | {
        "use_dictionary": [f.name for f in schema if f.name not in rising and not pa.types.is_floating(f.type)],
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
    }


def part_name(partition: int) -> str:
    """The file of a table's rows from this log partition on."""
    return f"part-{partition:05}.parquet"


def by_partition(files: Iterable[str]) -> dict[int, dict[str, list[str]]]:
    """Files of records by log partition, and by what they hold."""
    found: dict[int, dict[str, list[str]]] = {}
    for file in files:
        place = _PLACE.search(file)
        if place is not None:
            found.setdefault(int(place[2]), {name: [] for name in HOLDS})[place[1]].append(file)
    return found


def read_records(files: Iterable[str], holds: str) -> pa.Table:
    """Log records from files that hold commits or groups. Commits come without the columns of groups."""
    schema = ROWS if holds == "groups" else pa.schema([field for field in ROWS if field.name not in _OF_GROUPS])
    parts = []
    for file in files:
        system, path = file_system(file)
        read = pq.read_table(path, filesystem=system, columns=schema.names, read_dictionary=_TEXTS, partitioning=None)
        parts.append(_as(read, schema))
    if not parts:
        return schema.empty_table()
    return pa.concat_tables(parts).unify_dictionaries()


_OF_GROUPS = frozenset(SCHEMA.names[SCHEMA.names.index("member_id") :])
"""`decode.SCHEMA` has the columns of groups at its end."""


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types of the schema: Spark and pyarrow name the items of lists differently."""
    columns = []
    for one in schema:
        column = table.column(one.name)
        kind = pa.dictionary(pa.int32(), pa.string()) if one.name in _TEXTS else one.type
        columns.append(column if column.type == kind else column.cast(kind))
    return pa.table(columns, names=schema.names)
