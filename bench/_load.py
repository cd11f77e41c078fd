"""The load of native/load.c on a server, and warming a server up with it before its figures count."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import _native
from bench._native import Outcome
from bench._peers import Server

WARM_S = 2.0


def load(
    server: Server,
    requests: Sequence[Sequence[bytes]],
    *,
    depth: int,
    seconds: float,
    rate: float = 0.0,
    error_at: int = -1,
) -> Outcome:
    return _native.load(
        server.address,
        requests,
        depth=depth,
        seconds=seconds,
        rate=rate,
        error_at=error_at,
        cpu_seconds=server.cpu_seconds,
    )


def warm(server: Server, requests: Sequence[Sequence[bytes]], *, depth: int, limit_s: float) -> None:
    """Runs until a request gets no cheaper (less than a twentieth, twice in a row), because a JVM compiles frequent
    code."""
    ends = time.monotonic() + limit_s
    best, no_better = float("inf"), 0
    while no_better < 2 and time.monotonic() < ends:
        cost = load(server, requests, depth=depth, seconds=WARM_S).cpu_us
        no_better = 0 if cost < best * 0.95 else no_better + 1
        best = min(best, cost)
