"""Every row of the conformance list that kohort keeps, or departs from, is proved by something that names it.

docs/conformance.md has the rows and kohort's behaviour for each. A proof is a scenario whose first lines name the
row (`# J3 J29: …`), a sequence of tests/peers with a comment that does, or a test that carries
`@pytest.mark.conformance("W1", …)`; all are found by reading the files, so nothing has to run. `pytest --rewrite`
writes the proofs into the document.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from kio.schema.index import api_key_map
from test_scenarios import SCENARIOS

from kohort.broker.apis import APIS
from kohort.conformance import files
from kohort.conformance import rows as rows_of_the_kit
from kohort.conformance.files import parse, rows_of
from kohort.conformance.reference import names

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "conformance.md"
SEQUENCES = sorted(files.SEQUENCES.glob("*.txt"))

COUNTS = {
    "W": 9,
    "J": 37,
    "S": 13,
    "H": 14,
    "L": 12,
    "O": 25,
    "X": 6,
    "D": 10,
    "R": 6,
    "N": 24,
    "TX": 59,
    "AU": 17,
    "TL": 9,
    "A": 9,
    "Q": 7,
    "SH": 70,
}
LEFT_OUT = {"AU16", "TL6", "TL7", "TL8", "SH7"}
"""Numbers of the specification without a behaviour that clients see."""
ROWS = [
    f"{letter}{number}"
    for letter, last in COUNTS.items()
    for number in range(1, last + 1)
    if f"{letter}{number}" not in LEFT_OUT
]
NOT_SERVED = {"A9"}
"""Rows that need several nodes, and those of dead-letter topics."""


class Row(NamedTuple):
    name: str
    says: str
    status: str
    proofs: str


def rows(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 4 and re.fullmatch(r"[A-Z]+\d+", cells[0]):
            found.append(Row(*cells))
    return found


# -- finding the proofs


def of_scenarios() -> Iterator[tuple[str, str]]:
    for path in SCENARIOS:
        header, _ = parse(path.read_text(encoding="utf-8"))
        yield from ((row, path.name) for row in rows_of(header))


def of_sequences() -> Iterator[tuple[str, str]]:
    for path in SEQUENCES:
        comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
        yield from ((row, path.name) for row in rows_of(comments))


def of_tests() -> Iterator[tuple[str, str]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.conformance":
                    name = f"{path.relative_to(TESTS)}::{node.name}"
                    assert not is_skipped(tree, node), f"{name} proves a row and is always skipped"
                    assert node.name.startswith("test"), f"{name} is no test"
                    yield from ((ast.literal_eval(row), name) for row in mark.args)


def is_skipped(tree: ast.Module, test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether nothing could make the test run: marked so, itself or its module, or it skips in its first statement."""
    of_module = [ast.unparse(node.value) for node in tree.body if isinstance(node, ast.Assign | ast.Expr)]
    first = ast.unparse(next((node for node in test.body if not is_docstring(node)), test.body[0]))
    return (
        any(re.match(r"pytest\.mark\.(skip\b|skipif\(True)", ast.unparse(mark)) for mark in test.decorator_list)
        or any(re.match(r"\[?pytest\.(mark\.skip\b|skip\()", text) for text in of_module)
        or first.startswith(("pytest.skip(", "pytest.xfail("))
    )


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def proofs() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row, where in [*of_scenarios(), *of_sequences(), *of_tests()]:
        found.setdefault(row, []).append(where)
    return {row: sorted(set(places)) for row, places in found.items()}


def printed(places: list[str]) -> str:
    return ", ".join(f"`{place.split('/')[-1]}`" for place in places)


# -- the tests


def test_the_document_has_every_row_once() -> None:
    assert [row.name for row in rows(DOCUMENT.read_text(encoding="utf-8"))] == ROWS
    assert len(ROWS) == 322


def test_each_row_is_kept_or_departed_from_with_a_reason_or_not_served() -> None:
    for row in rows(DOCUMENT.read_text(encoding="utf-8")):
        assert re.fullmatch(r"kept(; .+)?|not served|departs: .{20,}", row.status), row
        assert (row.status == "not served") == (row.name in NOT_SERVED), row
        assert row.says, row


def test_each_row_is_proved() -> None:
    found = proofs()
    assert [row for row in ROWS if row not in NOT_SERVED and row not in found] == [], "rows without a proof"


def test_each_proof_names_a_row_that_is_served() -> None:
    for row, places in proofs().items():
        assert row in ROWS, f"there is no row {row}: {places}"
        assert row not in NOT_SERVED, f"{row} is not served: {places}"


def test_the_document_names_the_proofs(request: pytest.FixtureRequest) -> None:
    found = proofs()
    text = DOCUMENT.read_text(encoding="utf-8")
    lines = []
    for line in text.splitlines():
        [row] = rows(line) or [None]
        if row is not None:
            cells = [row.name, row.says, row.status, printed(found.get(row.name, []))]
            line = f"| {' | '.join(cells)} |".replace("|  |", "| |")
        lines.append(line)
    current = "\n".join(lines) + "\n"
    if request.config.getoption("--rewrite"):
        DOCUMENT.write_text(current, encoding="utf-8")
    else:
        assert text == current, "pytest --rewrite tests/structure/test_conformance.py"


def test_the_package_has_the_rows_of_the_document(request: pytest.FixtureRequest) -> None:
    found = rows(DOCUMENT.read_text(encoding="utf-8"))
    current = "".join(f"{row.name}\t{row.says.replace('`', '')}\n" for row in found)
    if request.config.getoption("--rewrite"):
        rows_of_the_kit.ROWS.write_text(current, encoding="utf-8")
    else:
        text = rows_of_the_kit.ROWS.read_text(encoding="utf-8")
        assert text == current, "pytest --rewrite tests/structure/test_conformance.py"


def test_scenarios_and_sequences_have_different_names() -> None:
    """A run and its document call both by their name alone."""
    assert {*names(files.SCENARIOS)} & {*names(files.SEQUENCES)} == set()


def test_who_suffers_is_said_of_every_row() -> None:
    said = rows_of_the_kit.pairs(rows_of_the_kit.CLIENTS.read_text(encoding="utf-8"))
    assert said.keys() <= set(ROWS) | COUNTS.keys()
    assert COUNTS.keys() <= said.keys()


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skip\ndef test(): pass",
        "@pytest.mark.skip(reason='later')\ndef test(): pass",
        "@pytest.mark.skipif(True, reason='later')\ndef test(): pass",
        "pytestmark = pytest.mark.skip\ndef test(): pass",
        "pytest.skip('later', allow_module_level=True)\ndef test(): pass",
        "def test():\n    'It proves.'\n    pytest.skip('later')",
    ],
)
def test_a_test_that_is_always_skipped_proves_nothing(source: str) -> None:
    tree = ast.parse(source)
    [test] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert is_skipped(tree, test)


def test_a_test_that_may_run_is_a_proof() -> None:
    tree = ast.parse("@pytest.mark.skipif(no_java, reason='…')\ndef test():\n    'It proves.'\n    assert True")
    [test] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert not is_skipped(tree, test)


def test_every_api_of_kafka_is_served_or_named_as_not_served() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").split("## What is not served")[1].split("\n## ")[0]
    named = {int(key): name for name, key in re.findall(r"(\w+) \((\d+)\)", section)}
    assert named.keys() == api_key_map.keys() - APIS.keys()
    assert {key: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for key, name in named.items()} == {
        key: api_key_map[key] for key in named
    }
