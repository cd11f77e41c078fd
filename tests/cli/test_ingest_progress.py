"""The ingest's progress on a terminal of any width, as lines, as JSON, and not at all."""

from __future__ import annotations

import dataclasses
import io
import json
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console

from kohort.cli.pipelines.ingest_progress import Display, Progress, amount
from kohort.cli.pipelines.lake_options import compacted_line, pairs, parse_seconds, parse_size, parse_time
from kohort.spark.lake.compaction import Compacted
from kohort.spark.lake.ingest import IngestProgress, lag_of

BATCH = IngestProgress(7, 1_234_567, 890, 12, 34, 5_600_000, 61.04, 20_000.4)


def shown(width: int, *, terminal: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, color_system=None)
    with Display(Progress.AUTO, quiet=False, console=console) as display:
        display.now("reading t")
        display.batch(BATCH)
        lines = console.render_lines(display._shown(), pad=False) if display._live else []
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def test_a_terminal_shows_one_line_and_a_narrow_one_breaks_it_between_numbers() -> None:
    [line] = shown(120)
    assert line.split("   ")[1:] == ["1,234,567 rows", "lag 890", "20,000 rows/s", "12 dead letters",
                                     "5.6 MB in 34 files", "61.0 s"]  # fmt: skip
    narrow = shown(30)
    assert max(len(line) for line in narrow) <= 30
    assert "1,234,567 rows" in " ".join(narrow)
    assert any("5.6 MB in 34 files" in line for line in narrow)


def test_not_a_terminal_or_not_wanted_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(80, terminal=False) == []
    with Display(Progress.NONE, quiet=False) as display:
        display.batch(BATCH)
    with Display(Progress.AUTO, quiet=True, console=Console(force_terminal=True, file=io.StringIO())) as display:
        display.batch(BATCH)
        assert display._live is None
    assert capfd.readouterr() == ("", "")


def test_lines_and_json_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with Display(Progress.LINES, quiet=True) as display:
        display.batch(BATCH)
    out, err = capfd.readouterr()
    assert (out, err.splitlines()[0]) == ("", "starting Spark")
    assert err.splitlines()[1].split()[:6] == ["batch", "7", "1,234,567", "rows", "lag", "890"]
    with Display(Progress.JSON, quiet=True) as display:
        display.batch(BATCH)
    out, err = capfd.readouterr()
    told = json.loads(err)
    assert (out, told["batch"], told["dead_letters"], told["bytes"]) == ("", 7, 12, 5_600_000)


def test_a_lag_that_is_not_known_is_not_zero(capfd: pytest.CaptureFixture[str]) -> None:
    for form, text in ((Progress.LINES, "lag      unknown"), (Progress.JSON, '"lag": null')):
        with Display(form, quiet=True) as display:
            display.batch(dataclasses.replace(BATCH, lag=None))
        assert text in capfd.readouterr().err
    report = SimpleNamespace(
        sources=[SimpleNamespace(latestOffset='{"t": {"0": 9, "1": 4}}', endOffset='{"t": {"0": 7}}')]
    )
    assert lag_of(report) == 2
    for latest in (None, "null", "{}"):
        report.sources.append(SimpleNamespace(latestOffset=latest, endOffset='{"u": {"0": 7}}'))
        assert lag_of(report) is None
        report.sources.pop()


def test_sizes_times_and_pairs() -> None:
    assert [amount(size) for size in (0, 999, 1000, 5_600_000, 3 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "5.6 MB",
        "3.0 TB",
    ]
    assert [parse_size("-", text) for text in ("128MB", "1 GiB", "5", "0.5kb")] == [128_000_000, 2**30, 5, 500]
    assert [parse_seconds("-", text) for text in ("90", "1.5m", "2h", "1d")] == [90, 90, 7200, 86400]
    times = ("1970-01-01T00:00:01Z", "1970-01-01T01:00:00+01:00", "1970-01-02", "1234")
    assert [parse_time("-", text) for text in times] == [1000, 0, 86_400_000, 1234]
    with pytest.raises(typer.BadParameter, match="--since takes a time like"):
        parse_time("--since", "yesterday")
    assert pairs("-", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for parse, text in ((parse_size, "12 parsecs"), (parse_seconds, "soon"), (parse_size, "0")):
        with pytest.raises(typer.BadParameter, match="--to takes"):
            parse("--to", text)
    with pytest.raises(typer.BadParameter, match="'=x' is not NAME=VALUE"):
        pairs("--to", ["=x"])
    assert compacted_line(Compacted()) == "nothing to compact"
    assert (
        compacted_line(Compacted(1, 3, 1, 3000, 2000))
        == "compacted 1 directory: 3 files of 3.0 kB became 1 file of 2.0 kB"
    )
