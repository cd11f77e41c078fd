"""A table as text of 80 columns, and as a page that needs nothing else."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH = 80
LINES = 12
"""Of an answer, in the text."""
STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #b3261e; --good: #1b7f3b; --grey: #777; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #7bd88f; --grey: #aaa; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: left; vertical-align: top; }
td:nth-child(3) { white-space: nowrap; }
pre { font-size: 13px; margin: .2rem 0; overflow-x: auto; white-space: pre-wrap; }
.different { color: var(--bad); font-weight: 600; } .kept { color: var(--good); } .not { color: var(--grey); }
"""


def text(table: Mapping[str, Any], *, everything: bool = False) -> str:
    """What is different, with both answers; then a line for each letter of rows. `everything`: every row."""
    return "\n".join(_text(table, everything)) + "\n"


def _text(table: Mapping[str, Any], everything: bool) -> Iterator[str]:
    rows = table["rows"]
    for row in rows:
        if row["state"] == "different":
            yield from _filled(f"{row['row']} is different: {row['says']}")
            yield from _filled(f"suffer: {row['clients']}", "  ")
            for difference in row["differences"]:
                yield from _filled(f"{difference['file']}: {difference['asked']}", "  ")
                yield from _answer("came", difference["came"])
                yield from _answer("expected", difference["expected"])
            yield ""
    if everything:
        yield from (line for row in rows if row["state"] != "different" for line in _row(row))
        yield ""
    yield f"{'ROWS':<6}{'KEPT':>6}{'DIFFERENT':>11}{'NOT SHOWN':>11}  DIFFERENT ROWS"
    for letters, members in _by_letters(rows).items():
        states = [row["state"] for row in members]
        different = " ".join(row["row"] for row in members if row["state"] == "different")
        head = f"{letters:<6}{states.count('kept'):>6}{states.count('different'):>11}{states.count('not shown'):>11}  "
        yield from textwrap.wrap(head + different, WIDTH, subsequent_indent=" " * 36, drop_whitespace=True)
    counts = table["counts"]
    yield ""
    yield from _filled(
        f"{table['target']}: {counts['kept']} rows kept, {counts['different']} different, "
        f"{counts['not shown']} not shown; compared with {table['reference']}"
    )


def _row(row: Mapping[str, Any]) -> Iterator[str]:
    yield from _filled(f"{row['row']} {row['state']}: {row['says']}")
    if row.get("why"):
        yield from _filled(row["why"], "  ")


def _filled(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _answer(what: str, lines: Sequence[str]) -> Iterator[str]:
    shown = [*lines[:LINES], *([f"… {len(lines) - LINES} lines more"] if len(lines) > LINES else [])]
    for number, line in enumerate(shown or ["nothing"]):
        head = f"    {what if not number else '':<9}"
        indent = " " * (13 + len(line) - len(line.lstrip()))
        found = textwrap.wrap(
            head + line,
            WIDTH,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
            break_long_words=False,
            drop_whitespace=False,
        )
        yield from (each.rstrip() for each in found)


def _by_letters(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["row"].rstrip("0123456789"), []).append(row)
    return found


def page(table: Mapping[str, Any]) -> str:
    """A page of HTML, in one file."""
    counts = table["counts"]
    head = (
        f"{table['target']}: {counts['kept']} rows kept, {counts['different']} different, "
        f"{counts['not shown']} not shown"
    )
    rows = "\n".join(map(_page_row, table["rows"]))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Conformance of {escape(str(table["target"]))}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Conformance</h1>
<p>{escape(head)}. Compared with {escape(table["reference"])}, by kohort {escape(str(table["kohort"]))}.</p>
<table>
<thead><tr><th>Row</th><th>What a client may rely on</th><th>State</th><th>Found</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""


def _page_row(row: Mapping[str, Any]) -> str:
    found = [escape(row.get("why", ""))] if row.get("why") else []
    if "differences" in row:
        found.append(f"<p>Clients that suffer: {escape(row['clients'])}.</p>")
    for difference in row.get("differences", ()):
        came, expected = ("\n".join(difference[name]) or "nothing" for name in ("came", "expected"))
        found.append(
            f"<details><summary><code>{escape(difference['file'])}: {escape(difference['asked'])}</code></summary>"
            f"<p>Came:</p><pre>{escape(came)}</pre><p>Expected:</p><pre>{escape(expected)}</pre></details>"
        )
    if not found:
        found = [escape(", ".join(row.get("files", ())))]
    state = row["state"]
    return (
        f'<tr id="{row["row"]}"><td>{row["row"]}</td><td>{escape(row["says"])}</td>'
        f'<td class="{state.split()[0]}">{state}</td><td>{"".join(found)}</td></tr>'
    )
