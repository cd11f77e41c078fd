"""The Containerfile starts a server that exists, as a user without rights."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crash_server import free_port

from kohort.cli.plain import plain_start
from kohort.client.cluster import Cluster
from kohort.config import ConfigError, load
from kohort.server.server import Server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """Instruction and argument, continued lines joined."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.split("\n") if line.strip())
    ]


def arguments_of(instructions: list[tuple[str, str]], wanted: str) -> list[str]:
    return [rest for word, rest in instructions if word == wanted]


def environment_of(instructions: list[tuple[str, str]]) -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in arguments_of(instructions, "ENV") for pair in rest.split())


def test_the_image_starts_the_server(instructions: list[tuple[str, str]]) -> None:
    [entry], [command] = arguments_of(instructions, "ENTRYPOINT"), arguments_of(instructions, "CMD")
    assert json.loads(entry) == ["kohort"], "the exec form: SIGTERM reaches the server"
    assert plain_start(json.loads(command)) == {}
    [check] = arguments_of(instructions, "HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2]) == ["kohort", "health"]
    environment = environment_of(instructions)
    config = load(environ=environment)
    [volume] = arguments_of(instructions, "VOLUME")
    assert json.loads(volume) == [config.data_dir]
    assert config.http_listener == "127.0.0.1:9404"
    [port] = arguments_of(instructions, "EXPOSE")
    assert config.listeners == f"0.0.0.0:{port}"


def test_the_image_has_two_stages_and_a_user_without_rights(instructions: list[tuple[str, str]]) -> None:
    builder, final = arguments_of(instructions, "FROM")
    version = re.search(r"python:(3\.\d+)-", final)
    assert version is not None
    assert f"python:{version[1]}-bookworm AS build" in builder, "the environment needs the same Python"
    assert "slim" in final
    [user] = arguments_of(instructions, "USER")
    assert user == "10001"
    assert any("--uid 10001" in run for run in arguments_of(instructions, "RUN"))
    for copied in arguments_of(instructions, "COPY"):
        *sources, _ = (word for word in copied.split() if not word.startswith("--"))
        if "--from" not in copied:
            assert all((ROOT / source).exists() for source in sources), copied


def test_the_image_needs_advertised_listeners(instructions: list[tuple[str, str]]) -> None:
    """0.0.0.0 is no address for clients."""
    environment = environment_of(instructions) | {
        "KOHORT_LISTENERS": "0.0.0.0:0",
        "KOHORT_HTTP_LISTENER": "",
        "KOHORT_DATA_DIR": "",
        "KOHORT_ALLOW_INSECURE_LISTENERS": "true",
    }
    with pytest.raises(ConfigError, match=r"set advertised\.listeners=HOST:PORT"):
        asyncio.run(Server(load(environ=environment)).start())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_steps_of_the_image(instructions: list[tuple[str, str]], tmp_path: Path) -> None:
    """Without a container: the files that the first stage copies, its commands in a new directory, and the server of
    the second stage from what they have made."""
    source, place = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    [_, second] = [at for at, (word, _) in enumerate(instructions) if word == "FROM"]
    for word, rest in instructions[1:second]:
        if word == "COPY":
            *copied, target = rest.split()
            for name in copied:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
                else:
                    shutil.copy(ROOT / name, source / target)
        elif word == "RUN":
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            command = rest.replace("/opt/kohort", str(place))
            subprocess.run(["sh", "-ec", command], cwd=source, env={**os.environ, "PATH": path}, check=True)
        else:
            assert word == "WORKDIR"
    port, http_port = free_port(), free_port()
    environment = environment_of(instructions) | {
        "PATH": f"{place}/bin",
        "KOHORT_DATA_DIR": str(tmp_path / "data"),
        "KOHORT_LISTENERS": f"0.0.0.0:{port}",
        "KOHORT_HTTP_LISTENER": f"127.0.0.1:{http_port}",
        "KOHORT_ADVERTISED_LISTENERS": f"localhost:{port}",
        "KOHORT_ALLOW_INSECURE_LISTENERS": "true",
    }
    [entry], [command], [check] = (arguments_of(instructions, word) for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    server = [str(place / "bin" / json.loads(entry)[0]), *json.loads(entry)[1:], *json.loads(command)]
    with subprocess.Popen(server, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("kohort is ready" in line for line in process.stdout), "the server has ended"
            health = [str(place / "bin" / "kohort"), *json.loads(check.partition("CMD ")[2])[1:]]
            healthy = subprocess.run(health, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert healthy.returncode == 0, healthy.stdout + healthy.stderr
            with Cluster(f"127.0.0.1:{port}") as cluster:
                assert [(node.host, node.port) for node in cluster.nodes().values()] == [("localhost", port)]
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
