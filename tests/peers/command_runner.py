"""Commands of kohort in the tests' own process, against any cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from typer.testing import CliRunner

from kohort.cli.commands import app

Run = Callable[..., Any]


def runner(servers: str) -> Run:
    """Runs commands; with `-o json` it returns the document, else the printed text."""

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, arguments, env={"KOHORT_BOOTSTRAP_SERVER": servers})
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return json.loads(result.stdout) if "json" in arguments else result.output

    return run
