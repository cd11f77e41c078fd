"""`kohort console` as a process."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.testing import KohortServer

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(server: KohortServer) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def popen(*arguments: str) -> subprocess.Popen[str]:
        program = "from kohort.cli.main import main; main()"
        command = [sys.executable, "-c", program, "console", "-b", server.bootstrap_servers, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield popen
    for process in running:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_asked_to_end(start: Start, number: signal.Signals) -> None:
    process = start("--listen", "127.0.0.1:0")
    assert process.stdout is not None
    found = re.fullmatch(r"kohort console of \S+: http://127\.0\.0\.1:(\d+)/\n", process.stdout.readline())
    assert found
    with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)) as connection:
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("server")) == (200, None)
        assert b"<h1>Groups</h1>" in answer.read()
        connection.request("GET", "/live/groups", headers={"accept": "text/event-stream"})
        stream = connection.getresponse()
        assert stream.getheader("content-type") == "text/event-stream; charset=utf-8"
        assert stream.readline().startswith(b'data: {"rows": {"": {"read": ')
        process.send_signal(number)
        while stream.readline():
            pass
    assert (process.wait(60), process.stderr and process.stderr.read()) == (0, "")


def console(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["console", *arguments])
    return ran.exit_code, ran.stderr


def test_what_it_refuses(server: KohortServer) -> None:
    code, text = console("--listen", "0.0.0.0:8090")
    assert code == 2
    assert "the console has no login yet" in text
    assert console("--listen", "nonsense")[0] == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, text = console("-b", server.bootstrap_servers, "--listen", address)
        assert (code, text.count("\n")) == (1, 1)
        assert f"kohort: cannot listen on {address}: " in text
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        code, text = console("-b", f"127.0.0.1:{nobody.getsockname()[1]}", "--listen", "127.0.0.1:0")
    assert (code, text.count("\n")) == (3, 1)
