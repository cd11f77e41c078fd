"""Servers as child processes: their start, and when they answer."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Thread

from kohort.client.errors import KafkaError
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse

Address = tuple[str, int]
POLL_S = 0.003


@contextmanager
def serving(
    *settings: str, data: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Address]]:
    """A kohort server on an ephemeral port, when it is ready: its process id and its address.

    `settings` are NAME=VALUE; `data` is the data directory, "" for a new one; `environment` is added to this process's.
    """
    with tempfile.TemporaryDirectory() as fresh:
        command = [sys.executable, "-m", "kohort", "serve", "--data-dir", data or fresh, "--listeners", "127.0.0.1:0"]
        for setting in ("group.initial.rebalance.delay.ms=0", "log.format=logfmt", *settings):
            command += ["--set", setting]
        with program(command, r"listeners=([^ :]+):(\d+) .*took_ms=", environment) as running:
            yield running


@contextmanager
def program(
    command: Sequence[str], ready: str = r"^(.+):(\d+)$", environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Address]]:
    """A server, when it has printed its address in a line like `ready`: its process id and that address."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout is not None
        found = next(filter(None, (re.search(ready, line) for line in process.stdout)), None)
        assert found, f"{command} ended before it was ready"
        # Drain later output, because a full pipe would block the server.
        Thread(target=process.stdout.read, daemon=True).start()
        yield process.pid, (found[1], int(found[2]))
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes started in the block stay on this core; the caller returns to its former cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def answer_to(connection: socket.socket, frame: bytes) -> bytes:
    """The whole frame that answers a request, on a connection with no other request under way."""
    connection.sendall(frame)
    with connection.makefile("rb") as answers:
        size = answers.read(4)
        return size + answers.read(int.from_bytes(size, "big"))


def wait_until_it_answers(address: Address, seconds: float, log: Path | None = None) -> None:
    """Wait until a Metadata response names a broker. The `log` is quoted if the time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(KafkaError), closing(Connection(*address)) as connection:
            if connection.request(MetadataRequest(topics=()), MetadataResponse).brokers:
                return
        time.sleep(POLL_S)
    raise AssertionError(f"no answer from {address}: {log.read_text()[-2000:] if log else ''}")
