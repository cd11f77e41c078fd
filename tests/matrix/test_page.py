"""docs/clients.md and the golden requests of invented runs: cells that were not run are marked."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import matrix_golden
import matrix_page
import pytest
from matrix_clients import CLIENTS, COLUMNS, NODE_HAS_ZSTD
from matrix_page import Outcome

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
PASSED = {(client.key, feature): Outcome(True) for client in CLIENTS for feature in COLUMNS}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(matrix_page, "PAGE", tmp_path / "clients.md")
    return tmp_path / "clients.md"


def row(page: Path, title: str, section: str) -> list[str]:
    text = page.read_text().split(f"## {section}", 1)[1]
    line = next(line for line in text.splitlines() if line.startswith(f"| {title} |"))
    return [word.strip() for word in line.strip("|").split("|")]


def test_every_cell_shows_the_outcome_of_its_test(page: Path) -> None:
    outcomes = PASSED | {("sarama", "gzip"): Outcome(False, "no such luck")}
    outcomes = {cell: outcome for cell, outcome in outcomes.items() if cell[0] != "kcat"}
    program = ("A program", "does something")
    programs = {program: ("1.2", [Outcome(True), Outcome(False, "half of it")]), ("Another", "too"): ("", [])}
    matrix_page.write(outcomes, {"sarama": "9.9"}, programs, {"kcat": ["kcat"]})
    assert row(page, "sarama (IBM)", "Records")[1:4] == ["9.9", "✓", "✗<sup>1</sup>"]
    assert set(row(page, "kcat", "Records")[2:]) == {"not run"}
    text = page.read_text()
    [number] = re.findall(r"^(\d+)\. Half of it\.$", text, re.MULTILINE)
    assert row(page, "A program", "Programs")[2:] == ["does something", f"✗<sup>{number}</sup>"]
    assert row(page, "Another", "Programs")[3] == "not run"
    assert "1. No such luck.\n" in text
    assert "Without kcat: kcat." in text.replace("\n", " ")


def test_a_missing_feature_of_a_client_has_a_reason(page: Path) -> None:
    matrix_page.write(PASSED, {}, {}, {})
    assert row(page, "kafkajs", "Groups")[5].startswith("–<sup>")
    assert "not run" not in page.read_text().split("## Records", 1)[1]
    assert all(len(line) <= 120 for line in page.read_text().splitlines() if not line.startswith("|"))


@pytest.mark.skipif(NODE_HAS_ZSTD, reason="the page is of a run with another version of Node")
def test_the_committed_page_is_what_a_run_writes(page: Path) -> None:
    """A change by hand, or of a feature without a run, would fail in CI where `make peers-clients` writes the page."""
    committed = (DOCS / "clients.md").read_text()
    rows = {line.split(" | ")[0][2:]: line.split(" | ") for line in committed.splitlines() if line.startswith("| ")}
    outcomes = {
        cell: Outcome(cell[1] not in client.fails) for client in CLIENTS for cell in PASSED if cell[0] == client.key
    }
    versions = {client.key: rows[client.title][1] for client in CLIENTS}
    programs = {program: (rows[program[0]][1], [Outcome(True)]) for program in programs_of_tests()}
    matrix_page.write(outcomes, versions, programs, {})

    def without_date(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("Last run: ")]

    assert without_date(page.read_text()) == without_date(committed)


def programs_of_tests() -> list[tuple[str, str]]:
    """The titles and purposes in the markers `program`."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        if "mark.program(" not in (text := path.read_text()):
            continue
        tree = ast.parse(text)
        names = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.program"):
                values = [names[each.id] if isinstance(each, ast.Name) else each for each in node.args]
                title, what = map(ast.literal_eval, values)
                found.append((title, what))
    return found


def test_requests_of_the_same_version_stay_and_those_of_another_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "requests.json"
    path.write_text("[]")
    monkeypatch.setattr(matrix_golden, "REQUESTS", path)

    def kept() -> list[tuple[str, str, str, int, str]]:
        names = ("client", "client_version", "api", "version", "hex")
        return [tuple(entry[name] for name in names) for entry in json.loads(path.read_text())]

    assert matrix_golden.merge({"b": ("1", {(18, 3, 0): b"\x01", (18, 99, 0): b"\x02"}), "a": ("1", {})}) == 1
    assert kept() == [("b", "1", "ApiVersions", 3, "01")], "no version that is not spoken"
    assert matrix_golden.merge({"b": ("1", {(18, 3, 0): b"\x03", (12, 4, 0): b"\x04"})}) == 1
    assert kept() == [("b", "1", "ApiVersions", 3, "01"), ("b", "1", "Heartbeat", 4, "04")]
    assert matrix_golden.merge({"b": ("2", {(18, 3, 0): b"\x05"})}) == 1
    assert kept() == [("b", "2", "ApiVersions", 3, "05")]
