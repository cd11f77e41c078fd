"""`kohort pipeline compact`: the small files of a lake, merged."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from kohort.cli.connect import fail
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.cli.output import Format, Output, print_document
from kohort.cli.pipelines.ingest_progress import amount
from kohort.cli.pipelines.lake_options import (
    DEFAULT_TARGET,
    CompactTo,
    TableOptions,
    compacted_line,
    parse_seconds,
    parse_size,
)
from kohort.spark.files.directory import FileSystemError
from kohort.spark.lake.compaction import Compacted, CompactionFailed, compact
from kohort.spark.lake.lake import LakeError
from kohort.spark.lake.tables import FormatMissing
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session

app = App()


@app.command()
def compact_command(
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="The lake: what --to of ingest names.")],
    table: TableOptions,
    compact_to: CompactTo = DEFAULT_TARGET,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="TIME", help="Skip directories with files younger than this, such as 1h."),
    ] = "0s",
    form: Output = Format.TABLE,
) -> None:
    """Merge the small files of a lake. Writers and readers may use it meanwhile.

    A reader that has listed a directory before the change may have to list it again. An interrupt ends the command
    after the current directory. The next compaction or ingest completes a compaction that was killed.
    """
    target, age = parse_size("--compact-to", compact_to), parse_seconds("--older-than", older_than)

    def tell(directory: str, done: Compacted) -> None:
        if form is Format.TABLE:
            sizes = f"{amount(done.bytes_before)} -> {amount(done.bytes_after)}"
            print(f"{directory}  {done.files_before} -> {done.files_after} files  {sizes}", flush=True)

    try:
        session = spark_session("kohort pipeline compact", config=table.session_settings())
        with interrupts.careful():
            done = compact(
                session,
                lake,
                table_format=table.table_format,
                dead_letters=table.dead_letters,
                target_bytes=target,
                older_than_s=age,
                on_directory=tell,
                stop=interrupts.asked,
            )
    except (JavaMissing, FormatMissing, LakeError, FileSystemError) as error:
        fail(str(error))
    except CompactionFailed as error:
        fail(f"the compaction failed: {error}")
    if form is not Format.TABLE:
        print_document({"lake": lake, **dataclasses.asdict(done)}, form)
    elif table.table_format == "parquet":
        print(compacted_line(done))
    session.stop()
