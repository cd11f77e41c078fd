"""Spark's own Kafka connector, for the tests (marker java) that run a query on both."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import java_libraries
import pyspark
from bench import _kafka


def jars() -> list[Path]:
    """The connector's. Raises RuntimeError where Maven cannot get them."""
    fetch = partial(_kafka.fetch_spark_connector, spark=pyspark.__version__)
    return sorted(java_libraries.kept("spark-connector", [_kafka.CONNECTOR], fetch, pyspark.__version__).glob("*.jar"))
