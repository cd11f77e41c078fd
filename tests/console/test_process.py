"""`kohort console` as a process."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
import typer
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.cli.console.tls import Certificate
from kohort.security.certificates import AUTHORITY, SERVER, development_certificates, write_certificates
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


def test_a_login_inside_tls(start: Start, tmp_path: Path) -> None:
    authority, issued = development_certificates(("localhost", "127.0.0.1"), (), 1)
    write_certificates(tmp_path, authority, issued)
    settings = tmp_path / "client.properties"
    settings.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n")
    with KohortServer(security="SASL_PLAINTEXT", users={"alice": "a secret"}) as secured:
        process = start(
            *("--listen", "0.0.0.0:0", "--certificate", str(tmp_path / SERVER), "--allow-changes"),
            *("-b", secured.bootstrap_servers, "--command-config", str(settings)),
        )
        assert process.stdout is not None
        found = re.fullmatch(r"kohort console of \S+: https://\S+:(\d+)/\n", process.stdout.readline())
        assert found
        context = ssl.create_default_context(cafile=str(tmp_path / AUTHORITY))
        host = f"localhost:{found[1]}"
        with closing(http.client.HTTPSConnection(host, context=context, timeout=60)) as connection:
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("location")) == (303, "/login")
            answer.read()
            form = {"content-type": "application/x-www-form-urlencoded", "origin": f"https://{host}"}
            connection.request("POST", "/login", urlencode({"user": "alice", "password": "a secret"}), form)
            answer = connection.getresponse()
            answer.read()
            cookie = answer.getheader("set-cookie", "")
            assert cookie.startswith("__Host-kohort-session=")
            assert cookie.endswith("; HttpOnly; Path=/; SameSite=strict; Secure")
            connection.request("GET", "/topics", headers={"cookie": cookie.partition(";")[0], "prefer": "wait=60"})
            answer = connection.getresponse()
            assert (answer.status, b"Create a topic" in answer.read()) == (200, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert re.fullmatch(r"\S+ level=info event=login by_user=alice by_host=127.0.0.1\n", process.stderr.read())


def test_a_certificate_is_renewed_unless_the_new_one_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def issue(name: str) -> tuple[str, str]:
        authority, issued = development_certificates((name,), (), 1)
        return authority, issued[SERVER]

    def served_to(authority: str, name: str) -> bool:
        client = ssl.create_default_context(cadata=authority).wrap_bio(inward, outward, server_hostname=name)
        server = certificate.context.wrap_bio(outward, inward, server_side=True)
        try:
            for end in (client, server) * 3:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except ssl.SSLError:
            return False
        return client.version() is not None

    file = tmp_path / "server.pem"
    first, content = issue("first")
    file.write_text(content)
    file.chmod(0o644)
    with pytest.raises(typer.BadParameter, match="all users of this machine can read it"):
        Certificate(str(file))
    file.chmod(0o600)
    certificate = Certificate(str(file))
    second, content = issue("second")
    file.write_text(content[: len(content) // 2])
    certificate.renew()
    assert "the former certificate stays in use" in capsys.readouterr().err
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    assert served_to(first, "first")
    file.write_text(content)
    certificate.renew()
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    assert served_to(second, "second")


def console(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["console", *arguments])
    return ran.exit_code, ran.stderr


def test_what_it_refuses(server: KohortServer) -> None:
    code, text = console("--listen", "0.0.0.0:8090")
    assert code == 2
    assert "add --certificate FILE and --login" in text
    assert console("--listen", "nonsense")[0] == 2
    code, text = console("--listen", "0.0.0.0:8090", "--allow-insecure", "--allow-changes")
    assert (code, "with --allow-changes it needs --login" in text) == (2, True)
    code, text = console("--login")
    assert (code, "users log in with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in text) == (2, True)
    code, text = console("--certificate", "missing.pem")
    assert (code, "cannot read missing.pem" in text) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, text = console("-b", server.bootstrap_servers, "--listen", address)
        assert (code, text.count("\n")) == (1, 1)
        assert f"kohort: cannot listen on {address}: " in text
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        code, text = console("-b", f"127.0.0.1:{nobody.getsockname()[1]}", "--listen", "127.0.0.1:0")
    assert (code, text.count("\n")) == (3, 1)
