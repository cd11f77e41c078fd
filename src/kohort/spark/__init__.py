"""Spark pipelines: a data source and a sink for topics, a lake, the history of groups, simulations.

What is exported here is imported on first use: Spark's workers import this package for the source alone. The history is
`from kohort.spark.history import history`.

    options/   the options of the source and the sink
    source/    reading topics, with a group's offsets
    arrow/     records as Arrow columns
    sink/      writing to topics
    lake/      topics to Parquet, Delta or Iceberg
    history/   the history of consumer groups
    monitor/   lag, rows and times of streaming queries
    reports/   simulations and HTML reports
    files/     file systems
    runtime/   a Java, a session, compiled functions
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.spark.arrow.decoder import decoder
    from kohort.spark.lake.compaction import compact
    from kohort.spark.lake.ingest import Json, ingest
    from kohort.spark.monitor.listener import QueryMonitor
    from kohort.spark.reports.simulation import simulate
    from kohort.spark.runtime.session import register, spark_session

__all__ = ["Json", "QueryMonitor", "compact", "decoder", "ingest", "register", "simulate", "spark_session"]

_HOMES = {
    "Json": "lake.ingest",
    "QueryMonitor": "monitor.listener",
    "compact": "lake.compaction",
    "decoder": "arrow.decoder",
    "ingest": "lake.ingest",
    "register": "runtime.session",
    "simulate": "reports.simulation",
    "spark_session": "runtime.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"kohort.spark.{_HOMES[name]}"), name)
