"""`kohort pipeline simulate`: Spark runs what one process runs, in the order of the grid; the command and its report.

A Spark job costs seconds, so two are run, and all else is tested without.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from kohort.cli.commands import app
from kohort.cli.pipelines import simulate as pipeline_simulate
from kohort.simulator.sizing import DidNotForm, Grid, Point, plan, run
from kohort.simulator.sizing.advice import Ask, advise, points_of
from kohort.simulator.sizing.plan import Fleet
from kohort.simulator.sizing.point import FIELDS, normal
from kohort.simulator.sizing.summary import Cost, costs
from kohort.spark.reports import simulation as simulate_module
from kohort.spark.reports import simulation_report
from kohort.spark.reports.fleet_report import fleet_page
from kohort.spark.reports.simulation import MEASURES, Progress, Stopped, row_of, schema, simulate
from kohort.spark.reports.simulation_report import page

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def rows(points: list[Point], seeds: range = range(1)) -> list[dict[str, Any]]:
    """Without Spark."""
    return [row_of(n, point, seed) for n, (point, seed) in enumerate((p, s) for p in points for s in seeds)]


def figures(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("cpu_ms", "state_bytes")}


def small(**values: Any) -> list[Point]:
    return Grid(members=(3, 6), partitions=("2x",), **values).points()


# -- with Spark


def test_a_task_for_each_run_and_the_figures_of_one_process(spark: Any) -> None:
    points = small(patterns=("scale-out",), pushed=(True,))
    told: list[Progress] = []
    table = simulate(spark, points, seeds=range(2), on_progress=told.append)
    assert table.schema == schema()
    assert [figures(row) for row in table.to_pylist()] == [figures(row) for row in rows(points, range(2))]
    assert all(row["cpu_ms"] > 0 for row in table.to_pylist())
    assert {progress.of for progress in told} == {12}
    assert told[-1].done <= 12


def test_a_stopped_simulation_raises_stopped(spark: Any) -> None:
    points = small(patterns=("rolling",)) * 20
    with pytest.raises(Stopped):
        simulate(spark, points, seeds=range(1), stop=lambda: True)
    assert simulate(spark, [], seeds=range(1)).num_rows == 0


@pytest.mark.long
def test_the_command_keeps_runs_and_report(kept_session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def kohort(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["pipeline", "simulate", *arguments])

    lake = tmp_path / "out"
    size = ["--size", "3,9", "--deploys", "4", "--crashes", "0.5", "--seeds", "1", "--set", "restart_ms=1000"]
    result = kohort(*size, "--to", str(lake))
    assert result.exit_code == 0, result.stderr
    table = pq.read_table(lake / "runs.parquet")
    assert table.num_rows == len(points_of(Ask(3, 9, 4, 0.5, {})))
    assert set(table.column("restart_ms").to_pylist()) == {1_000}
    assert "3 members, 9 partitions, 4 deployments and 0.5 crashes a day: run it as " in result.stdout
    report = (lake / "report.html").read_text()
    assert "How to run this group" in report
    assert "24 runs in" in result.stderr
    assert str(lake / "report.html") in result.stderr

    # The place may be an address; if the report cannot be written, the summary is printed all the same.
    monkeypatch.setattr(pipeline_simulate, "simulate", lambda *_, **__: table)
    place = f"file://{tmp_path}/address"
    result = kohort(*size, "--to", place)
    assert result.exit_code == 0, result.stderr
    assert f"see {place}/runs.parquet and {place}/report.html" in result.stderr
    assert "How to run this group" in (tmp_path / "address" / "report.html").read_text()
    assert kohort(*size, "--report", str(tmp_path / "new" / "below" / "report.html")).exit_code == 0
    assert "How to run this group" in (tmp_path / "new" / "below" / "report.html").read_text()
    result = kohort(*size, "--report", str(tmp_path / "new"))
    assert result.exit_code == 1
    assert "run it as" in result.stdout
    assert result.stderr.splitlines()[-1].startswith("kohort: there is no report: [Errno")


# -- without


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--members", "ten"], "--members: 'ten' is not a whole number"),
        (["--pushed", "maybe"], "--pushed: 'maybe' is neither"),
        (["--protocols", "raft"], "protocols: 'raft' is none of"),
        (["--pattern", "explode"], "pattern: 'explode' is none of"),
        (["--set", "speed=3"], "--set speed=3: write NAME=VALUE"),
        (["--set", "poll_ms=soon"], "--set poll_ms=soon: 'soon' is no number"),
        (["--set", "aged=often"], "--set aged=often: 'often' is neither yes nor no"),
        (["--set", "pushed=no"], "settings: pushed is one of the grid's lists"),
        (["--size", "24,96", "--set", "pushed=no"], "settings: pushed is what is compared"),
        (["--fleet", "10,4,8", "--set", "shards=3"], "settings: shards is what is compared"),
        (["--fleet", "0,4,8"], "groups: 0 is less than 1"),
        (["--fleet", "1000,0,40"], "members: 0 is less than 1"),
        (["--fleet", "1000,10,0"], "partitions: 0 is not between"),
        (["--size", "0,40"], "members: 0 is not between"),
        (["--to", "/dev/null/out"], "--to: [Errno"),
        (["--report", "/dev/null/out.html"], "--report: [Errno"),
        (["--size", "24"], "--size: it takes 2 numbers, as 24,96"),
        (["--size", "24,96", "--members", "3"], "are three questions"),
        (["--grid", "/nowhere/grid.toml"], "/nowhere/grid.toml"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["pipeline", "simulate", *arguments], env={"COLUMNS": "400"})
    assert result.exit_code == 2, result.output
    assert said in result.stderr


def test_a_row_has_the_point_the_measures_and_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    point = normal(Point(members=2, partitions=4, pattern="scale-out"))
    good = row_of(7, point, 3)
    assert set(good) == {"run", "label", *FIELDS, "seed", *MEASURES, "error"} == set(schema().names)
    assert figures(good) == figures({**good, **asdict(run(point, 3))})

    def fails(*_: Any) -> Any:
        raise DidNotForm("not whole")

    monkeypatch.setattr(simulate_module, "run", fails)
    bad = row_of(8, point, 3)
    assert bad["error"] == "not whole"
    assert bad["paused_ms"] is None
    assert costs([good, bad])[1] == ["not whole"]
    assert [cost.runs for cost in costs([good, bad])[0]] == [1]


def test_costs_are_means_over_the_seeds() -> None:
    points = small(patterns=("crash",), protocols=("eager",), pushed=(False,))
    found = rows(points, range(3))
    told, errors = costs(found)
    assert errors == []
    assert [cost.point for cost in told] == points
    for cost in told:
        mine = [row["paused_ms"] / 1000 for row in found if row["members"] == cost.point.members]
        assert cost.runs == 3
        assert cost.paused_s == pytest.approx(sum(mine) / 3)
        assert (cost.paused_low_s, cost.paused_high_s) == (min(mine), max(mine))


def test_the_report_answers_with_the_figures() -> None:
    told, _ = costs(rows(small(patterns=("scale-out", "failover"))))
    text = page(told, None, ["a reason"]).html()
    barrier, handover = (
        next(cost for cost in told if (cost.point.members, cost.label, cost.point.pattern) == (6, label, "scale-out"))
        for label in ("eager", "consumer, pushed")
    )
    assert f"{barrier.paused_s:,.0f} partition-seconds against {handover.paused_s:,.0f}" in text
    assert "failover: nothing pauses, whatever the protocol" in text
    assert "a reason" in text
    assert 0 < text.index("scale-out: run it as ") < text.index("a reason"), "the advice comes first"
    assert "failover: run it as" not in text
    assert text.count("<svg") == 8  # four plots, each for wide and for narrow screens
    assert "mathdefault" not in text  # numbers on logarithmic axes are plain
    assert "http" not in text.replace("http://www.w3.org", "")


def test_a_report_of_one_size_has_bars() -> None:
    told, _ = costs(rows(Grid(members=(4,), partitions=("2x",), patterns=("crash",), handover=(0, 1)).points()))
    text = page(told).html()
    assert text.count("<svg") == 8
    assert "logarithmic" not in text


def test_bars_begin_at_zero_and_have_their_values() -> None:
    told = [
        cost(Point(protocol=name, pushed=False), paused_s=paused)
        for name, paused in (("eager", 0.02), ("consumer", 40.0))
    ]
    figure = simulation_report._panels(told, ["rolling"], lambda one: one.paused_s, "s", False, 1)
    [panel] = figure.axes
    assert panel.get_xscale() == "linear"
    assert panel.get_xlim()[0] == 0
    widths = {bar.get_width(): bar.get_x() for bar in panel.patches}
    assert widths == {0.02: 0, 40.0: 0}
    assert [text.get_text() for text in panel.texts] == ["40", "0.02"]


# -- the advice


def cost(point: Point, **values: Any) -> Cost:
    zero = dict.fromkeys((name for name in Cost.__dataclass_fields__ if name not in ("point", "label")), 1.0)
    return Cost(**{**zero, "point": point, "label": point.label(), "runs": 1, "settled": True, **values})


def advice(ask: Ask, deploy: dict[tuple[str, bool, bool], float], crash: dict[str, float]) -> Any:
    """`deploy`: what a deployment pauses by protocol, pushed, static; `crash`: by protocol."""
    found = []
    for point in points_of(ask):
        key = (point.protocol, point.pushed, point.static)
        paused = crash.get(point.protocol, 9.0) if point.pattern.startswith("crash") else deploy.get(key, 99.0)
        found.append(cost(point, paused_s=paused))
    return advise(ask, found)


def test_the_report_of_a_fleet_has_every_way_to_run_it() -> None:
    fleet = Fleet(1000, 10, 40, 1.0, 0.1, {})
    found = [cost(point) for point in plan.points_of(fleet)]
    lines = plan.plan(fleet, found)
    text = fleet_page(fleet, lines, found, ["a <reason>"]).html()
    assert "1,000 groups, 10,000 members" in text
    assert "a &lt;reason&gt;" in text
    assert text.count("<svg") == 4  # two plots, each for wide and for narrow screens
    assert all(text.count(f'<span class="whole">{line.label}') >= 2 for line in lines)


def test_the_least_pause_a_day_is_advised() -> None:
    ask = Ask(5, 20, 10.0, 0.0, {})
    told = advice(ask, {("consumer", True, False): 1.0, ("consumer", False, False): 4.0}, {})
    assert (told.best.protocol, told.best.pushed, told.best.static) == ("consumer", True, False)
    assert told.best.paused_per_day_s == 10.0
    assert told.lines[0].endswith("run it as consumer, pushed, dynamic members.")
    assert any("99 times as much a day" in line for line in told.lines)
    assert [way.paused_per_day_s for way in told.ways] == sorted(way.paused_per_day_s for way in told.ways)


def test_of_similar_costs_the_simpler_way_is_advised() -> None:
    ask = Ask(5, 20, 1.0, 0.0, {})
    told = advice(ask, {("consumer", True, True): 10.0, ("consumer", True, False): 12.0}, {})
    assert not told.best.static
    told = advice(ask, {("consumer", True, True): 10.0, ("consumer", True, False): 20.0}, {})
    assert told.best.static


def test_crashes_count_and_are_named() -> None:
    ask = Ask(5, 20, 0.0, 6.0, {"session_ms": 30_000})
    told = advice(ask, {}, {"eager": 500.0, "cooperative": 50.0, "consumer": 40.0})
    assert told.best.protocol == "consumer"
    assert told.best.paused_per_day_s == 240.0
    assert any("waiting for the session (30 s)" in line for line in told.lines)
