"""From measured rounds to the page: best rounds, tables, targets; the page in docs/ is its rendered JSON."""

from __future__ import annotations

import random
from pathlib import Path

from bench import _docs, _targets
from bench.__main__ import SUBJECTS
from bench._machine import Others, descendants, sync_probe
from bench._run import Figure, Figures, Run, Subject, Table, lines

DOCS = Path(__file__).parents[2] / "docs"


def made(subject: str, *figures: tuple[str, str, dict[str, float]]) -> Figures:
    machine = {"date": "2026-01-01", "CPU": "a", "cores": "2", "memory": "1 GB", "kernel": "Linux"}
    return Figures(subject, machine, {"kohort": "1"}, (0.1, 0.2), 60.0, [Figure(*f, 0.0) for f in figures])


def test_the_least_cost_and_the_highest_rate_of_all_rounds() -> None:
    found = made(
        "x", ("row", "pure", {"cpu_us": 3.0, "rate": 5.0}), ("row", "pure", {"cpu_us": 2.0, "rate": 4.0, "p99_us": 1.0})
    )
    assert found.best("row", "pure") == {"cpu_us": 2.0, "rate": 5.0, "p99_us": 1.0}
    assert found.best("row", "kafka") is None


def test_the_median_and_the_worst_of_all_rounds() -> None:
    rounds = ({"ms": 9.0, "moved": 1.0}, {"ms": 2.0, "moved": 1.0}, {"ms": 5.0, "moved": 4.0})
    found = made("x", *(("row", "pushed", values) for values in rounds), ("row", "plain", {"ms": 7.0}))
    assert found.typical("row", "pushed") == {
        "ms": 5.0,
        "moved": 1.0,
        "worst ms": 9.0,
        "worst moved": 4.0,
        "rounds": 3,
    }
    assert found.typical("row", "kafka") is None


def test_a_table_has_a_column_for_each_server_that_has_such_a_figure() -> None:
    found = made("x", ("a", "kafka", {"cpu_us": 3.0}), ("b", "pure", {"cpu_us": 1.0}), ("b", "mock", {"rate": 1.0}))
    table = Table("CPU", lambda v: f"{v['cpu_us']:.1f}" if "cpu_us" in v else None)
    assert lines(found, Subject("x", print, (table,), ())) == [
        "CPU",
        "",
        "| | kohort, pure Python | Apache Kafka |",
        "| --- | --: | --: |",
        "| a |  | 3.0 |",
        "| b | 1.0 |  |",
        "",
    ]
    columns = {"kafka": "theirs", "pure": "ours"}
    assert lines(found, Subject("x", print, (table,), (), columns))[2:5] == [
        "| | theirs | ours |",
        "| --- | --: | --: |",
        "| a | 3.0 |  |",
    ]


def test_a_busy_machine_is_measured_again_and_the_quietest_round_counts(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    busy = iter((0.9, 0.4, 0.7))
    monkeypatch.setattr(Others, "cores", property(lambda _: next(busy)))

    class Server:
        name = "pure"

        def cpu_seconds(self) -> float:
            return 0.0

    run = Run("x")
    results = iter((1.0, 2.0, 3.0))
    kept = run.measure("row", Server(), lambda: next(results), lambda result, _: {"value": result})  # type: ignore[arg-type]
    assert kept == {"value": 2.0}
    assert [figure.others for figure in run.result.figures] == [0.4]


def test_stored_results_are_read_again() -> None:
    found = [made("heartbeats", ("row", "pure", {"cpu_us": 1.23456})), made("commits")]
    again = _docs.read(_docs.as_json(found))
    assert [figures.subject for figures in again] == ["heartbeats", "commits"]
    assert again[0].figures == [Figure("row", "pure", {"cpu_us": 1.235}, 0.0)]
    assert _docs.as_json(again) == _docs.as_json(found)


def test_targets_are_met_by_arithmetic() -> None:
    row = "classic, 50 connections, depth 1"
    costs = {"pure": 14.0, "compiled": 5.6, "kafka": 11.3, "floor": 4.0}
    beats = made("heartbeats", *((row, name, {"cpu_us": cost}) for name, cost in costs.items()))
    line = next(line for line in _targets.table({"heartbeats": beats}) if "1.4 ×" in line)
    assert "classic, 50: 1.40 ×" in line
    assert line.endswith("| met |")
    line = next(line for line in _targets.table({"heartbeats": beats}) if "pure Python" in line)
    assert line.endswith("| not met |"), line
    settled = {"newcomer, java, 3": (60.0, 600.0), "newcomer, java, 50": (61.0, 600.0)}
    rebalances = made(
        "rebalance",
        *((row, "pushed", {"settled_ms": ours}) for row, (ours, _) in settled.items()),
        *((row, "kafka", {"settled_ms": theirs}) for row, (_, theirs) in settled.items()),
        ("newcomer, java, 3", "kafka", {"settled_ms": 700.0}),
        ("newcomer, java, 3", "kafka", {"settled_ms": 100.0}),
    )
    line = next(line for line in _targets.table({"rebalance": rebalances}) if "rebalances" in line)
    assert line.endswith("| newcomer, java, 3: 10 ×<br>newcomer, java, 50: 9.84 × | 1 of 2 met |"), line
    assert all(line.endswith("|  | not measured |") for line in _targets.table({})[2:])


def test_the_page_is_what_its_figures_render_to() -> None:
    kept = {figures.subject: figures for figures in _docs.read((DOCS / _docs.KEPT).read_text())}
    page = (DOCS / _docs.PAGE).read_text()
    assert _docs.rendered(page, kept, SUBJECTS) == page
    assert set(kept) == set(SUBJECTS)
    for name, figures in kept.items():
        assert {"Spark" if name == "spark" else "Apache Kafka", "kohort", "Python"} <= set(figures.versions), name
        assert {"kafka"} < {figure.server for figure in figures.figures} <= set(SUBJECTS[name].columns)


def test_the_picture_is_drawn_of_what_there_is(tmp_path: Path) -> None:
    kept = {figures.subject: figures for figures in _docs.read((DOCS / _docs.KEPT).read_text())}
    _docs.draw(kept, SUBJECTS, tmp_path / "drawn.svg")
    drawn = (tmp_path / "drawn.svg").read_text()
    for name in kept:
        for panel in SUBJECTS[name].panels:
            assert f">{panel.title}, {panel.unit}<" in drawn
            assert kept[name].best(panel.row, "kafka"), panel
    assert len(drawn) < 25_000


def test_writing_keeps_figures_that_were_not_measured_now(tmp_path: Path) -> None:
    for name in (_docs.KEPT, _docs.PAGE):
        (tmp_path / name).write_text((DOCS / name).read_text())
    before = {figures.subject: figures for figures in _docs.read((DOCS / _docs.KEPT).read_text())}
    rows = [(f.row, f.server, {**f.values, "cpu_us": random.Random(1).random()}) for f in before["commits"].figures]
    _docs.write([made("commits", *rows)], SUBJECTS, tmp_path)
    after = {figures.subject: figures for figures in _docs.read((tmp_path / _docs.KEPT).read_text())}
    assert after["commits"].machine["date"] == "2026-01-01"
    assert len(after.pop("commits").figures) == len(before.pop("commits").figures)
    assert after == before
    assert "2026-01-01" in (tmp_path / _docs.PAGE).read_text()


def test_the_machine_is_looked_at() -> None:
    median, late = sync_probe()
    assert 0 < median <= late
    assert descendants(1)[0] == 1
    assert 0 <= Others().cores < 1_000
