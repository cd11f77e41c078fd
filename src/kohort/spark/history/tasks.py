"""Work that Spark distributes: one task for each piece."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kohort.spark.history.decoding.dumps import DumpError
from kohort.spark.history.store import HistoryFailed
from kohort.spark.runtime.failures import cause


def run_tasks(spark: Any, work: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
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

    try:
        rows = spark.range(0, len(work), 1, len(work)).mapInArrow(run, "number long, result binary").collect()
    except Exception as error:
        text = str(error)
        if "DumpError" in text:
            raise DumpError(text.split("DumpError: ")[-1].splitlines()[0]) from None
        raise HistoryFailed(cause(error)) from error
    return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]
