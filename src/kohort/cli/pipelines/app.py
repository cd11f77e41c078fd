"""`kohort pipeline`: data pipelines on Spark, one module each, which is imported when its pipeline runs.

To add one, write a module with a typer app, and add it to PIPELINES. On a laptop a pipeline starts its own session. On
a cluster spark-submit runs the file that `kohort pipeline job` prints, with the same arguments.
"""

from __future__ import annotations

from pathlib import Path

import typer

from kohort.cli.commands import LazyGroup
from kohort.cli.option_objects import App

PIPELINES = {
    "ingest": (
        "kohort.cli.pipelines.ingest",
        "Write topics to a lake of Parquet files (or Delta, Iceberg), exactly once.",
    ),
    "compact": (
        "kohort.cli.pipelines.compact",
        "Merge the small files of a lake. Writers and readers may use it meanwhile.",
    ),
    "simulate": ("kohort.cli.pipelines.simulate", "Simulate groups, and show what deployments and failures cost."),
    "history": (
        "kohort.cli.pipelines.history",
        "Make the history of every consumer group from the log __consumer_offsets.",
    ),
}


class Pipelines(LazyGroup):
    table = PIPELINES
    prefix = "pipeline "


app = App(
    cls=Pipelines,
    help="Run data pipelines on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def pipeline() -> None:
    """Run data pipelines on Spark."""


@app.command("job")
def job() -> None:
    """Print the file for spark-submit.

    spark-submit [its options] "$(kohort pipeline job)" ingest --topics ... runs `kohort pipeline ingest` on a cluster,
    in the session that spark-submit makes; so with every pipeline.
    """
    typer.echo(Path(__file__).parents[1] / "jobs" / "pipeline.py")
