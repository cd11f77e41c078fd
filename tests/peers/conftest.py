"""Apache Kafka's jars, for the tests that run beside it."""

from __future__ import annotations

import os

import pytest
from bench import _kafka as apache


@pytest.fixture(scope="session")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """From Maven, or from the folder that KAFKA_LIB names."""
    folder = os.environ.get("KAFKA_LIB")
    return f"{folder}/*" if folder else apache.fetch_jars(tmp_path_factory.mktemp("kafka") / "lib")
