"""`kohort pipeline compact`: the small files of a lake, merged."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from kohort.cli.connect import FAILED, fail
from kohort.cli.interrupt import Interrupt
from kohort.cli.output import Format, Output, print_json
from kohort.cli.pipelines.ingest_progress import amount
from kohort.cli.pipelines.lake_options import (
    DEFAULT_TARGET,
    Conf,
    Packages,
    TableFormats,
    compacted_line,
    parse_seconds,
    parse_size,
    session_settings,
)
from kohort.spark.files.directory import FileSystemError
from kohort.spark.lake.compaction import Compacted, CompactionFailed, compact
from kohort.spark.lake.lake import LakeError
from kohort.spark.lake.tables import FormatMissing
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session


def compact_command(
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="What ingest was told with --to.")],
    compact_to: Annotated[
        str, typer.Option("--compact-to", metavar="SIZE", help="The size of a file, about.")
    ] = DEFAULT_TARGET,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="TIME", help="Leave directories alone that were written to since, such as 1h."
        ),
    ] = "0s",
    dead_letters: Annotated[
        str | None,
        typer.Option("--dead-letters", metavar="PLACE", help="The dead letters' place [default: LAKE/_dead_letters]."),
    ] = None,
    table_format: TableFormats = "parquet",
    packages: Packages = None,
    conf: Conf = None,
    form: Output = Format.TABLE,
) -> None:
    """Merge the small files of a lake, while it is written to and read.

    A reader that has listed a directory before it changed may have to list it again. An interrupt ends the command
    after the directory under way; what is killed is brought to an end by the next run or the next ingest.
    """
    target, age = parse_size("--compact-to", compact_to), parse_seconds("--older-than", older_than)

    def tell(directory: str, done: Compacted) -> None:
        if form is Format.TABLE:
            sizes = f"{amount(done.bytes_before)} -> {amount(done.bytes_after)}"
            print(f"{directory}  {done.files_before} -> {done.files_after} files  {sizes}", flush=True)

    try:
        session = spark_session("kohort pipeline compact", config=session_settings(table_format, packages, conf))
        interrupted = Interrupt()
        done = compact(
            session,
            lake,
            table_format=table_format,
            dead_letters=dead_letters,
            target_bytes=target,
            older_than_s=age,
            on_directory=tell,
            stop=interrupted.was,
        )
    except (JavaMissing, FormatMissing, LakeError, FileSystemError) as error:
        fail(str(error), FAILED)
    except CompactionFailed as error:
        fail(f"the compaction failed: {error}", FAILED)
    if form is Format.JSON:
        print_json({"lake": lake, **dataclasses.asdict(done)})
    elif table_format == "parquet":
        print(compacted_line(done))
    session.stop()
