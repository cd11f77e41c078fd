"""Makes a history on Spark: a streaming query reads the log, and each other piece of work is a task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kohort.spark.history.decoding.dumps import DumpError
from kohort.spark.history.store import HistoryFailed, Store
from kohort.spark.runtime.failures import cause
from kohort.spark.runtime.session import register, timestamps_in_micros


class SparkEngine:
    records_at_once = 0
    """A task for each log partition."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def read(self, store: Store, source: Mapping[str, str]) -> None:
        """Append the log records that are new since the last run to records/live. Raises HistoryFailed."""
        register(self._spark)
        rows = (
            self._spark.readStream.format("kohort")
            .options(**source)
            .load()
            .selectExpr("*", "CASE WHEN kind IN (0, 1) THEN 'commits' ELSE 'groups' END AS of", "log_partition AS `in`")
        )
        with timestamps_in_micros(self._spark):
            try:
                query = (
                    rows.writeStream.format("parquet")
                    .partitionBy("of", "in")
                    .option("path", f"{store.root}/records/live")
                    .option("checkpointLocation", f"{store.root}/checkpoint")
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
            except Exception as error:
                raise HistoryFailed(f"reading {source['subscribe']} failed: {cause(error)}") from error

    def run(self, work: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
        """Call `do` with each piece of work in a task of its own; returns the results in order.

        Raises DumpError or HistoryFailed.
        """
        if not work:
            return []
        pieces = [pickle.dumps(one) for one in work]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = pickle.dumps(do(pickle.loads(pieces[number])))
                    yield pa.RecordBatch.from_pydict({"number": [number], "result": pa.array([result], pa.binary())})

        numbers = self._spark.range(0, len(work), 1, len(work))
        try:
            rows = numbers.mapInArrow(run, "number long, result binary").collect()
        except Exception as error:
            text = str(error)
            if "DumpError" in text:
                raise DumpError(text.split("DumpError: ")[-1].splitlines()[0]) from None
            raise HistoryFailed(cause(error)) from error
        return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]
