"""Merges the small files of a lake, directory by directory, beside readers and writers.

Every micro-batch leaves a file a directory and task, so a lake that is fed for a day has thousands. A directory's
files that are well below the target are read and written again as few files by a Spark job, onto a stage that no
reader looks at; the rows are counted on both sides; then `kohort.spark.lake.file_swap` puts the new files in the place
of the old ones. Files that come meanwhile are not touched. An interrupted compaction is brought to an end by the next
one, or by the next ingest; the rows are the same before and after. One compaction of a table at a time
(`kohort.spark.lake.locks`); where the lock does not end with its process, the next one waits some minutes before it
takes it for dead.

Delta and Iceberg have this themselves (OPTIMIZE, rewrite_data_files), and are asked for it.
"""

from __future__ import annotations

import math
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from kohort.spark.files.directory import FileInfo, FileSystemError
from kohort.spark.files.hadoop import RENAMES_ARE_COPIES, HadoopDirectory
from kohort.spark.lake.file_swap import Swap, finish, swap
from kohort.spark.lake.lake import HIDDEN, LakeError, data_files
from kohort.spark.lake.locks import STALE_S, Taken, leased, lock_file
from kohort.spark.lake.tables import TABLE_NAME, TableFormat, check_format, parquet_places
from kohort.spark.runtime.session import cause, timestamps_in_micros

TARGET_BYTES = 128_000_000
SMALL = 0.75
"""A file of this share of the target is large enough to be left alone."""
COMPACTIONS = f"{HIDDEN}/compactions"

Still = Callable[[], bool]
"""Whether the lock is still ours."""
Merge = Callable[[Sequence[str], str, int], None]
"""Writes the rows of files as so many files below an address; raises where their number differs."""


class CompactionFailed(RuntimeError):
    """Spark or the file system refused; the message is theirs."""


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
    running ingest. Returns what was done; for Delta and Iceberg nothing is counted. Raises FormatMissing, LakeError,
    FileSystemError, CompactionFailed.
    """
    check_format(spark, table_format)
    try:
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
                with _locked(table) as still_ours:
                    done += compact_table(
                        table, _merging(spark), target_bytes, before_ms, on_directory, stop, still_ours
                    )
        return done
    except (LakeError, FileSystemError):
        raise
    except Exception as error:
        raise CompactionFailed(cause(error)) from error


def recover(table: Any) -> bool:
    """Bring an interrupted compaction to an end. False while another one has the table, or seems to have it: what that
    would mean for readers is told."""
    if not (table / COMPACTIONS).exists() or table.scheme in RENAMES_ARE_COPIES:
        return True
    try:
        with _locked(table):
            _finish_all(table)
    except LakeError as busy:
        if any(_is_journal(name) for name in (table / COMPACTIONS).names()):
            print(
                f"kohort: {busy}. It was replacing files: if it was killed, rows of {table} are out of sight until a "
                f"compaction or an ingest takes its lock over, which they do when it is {STALE_S:.0f} s old",
                file=sys.stderr,
            )
        return False
    return True


def compact_table(
    table: Any,
    merge: Merge,
    target_bytes: int,
    before_ms: float = math.inf,
    on_directory: Callable[[str, Compacted], None] = lambda *_: None,
    stop: Callable[[], bool] = lambda: False,
    still_ours: Still = lambda: True,
) -> Compacted:
    """The same for the Parquet files of one table, a place. The caller holds the lock."""
    _finish_all(table)
    done = Compacted()
    for directory, files in plan(list(table.files()), target_bytes, before_ms):
        if stop():
            break
        part = _compact_directory(table, directory, files, merge, target_bytes, still_ours)
        on_directory(directory, part)
        done += part
    return done


def plan(files: Sequence[FileInfo], target_bytes: int, before_ms: float) -> list[tuple[str, list[FileInfo]]]:
    """The directories worth the work, each with its small files, oldest first."""
    data = set(data_files([file.path for file in files]))
    directories: dict[str, list[FileInfo]] = {}
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


def pieces(files: Sequence[FileInfo], target_bytes: int) -> int:
    """Into how many files these are merged."""
    return max(1, math.ceil(sum(file.size for file in files) / target_bytes))


def _compact_directory(
    table: Any, directory: str, files: Sequence[FileInfo], merge: Merge, target_bytes: int, still_ours: Still
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
    if not still_ours():
        raise LakeError(f"this compaction of {table} stood still, and another one has taken its place")
    swap(table, table / COMPACTIONS / f"{name}.json", Swap(directory, replaced, merged, aside))
    (table / stage).remove()
    return Compacted(1, len(files), len(merged), sum(f.size for f in files), sum(f.size for f in staged))


def _finish_all(table: Any) -> None:
    compactions = table / COMPACTIONS
    for name in compactions.names():
        if _is_journal(name):
            finish(table, compactions / name)
    for name in compactions.names():
        (compactions / name).remove()


def _is_journal(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")


def _merging(spark: Any) -> Merge:
    def merge(addresses: Sequence[str], target: str, count: int) -> None:
        rows = spark.read.option("mergeSchema", "true").parquet(*addresses)
        with timestamps_in_micros(spark):
            rows.coalesce(count).write.parquet(target)
        before, after = rows.count(), spark.read.parquet(target).count()
        if before != after:
            raise LakeError(f"{before} rows became {after}; nothing was replaced (in {target})")

    return merge


def _ask_table(spark: Any, table_format: TableFormat, output: str, target_bytes: int) -> None:
    if table_format == "delta":
        spark.sql(f"OPTIMIZE delta.`{HadoopDirectory(spark, output)}`").collect()
        return
    if not TABLE_NAME.fullmatch(output):
        raise LakeError(f"{output!r} is no name of an Iceberg table; one is CATALOG.SCHEMA.TABLE")
    catalog, _, table = output.partition(".")
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{table}', "
        f"options => map('target-file-size-bytes', '{target_bytes}'))"
    ).collect()


@contextmanager
def _locked(table: Any) -> Iterator[Still]:
    """One compaction of a table at a time. Raises LakeError, FileSystemError."""
    if table.scheme in RENAMES_ARE_COPIES:
        raise LakeError(
            f"{table}: an object store cannot replace files in a moment, so readers would see rows twice or not at "
            "all; let Delta or Iceberg keep the table there (--format)"
        )
    file = table / HIDDEN / "compaction.lock"
    with ExitStack() as held:
        try:
            if table.scheme == "file":
                lock = lock_file(file.path)
                if lock is not None:
                    held.enter_context(lock)
                still_ours: Still = lambda: True  # noqa: E731
            else:
                still_ours = held.enter_context(leased(file)).held
        except Taken as other:
            raise LakeError(f"another compaction of {table} is running ({other})") from None
        yield still_ours
