"""docs/transaction-failures.md has twenty rows, and the planted bugs, tests and sequences that they name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "transaction-failures.md"
SCENARIOS = TESTS.parent / "src" / "kohort" / "conformance"
BUGS = TESTS / "mutations" / "transaction_bugs.py"


def rows() -> dict[str, str]:
    """The proofs of each failure."""
    lines = (line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| F"))
    return {cells[0]: cells[-1] for cells in lines}


def planted_bugs() -> set[str]:
    [table] = (
        node.value
        for node in ast.parse(BUGS.read_text("utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TRANSACTION_BUGS"
    )
    assert isinstance(table, ast.Dict)
    return {ast.literal_eval(key) for key in table.keys if key is not None}


def test_each_of_the_twenty_has_proofs_that_exist() -> None:
    assert list(rows()) == [f"F{number}" for number in range(1, 21)]
    bugs = planted_bugs()
    for failure, proofs in rows().items():
        quoted, named = re.findall(r'"([^"]+)"', proofs), re.findall(r"`([^`]+)`", proofs)
        assert quoted or named, failure
        assert set(quoted) <= bugs, failure
        for name in named:
            file, _, test = name.partition("::")
            places = [*TESTS.rglob(file), *SCENARIOS.rglob(file)]
            found = [path for path in places if f"def {test}(" in path.read_text("utf-8") or not test]
            assert found, f"{failure}: {name}"
