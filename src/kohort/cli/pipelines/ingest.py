"""`kohort pipeline ingest`: topics to a lake."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, ClusterOptions, connected, fail
from kohort.cli.interrupt import INTERRUPTED, interrupts
from kohort.cli.option_objects import App, pairs
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table
from kohort.cli.pipelines.ingest_progress import Display, Progress, amount
from kohort.cli.pipelines.lake_options import (
    DEFAULT_TARGET,
    CompactTo,
    TableOptions,
    compacted_line,
    parse_size,
    parse_time,
)
from kohort.spark.lake.ingest import IngestFailed, IngestSummary, Json, ingest
from kohort.spark.lake.row_shape import Typing
from kohort.spark.lake.tables import TableFormat
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session

app = App(epilog=EXIT_CODES.replace("cluster.", "cluster, 130 interrupted."))

PARTITION_COLUMNS = ("topic", "date", "hour", "partition")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The topics to read, and for how long."""

    topics: Annotated[str, typer.Option("--topics", "-t", metavar="NAME,...", help="Topics to read.")]
    group: Annotated[str | None, typer.Option("--group", "-g", help="Consumer group to start from and commit to.")] = (
        None
    )
    continuous: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Run until interrupted; look for new records this often."),
    ] = None
    max_offsets_per_trigger: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most records in one micro-batch.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="The first run starts here, such as 2024-05-01T12:00Z, or milliseconds since 1970."
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the source, such as kafka.isolation.level."),
    ] = None
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss", help="Where records are gone: stop, or warn and continue."
        ),
    ] = True
    include_headers: Annotated[bool, typer.Option("--include-headers", help="Keep the records' headers.")] = False

    def names(self) -> list[str]:
        return _names(self.topics)

    def source_options(self) -> dict[str, str]:
        """Options of the Spark source."""
        found = {"includeHeaders": str(self.include_headers), "failOnDataLoss": str(self.fail_on_data_loss)}
        if self.since is not None:
            found["startingTimestamp"] = str(parse_time("--since", self.since))
            found["startingOffsetsByTimestampStrategy"] = "latest"  # for partitions without so young a record
        return found | pairs("--option", self.option)


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """How the records' values are stored."""

    schema: Annotated[
        Literal["raw", "json"], typer.Option(help="Values as they are, or JSON objects whose fields become columns.")
    ] = "raw"
    schema_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Spark's DDL or JSON of the values [default: inferred once and kept with the checkpoint].",
        ),
    ] = None
    refresh_schema: Annotated[
        bool, typer.Option("--refresh-schema", help="Add columns for fields that a new sample has.")
    ] = False
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Records to infer a schema from.")] = 10_000
    typing: Annotated[
        Typing, typer.Option(help="A field that does not fit: a dead letter, or null and the value in _raw.")
    ] = "strict"
    new_fields: Annotated[
        Literal["keep", "drop"],
        typer.Option(help="Fields that are not in the schema: in the column _rest, or nowhere."),
    ] = "keep"
    keep_value: Annotated[bool, typer.Option("--keep-value", help="With JSON: keep the value's bytes too.")] = False

    def json(self) -> Json | None:
        """None for values as they are. Raises BadParameter."""
        keep_rest = self.new_fields == "keep"
        settings = Json(None, self.typing, keep_rest, self.keep_value, self.sample, self.refresh_schema)
        if self.schema == "raw":
            if self.schema_file is not None or settings != Json(sample_size=self.sample):
                raise typer.BadParameter(
                    "--schema-file, --refresh-schema, --typing, --new-fields and --keep-value are for --schema json"
                )
            return None
        if self.schema_file is None:
            return settings
        try:
            return dataclasses.replace(settings, schema=self.schema_file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"--schema-file {self.schema_file}: {error}") from None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where the rows go, and when small files are merged."""

    output: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="A directory or address that Spark knows; an Iceberg table.")
    ]
    checkpoint: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Spark's checkpoint [default: in the output].")
    ] = None
    partition_by: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Of topic, date, hour (of the timestamp, UTC), partition.")
    ] = "topic,date"
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files, at the end and from time to time.")] = (
        False
    )
    compact_to: CompactTo = DEFAULT_TARGET

    def columns(self) -> list[str]:
        found = _names(self.partition_by)
        if not found or set(found) - set(PARTITION_COLUMNS):
            raise typer.BadParameter(f"{self.partition_by!r}: choose from {', '.join(PARTITION_COLUMNS)}")
        return found


@app.command()
def ingest_command(
    read: ReadOptions,
    written: WriteOptions,
    value: ValueOptions,
    table: TableOptions,
    progress: Annotated[
        Progress,
        typer.Option(help="auto: live on a terminal, else nothing; or a line or JSON for each batch, on stderr."),
    ] = Progress.AUTO,
    where: ClusterOptions = DEFAULT_CLUSTER,
    form: Output = Format.TABLE,
) -> None:
    """Write topics to a lake of Parquet files (or Delta, Iceberg), exactly once.

    Reads the records that are there and ends; with --continuous it continues. A second run starts where the checkpoint
    ends. With a group, the first run starts at the group's committed offsets, and the command commits what it has
    written, so any Kafka tool shows the lag.
    """
    columns, wanted, values = written.columns(), read.names(), value.json()
    target = parse_size("--compact-to", written.compact_to)
    source = {f"kafka.{name}": value for name, value in where.security_properties().items()}
    source |= read.source_options()
    settings = table.session_settings()
    with connected(where) as cluster:
        missing = sorted(asked for asked, topic in cluster.topics(wanted).items() if topic.error)
        if missing:
            fail(f"no such topic on {where.bootstrap_server}: {', '.join(missing)}")
    try:
        with Display(progress, quiet=form is not Format.TABLE) as display, interrupts.careful():
            session = spark_session("kohort pipeline ingest", config=settings)
            display.now("reading " + ", ".join(wanted))
            summary = ingest(
                session,
                bootstrap_servers=where.bootstrap_server,
                topics=wanted,
                output=written.output,
                checkpoint=written.checkpoint,
                group_id=read.group,
                max_offsets_per_trigger=read.max_offsets_per_trigger,
                available_now=read.continuous is None,
                interval_s=read.continuous or 1.0,
                partition_by=columns,
                values=values,
                table_format=table.table_format,
                dead_letters=table.dead_letters,
                compact_to=target if written.compact else None,
                options=source,
                on_progress=display.batch,
                stop=interrupts.asked,
            )
    except JavaMissing as error:
        fail(str(error))
    except IngestFailed as error:
        fail(f"the ingest failed: {error}")
    _summarize(summary, written.output, table.table_format, read.group, form)
    session.stop()
    if interrupts.asked() and read.continuous is None:
        raise typer.Exit(INTERRUPTED)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _summarize(summary: IngestSummary, output: str, table_format: TableFormat, group: str | None, form: Format) -> None:
    if form is not Format.TABLE:
        result = dataclasses.asdict(summary)
        for where in ("positions", "committed"):
            result[where] = [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in sorted(getattr(summary, where).items())
            ]
        print_document({**result, "output": output, "group": group}, form)
        return
    batches = "1 micro-batch" if summary.batches == 1 else f"{summary.batches} micro-batches"
    took = f"{summary.seconds:.1f} s after Spark's start"
    wrote = f"{plural(summary.files, 'file')} of {amount(summary.bytes)}" if summary.files else "written"
    print(f"{summary.rows:,} rows in {batches}, {took}; {wrote} in {output}")
    if summary.dead_letters:
        print(f"{plural(summary.dead_letters, 'dead letter')}: records that do not parse, with the reasons")
    if summary.compacted is not None and table_format == "parquet":
        print(compacted_line(summary.compacted))
    if summary.positions:
        rows = [
            (topic, partition, offset, summary.committed.get((topic, partition), "-") if group else "-")
            for (topic, partition), offset in sorted(summary.positions.items())
        ]
        print_table([name("TOPIC"), number("PARTITION"), number("CHECKPOINT"), number("GROUP")], rows)
