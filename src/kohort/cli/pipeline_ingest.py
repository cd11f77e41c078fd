"""`kohort pipeline ingest`: topics to a lake."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from kohort.cli.connect import (
    DEFAULT_BOOTSTRAP,
    FAILED,
    BootstrapServer,
    CommandConfig,
    connected,
    connection_properties,
    fail,
)
from kohort.cli.output import Format, Output, name, number, plural, print_json, print_table
from kohort.spark.ingest import IngestFailed, IngestProgress, IngestSummary, ingest
from kohort.spark.java import JavaMissing
from kohort.spark.session import spark_session

INTERRUPTED = 130

PARTITION_COLUMNS = ("topic", "date", "hour", "partition")


def ingest_command(
    topics: Annotated[str, typer.Option("--topics", "-t", metavar="NAME,...", help="Topics to read.")],
    output: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the Parquet files go.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Consumer group to start from and commit to.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="Spark's checkpoint [default: in the output].")
    ] = None,
    continuous: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Go on until interrupted, looking for more this often."),
    ] = None,
    max_offsets_per_trigger: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most records in one micro-batch.")
    ] = None,
    partition_by: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Of topic, date, hour (of the timestamp), partition.")
    ] = "topic,date",
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss", help="Stop, or warn and go on, where records are gone."
        ),
    ] = True,
    include_headers: Annotated[bool, typer.Option("--include-headers", help="Keep the records' headers.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    form: Output = Format.TABLE,
) -> None:
    """Write topics to partitioned Parquet, exactly once.

    Reads what is there and ends (or goes on, with --continuous). A second run goes on where the checkpoint ends. When
    a group is given, the first run starts at its committed offsets, and they follow what is written, so that any Kafka
    tool sees the lag.
    """
    columns = [part.strip() for part in partition_by.split(",") if part.strip()]
    if not columns or set(columns) - set(PARTITION_COLUMNS):
        raise typer.BadParameter(f"{partition_by!r}: take of {', '.join(PARTITION_COLUMNS)}")
    wanted = [part.strip() for part in topics.split(",") if part.strip()]
    with connected(bootstrap_server, command_config) as cluster:
        missing = sorted(asked for asked, topic in cluster.topics(wanted).items() if topic.error)
        if missing:
            fail(f"no such topic on {bootstrap_server}: {', '.join(missing)}", FAILED)
    try:
        with _Display(form) as display:
            session = spark_session("kohort pipeline ingest")
            interrupted = _Interrupt()  # now, since Spark puts a handler of its own in place
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
                options={
                    "includeHeaders": str(include_headers),
                    "failOnDataLoss": str(fail_on_data_loss),
                    **{f"kafka.{name}": value for name, value in connection_properties(command_config).items()},
                },
                on_progress=display.batch,
                stop=interrupted.was,
            )
    except JavaMissing as error:
        fail(str(error), FAILED)
    except IngestFailed as error:
        fail(f"the ingest failed: {error}", FAILED)
    _summarize(summary, output, group, form)
    session.stop()
    if interrupted.was() and continuous is None:
        raise typer.Exit(INTERRUPTED)


class _Interrupt:
    """The first Ctrl-C stops the query: a batch under way is given up, and the next run repeats it."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def was(self) -> bool:
        return self._asked


class _Display:
    """A line a batch on stderr, so that stdout holds the result alone; on a terminal also what is going on now."""

    def __init__(self, form: Format) -> None:
        self._began = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False, quiet=form is not Format.TABLE),
            transient=True,
            redirect_stdout=False,
        )
        if not self._progress.console.is_terminal:
            self._progress.disable = True

    def __enter__(self) -> Self:
        self._progress.start()
        self._now = self._progress.add_task("starting Spark")
        if self._progress.disable:
            self._progress.console.print("starting Spark")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def now(self, text: str) -> None:
        self._progress.update(self._now, description=text)

    def batch(self, progress: IngestProgress) -> None:
        seconds = time.monotonic() - self._began
        self._progress.console.print(
            f"batch {progress.batch:>4}   {progress.rows:>12,} rows   lag {progress.lag:>12,}   {seconds:>6.1f} s",
            soft_wrap=True,
        )


def _summarize(summary: IngestSummary, output: Path, group: str | None, form: Format) -> None:
    files = sum(1 for _ in output.rglob("*.parquet"))
    if form is Format.JSON:
        result = dataclasses.asdict(summary)
        for where in ("positions", "committed"):
            result[where] = [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in sorted(getattr(summary, where).items())
            ]
        print_json({**result, "output": str(output), "files": files, "group": group})
        return
    batches = "1 micro-batch" if summary.batches == 1 else f"{summary.batches} micro-batches"
    took = f"{summary.seconds:.1f} s after Spark's start"
    print(f"{summary.rows:,} rows in {batches}, {took}; {plural(files, 'file')} in {output}")
    if summary.positions:
        rows = [
            (topic, partition, offset, summary.committed.get((topic, partition), "-") if group else "-")
            for (topic, partition), offset in sorted(summary.positions.items())
        ]
        print_table([name("TOPIC"), number("PARTITION"), number("CHECKPOINT"), number("GROUP")], rows)
