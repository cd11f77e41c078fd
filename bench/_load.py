"""The load of native/load.c on a server: its result, the rounds at full and at half rate, and their tables.

The load is a process of its own: no figure contains the interpreter or its lock.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench._peers import APACHE, Server, c_program, started
from bench._process import answer_to
from bench._run import Run, Table, Values

WARM_S = 2.0
LIMIT_S = 12.0
"""Time limit of the JVM's warm-up for each kind of request; a quarter in a quick run."""

Requests = Sequence[Sequence[bytes]]
"""For each connection the requests, whole frames, that it sends in turn."""


def write_requests(path: Path, requests: Requests) -> None:
    """Write each connection's requests in the format of load.c."""
    with path.open("wb") as file:
        file.write(struct.pack(">I", len(requests)))
        for frames in requests:
            joined = b"".join(frames)
            file.write(struct.pack(">I", len(joined)) + joined)


def load(
    server: Server,
    requests: Requests,
    *,
    depth: int,
    seconds: float,
    rate: float = 0.0,
    error_at: int = -1,
    steps: Sequence[int] = (),
) -> Values:
    """Send the requests; native/load.c describes the arguments.

    The result has the server's CPU for each request, answers a second, their median time and its 99th percentile, and
    the load's share of its own core. Rate and times leave out the answers of the first tenth of the time. `steps` are
    the positions of the errors where requests are the steps of transactions; then figures are for each transaction.
    """
    with tempfile.NamedTemporaryFile() as file:
        write_requests(Path(file.name), requests)
        words = [*server.address, file.name, depth, seconds, rate]
        words += [",".join(map(str, steps)), len(steps)] if steps else [error_at]
        command = [str(c_program("load")), *map(str, words)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdout.readline()
                before = server.cpu_seconds()
                process.stdin.write("\n")
                said = process.stdout.readline()
                used = server.cpu_seconds() - before
                assert said, "the load ended with an error"
                process.stdin.write("\n")
            except BaseException:
                process.kill()
                raise
    found = json.loads(said)
    answered = found.pop("answered")
    return {"cpu_us": used / max(1, answered) * 1e6, **found, **({"transactions": answered} if steps else {})}


def warm(run: Run, server: Server, requests: Requests, *, depth: int, limit_s: float = LIMIT_S) -> None:
    """Warm Apache Kafka up until a request gets no cheaper (less than a twentieth, twice in a row), because a JVM
    compiles frequent code."""
    warm_up(run, server, lambda: load(server, requests, depth=depth, seconds=WARM_S)["cpu_us"], limit_s=limit_s)


def warm_up(run: Run, server: Server, cost_of_round: Callable[[], float], *, limit_s: float = LIMIT_S) -> None:
    """As `warm`, with rounds of any kind."""
    if server.name not in APACHE:
        return
    ends = time.monotonic() + limit_s / (4 if run.quick else 1)
    best, no_better = float("inf"), 0
    while no_better < 2 and time.monotonic() < ends:
        cost = cost_of_round()
        no_better = 0 if cost < best * 0.95 else no_better + 1
        best = min(best, cost)


def measure_rates(
    run: Run,
    row: str,
    requests: Mapping[Server, Requests],
    *,
    depth: int,
    error_at: Callable[[Server], int],
    half: bool = True,
    more: Values | None = None,
) -> None:
    """The rounds at the highest rate, then fewer at half of the highest rate of each server.

    The floor takes part: it answers what the first server answers. `more` are values to keep with those of the
    highest rate.
    """
    with ExitStack() as stack:
        servers = dict(requests)
        model = next((server for server in requests if server.name != "mock"), None)
        if model is not None and run.names(("floor",)):
            answer = answer_of(model, requests[model][0][0])
            servers[stack.enter_context(started("floor", {}, answer=answer))] = requests[model]

        def measured(server: Server, rate: float = 0.0) -> Values:
            def once() -> Values:
                at = error_at(server)
                found = load(server, servers[server], depth=depth, seconds=run.seconds, rate=rate, error_at=at)
                return {f"half_{name}": found[name] for name in found} if rate else {**found, **(more or {})}

            return run.measure(row, server, once)

        most = dict.fromkeys(servers, 0.0)
        for _ in range(run.rounds):
            for server in servers:
                most[server] = max(most[server], measured(server)["rate"])
        for _ in range(max(1, run.rounds - 1) if half else 0):
            for server in servers:
                measured(server, most[server] / 2)


def answer_of(server: Server, frame: bytes) -> bytes:
    with socket.create_connection(server.address, 10) as connection:
        return answer_to(connection, frame)


def times(values: Values, kind: str = "") -> str:
    """Median and 99th percentile, in ms."""
    return f"{values[f'{kind}p50_us'] / 1e3:.2f}, {values[f'{kind}p99_us'] / 1e3:.2f}"


def half_load(v: Values) -> str:
    return f"{v['half_rate']:,.0f}; {times(v, 'half_')}"


LOAD_SHARE = Table("The load's share of its own core", lambda v: f"{v['load_share']:.0%}")
