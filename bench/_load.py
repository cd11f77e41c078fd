"""The load: native/load.c where gcc is, else this module's own, in Python, pipelined.

The one in Python only saturates: it keeps `depth` requests under way on every connection, sends what it has prepared as
it is, and compares sizes. Its own share is close to a core, so its rates are its own; the server's CPU per request
holds.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Sequence

from bench import _native
from bench._native import Outcome
from bench._peers import Server
from bench._process import receive

WARM_S = 2.0
WARM = 0.1
"""Share of the time of which the answers are not counted, as in load.c."""


def load(
    server: Server,
    requests: Sequence[Sequence[bytes]],
    *,
    depth: int,
    seconds: float,
    rate: float = 0.0,
    error_at: int = -1,
) -> Outcome:
    if _native.available():
        return _native.load(
            server.address,
            requests,
            depth=depth,
            seconds=seconds,
            rate=rate,
            error_at=error_at,
            cpu_seconds=server.cpu_seconds,
        )
    assert rate == 0, "a fixed rate needs the load in C"
    return in_python(server, requests, depth=depth, seconds=seconds)


def warm(server: Server, requests: Sequence[Sequence[bytes]], *, depth: int, limit_s: float) -> None:
    """Until a request gets no cheaper (less than a twentieth, twice in a row): a JVM compiles what it runs often."""
    ends = time.monotonic() + limit_s
    best, no_better = float("inf"), 0
    while no_better < 2 and time.monotonic() < ends:
        cost = load(server, requests, depth=depth, seconds=WARM_S).cpu_us
        no_better = 0 if cost < best * 0.95 else no_better + 1
        best = min(best, cost)


def in_python(server: Server, requests: Sequence[Sequence[bytes]], *, depth: int, seconds: float) -> Outcome:
    """Of each connection's requests only the first is sent. A time is that of a burst, from its sending to its end."""
    times: list[float] = []
    answered = counted = 0
    with selectors.DefaultSelector() as selector:
        for frames in requests:
            connection = socket.create_connection(server.address, 10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(frames[0])
            size = 4 + int.from_bytes(receive(connection, 4), "big")
            receive(connection, size - 4)
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ, [frames[0] * depth, size * depth, 0, 0.0])
        used, cpu = server.cpu_seconds(), time.process_time()
        began = time.perf_counter()
        for key in selector.get_map().values():
            key.data[3] = began
            key.fileobj.send(key.data[0])  # type: ignore[union-attr]
        while (now := time.perf_counter()) < began + seconds:
            for key, _ in selector.select(0.1):
                burst, wanted, _, _ = key.data
                key.data[2] += len(key.fileobj.recv(65_536))  # type: ignore[union-attr]
                assert key.data[2] <= wanted, "answers of another size than the first"
                if key.data[2] == wanted:
                    answered += depth
                    if now > began + WARM * seconds:
                        counted += depth
                        times.append(time.perf_counter() - key.data[3])
                    key.data[2:] = [0, time.perf_counter()]
                    key.fileobj.send(burst)  # type: ignore[union-attr]
        used, cpu = server.cpu_seconds() - used, time.process_time() - cpu
        for key in selector.get_map().values():
            key.fileobj.close()  # type: ignore[union-attr]
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return Outcome(
        answered=answered,
        counted=counted,
        seconds=now - began,
        counted_seconds=(1 - WARM) * seconds,
        own_cpu=cpu,
        p50_us=cuts[49] * 1e6,
        p99_us=cuts[98] * 1e6,
        max_us=max(times, default=0.0) * 1e6,
        server_cpu=used,
    )
