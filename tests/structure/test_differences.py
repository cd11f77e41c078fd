"""docs/differences.md says for every difference whether the strict mode has it, and the strict mode is what it says."""

from __future__ import annotations

import re
from pathlib import Path

from kohort.config import Deviations
from kohort.config.compatibility import OF_NO_GROUP

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "differences.md"
AS_KAFKA = ("as Kafka", "as Kafka, but for the deletion")
GOES_WITH = {"offsets-alone": "empty-group"}
"""Differences without an attribute of `Deviations`, and the one by which strict servers do not have them."""


def rows() -> list[dict[str, str]]:
    """The rows of all tables with a column for the strict mode, by the heading of the column."""
    found, header = [], list[str]()
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if not cells:
            header = []
        elif not header:
            header = cells
        elif not set(cells[0]) <= {"-", " "}:
            found.append(dict(zip(header, cells, strict=True)))
    return found


def test_every_entry_says_whether_the_strict_mode_has_it() -> None:
    assert len(rows()) > 45
    for row in rows():
        assert row["strict mode"] in AS_KAFKA or re.fullmatch(r"stays: .{10,}", row["strict mode"]), row


def test_strict_servers_have_no_deviation_of_a_row_that_is_as_in_kafka() -> None:
    said = {row["id"].strip("`") for row in rows() if "id" in row and row["strict mode"] == "as Kafka"}
    assert said - GOES_WITH.keys() == {
        name.replace("_", "-") for name in Deviations.__struct_fields__ if name not in OF_NO_GROUP
    }
    assert said >= GOES_WITH.keys() | set(GOES_WITH.values())


def test_every_deviation_is_read_somewhere() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "kohort").rglob("*.py"))
    assert [name for name in Deviations.__struct_fields__ if f"deviations.{name}" not in sources] == []
