"""docs/secure.md: its recipe is run as it is written, at a free port."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path

import pytest
from process import COMMAND, Serve
from typer.testing import CliRunner

from kohort.cli.commands import app

PAGE = (Path(__file__).parents[2] / "docs" / "secure.md").read_text(encoding="utf-8")
RECIPE = PAGE.partition("## From nothing to TLS and SCRAM")[2].partition("## Clients")[0]


def test_the_recipe_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        recipe = RECIPE.replace("9093", str(free.getsockname()[1]))
    blocks = re.findall(r"```properties\n(.*?)```", recipe, re.DOTALL)
    for name, block in zip(("server.properties", "client.properties"), blocks, strict=True):
        Path(name).write_text(block)
        Path(name).chmod(0o600)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", recipe, re.DOTALL) for line in block.splitlines()]
    [serve] = [line for line in lines if line.startswith("kohort serve")]
    at = lines.index(serve)
    made, added = (run(line) for line in lines[:at])
    assert "certs/server.pem" in made
    assert not added.strip()
    with Serve(*shlex.split(serve)[2:], command=COMMAND):
        outputs = [run(line) for line in lines[at + 1 :]]
    assert "alice" in outputs[-1]
    assert "bob" in outputs[-1]


def run(line: str) -> str:
    words = shlex.split(line)
    assert words[0] == "kohort"
    ran = CliRunner().invoke(app, words[1:], input="wonderland\nwonderland\n")
    assert ran.exit_code == 0, (line, ran.output)
    return ran.stdout
