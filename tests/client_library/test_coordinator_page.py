"""docs/coordinator.md: its program runs as it stands, but for the address."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from recording_coordinator import until

PAGE = Path(__file__).parents[2] / "docs" / "coordinator.md"


def test_the_crawlers(three_brokers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    page: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", three_brokers.bootstrap_servers), page)
    crawlers: list[Any] = []

    class Known(page["Crawler"]):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            crawlers.append(self)

    page["Crawler"] = Known

    async def story() -> None:
        tasks = [asyncio.create_task(page["main"]()) for _ in range(2)]
        await until(lambda: sorted(len(crawler.sites) for crawler in crawlers) == [2, 2])
        assert sorted(site for crawler in crawlers for site in crawler.sites) == page["SITES"]
        tasks[0].cancel()
        await until(lambda: len(crawlers[1].sites) == 4)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    assert "I crawl a.example" in capsys.readouterr().out
