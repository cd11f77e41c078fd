"""`kohort pipeline simulate`: the cost of deployments and failures for a group, simulated on Spark."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from kohort.cli.connect import FAILED, fail
from kohort.cli.interrupt import INTERRUPTED, interrupts
from kohort.cli.option_objects import App
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table_of
from kohort.cli.pipelines.simulate_options import DayOptions, GridOptions, RunOptions, question
from kohort.simulator.sizing.advice import Advice, Ask, advise
from kohort.simulator.sizing.plan import Fleet, Line, Load, plan
from kohort.simulator.sizing.summary import Cost, costs
from kohort.spark.files.hadoop import HadoopDirectory
from kohort.spark.reports.simulation import Progress, SimulationFailed, Stopped, simulate, write
from kohort.spark.runtime.java import JavaMissing
from kohort.spark.runtime.session import spark_session

app = App(epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.")


@app.command()
def simulate_command(grid: GridOptions, day: DayOptions, run: RunOptions, form: Output = Format.TABLE) -> None:
    """Simulate groups, and show what deployments and failures cost.

    The real coordinator runs in virtual time, with members that behave like Java's or librdkafka's. Each point of the
    grid is one Spark task for each seed. Figures depend on the grid and the seeds alone, except the processor time.

    PAUSED are partition-seconds without a member that works on the partition; STABLE is the time from a disturbance
    until nothing changes any more. With --size it simulates a day of one group and recommends settings; with --fleet it
    simulates single shards and extrapolates the load of many groups.
    """
    ask, points = question(grid, day)
    to, report = run.to, run.report
    if to is not None and "://" not in to:
        _made("--to", Path(to))
        report = report or Path(to) / "report.html"
    if report is not None:
        _made("--report", report.parent)
    began = time.monotonic()
    try:
        with _Display(form) as display, interrupts.careful():
            session = spark_session("kohort pipeline simulate")
            table = simulate(
                session,
                points,
                seeds=range(run.seed, run.seed + run.seeds),
                on_progress=display.progress,
                stop=interrupts.asked,
            )
            if to is not None:
                write(session, table, f"{to}/runs.parquet")
    except JavaMissing as error:
        fail(str(error))
    except SimulationFailed as error:
        fail(f"the simulation failed: {error}")
    except Stopped:
        raise typer.Exit(INTERRUPTED) from None
    rows = table.to_pylist()
    found, errors = costs(rows)
    advice = advise(ask, found) if isinstance(ask, Ask) and found else None
    lines = plan(ask, found) if isinstance(ask, Fleet) else []
    kept: list[str] = []
    unwritten = ""
    if to is not None or report is not None:
        from kohort.spark.reports.fleet_report import fleet_page
        from kohort.spark.reports.simulation_report import page

        told = fleet_page(ask, lines, found, errors) if isinstance(ask, Fleet) else page(found, advice, errors)
        kept = [f"{to}/runs.parquet"] if to is not None else []
        place = report if report is not None else f"{to}/report.html"
        try:
            if isinstance(place, Path):
                told.write(place)
            else:
                HadoopDirectory(session, place).write_text(told.html())
            kept.append(str(place))
        except OSError as error:
            unwritten = f"there is no report: {error}"
    _print(form, rows, found, advice, lines, errors)
    if form is Format.TABLE:
        see = f"; see {' and '.join(kept)}" if kept else ""
        typer.echo(f"\n{plural(len(rows), 'run')} in {time.monotonic() - began:.0f} s{see}", err=True)
    session.stop()
    if unwritten:
        fail(unwritten)
    if errors or not found:
        raise typer.Exit(FAILED)


def _made(option: str, directory: Path) -> None:
    """Make the directory now, so that an error shows before the simulation starts."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


# -- what is shown


class _Display:
    """Progress on stderr: a bar on a terminal, else a line at every tenth."""

    def __init__(self, form: Format) -> None:
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False, quiet=form is not Format.TABLE),
            transient=True,
            redirect_stdout=False,
        )
        self._bar.disable = not self._bar.console.is_terminal
        self._tenth = 0

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task("starting Spark", total=None)
        if self._bar.disable:
            self._bar.console.print("starting Spark")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def progress(self, progress: Progress) -> None:
        self._bar.update(self._task, description="simulating", completed=progress.done, total=progress.of)
        tenth = 10 * progress.done // progress.of
        if self._bar.disable and tenth > self._tenth:
            self._tenth = tenth
            self._bar.console.print(f"{progress.done:>6} of {progress.of} runs")


def _print_costs(found: list[Cost]) -> None:
    several = len({cost.point.client for cost in found}) > 1

    def protocol(cost: Cost) -> str:
        label = f"{cost.label}, {cost.point.client}" if several else cost.label
        return label if cost.settled else f"{label} (not settled)"

    print_table_of(
        found,
        {
            name("PATTERN"): lambda cost: cost.point.pattern,
            number("MEMBERS"): lambda cost: cost.point.members,
            number("PARTITIONS"): lambda cost: cost.point.partitions,
            name("PROTOCOL"): protocol,
            number("PAUSED-S"): lambda cost: f"{cost.paused_s:.1f}",
            number("WORST-S"): lambda cost: f"{cost.longest_pause_s:.1f}",
            number("STABLE-S"): lambda cost: f"{cost.stable_s:.2f}",
            number("MOVES"): lambda cost: f"{cost.moves:.0f}",
            number("NEEDED"): lambda cost: f"{cost.needed_moves:.0f}",
            number("REBALANCES"): lambda cost: f"{cost.rebalances:.0f}",
            number("REPEATED-S"): lambda cost: f"{cost.repeated_s:.1f}",
            number("REQUESTS"): lambda cost: f"{cost.requests:.0f}",
            number("RECORDS"): lambda cost: f"{cost.records:.0f}",
            number("CPU-MS"): lambda cost: f"{cost.cpu_ms:.0f}",
        },
    )


def _print(
    form: Format,
    rows: list[dict[str, Any]],
    found: list[Cost],
    advice: Advice | None,
    lines: list[Line],
    errors: list[str],
) -> None:
    if form is not Format.TABLE:
        result: dict[str, Any] = {"runs": rows, "points": [asdict(cost) for cost in found], "errors": errors}
        if advice is not None:
            result["advice"] = {
                "best": advice.best.label,
                "lines": advice.lines,
                "ways": [
                    {
                        "label": way.label,
                        "paused_per_deploy_s": way.paused_per_deploy_s,
                        "paused_per_crash_s": way.crash.paused_s,
                        "paused_per_day_s": way.paused_per_day_s,
                    }
                    for way in advice.ways
                ],
            }
        if lines:
            result["fleet"] = [asdict(line) for line in lines]
        print_document(result, form)
        return
    if lines:
        _print_fleet(lines)
    elif advice is None:
        _print_costs(found)
    else:
        _print_advice(advice)
    for error in errors:
        typer.echo(f"no figures: {error}", err=True)


def _print_advice(advice: Advice) -> None:
    first, *rest = advice.lines
    typer.echo(f"{first}\n")
    print_table_of(
        advice.ways,
        {
            name("HOW"): lambda way: way.label,
            number("PAUSED-S DEPLOY"): lambda way: f"{way.paused_per_deploy_s:.1f}",
            number("WORST-S"): lambda way: f"{way.deploy.longest_pause_s:.1f}",
            number("PAUSED-S CRASH"): lambda way: f"{way.crash.paused_s:.1f}",
            number("PAUSED-S DAY"): lambda way: f"{way.paused_per_day_s:.1f}",
            number("MOVES DEPLOY"): lambda way: f"{way.deploy.moves:.0f}",
            number("REQUESTS/S"): lambda way: f"{way.deploy.requests_per_s:.1f}",
        },
    )
    typer.echo("\n".join(["", *rest]))


class _Row(NamedTuple):
    line: Line
    load: Load


def _print_fleet(lines: list[Line]) -> None:
    print_table_of(
        [_Row(line, load) for line in lines for load in line.loads],
        {
            name("HOW"): lambda row: row.line.label + (", beyond the largest sample" if row.load.beyond else ""),
            number("SHARDS"): lambda row: row.load.shards,
            number("MEMBERS/SHARD"): lambda row: f"{row.load.members_of_a_shard:,.0f}",
            number("REQUESTS/S"): lambda row: f"{row.load.requests_per_s:,.0f}",
            number("HEARTBEATS/S"): lambda row: f"{row.load.heartbeats_per_s:,.0f}",
            number("RECORDS/S"): lambda row: f"{row.load.records_per_s:,.0f}",
            number("MB/S"): lambda row: f"{row.load.record_bytes_per_s / 1e6:.1f}",
            number("CORES"): lambda row: f"{row.load.cores:.1f}",
            number("± %"): lambda row: f"{100 * row.load.spread:.0f}",
            number("SHARD %"): lambda row: f"{100 * row.load.shard_share:.1f}",
            number("STATE-GB"): lambda row: f"{row.load.state_bytes / 1e9:.2f}",
        },
    )
    typer.echo()
    for line in lines:
        restart = line.restart
        typer.echo(
            f"{line.label}: one restart of a member costs {restart.requests:.0f} requests, {restart.records:.0f} "
            f"records and {1000 * restart.cpu_s:.1f} ms of a core"
        )
