"""Reports: one file without references, escaped, in the reader's colours; and the plots of a history."""

from __future__ import annotations

import re
import xml.dom.minidom
from pathlib import Path

import pyarrow as pa
import pytest

from kohort.spark.history.report import plots
from kohort.spark.history.report.names import Palette, described, member_names
from kohort.spark.reports.figures import BAD, INK, SERIES, drawing, new_figure
from kohort.spark.reports.page import Annotated, Fact, LegendEntry, Number, Page, Tag, Unbroken


def plot() -> object:
    with drawing():
        figure = new_figure(4, 2)
        axes = figure.subplots()
        axes.plot([1, 2], [3, 4], color=SERIES[0], label="a <b>")
        axes.axvspan(1, 1.5, color=BAD)
        axes.legend()
    return figure


def test_a_page_is_one_file_without_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("Groups & <lag>", "of <cluster>")
    page.numbers([Number("in trouble", "3", "of <12>", "bad")])
    page.text("a <paragraph>")
    page.findings([("bad", "orders <rebalances>", "every <2> s")])
    page.section("Lag <1>", "explained in <words>")
    page.figure(plot(), "a <plot>", narrow=plot(), legend=[LegendEntry("<line>", SERIES[0])], alt='"lag"')
    rows = [[1234, "<x>"], [None, Tag("<tag>", "bad")], [2.5, Annotated("<y>", "<note>")], [True, Unbroken("<z>")]]
    page.table(["n", "name"], rows, "<rows>")
    monkeypatch.chdir(tmp_path)
    page.write("report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert not re.search(r"<script|<link|@import|src=|url\((?!#)", text)
    assert all(target.startswith(("lag", "f1-", "f2-")) for target in re.findall(r'href="#([^"]*)', text))
    assert not re.search(r'href="[^#]', text)
    assert "Groups &amp; &lt;lag&gt;" in text
    written = ["cluster", "12", "paragraph", "rebalances", "2", "words", "plot", "line", "x", "tag", "y", "note", "z"]
    assert [word for word in written if f"&lt;{word}&gt;" not in text] == []
    assert [word for word in written if f"<{word}>" in text] == []
    assert re.search(r'aria-label="&#34;lag&#34;".*color:var\(--series-1\)', text, flags=re.DOTALL)
    for cell in (">1,234<", ">–<", ">2.5<", ">yes<", '<span class="tag bad">'):
        assert cell in text


def test_plots_follow_the_colours_of_the_page() -> None:
    page = Page("p")
    page.figure(plot())
    page.figure(plot())
    body = page.html().split("<body>")[1]
    drawings = re.findall(r"<svg.*?</svg>", body, flags=re.DOTALL)
    assert len(drawings) == 2
    names: list[str] = []
    for drawing_ in drawings:
        xml.dom.minidom.parseString(drawing_)
        assert "var(--series-1)" in drawing_
        assert "var(--bad)" in drawing_
        assert INK not in drawing_
        assert "DejaVu" not in drawing_
        assert ">a &lt;b&gt;<" in drawing_
        names += re.findall(r'\bid="([^"]+)"', drawing_)
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing_))
        assert used <= set(names)
    assert len(names) == len(set(names))


SINCE, UNTIL = 1_760_000_000_000, 1_760_000_001_000


@pytest.mark.parametrize("name", ["a$\\frac$b", "$x$", "_hidden", "plain"])
def test_names_are_drawn_literally(name: str) -> None:
    """They have characters that mean something to matplotlib."""
    at = pa.array([SINCE * 1000, UNTIL * 1000], pa.timestamp("us", tz="UTC"))
    times = {"at": at, "since": at, "until": at, "settled": at, "started": at}
    who = {"group": [name] * 2, "member_id": [name] * 2, "topic": ["t"] * 2}
    table = pa.table({**times, **who, "partition": [0, 1], "lag_sum": [1, 2], "records_sum": [1, 2], "moved": [1, 2]})
    none = table.slice(0, 0)
    page = Page("p")
    for width in plots.WIDTHS:
        colours = Palette()
        page.figure(plots.lag(table, [name], colours, SINCE, UNTIL, width))
        page.figure(plots.rates(table, [name], colours, SINCE, UNTIL, width))
        page.figure(plots.rebalances(table, none, [name], colours, SINCE, UNTIL, width))
        page.figure(plots.gantt(table, none, {}, colours, SINCE, UNTIL, width)[0])
    assert page.html().count(f">{name}<") == 8


def test_a_colour_stays_with_its_client() -> None:
    palette = Palette()
    first = palette.of(["a", "b", "c"])
    assert [style.colour for style in first.values()] == list(SERIES[:3])
    second = palette.of(["d", "c", "a"])
    assert (second["a"], second["c"]) == (first["a"], first["c"])
    assert second["d"].colour == SERIES[1], "a colour that this plot does not use"
    many = palette.of([f"g{n}" for n in range(20)])
    assert len(set(many.values())) == 17, "eight colours, the same dashed, and grey"


def members(*rows: tuple[str, str | None, str, str, int, int | None]) -> pa.Table:
    names = ("member_id", "instance_id", "client_id", "host")
    times = [
        pa.array([None if row[n] is None else row[n] * 1000 for row in rows], pa.timestamp("us", tz="UTC"))
        for n in (4, 5)
    ]
    columns = {name: pa.array([row[n] for row in rows], pa.string()) for n, name in enumerate(names)}
    return pa.table({"group": ["g"] * len(rows), **columns, "since": times[0], "until": times[1]})


def test_members_are_told_apart_by_host_and_id() -> None:
    names = member_names(
        members(
            ("app-1111", None, "app", "/10.0.0.1", 0, 100),
            ("app-2222", None, "app", "/10.0.0.1", 100, None),  # the same client, restarted
            ("app-3333", None, "app", "/10.0.0.2", 0, None),
            ("twin-aaaa", None, "twin", "/10.0.0.3", 0, None),
            ("twin-bbbb", None, "twin", "/10.0.0.3", 50, None),
            ("x", "pod-0", "app", "/10.0.0.4", 0, None),
        )
    )
    assert names["app-1111"] == names["app-2222"]
    assert {name: held.label for name, held in names.items()} == {
        "app-1111": "app · 10.0.0.1",
        "app-2222": "app · 10.0.0.1",
        "app-3333": "app · 10.0.0.2",
        "twin-aaaa": "twin · 10.0.0.3 · aaaa",
        "twin-bbbb": "twin · 10.0.0.3 · bbbb",
        "x": "pod-0 · 10.0.0.4",
    }
    assert len({held.key for held in names.values()}) == 5
    told = described(members(("app-1", None, "app", "/h", 0, None), ("Zm9v", None, "app", "", 0, None)))
    assert told == {("g", "app-1"): "app-1 on h", ("g", "Zm9v"): "app (Zm9v)"}


def test_a_fact_links_to_its_section_if_there_is_one() -> None:
    page = Page("p")
    page.findings([Fact("bad", "a storm", section="Rebalances"), Fact("warn", "late", section="Nowhere")])
    page.notice("Seen", ["all of <it>"])
    page.section("Rebalances")
    text = page.html()
    [anchor] = re.findall(r'<h2 id="([^"]+)"', text)
    assert re.findall(r'<a href="#([^"]+)">', text.partition("</ul>")[0]) == [anchor]
    assert "all of &lt;it&gt;" in text
