"""Fixtures of edges around an echo for a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kohort.server.server
from kohort.storage.memory import MemoryStorage

sys.path.insert(0, str(Path(__file__).parent))

from echo_broker import EchoBroker
from edges import Edge


@pytest.fixture
def edge_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Edge]]:
    monkeypatch.setattr(kohort.server.server, "Broker", EchoBroker)
    with ExitStack() as stack:

        def make(storage: MemoryStorage | None = None, **settings: Any) -> Edge:
            edge = Edge(**settings)
            edge._memory = storage
            return stack.enter_context(edge)

        yield make


@pytest.fixture
def edge(edge_of: Callable[..., Edge]) -> Edge:
    return edge_of()
