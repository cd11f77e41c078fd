"""A Spark application that copies topic t to topic u, each row once, while its tasks fail.

    python exactly_once_application.py SERVERS CHECKPOINT [once]

The first attempt of one task of each batch fails after its rows have been sent. With `once` the query ends when it has
read what is there; its batches are large, since no one waits for a moment of theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

TASKS = 4


def failing(batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.attemptNumber() == 0 and context.partitionId() == 1:
        raise OSError("the first attempt fails")


def start(spark: Any, servers: str, checkpoint: str, trigger: dict[str, Any]) -> Any:
    given = {"kafka.bootstrap.servers": servers, "subscribe": "t", "startingOffsets": "earliest"}
    most = "3000" if "availableNow" in trigger else "300"
    given |= {"isolation.level": "read_committed", "maxOffsetsPerTrigger": most}
    frame = spark.readStream.format("kohort").options(**given).load().select("key", "value").repartition(TASKS)
    rows = frame.mapInArrow(failing, "key binary, value binary")
    # Small record batches: rows are on their way when the task fails.
    sink = {"kafka.bootstrap.servers": servers, "topic": "u", "delivery": "exactly-once", "kafka.batch.size": "200"}
    writer = rows.writeStream.format("kohort").options(**sink).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


if __name__ == "__main__":
    from kohort.spark.runtime.session import spark_session

    session = spark_session("exactly once", master="local[2,4]")
    once = sys.argv[3:] == ["once"]
    start(
        session, sys.argv[1], sys.argv[2], {"availableNow": True} if once else {"processingTime": "0 seconds"}
    ).awaitTermination()
