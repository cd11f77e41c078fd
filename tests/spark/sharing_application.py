"""A Spark application that shares its group: `python sharing_application.py SERVERS DIRECTORY [OPTION=VALUE ...]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def start(spark: Any, servers: str, directory: Path, *settings: str, trigger: dict[str, Any] | None = None) -> Any:
    """A query of the topic t, in the group g, into DIRECTORY/rows."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": "t", "group.id": "g", "groupMode": "member"}
    options |= {"checkpointLocation": str(directory / "checkpoint"), "maxOffsetsPerTrigger": "400"}
    options |= dict(setting.split("=", 1) for setting in settings)
    frame = spark.readStream.format("kohort").options(**options).load().select("partition", "offset")
    writer = frame.coalesce(1).writeStream.format("parquet").option("checkpointLocation", options["checkpointLocation"])
    return writer.trigger(**trigger or {"processingTime": "50 milliseconds"}).start(str(directory / "rows"))


if __name__ == "__main__":
    from kohort.spark.runtime.session import spark_session

    session = spark_session("sharing", master="local[1]")
    start(session, sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]).awaitTermination()
