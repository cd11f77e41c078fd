"""A local Spark session that needs pip alone: finds a Java, stays quiet, binds to loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from kohort.spark.java import find_java


def spark_session(
    app_name: str, *, master: str = "local[2]", quiet: bool = True, config: dict[str, str] | None = None
) -> Any:
    """A SparkSession; the running one if there is one. Raises JavaMissing.

    Sets JAVA_HOME, SPARK_LOCAL_IP and PYSPARK_PYTHON for this process. `config` are further Spark
    settings. Timestamps are in UTC.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Spark would take the first python3 on the PATH for its workers, which may know nothing of kohort.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(app_name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "1g")
    )
    if quiet:
        builder = builder.config(
            "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_quiet_logging().as_uri()}"
        )
    for name, value in (config or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _quiet_logging() -> Path:
    return Path(__file__).with_name("quiet-log4j2.properties")
