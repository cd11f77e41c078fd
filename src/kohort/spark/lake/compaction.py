"""Merges the small files of a lake, directory by directory, while others read and write.

Each task of each micro-batch leaves a file in each directory, so after a day a lake has thousands. For each directory,
a Spark job writes the rows of the files well below the target size as few files to a staging directory that readers
ignore. The rows are counted on both sides. Then `file_swap` puts the new files in the place of the old ones. Files that
arrive meanwhile stay. The next compaction or ingest finishes an interrupted one; a table has one at a time (`locks`).

Delta and Iceberg compact their tables themselves (OPTIMIZE, rewrite_data_files); this module calls them.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any

from kohort.spark.files.directory import FileInfo, FileSystemError
from kohort.spark.files.hadoop import RENAMES_ARE_COPIES, HadoopDirectory
from kohort.spark.lake.file_swap import Swap, finish, swap
from kohort.spark.lake.lake import HIDDEN, LakeError, data_files
from kohort.spark.lake.locks import STALE_S, Taken, leased, lock_file
from kohort.spark.lake.tables import TABLE_NAME, TableFormat, check_format, parquet_directories
from kohort.spark.runtime.failures import cause, warn
from kohort.spark.runtime.session import timestamps_in_micros

TARGET_BYTES = 128_000_000
SMALL = 0.75
"""A file of at least this share of the target size is left alone."""
COMPACTIONS = f"{HIDDEN}/compactions"

LockHeld = Callable[[], bool]
"""True while this process holds the lock."""
Merge = Callable[[Sequence[str], str, int], None]
"""Writes the rows of files as so many files below an address; raises if the number of rows differs."""


class CompactionFailed(RuntimeError):
    """Spark or the file system reported an error; the message is theirs."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction: directories that it changed, and their small files before and after."""

    directories: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(*map(sum, zip(astuple(self), astuple(other), strict=True)))


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

    Leaves a directory alone if a file in it was written less than `older_than_s` seconds ago. Safe while an ingest
    runs. Delta and Iceberg give no counts. Raises FormatMissing, LakeError, FileSystemError, CompactionFailed.
    """
    check_format(spark, table_format)
    try:
        if table_format != "parquet":
            _compact_table_format(spark, table_format, output, target_bytes)
            return Compacted()
        tables = parquet_directories(spark, output, dead_letters)
        if not tables[0].exists():
            raise LakeError(f"there is no lake at {tables[0]}")
        before_ms = (time.time() - older_than_s) * 1000
        done = Compacted()
        for table in tables:
            if table.exists():
                with _locked(table) as lock_held:
                    done += compact_table(
                        table, _merging(spark), target_bytes, before_ms, on_directory, stop, lock_held
                    )
        return done
    except (LakeError, FileSystemError):
        raise
    except Exception as error:
        raise CompactionFailed(cause(error)) from error


def recover(table: HadoopDirectory) -> bool:
    """Finish an interrupted compaction. False while another compaction holds the lock, or seems to.

    In that case a warning says what readers may miss.
    """
    if not (table / COMPACTIONS).exists() or table.scheme in RENAMES_ARE_COPIES:
        return True
    try:
        with _locked(table):
            _finish_all(table)
    except LakeError as busy:
        if any(_is_journal(name) for name in (table / COMPACTIONS).names()):
            warn(
                f"{busy}. It was replacing files: if it was killed, readers miss rows of {table} until a "
                f"compaction or an ingest takes its lock over, once the lock is {STALE_S:.0f} s old"
            )
        return False
    return True


def compact_table(
    table: HadoopDirectory,
    merge: Merge,
    target_bytes: int,
    before_ms: float = math.inf,
    on_directory: Callable[[str, Compacted], None] = lambda *_: None,
    stop: Callable[[], bool] = lambda: False,
    lock_held: LockHeld = lambda: True,
) -> Compacted:
    """Compact the Parquet files of one table. The caller holds the lock."""
    _finish_all(table)
    done = Compacted()
    for directory, files in plan(list(table.files()), target_bytes, before_ms):
        if stop():
            break
        part = _compact_directory(table, directory, files, merge, target_bytes, lock_held)
        on_directory(directory, part)
        done += part
    return done


def plan(files: Sequence[FileInfo], target_bytes: int, before_ms: float) -> list[tuple[str, list[FileInfo]]]:
    """The directories to compact, each with its small files, oldest first."""
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
    """The number of files that these are merged into."""
    return max(1, math.ceil(sum(file.size for file in files) / target_bytes))


def _compact_directory(
    table: HadoopDirectory,
    directory: str,
    files: Sequence[FileInfo],
    merge: Merge,
    target_bytes: int,
    lock_held: LockHeld,
) -> Compacted:
    name = uuid.uuid4().hex
    stage = f"{COMPACTIONS}/{name}"
    merge([str(table / file.path) for file in files], str(table / stage / "merged"), pieces(files, target_bytes))
    found = sorted((table / stage / "merged").files(), key=lambda file: file.path)
    staged = [file for file in found if file.path.endswith(".parquet") and file.path[0] not in "._"]
    merged = tuple(
        (f"{stage}/merged/{file.path}", f"compact-{name[:12]}-{number:05d}.parquet")
        for number, file in enumerate(staged)
    )
    replaced = tuple(file.path.rpartition("/")[2] for file in files)
    aside = f"{stage}/aside" if table.scheme == "file" else None
    if not lock_held():
        raise LakeError(f"this compaction of {table} paused for too long, and another one has taken its lock over")
    swap(table, table / COMPACTIONS / f"{name}.json", Swap(directory, replaced, merged, aside))
    (table / stage).remove()
    return Compacted(1, len(files), len(merged), sum(file.size for file in files), sum(file.size for file in staged))


def _finish_all(table: HadoopDirectory) -> None:
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
            raise LakeError(f"{before} rows became {after} in {target}; no file was replaced")

    return merge


def _compact_table_format(spark: Any, table_format: TableFormat, output: str, target_bytes: int) -> None:
    if table_format == "delta":
        spark.sql(f"OPTIMIZE delta.`{HadoopDirectory(spark, output)}`").collect()
        return
    if not TABLE_NAME.fullmatch(output):
        raise LakeError(f"{output!r} is not the name of an Iceberg table; write CATALOG.SCHEMA.TABLE")
    catalog, _, table = output.partition(".")
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{table}', "
        f"options => map('target-file-size-bytes', '{target_bytes}'))"
    ).collect()


@contextmanager
def _locked(table: HadoopDirectory) -> Iterator[LockHeld]:
    """Admit one compaction of a table at a time. Raises LakeError, FileSystemError."""
    if table.scheme in RENAMES_ARE_COPIES:
        raise LakeError(
            f"{table}: an object store cannot replace files in one step, so readers would see rows twice or not at "
            "all; use Delta or Iceberg there (--format)"
        )
    file = table / HIDDEN / "compaction.lock"
    with ExitStack() as stack:
        try:
            if table.scheme != "file":
                lock_held = stack.enter_context(leased(file)).held
            else:
                stack.enter_context(lock_file(file.path) or nullcontext())
                lock_held = lambda: True  # noqa: E731
        except Taken as other:
            raise LakeError(f"another compaction of {table} is running ({other})") from None
        yield lock_held
