"""The tables and findings of a made-up log, without files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from offsets_log import MINUTE, START, Log

from kohort.spark.history.analysis import TABLES, Context, analyse
from kohort.spark.history.decoding.decode import decode
from kohort.spark.history.ends import Ends
from kohort.spark.history.report.findings import Finding

Analysed = tuple[dict[str, pa.Table], list[Finding]]


def rows_of(log: Log) -> pa.Table:
    """The log as the source yields it with decode=consumer_offsets."""
    table = log.table()
    decoded = decode(table.column("key").combine_chunks(), table.column("value").combine_chunks())
    place = {"log_partition": "partition", "log_offset": "offset", "log_time": "timestamp"}
    return pa.table(
        {
            **{name: decoded.column(name) for name in decoded.schema.names},
            **{name: table.column(held) for name, held in place.items()},
        }
    )


def analysed(log: Log, *, ends: bool = True, now: float | None = None, rows: pa.Table | None = None) -> Analysed:
    rows = rows_of(log) if rows is None else rows
    is_commit = pc.is_in(rows.column("kind"), pa.array([0, 1], pa.int16()))
    stop = int(now if now is not None else log.stop)
    context = Context(
        edges=np.append(np.arange(START, stop, MINUTE), stop),
        now=stop,
        ends=Ends.of(log.ends()) if ends else Ends({}),
        topic_names={topic.topic_id: topic.name for topic in log.topics.values()},
    )
    tables, findings = analyse(rows.filter(is_commit), rows.filter(pc.invert(is_commit)), context)
    assert list(tables) == list(TABLES)
    for table in tables.values():
        table.validate(full=True)
    return tables, findings


def kinds(findings: list[Finding]) -> list[tuple[str, str]]:
    return sorted((one.group, one.kind) for one in findings)


def only(table: pa.Table, **where: Any) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if all(row[name] == value for name, value in where.items())]


def at(row: dict[str, Any], name: str) -> int | None:
    return None if row[name] is None else round(row[name].timestamp() * 1000)
