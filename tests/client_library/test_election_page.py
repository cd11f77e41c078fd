"""docs/leader-election.md: its program runs as it stands, but for the address."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from recording_coordinator import until

PAGE = Path(__file__).parents[2] / "docs" / "leader-election.md"


def test_the_nightly_report(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", three_brokers.bootstrap_servers), page)
    printed: list[str] = []

    def written() -> int:
        printed.extend(capsys.readouterr().out.splitlines())
        return len(printed)

    async def story() -> None:
        tasks = [asyncio.create_task(page["main"]())]
        await until(lambda: written() == 1)
        tasks.append(asyncio.create_task(page["main"]()))
        tasks[0].cancel()
        await until(lambda: written() == 2)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    tokens = [int(re.findall(r"term (\d+)", line)[0]) for line in printed]
    assert tokens[0] < tokens[1]
