"""`kohort pipeline`: data pipelines on Spark, one module each.

To add one, write a module with a typer command and register it at the end of this file. On a laptop a pipeline starts
its own session. On a cluster spark-submit runs the file that `kohort pipeline job` prints, with the same arguments.
"""

from __future__ import annotations

from pathlib import Path

import typer

from kohort.cli.connect import EXIT_CODES
from kohort.cli.option_objects import App
from kohort.cli.pipelines.compact import compact_command
from kohort.cli.pipelines.history import history_command
from kohort.cli.pipelines.ingest import ingest_command
from kohort.cli.pipelines.simulate import simulate_command

app = App(help="Run data pipelines on Spark.", epilog=EXIT_CODES, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command("job")
def job() -> None:
    """Print the file for spark-submit.

    spark-submit [its options] "$(kohort pipeline job)" ingest --topics ... runs `kohort pipeline ingest` on a cluster,
    in the session that spark-submit makes; so with every pipeline.
    """
    typer.echo(Path(__file__).parents[1] / "jobs" / "pipeline.py")


app.command("ingest")(ingest_command)
app.command("compact")(compact_command)
app.command("simulate")(simulate_command)
app.command("history")(history_command)
