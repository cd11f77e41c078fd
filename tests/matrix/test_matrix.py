"""Each cell of docs/clients.md: a client gets through a feature."""

from __future__ import annotations

import pytest
from matrix_clients import CLIENTS
from matrix_run import Matrix

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]

CELLS = [
    pytest.param(
        (client.key, feature),
        id=f"{client.key}-{feature.replace(' ', '-')}",
        marks=[pytest.mark.xfail(reason=client.fails[feature], strict=True)] if feature in client.fails else [],
    )
    for client in CLIENTS
    if not client.missing()
    for feature in client.runs
]


@pytest.mark.parametrize("cell", CELLS)
def test_cell(matrix: Matrix, cell: tuple[str, str]) -> None:
    matrix.results[cell].result()
