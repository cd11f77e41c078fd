"""Where batches go: a lake of Parquet files, a Delta table or an Iceberg table, each exactly once.

A sink takes a batch by its number and may be given the same batch again after a restart. Parquet has the protocol of
`kohort.spark.lake.lake`. Delta remembers the last batch of each writer in its own log (`txnAppId`, `txnVersion`), so
that the rows and the dead letters, two tables, each skip what they have. Iceberg keeps writer and batch in the summary
of the snapshot that the batch made, and is asked for it before a batch is written.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from kohort.spark.files.hadoop import HadoopDirectory
from kohort.spark.lake.lake import DEAD_LETTERS, Lake, LakeError, Written, refuse_file_sink

TableFormat = Literal["parquet", "delta", "iceberg"]
FORMATS: tuple[TableFormat, ...] = ("parquet", "delta", "iceberg")

NEEDS = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
}
"""A class that each format brings, and a package that has it: of the newest Spark that there was one for, tried with
4.2.0 and 4.1.1."""

SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
}
"""What a session must be started with for a format."""

TABLE_NAME = re.compile(r"\w+(\.\w+)+")
QUERY, BATCH = "kohort.query", "kohort.batch"


class FormatMissing(RuntimeError):
    """The session has no jars for a format; the message says how to bring them."""


class Shape(Protocol):
    """What the records of a batch become; see `kohort.spark.lake.row_shape`."""

    makes_dead_letters: bool

    def mark(self, frame: Any) -> Any: ...
    def is_dead(self) -> Any: ...
    def rows(self, marked: Any) -> Any: ...
    def dead_letters(self, marked: Any) -> Any: ...


class Sink(Protocol):
    def recover(self) -> None:
        """Bring what an earlier run left in order, before the query starts."""

    def write(self, batch: int, frame: Any, shape: Shape) -> Written:
        """Write a batch, or see that it is written."""

    def close(self) -> None:
        """The run is over: another one may write."""


def check_format(spark: Any, table_format: TableFormat) -> None:
    """Raises FormatMissing where the session lacks the format's jars."""
    if table_format == "parquet":
        return
    name, package = NEEDS[table_format]
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(name)
    except Exception:
        settings = " ".join(f"--conf {key}={value}" for key, value in SETTINGS[table_format].items())
        raise FormatMissing(
            f"this Spark {spark.version} has no {table_format}: {name} is not among its jars. Bring the build for your "
            f"Spark: spark-submit --packages {package} {settings} … or, without spark-submit, kohort pipeline ingest "
            f"--packages {package}"
        ) from None


def parquet_places(spark: Any, output: str, dead_letters: str | None) -> tuple[HadoopDirectory, HadoopDirectory]:
    """Where a lake's rows and its dead letters are. Raises LakeError where one lies in the other."""
    place = HadoopDirectory(spark, output)
    dead = HadoopDirectory(spark, dead_letters) if dead_letters else place / DEAD_LETTERS
    refuse_among_rows(str(place), str(dead))
    return place, dead


def refuse_among_rows(output: str, dead_letters: str) -> None:
    """Raises LakeError where dead letters would lie among the rows, or the rows among them."""
    rows, dead = output.rstrip("/") + "/", dead_letters.rstrip("/") + "/"
    inside = dead.removeprefix(rows)
    if (dead.startswith(rows) and not inside.startswith(("_", "."))) or (rows.startswith(dead)):
        raise LakeError(
            f"the dead letters' place {dead_letters} and the rows' {output} must not lie in each other: readers of the "
            f"one would find the other. Below the rows a name that begins with _ is passed over, as {DEAD_LETTERS} is"
        )


def sink(
    spark: Any,
    table_format: TableFormat,
    output: str,
    dead_letters: str | None,
    writer: str,
    partition_by: Sequence[str],
) -> Sink:
    """The sink of a query; `writer` is the query's id. Raises LakeError where output does not name such a table."""
    if table_format == "parquet":
        place, dead = parquet_places(spark, output, dead_letters)
        refuse_file_sink(place)
        return ParquetSink(Lake(place, dead, writer), partition_by)
    if table_format == "delta":
        path = str(HadoopDirectory(spark, output))
        return DeltaSink(path, dead_letters or f"{path}/{DEAD_LETTERS}", writer, partition_by)
    if not TABLE_NAME.fullmatch(output):
        raise LakeError(f"{output!r} is no name of an Iceberg table; one is CATALOG.SCHEMA.TABLE")
    return IcebergSink(spark, output, dead_letters or f"{output}{DEAD_LETTERS}", writer, partition_by)


class ParquetSink:
    """Two jobs where there are dead letters, one where there are none: the first counts them."""

    def __init__(self, lake: Lake, partition_by: Sequence[str]) -> None:
        self._lake = lake
        self._partition_by = list(partition_by)

    def recover(self) -> None:
        self._lake.recover()

    def close(self) -> None:
        self._lake.close()

    def write(self, batch: int, frame: Any, shape: Shape) -> Written:
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


def _counted(marked: Any, shape: Shape) -> tuple[Any, Any]:
    """The same rows, counted as they pass. It also keeps the optimizer from parsing a value twice, once to filter."""
    from pyspark.sql import Observation, functions

    counts = Observation()
    every = functions.count(functions.lit(1)).alias("all")
    return marked.observe(counts, every, functions.count_if(shape.is_dead()).alias("dead")), counts


class _TwoTables(ABC):
    """What Delta and Iceberg have in common. A batch with two tables is kept, so that both see the same records."""

    def recover(self) -> None:  # noqa: B027 - a commit of a table leaves nothing behind
        pass

    def close(self) -> None:  # noqa: B027 - nothing is open between batches
        pass

    def write(self, batch: int, frame: Any, shape: Shape) -> Written:
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
    def __init__(self, path: str, dead_letters: str, writer: str, partition_by: Sequence[str]) -> None:
        self._paths = {False: path, True: dead_letters}
        self._writer = writer
        self._partition_by = list(partition_by)

    def _append(self, frame: Any, batch: int, *, dead: bool) -> None:
        writer = frame.write.format("delta").mode("append").partitionBy(*self._partition_by)
        writer = writer.option("txnAppId", self._writer).option("txnVersion", str(batch)).option("mergeSchema", "true")
        writer.save(self._paths[dead])


class IcebergSink(_TwoTables):
    def __init__(self, spark: Any, table: str, dead_letters: str, writer: str, partition_by: Sequence[str]) -> None:
        self._spark = spark
        self._tables = {False: table, True: dead_letters}
        self._writer = writer
        self._partition_by = list(partition_by)

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
        """The last batch of this writer that the table has; -1 if none."""
        found = self._spark.sql(
            f"SELECT max(CAST(summary['{BATCH}'] AS BIGINT)) AS batch FROM {table}.snapshots "
            f"WHERE summary['{QUERY}'] = '{self._writer}'"
        ).first()
        return -1 if found is None or found["batch"] is None else int(found["batch"])
