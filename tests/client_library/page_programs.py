"""The Python programs of the pages in docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def definitions(page: str, servers: str, number: int = 1, of: int = 1) -> dict[str, Any]:
    """What a program of the page defines, with `servers` as its address. The page has `of` programs."""
    found_programs = programs(page)
    assert len(found_programs) == of
    program = found_programs[number - 1]
    found: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", servers), found)
    return found
