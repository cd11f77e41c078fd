"""A kohort server as a child process: start, requests over plain sockets, CPU time, memory."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of

Address = tuple[str, int]
TICKS = os.sysconf("SC_CLK_TCK")
START_S = 60.0


@contextmanager
def serving(
    *settings: str, data: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Address, int]]:
    """A server on an ephemeral port: its process id, its address, and the ms until its ready line.

    `settings` are NAME=VALUE; `data` is the data directory, "" for a new one; `environment` is added to this process's.
    """
    with tempfile.TemporaryDirectory() as fresh, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        chosen = ["group.initial.rebalance.delay.ms=0", "log.format=logfmt", *settings]
        process = subprocess.Popen(
            [sys.executable, "-m", "kohort", "serve"]
            + ["--data-dir", data or fresh, "--listeners", f"127.0.0.1:{port}"]
            + [word for setting in chosen for word in ("--set", setting)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield process.pid, ("127.0.0.1", port), _ready(process)
        finally:
            process.terminate()
            process.wait(60)


def _ready(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"took_ms=(\d+)", line)
        if found:
            # Drain later output, because a full pipe would block the server.
            Thread(target=process.stdout.read, daemon=True).start()
            return int(found[1])
    raise AssertionError("the server ended before it was ready")


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes started in the block stay on this core; the caller returns to its former cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads. Uses the process's CPU clock (clock_getcpuclockid), which counts in
    nanoseconds; /proc counts in hundredths of a second."""
    return time.clock_gettime(~pid << 3 | 2)


def memory_mb(pid: int) -> float:
    """Resident memory in MB."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def call(connection: socket.socket, request: Any, version: int, response: type) -> Any:
    connection.sendall(encode_request(request, version, 1, "bench"))
    size = int.from_bytes(receive(connection, 4), "big")
    frame = receive(connection, size)
    schema = schema_of(response)
    _, start = read_response_header(frame, flexible=version in schema.flexible, api_key=schema.api_key or 0)
    return decode(response, version, frame, start)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the server closed the connection"
        data += more
    return data


def wait_until(condition: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} after {seconds} s"
        time.sleep(0.05)
