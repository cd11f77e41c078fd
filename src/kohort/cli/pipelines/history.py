"""`kohort pipeline history`: the history of every group, as tables and a page."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, ClusterOptions, connected, fail
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import App, choice
from kohort.cli.output import Format, Output, plural, print_document
from kohort.cli.pipelines.quick_imports import import_matplotlib, without_pandas
from kohort.client.errors import KafkaError
from kohort.spark.history.cluster import NoOffsetsTopic, check_topic
from kohort.spark.history.decoding.dumps import DumpError
from kohort.spark.history.limits import MINUTE, Limits
from kohort.spark.history.local_engine import MOST_RECORDS
from kohort.spark.history.report.findings import BAD
from kohort.spark.history.run import history
from kohort.spark.history.store import HistoryFailed, HistorySummary, TooLarge
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session

app = App(epilog=EXIT_CODES)

TOLD = 10
"""Findings on the terminal; the page has all of them."""


class Engine(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@app.command()
def history_command(
    output: Annotated[
        str, typer.Option("--to", metavar="DIR", help="Directory of tables and page: a path or an address.")
    ],
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--files", "-f", metavar="PATH", help="Read dumps, not a cluster: Parquet, or a broker's segments."
        ),
    ] = None,
    ends: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --files: the topics' log ends over time (Parquet, CSV).")
    ] = None,
    interval: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="Width of the intervals of rates and lag.")
    ] = None,
    retention: Annotated[
        int,
        typer.Option("--offsets-retention-minutes", min=1, metavar="N", help="The brokers' offsets.retention.minutes."),
    ] = 7 * 24 * 60,
    uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Include commits of aborted and open transactions.")
    ] = False,
    engine: Annotated[
        Engine,
        typer.Option(
            metavar="auto|local|spark",
            help=f"What does the work: this process, or Spark. auto: Spark above {MOST_RECORDS:,} log records.",
            **choice([*Engine]),
        ),
    ] = Engine.AUTO,
    where: ClusterOptions = DEFAULT_CLUSTER,
    form: Output = Format.TABLE,
) -> None:
    """Make the history of every consumer group from the log __consumer_offsets.

    Reads the log of a running cluster, up to its end at the start of the command, and kohort's journal if there is
    one; or dumps in files: Parquet with the columns of Spark's Kafka source, or directories of a broker's segments
    (__consumer_offsets-N/*.log). Any Kafka cluster will do; the principal needs READ and DESCRIBE on
    __consumer_offsets, and DESCRIBE on the topics.

    Writes Parquet tables (offset commits, generations, members, ownership, lag, rates, rebalances, storms, rewinds,
    sawteeth, zombies, offsets about to expire, findings) under DIR/tables, and a summary page, DIR/report.html.
    docs/how-to/history.md describes every column. A second run into the same directory continues at the end of the last
    one and writes the tables again.

    Reads up to a million log records without Spark, in seconds (--engine local), and starts Spark for more
    (--engine spark). Where the log is compacted, a group without a finding may have had trouble: the command says what
    it could see.
    """
    properties = where.security_properties()
    if ends is not None and not files:
        raise typer.BadParameter("--ends needs --files; a running cluster reports its ends itself")

    def progress(text: str) -> None:
        if form is Format.TABLE:
            print(text, file=sys.stderr, flush=True)

    def made(session: Any) -> HistorySummary:
        return history(
            session,
            output=output if "://" in output else Path(output).resolve(),
            bootstrap_servers=None if files else where.bootstrap_server,
            files=files or (),
            ends=ends,
            isolation="read_uncommitted" if uncommitted else "read_committed",
            interval_s=interval,
            limits=Limits(offsets_retention_ms=retention * MINUTE),
            options={f"kafka.{name}": value for name, value in properties.items()},
            most_records=MOST_RECORDS if engine is Engine.AUTO else None,
            on_progress=progress,
        )

    session = None
    try:
        if not files:
            with connected(where) as cluster:  # reports errors before Spark starts
                check_topic(cluster)
        # spark-submit has started Spark already.
        if engine is Engine.SPARK or (engine is Engine.AUTO and "PYSPARK_GATEWAY_PORT" in os.environ):
            session = _spark(progress)
        try:
            if session is None:
                gc.disable()  # the run is short and makes hardly any cycles; looking for them was a tenth of its time
                with without_pandas():
                    import_matplotlib()
                    summary = made(None)
            else:
                summary = made(session)
        except TooLarge as error:
            gc.enable()
            progress(str(error))
            session = _spark(progress)
            summary = made(session)
    except (JavaMissing, DumpError, NoOffsetsTopic) as error:
        fail(str(error))
    except (HistoryFailed, OSError) as error:
        fail(f"the history failed: {error}")
    except KafkaError as error:
        fail(error.message)
    _summarize(summary, form)
    if session is not None:
        session.stop()
    gc.freeze()  # or the process would look at every object once more before it ends


def _spark(progress: Callable[[str], None]) -> Any:
    progress("starting Spark")
    try:
        return spark_session("kohort pipeline history")
    except ModuleNotFoundError as error:
        fail(
            f"Spark makes this history, and {(error.name or '').partition('.')[0]} is missing: pip install "
            "'kohort[spark]'; or --engine local, which holds the log in memory"
        )


def _summarize(summary: HistorySummary, form: Format) -> None:
    coverage = summary.coverage
    if form is not Format.TABLE:
        document = asdict(summary)
        if coverage is not None:
            document["coverage"] |= {"partial": coverage.partial, "lines": coverage.lines}
        print_document(document, form)
        return
    partial = coverage is not None and coverage.partial
    trouble = f"{summary.in_trouble} in trouble" if summary.in_trouble or not partial else "none seen in trouble"
    after = "" if summary.engine == "local" else " after Spark's start"
    lines = [
        Line(
            f"{plural(summary.groups, 'group')}, {trouble}; {summary.records:,} log records in "
            f"{plural(summary.partitions, 'partition')}, {summary.seconds:.1f} s{after}"
        )
    ]
    for one in summary.findings[:TOLD]:
        lines.append(Line(f"{'!!' if one.severity == BAD else ' !'} {one.headline}: {one.details}"))
    if len(summary.findings) > TOLD:
        lines.append(Line(f"   and {plural(len(summary.findings) - TOLD, 'more finding')}"))
    if coverage is not None:
        lines += [Line(f"{'seen: ' if number == 0 else '      '}{text}") for number, text in enumerate(coverage.lines)]
    show([*lines, Line(summary.report, whole=True)])
