"""`kohort pipeline ingest`: topics to a lake."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.connect import (
    DEFAULT_BOOTSTRAP,
    FAILED,
    BootstrapServer,
    CommandConfig,
    connected,
    connection_properties,
    fail,
)
from kohort.cli.interrupt import Interrupt
from kohort.cli.output import Format, Output, name, number, plural, print_json, print_table
from kohort.cli.pipelines.ingest_progress import Display, Progress, amount
from kohort.cli.pipelines.lake_options import (
    DEFAULT_TARGET,
    Conf,
    Packages,
    TableFormats,
    compacted_line,
    pairs,
    parse_size,
    parse_time,
    session_settings,
)
from kohort.spark.lake.ingest import IngestFailed, IngestSummary, Json, ingest
from kohort.spark.lake.row_shape import Typing
from kohort.spark.lake.tables import TableFormat
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session

INTERRUPTED = 130

PARTITION_COLUMNS = ("topic", "date", "hour", "partition")


class Values(StrEnum):
    RAW = "raw"
    JSON = "json"


class NewFields(StrEnum):
    KEEP = "keep"
    DROP = "drop"


def ingest_command(
    topics: Annotated[str, typer.Option("--topics", "-t", metavar="NAME,...", help="Topics to read.")],
    output: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="A directory or address that Spark knows; an Iceberg table.")
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Consumer group to start from and commit to.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="PLACE", help="Spark's checkpoint [default: in the output].")
    ] = None,
    continuous: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Go on until interrupted, looking for more this often."),
    ] = None,
    max_offsets_per_trigger: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most records in one micro-batch.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="The first run starts here, such as 2024-05-01T12:00Z, or milliseconds since 1970."
        ),
    ] = None,
    partition_by: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Of topic, date, hour (of the timestamp, UTC), partition.")
    ] = "topic,date",
    schema: Annotated[
        Values, typer.Option("--schema", help="Values as they are, or JSON objects whose fields become columns.")
    ] = Values.RAW,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            "--schema-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Spark's DDL or JSON of the values [default: inferred once and kept with the checkpoint].",
        ),
    ] = None,
    refresh_schema: Annotated[
        bool, typer.Option("--refresh-schema", help="Add columns for fields that a new sample has.")
    ] = False,
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Records to infer a schema from.")] = 10_000,
    typing: Annotated[
        Typing, typer.Option(help="A field that does not fit: a dead letter, or null and the value in _raw.")
    ] = "strict",
    new_fields: Annotated[
        NewFields, typer.Option(help="Fields that are not in the schema: in the column _rest, or nowhere.")
    ] = NewFields.KEEP,
    keep_value: Annotated[bool, typer.Option("--keep-value", help="With JSON: keep the value's bytes too.")] = False,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            "--dead-letters", metavar="PLACE", help="Where values go that do not parse [default: TO/_dead_letters]."
        ),
    ] = None,
    table_format: TableFormats = "parquet",
    packages: Packages = None,
    conf: Conf = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the source, such as kafka.isolation.level."),
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files, at the end and now and then.")] = False,
    compact_to: Annotated[
        str, typer.Option("--compact-to", metavar="SIZE", help="With --compact: the size of a file, about.")
    ] = DEFAULT_TARGET,
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss", help="Stop, or warn and go on, where records are gone."
        ),
    ] = True,
    include_headers: Annotated[bool, typer.Option("--include-headers", help="Keep the records' headers.")] = False,
    progress: Annotated[
        Progress, typer.Option(help="auto: live on a terminal, else nothing; or a line or JSON a batch, on stderr.")
    ] = Progress.AUTO,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    form: Output = Format.TABLE,
) -> None:
    """Write topics to a lake of Parquet files (or Delta, Iceberg), exactly once.

    Reads what is there and ends (or goes on, with --continuous). A second run goes on where the checkpoint ends. When
    a group is given, the first run starts at its committed offsets, and they follow what is written, so that any Kafka
    tool sees the lag.
    """
    columns = _names(partition_by)
    if not columns or set(columns) - set(PARTITION_COLUMNS):
        raise typer.BadParameter(f"{partition_by!r}: take of {', '.join(PARTITION_COLUMNS)}")
    wanted = _names(topics)
    values = _values(
        schema, schema_file, Json(None, typing, new_fields is NewFields.KEEP, keep_value, sample, refresh_schema)
    )
    target = parse_size("--compact-to", compact_to)
    source = {"includeHeaders": str(include_headers), "failOnDataLoss": str(fail_on_data_loss)}
    source |= {f"kafka.{name}": value for name, value in connection_properties(command_config).items()}
    if since is not None:
        source |= {
            "startingTimestamp": str(parse_time("--since", since)),
            "startingOffsetsByTimestampStrategy": "latest",  # where nothing is that young
        }
    source |= pairs("--option", option)
    settings = session_settings(table_format, packages, conf)
    with connected(bootstrap_server, command_config) as cluster:
        missing = sorted(asked for asked, topic in cluster.topics(wanted).items() if topic.error)
        if missing:
            fail(f"no such topic on {bootstrap_server}: {', '.join(missing)}", FAILED)
    try:
        with Display(progress, quiet=form is Format.JSON) as display:
            session = spark_session("kohort pipeline ingest", config=settings)
            interrupted = Interrupt()  # now, since Spark puts a handler of its own in place
            display.now("reading " + ", ".join(wanted))
            summary = ingest(
                session,
                bootstrap_servers=bootstrap_server,
                topics=wanted,
                output=output,
                checkpoint=checkpoint,
                group_id=group,
                max_offsets_per_trigger=max_offsets_per_trigger,
                available_now=continuous is None,
                interval_s=continuous or 1.0,
                partition_by=columns,
                values=values,
                table_format=table_format,
                dead_letters=dead_letters,
                compact_to=target if compact else None,
                options=source,
                on_progress=display.batch,
                stop=interrupted.was,
            )
    except JavaMissing as error:
        fail(str(error), FAILED)
    except IngestFailed as error:
        fail(f"the ingest failed: {error}", FAILED)
    _summarize(summary, output, table_format, group, form)
    session.stop()
    if interrupted.was() and continuous is None:
        raise typer.Exit(INTERRUPTED)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _values(schema: Values, schema_file: Path | None, settings: Json) -> Json | None:
    if schema is Values.RAW:
        if schema_file is not None or settings != Json(sample_size=settings.sample_size):
            raise typer.BadParameter(
                "--schema-file, --refresh-schema, --typing, --new-fields and --keep-value are for --schema json"
            )
        return None
    if schema_file is None:
        return settings
    try:
        return dataclasses.replace(settings, schema=schema_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--schema-file {schema_file}: {error}") from None


def _summarize(summary: IngestSummary, output: str, table_format: TableFormat, group: str | None, form: Format) -> None:
    if form is Format.JSON:
        result = dataclasses.asdict(summary)
        for where in ("positions", "committed"):
            result[where] = [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in sorted(getattr(summary, where).items())
            ]
        print_json({**result, "output": output, "group": group})
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
