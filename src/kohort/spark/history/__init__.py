"""The history of consumer groups: from `__consumer_offsets` to Parquet tables and an HTML report. `history` makes it.

run         `history`: reads the log or dumps of it, has the tables made, writes the report
analysis    all tables of one log partition, and its findings
cluster     what is read from a running cluster besides the log
ends        where the topics' logs ended, and when
limits      what counts as an incident
extent      how long a log is; the intervals of rates and lag
store       the directory of a history; the summary of a run
tasks       one Spark task for each piece of work
decoding/   the bytes of log records to columns
tables/     columns to tables
report/     incidents, findings, plots and the page
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Spark's workers import only the decoder from this package.
    if name == "history":
        from kohort.spark.history.run import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
