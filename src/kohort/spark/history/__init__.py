"""The history of consumer groups: from `__consumer_offsets` to Parquet tables and an HTML report. `history` makes it.

run           `history`: reads the log or dumps of it, has the tables made, writes the report
local_engine  reads and analyses in this process, without Spark
spark_engine  reads with a streaming query, and has a task for each piece of work
analysis      all tables of one log partition, and its findings
cluster       what is read from a running cluster besides the log
journal       the stories of kohort's journal
stories       rules about stories: clients that drop out again and again, storms
coverage      how much of the log is left, and what was not to be seen
ends          where the topics' logs ended, and when
limits        what counts as an incident
extent        how long a log is; the intervals of rates and lag
store         the directory of a history; the summary of a run
decoding/     the bytes of log records to columns
tables/       columns to tables
report/       incidents, findings, plots and the page
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Spark's workers import only the decoder from this package.
    if name == "history":
        from kohort.spark.history.run import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
