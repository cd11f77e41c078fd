"""The process: its output, its refusals to start, its end."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from process import ANYWHERE, Serve, run_to_its_end
from raw_kafka import RawKafka

from kohort.config import AUTHORIZER
from kohort.wire.codec import encode_request
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.metadata import MetadataRequest


def refused(code: int, *arguments: str, **env: str) -> str:
    """The one line on stderr."""
    done = run_to_its_end(*arguments, env={**os.environ, **env})
    assert done.returncode == code, done
    [line] = done.stderr.splitlines()
    assert line.startswith("kohort: ")
    assert "ready" not in done.stdout
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(number: signal.Signals, tmp_path: Path) -> None:
    with Serve("--data-dir", str(tmp_path), *ANYWHERE) as serve:
        assert f"data_dir={tmp_path}" in serve.ready
        serve.process.send_signal(number)
        assert serve.ended() == 0
        assert not serve.errors
        assert "stopped" in serve.lines[-1]


def test_it_ends_soon_whatever_clients_do(tmp_path: Path) -> None:
    """Clients that read nothing have thousands of requests under way. An idle machine needs 0.1 s."""
    asked = encode_request(MetadataRequest(topics=None), 9, 1, "floods") * 200
    with Serve("--data-dir", str(tmp_path), *ANYWHERE) as serve, ExitStack() as stack:
        host, _, port = serve.addresses[0].rpartition(":")
        with RawKafka(serve.addresses[0]) as client:
            topics = tuple(CreatableTopic(name=f"t{n}", num_partitions=10, replication_factor=1) for n in range(50))
            client.ask_later(CreateTopicsRequest(topics=topics))
            client.answer()
        for _ in range(30):
            flooding = stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
            flooding.setblocking(False)
            for _ in range(20):
                with suppress(BlockingIOError):
                    flooding.send(asked)
        began = time.monotonic()
        serve.process.send_signal(signal.SIGTERM)
        assert serve.ended() == 0
        assert time.monotonic() - began < 5, "2 s are promised, and this machine may be busy"


@pytest.mark.parametrize(("host", "brokers"), [("127.0.0.1", 5), ("[::1]", 1)])
def test_each_broker_listens_on_a_port_of_its_own(host: str, brokers: int) -> None:
    with Serve("--in-memory", "--listeners", f"{host}:0", "--brokers", str(brokers)) as serve:
        assert len(set(serve.addresses)) == brokers
        for address in serve.addresses:
            found, _, port = address.rpartition(":")
            assert found == host
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()


def test_the_log_as_json(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path), *ANYWHERE, "--set", "log.format=json", "--set", "num.io.threads=3")
    with Serve(*arguments) as serve:
        warning, ready = map(json.loads, serve.lines[:2])
        assert (warning["level"], warning["names"]) == ("warning", "num.io.threads")
        assert (ready["event"], ready["data_dir"], ready["brokers"]) == ("kohort is ready", str(tmp_path), 1)
        assert ready["took_ms"] > 0


def test_the_log_tells_that_the_server_is_strict() -> None:
    with Serve("--in-memory", *ANYWHERE, "--set", "compatibility=kafka") as serve:
        assert " compatibility=kafka " in serve.ready
    with Serve("--in-memory", *ANYWHERE) as serve:
        assert "compatibility" not in serve.ready


ACLS = ("--set", f"authorizer.class.name={AUTHORIZER}", "--set", "super.users=User:admin")


@pytest.mark.parametrize(
    ("arguments", "warned"),
    [
        (ACLS, True),
        ((*ACLS, "--set", "super.users=User:ANONYMOUS;User:admin"), False),
        ((*ACLS, "--listeners", "SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=PLAIN"), False),
        ((), False),
    ],
    ids=["locked out", "anonymous super user", "SASL", "no authorizer"],
)
def test_acls_without_authentication_are_told(arguments: tuple[str, ...], warned: bool) -> None:
    with Serve("--in-memory", *ANYWHERE, *arguments) as serve:
        assert any("no listener authenticates its clients" in line for line in serve.lines) == warned


def test_the_default_data_directory_is_the_users(tmp_path: Path) -> None:
    with Serve(*ANYWHERE, env={**os.environ, "XDG_DATA_HOME": str(tmp_path)}) as serve:
        assert f"data_dir={tmp_path}/kohort" in serve.ready


def test_a_wrong_setting() -> None:
    assert "num.partition" in refused(2, "--set", "num.partition=3")
    assert "KOHORT" not in refused(2, KOHORT_NUM_PARTITIONS="none")
    assert "exclude each other" in refused(2, "--in-memory", "--data-dir", "/nowhere")


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused(69, "--data-dir", str(tmp_path), "--listeners", address)
    assert address in line
    assert "in use" in line
    with Serve("--data-dir", str(tmp_path), *ANYWHERE):
        pass  # the failed start left no lock


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    assert "no-such-host.invalid" in refused(69, "--in-memory", "--listeners", "no-such-host.invalid:9092")
    open_to_all = ("--set", "allow.insecure.listeners=true")
    assert "192.0.2.1:9092" in refused(69, "--in-memory", "--listeners", "192.0.2.1:9092", *open_to_all)


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    with Serve("--data-dir", str(tmp_path), *ANYWHERE) as first:
        line = refused(74, "--data-dir", str(tmp_path), *ANYWHERE)
        assert str(tmp_path) in line
        assert str(first.process.pid) in line


def test_a_file_that_is_no_data_directory_or_no_database(tmp_path: Path) -> None:
    file = tmp_path / "kohort.db"
    file.write_bytes(b"not a database at all " * 1000)
    assert str(file) in refused(74, "--data-dir", str(tmp_path), *ANYWHERE)
    for below in (file, file / "data"):
        line = refused(2, "--data-dir", str(below), *ANYWHERE)
        assert f"{file} is a file" in line
        assert "data.dir" in line


def test_a_directory_with_the_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    line = refused(2, "--data-dir", str(tmp_path), *ANYWHERE)
    assert str(tmp_path) in line
    assert "notes.txt" in line
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"], "nothing is added"


def with_data(directory: Path) -> Path:
    with Serve("--data-dir", str(directory), *ANYWHERE) as serve:
        serve.process.terminate()
        assert serve.ended() == 0
    return directory / "kohort.db"


def test_a_damaged_data_directory(tmp_path: Path) -> None:
    database = with_data(tmp_path)
    data = bytearray(database.read_bytes())
    for position in range(8_192, len(data), 4_096):
        data[position : position + 64] = bytes(64)
    database.write_bytes(data)
    for name in ("kohort.db-wal", "kohort.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    line = refused(74, "--data-dir", str(tmp_path), *ANYWHERE)
    assert str(database) in line
    assert "damaged" in line or "malformed" in line


def test_a_data_directory_of_a_newer_format(tmp_path: Path) -> None:
    database = with_data(tmp_path)
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    line = refused(74, "--data-dir", str(tmp_path), *ANYWHERE)
    assert "format 99" in line
    assert "newer" in line


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident memory is told by Linux")
def test_a_process_that_takes_more_than_its_memory_says_so(tmp_path: Path) -> None:
    with Serve("--data-dir", str(tmp_path), *ANYWHERE, "--set", f"memory.max.bytes={32 << 20}") as server:
        deadline = time.monotonic() + 20
        while not (told := [line for line in server.lines if "memory is short" in line]):
            assert time.monotonic() < deadline, server.lines
            time.sleep(0.02)
    assert re.search(r"resident_bytes=\d{8,} part=0.30 hint=.*memory.max.bytes", told[0])


def test_freed_memory_is_used_again() -> None:
    """Tested with glibc only: another C library has a policy of its own."""
    program = """
import resource
from kohort.server.memory.process import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        held = [b"x" * 10_000_000 for _ in range(3)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
keep_freed_memory()
faults()
print(faults())
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert int(said.stdout) < 5_000 or platform.libc_ver()[0] != "glibc"  # of 36,000 pages
