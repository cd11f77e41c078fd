"""Merges the small files of a lake, directory by directory, beside readers and writers.

Every micro-batch leaves a file a directory and task, so a lake that is fed for a day has thousands. A directory's files
that are well below the target are read and written again as few files by a Spark job, onto a stage that no reader looks
at; the rows are counted on both sides; then `kohort.spark.swap` puts the new files in the place of the old ones. Files
that come meanwhile are not touched. An interrupted compaction is brought to an end by the next one, or by the next
ingest; the rows are the same before and after.

Delta and Iceberg have this themselves (OPTIMIZE, rewrite_data_files), and are asked for it.
"""

from __future__ import annotations

import fcntl
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kohort.spark.lake import HIDDEN, LakeError, data_files
from kohort.spark.places import Found, Place
from kohort.spark.swap import Swap, finish, swap
from kohort.spark.tables import TABLE_NAME, TableFormat, check_format, parquet_places

TARGET_BYTES = 128_000_000
SMALL = 0.75
"""A file of this share of the target is large enough to be left alone."""
COMPACTIONS = f"{HIDDEN}/compactions"
RENAMES_ARE_COPIES = ("s3", "s3a", "s3n", "gs", "oss", "cosn", "wasb", "wasbs")
"""Where a directory cannot be changed in a moment, so that readers would see half of it for long."""

Merge = Callable[[Sequence[str], str, int], None]
"""Writes the rows of files as so many files below an address; raises where their number differs."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did: directories that it changed, and their small files before and after."""

    directories: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.directories + other.directories,
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


def compact(
    spark: Any,
    output: str,
    *,
    table_format: TableFormat = "parquet",
    dead_letters: str | None = None,
    target_bytes: int = TARGET_BYTES,
    older_than_s: float = 0.0,
    on_directory: Callable[[str, Compacted], None] = lambda *_: None,
    stop: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Merge small files of a lake and of its dead letters into files of about `target_bytes`.

    Directories into which something was written less than `older_than_s` seconds ago are left alone. Safe beside a
    running ingest. Returns what was done; for Delta and Iceberg nothing is counted. Raises LakeError, PlaceError.
    """
    check_format(spark, table_format)
    if table_format != "parquet":
        _ask_table(spark, table_format, output, target_bytes)
        return Compacted()
    tables = parquet_places(spark, output, dead_letters)
    if not tables[0].exists():
        raise LakeError(f"there is no lake at {tables[0]}")
    before_ms = (time.time() - older_than_s) * 1000
    done = Compacted()
    for table in tables:
        if table.exists():
            with _locked(table):
                done += compact_table(table, _merging(spark), target_bytes, before_ms, on_directory, stop)
    return done


def recover(table: Place) -> None:
    """Bring an interrupted compaction to an end, unless one is running."""
    if (table / COMPACTIONS).exists():
        try:
            with _locked(table):
                _finish_all(table)
        except LakeError:
            return


def compact_table(
    table: Any,
    merge: Merge,
    target_bytes: int,
    before_ms: float = math.inf,
    on_directory: Callable[[str, Compacted], None] = lambda *_: None,
    stop: Callable[[], bool] = lambda: False,
) -> Compacted:
    """The same for the Parquet files of one table, a place. The caller holds the lock."""
    _finish_all(table)
    done = Compacted()
    for directory, files in plan(list(table.files()), target_bytes, before_ms):
        if stop():
            break
        part = _compact_directory(table, directory, files, merge, target_bytes)
        on_directory(directory, part)
        done += part
    return done


def plan(files: Sequence[Found], target_bytes: int, before_ms: float) -> list[tuple[str, list[Found]]]:
    """The directories worth the work, each with its small files, oldest first."""
    data = set(data_files([file.path for file in files]))
    directories: dict[str, list[Found]] = {}
    for file in files:
        directory = file.path.rpartition("/")[0]
        if file.path in data and directory:
            directories.setdefault(directory, []).append(file)
    found = []
    for directory, inside in sorted(directories.items()):
        small = sorted((f for f in inside if f.size < SMALL * target_bytes), key=lambda f: (f.modified_ms, f.path))
        if all(f.modified_ms < before_ms for f in inside) and pieces(small, target_bytes) < len(small):
            found.append((directory, small))
    return found


def pieces(files: Sequence[Found], target_bytes: int) -> int:
    """Into how many files these are merged."""
    return max(1, math.ceil(sum(file.size for file in files) / target_bytes))


def _compact_directory(
    table: Any, directory: str, files: Sequence[Found], merge: Merge, target_bytes: int
) -> Compacted:
    name = uuid.uuid4().hex
    stage = f"{COMPACTIONS}/{name}"
    merge([str(table / file.path) for file in files], str(table / stage / "merged"), pieces(files, target_bytes))
    staged = [f for f in (table / stage / "merged").files() if f.path.endswith(".parquet") and f.path[0] not in "._"]
    merged = tuple(
        (f"{stage}/merged/{file.path}", f"compact-{name[:12]}-{number:05d}.parquet")
        for number, file in enumerate(sorted(staged, key=lambda f: f.path))
    )
    replaced = tuple(file.path.rpartition("/")[2] for file in files)
    aside = f"{stage}/aside" if table.scheme == "file" else None
    swap(table, table / COMPACTIONS / f"{name}.json", Swap(directory, replaced, merged, aside))
    (table / stage).remove()
    return Compacted(1, len(files), len(merged), sum(f.size for f in files), sum(f.size for f in staged))


def _finish_all(table: Any) -> None:
    compactions = table / COMPACTIONS
    for name in compactions.names():
        if name.endswith(".json") and not name.startswith("."):
            finish(table, compactions / name)
    for name in compactions.names():
        (compactions / name).remove()


def _merging(spark: Any) -> Merge:
    def merge(addresses: Sequence[str], target: str, count: int) -> None:
        rows = spark.read.option("mergeSchema", "true").parquet(*addresses)
        rows.coalesce(count).write.parquet(target)
        before, after = rows.count(), spark.read.parquet(target).count()
        if before != after:
            raise LakeError(f"{before} rows became {after}; nothing was replaced (in {target})")

    return merge


def _ask_table(spark: Any, table_format: TableFormat, output: str, target_bytes: int) -> None:
    if table_format == "delta":
        spark.sql(f"OPTIMIZE delta.`{Place(spark, output)}`").collect()
        return
    if not TABLE_NAME.fullmatch(output):
        raise LakeError(f"{output!r} is no name of an Iceberg table; one is CATALOG.SCHEMA.TABLE")
    catalog, _, table = output.partition(".")
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{table}', "
        f"options => map('target-file-size-bytes', '{target_bytes}'))"
    ).collect()


@contextmanager
def _locked(table: Place) -> Iterator[None]:
    """One compaction of a table at a time. A local lock ends with its process; elsewhere it is a file that stays."""
    if table.scheme in RENAMES_ARE_COPIES:
        raise LakeError(
            f"{table}: an object store cannot replace files in a moment, so readers would see rows twice or not at "
            "all; let Delta or Iceberg keep the table there (--format)"
        )
    lock = table / HIDDEN / "compaction.lock"
    busy = LakeError(f"another compaction of {table} is running (else remove {lock})")
    if table.scheme == "file":
        os.makedirs(lock.parent.path, exist_ok=True)
        with open(lock.path, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise busy from None
            yield
        return
    if not lock.make_new():
        raise busy
    try:
        yield
    finally:
        lock.remove()
