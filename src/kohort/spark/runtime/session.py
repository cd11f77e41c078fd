"""A local Spark session that needs only pip: finds a Java, prints no log, binds to the loopback interface.

Java starts with lines on stderr that neither Java nor Spark can turn off. So this process reads Java's stderr, drops
these lines and passes on all others: errors, and messages of the workers and of the source.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kohort.spark.runtime.java import find_java

GREETING = (
    b"WARNING: Using incubator modules:",
    b"Using Spark's default log4j profile:",
    b"Setting default log level to ",
    b"To adjust logging level use ",
)


def spark_session(
    app_name: str, *, master: str = "local[*]", quiet: bool = True, config: dict[str, str] | None = None
) -> Any:
    """A SparkSession: the running one if there is one, that of spark-submit under spark-submit, else a new local one.

    A new one sets JAVA_HOME, SPARK_LOCAL_IP and PYSPARK_PYTHON in this process's environment. `config` has further
    Spark settings. Timestamps are in UTC. Raises JavaMissing.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        session = SparkSession.builder.appName(app_name).getOrCreate()
        register(session)
        return session
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The default of Spark's workers, the first python3 on the PATH, may not have kohort installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.app.name": app_name,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "1g",
    }
    if quiet:
        logging = Path(__file__).with_name("quiet-log4j2.properties").as_uri()
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={logging}"
    session = _start(settings | (config or {}), quiet)
    session.sparkContext.setLogLevel("ERROR")
    return session


def register(session: Any) -> None:
    """Register `format("kohort")` with a session that has kohort by `--py-files`; elsewhere it changes nothing.

    Spark finds data sources itself only among installed packages. Also, the planning process of a streaming query looks
    for the archive in the wrong directory (Spark 4.3 gives it the directory of another session), so this adds the
    archive to the process's PYTHONPATH.
    """
    from kohort.spark.source.data_source import KohortDataSource

    archive = Path(__file__).parents[3]
    context = getattr(session, "sparkContext", None)  # Spark Connect has none
    if archive.is_file() and context is not None:
        paths = [path for path in context.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if str(archive) not in paths:
            context.environment["PYTHONPATH"] = os.pathsep.join([*paths, str(archive)])
    session.dataSource.register(KohortDataSource)


@contextmanager
def timestamps_in_micros(session: Any) -> Iterator[None]:
    """Write timestamps to Parquet in microseconds: Spark's default, INT96, overflows where readers use nanoseconds."""
    name = "spark.sql.parquet.outputTimestampType"
    before = session.conf.get(name)
    session.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        session.conf.set(name, before)


def _start(settings: dict[str, str], quiet: bool) -> Any:
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    launch: Any = java_gateway.launch_gateway  # untyped
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if quiet and SparkContext._gateway is None:
        reading, writing = os.pipe()
        threading.Thread(target=_pass_on, args=(reading, os.dup(2)), name="java-stderr", daemon=True).start()
        try:
            SparkContext(conf=conf, gateway=launch(conf, {"stderr": writing}))
        finally:
            os.close(writing)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _pass_on(source: int, target: int) -> None:
    """Copy lines until the last process that can write them has ended."""
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as shown:
        for line in lines:
            if not line.startswith(GREETING):
                shown.write(line)
