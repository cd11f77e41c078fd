"""The README's examples run unchanged except for the address."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from kohort.testing import KohortServer

README = Path(__file__).parents[1] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.client
def test_the_minute_of_use(kohort_server: KohortServer) -> None:
    [block] = [b for b in python_blocks() if "consumer.subscribe" in b]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block.replace("127.0.0.1:9092", kohort_server.bootstrap_servers), {})
    assert [line.split(" ", 2)[2] for line in printed.getvalue().splitlines()] == [f"order {n}" for n in range(10)]


def test_every_block_is_python() -> None:
    for block in python_blocks():
        compile(block, str(README), "exec")
