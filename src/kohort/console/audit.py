"""The log of the console: a line for each login and each change, with who, what, from where, and the outcome.

As in the server's log, an event in plain words with named values (docs/how-to/server.md). Names are chosen by clients,
so no control characters reach the log.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TextIO

from kohort.cli.groups.wording import plain

logger = logging.getLogger("kohort.console")
LONGEST = 1_000
_BARE = re.compile(r"[\w.:/@+-]+", re.ASCII)


def note(event: str, /, **values: object) -> None:
    """Values that are empty are left out."""
    said = " ".join(f"{key}={_quoted(str(value))}" for key, value in values.items() if value != "")
    logger.info(f"event={_quoted(event)} {said}")


def configure(stream: TextIO) -> None:
    """Show the log on a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s level=info %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _quoted(text: str) -> str:
    text = plain(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
