"""The sinks of an ingest: a lake of Parquet files, a Delta table or an Iceberg table. Each takes a batch exactly once.

After a restart a sink may get the same batch again. Parquet has the protocol of `lake.py`. Delta keeps the last batch
of each writer in its own log (`txnAppId`, `txnVersion`), so the tables of rows and of dead letters each skip the
batches that they have. For Iceberg, the sink keeps writer and batch in the summary of the batch's snapshot, and looks
for that snapshot before it writes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from kohort.spark.files.hadoop import HadoopDirectory
from kohort.spark.lake.lake import DEAD_LETTERS, Lake, LakeError, Written, refuse_file_sink
from kohort.spark.lake.row_shape import RowShape

TableFormat = Literal["parquet", "delta", "iceberg"]

NEEDS = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
}
"""A class of each format and a package that contains it, for the newest Spark that has one; tried with 4.2.0, 4.1.1."""

SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
}
"""The settings that a session needs for a format."""

TABLE_NAME = re.compile(r"\w+(\.\w+)+")
QUERY, BATCH = "kohort.query", "kohort.batch"


class FormatMissing(RuntimeError):
    """The session has no jars for a format; the message says how to add them."""


class Sink(Protocol):
    def recover(self) -> None:
        """Complete what an earlier run left unfinished, before the query starts."""

    def write(self, batch: int, frame: Any, shape: RowShape) -> Written:
        """Write a batch unless it is written already."""

    def close(self) -> None:
        """End the run: another run may write."""


def check_format(spark: Any, table_format: TableFormat) -> None:
    """Raises FormatMissing if the session lacks the format's jars."""
    if table_format == "parquet":
        return
    name, package = NEEDS[table_format]
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(name)
    except Exception:
        settings = " ".join(f"--conf {key}={value}" for key, value in SETTINGS[table_format].items())
        raise FormatMissing(
            f"this Spark {spark.version} has no {table_format}: {name} is not among its jars. Add the build for your "
            f"Spark: spark-submit --packages {package} {settings} … or, without spark-submit, kohort pipeline ingest "
            f"--packages {package}"
        ) from None


def parquet_directories(spark: Any, output: str, dead_letters: str | None) -> tuple[HadoopDirectory, HadoopDirectory]:
    """The directories of a lake's rows and dead letters. Raises LakeError if one is inside the other."""
    rows = HadoopDirectory(spark, output)
    dead = HadoopDirectory(spark, dead_letters) if dead_letters else rows / DEAD_LETTERS
    refuse_nested(str(rows), str(dead))
    return rows, dead


def refuse_nested(output: str, dead_letters: str) -> None:
    """Raises LakeError if the dead letters would be among the rows, or the rows among the dead letters."""
    rows, dead = output.rstrip("/") + "/", dead_letters.rstrip("/") + "/"
    inside = dead.removeprefix(rows)
    if (dead.startswith(rows) and not inside.startswith(("_", "."))) or (rows.startswith(dead)):
        raise LakeError(
            f"the directory of the dead letters {dead_letters} and that of the rows {output} must not be inside each "
            "other: readers of one would find the other. Below the rows, readers ignore a name that begins with _, "
            f"such as {DEAD_LETTERS}"
        )


def sink(
    spark: Any,
    table_format: TableFormat,
    output: str,
    dead_letters: str | None,
    writer: str,
    partition_by: Sequence[str],
) -> Sink:
    """The sink of a query; `writer` is the query's id. Raises LakeError if `output` is not valid for the format."""
    if table_format == "parquet":
        rows, dead = parquet_directories(spark, output, dead_letters)
        refuse_file_sink(rows)
        return ParquetSink(Lake(rows, dead, writer), partition_by)
    if table_format == "delta":
        path = str(HadoopDirectory(spark, output))
        return DeltaSink(path, dead_letters or f"{path}/{DEAD_LETTERS}", writer, partition_by)
    if not TABLE_NAME.fullmatch(output):
        raise LakeError(f"{output!r} is not the name of an Iceberg table; write CATALOG.SCHEMA.TABLE")
    return IcebergSink(spark, output, dead_letters or f"{output}{DEAD_LETTERS}", writer, partition_by)


class ParquetSink:
    """Runs one job for a batch, and a second one if the first one counted dead letters."""

    def __init__(self, lake: Lake, partition_by: Sequence[str]) -> None:
        self._lake = lake
        self._partition_by = list(partition_by)

    def recover(self) -> None:
        self._lake.recover()

    def close(self) -> None:
        self._lake.close()

    def write(self, batch: int, frame: Any, shape: RowShape) -> Written:
        def rows(address: str) -> tuple[int, int]:
            marked, counts = _counted(shape.mark(frame), shape)
            self._save(shape.rows(marked), address)
            found = counts.get
            return found["all"] - found["dead"], found["dead"]

        def dead(address: str) -> int:
            marked, counts = _counted(shape.mark(frame), shape)
            self._save(shape.dead_letters(marked), address)
            return int(counts.get["dead"])

        return self._lake.write(batch, rows, dead)

    def _save(self, frame: Any, address: str) -> None:
        frame.write.mode("errorifexists").partitionBy(*self._partition_by).parquet(address)


def _counted(marked: Any, shape: RowShape) -> tuple[Any, Any]:
    """The same rows, counted while they are written. This also keeps the optimizer from parsing each value twice."""
    from pyspark.sql import Observation, functions

    counts = Observation()
    every = functions.count(functions.lit(1)).alias("all")
    return marked.observe(counts, every, functions.count_if(shape.is_dead()).alias("dead")), counts


class _TwoTables(ABC):
    """The common part of Delta and Iceberg. A batch for two tables is persisted, so that both get the same records."""

    def __init__(self, rows: str, dead_letters: str, writer: str, partition_by: Sequence[str]) -> None:
        self._tables = {False: rows, True: dead_letters}
        self._writer = writer
        self._partition_by = list(partition_by)

    def recover(self) -> None:  # noqa: B027 - a commit of a table leaves nothing unfinished
        pass

    def close(self) -> None:  # noqa: B027 - nothing is open between batches
        pass

    def write(self, batch: int, frame: Any, shape: RowShape) -> Written:
        if not shape.makes_dead_letters:
            self._append(shape.rows(shape.mark(frame)), batch, dead=False)
            return Written(batch, None, 0)
        from pyspark.sql import functions

        marked = shape.mark(frame).persist()
        try:
            every = functions.count(functions.lit(1)).alias("all")
            found = marked.agg(every, functions.count_if(shape.is_dead()).alias("dead")).first()
            self._append(shape.rows(marked), batch, dead=False)
            if found["dead"]:
                self._append(shape.dead_letters(marked), batch, dead=True)
        finally:
            marked.unpersist()
        return Written(batch, found["all"] - found["dead"], found["dead"])

    @abstractmethod
    def _append(self, frame: Any, batch: int, *, dead: bool) -> None: ...


class DeltaSink(_TwoTables):
    def _append(self, frame: Any, batch: int, *, dead: bool) -> None:
        writer = frame.write.format("delta").mode("append").partitionBy(*self._partition_by)
        writer = writer.option("txnAppId", self._writer).option("txnVersion", str(batch)).option("mergeSchema", "true")
        writer.save(self._tables[dead])


class IcebergSink(_TwoTables):
    def __init__(self, spark: Any, table: str, dead_letters: str, writer: str, partition_by: Sequence[str]) -> None:
        super().__init__(table, dead_letters, writer, partition_by)
        self._spark = spark

    def _append(self, frame: Any, batch: int, *, dead: bool) -> None:
        from pyspark.sql import functions

        table = self._tables[dead]
        exists = self._spark.catalog.tableExists(table)
        if exists and self._last(table) >= batch:
            return
        writer = frame.writeTo(table)
        writer = writer.option(f"snapshot-property.{QUERY}", self._writer)
        writer = writer.option(f"snapshot-property.{BATCH}", str(batch))
        if exists:
            writer.option("mergeSchema", "true").option("check-ordering", "false").append()
            return
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
        writer = writer.using("iceberg").tableProperty("write.spark.accept-any-schema", "true")
        if self._partition_by:
            first, *more = [functions.col(name) for name in self._partition_by]
            writer = writer.partitionedBy(first, *more)
        writer.create()

    def _last(self, table: str) -> int:
        """The last batch of this writer in the table; -1 if there is none."""
        found = self._spark.sql(
            f"SELECT max(CAST(summary['{BATCH}'] AS BIGINT)) AS batch FROM {table}.snapshots "
            f"WHERE summary['{QUERY}'] = '{self._writer}'"
        ).first()
        return -1 if found is None or found["batch"] is None else int(found["batch"])
