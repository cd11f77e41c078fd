"""Registers the format `kohort` with Spark, which looks for packages of this name (`pyspark_…`) by itself."""

from kohort.spark.source import KohortDataSource as DefaultSource

__all__ = ["DefaultSource"]
