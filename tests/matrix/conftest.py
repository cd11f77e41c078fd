"""The matrix, which matrix_run.py runs."""

from __future__ import annotations

import matrix_run
import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(matrix_run, "matrix_run")


@pytest.fixture(scope="session")
def matrix(request: pytest.FixtureRequest) -> matrix_run.Matrix:
    return request.config.stash[matrix_run.MATRIX]
