"""Registers the format `kohort` with Spark, which looks for packages of this name (`pyspark_…`) by itself.

It does not see what comes by `--py-files`. There, a job says so: `pyspark_kohort.register(spark)`.
"""

from kohort.spark.runtime.session import register
from kohort.spark.source.data_source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource", "register"]
