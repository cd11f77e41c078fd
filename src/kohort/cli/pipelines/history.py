"""`kohort pipeline history`: the history of every group, as tables and a page."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, connected, fail
from kohort.cli.output import Format, Output, plural, print_document
from kohort.client.errors import KafkaError
from kohort.spark.history.cluster import NoOffsetsTopic, check_topic
from kohort.spark.history.decoding.dumps import DumpError
from kohort.spark.history.limits import MINUTE, Limits
from kohort.spark.history.report.findings import BAD
from kohort.spark.history.run import history
from kohort.spark.history.store import HistoryFailed, HistorySummary
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session

TOLD = 10
"""Findings on the terminal; the page has all of them."""


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
    where: ClusterOptions = DEFAULT_CLUSTER,
    form: Output = Format.TABLE,
) -> None:
    """Make the history of every consumer group from the log __consumer_offsets.

    Reads the log of a running cluster, up to its end at the start of the command, or dumps in files: Parquet with the
    columns of Spark's Kafka source, or directories of a broker's segments (__consumer_offsets-N/*.log). Any Kafka
    cluster will do; the principal needs READ and DESCRIBE on __consumer_offsets, and DESCRIBE on the topics.

    Writes Parquet tables (offset commits, generations, members, ownership, lag, rates, rebalances, storms, rewinds,
    sawteeth, zombies, offsets about to expire, findings) under DIR/tables, and a summary page, DIR/report.html.
    docs/how-to/history.md describes every column. A second run into the same directory continues at the end of the last
    one and writes the tables again.
    """
    properties = where.security_properties()
    if not files:
        # Report errors before Spark starts.
        with connected(where) as cluster:
            try:
                check_topic(cluster)
            except NoOffsetsTopic as error:
                fail(str(error))
    if ends is not None and not files:
        raise typer.BadParameter("--ends needs --files; a running cluster reports its ends itself")

    def progress(text: str) -> None:
        if form is Format.TABLE:
            print(text, file=sys.stderr, flush=True)

    try:
        progress("starting Spark")
        session = spark_session("kohort pipeline history")
        summary = history(
            session,
            output=output if "://" in output else Path(output).resolve(),
            bootstrap_servers=None if files else where.bootstrap_server,
            files=files or (),
            ends=ends,
            isolation="read_uncommitted" if uncommitted else "read_committed",
            interval_s=interval,
            limits=Limits(offsets_retention_ms=retention * MINUTE),
            options={f"kafka.{name}": value for name, value in properties.items()},
            on_progress=progress,
        )
    except (JavaMissing, DumpError, NoOffsetsTopic) as error:
        fail(str(error))
    except HistoryFailed as error:
        fail(f"the history failed: {error}")
    except KafkaError as error:
        fail(error.message)
    _summarize(summary, form)
    session.stop()


def _summarize(summary: HistorySummary, form: Format) -> None:
    if form is not Format.TABLE:
        print_document(asdict(summary), form)
        return
    print(
        f"{plural(summary.groups, 'group')}, {summary.in_trouble} in trouble; {summary.records:,} log records in "
        f"{plural(summary.partitions, 'partition')}, {summary.seconds:.1f} s after Spark's start"
    )
    for one in summary.findings[:TOLD]:
        print(f"{'!!' if one.severity == BAD else ' !'} {one.headline}: {one.details}")
    if len(summary.findings) > TOLD:
        print(f"   and {plural(len(summary.findings) - TOLD, 'more finding')}")
    print(summary.report)
