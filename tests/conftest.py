"""Options of the tests; Apache Kafka's jars, for those that run beside it."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print as what they expect")


@pytest.fixture(scope="session")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Apache Kafka's jars from Maven, or from the folder that KAFKA_LIB names."""
    from bench import _kafka as apache

    folder = os.environ.get("KAFKA_LIB")
    return f"{folder}/*" if folder else apache.fetch_jars(tmp_path_factory.mktemp("kafka") / "lib")
