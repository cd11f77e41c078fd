"""The Python programs of the pages in docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def definitions(page: str, servers: str) -> dict[str, Any]:
    """What the page's only program defines, with `servers` as its address."""
    [program] = programs(page)
    found: dict[str, Any] = {"__name__": "page"}
    exec(program.replace("127.0.0.1:9092", servers), found)
    return found
