"""Registers the format `kohort` with Spark, which finds installed packages with such a name (`pyspark_…`) itself.

Spark does not find packages of `--py-files`; there, a job calls `pyspark_kohort.register(spark)`.
"""

from kohort.spark.runtime.session import register
from kohort.spark.source.data_source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource", "register"]
