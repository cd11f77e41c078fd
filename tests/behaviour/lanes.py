"""The lanes of the comparison: kohort as it is, and strict (compatibility=kafka), each beside Apache Kafka; and a
gateway before a kohort, beside a kohort.

Each lane has a file of known differences. docs/differences.md says which differences the strict lane may show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).parent
DOCUMENT = FOLDER.parents[1] / "docs" / "differences.md"
AS_KAFKA = "as Kafka"
"""What the document says of a difference that strict servers do not show."""
OF_KOHORT = {"group.heartbeat.hold.enable": "false", "group.storm.rebalance.delay.ms": "0"}
"""Switch off what Kafka lacks: held heartbeats, and a longer rebalance after several in a row."""


def documented() -> dict[str, str]:
    """The ids that docs/differences.md explains, and what the document says of the strict mode."""
    rows = re.findall(
        r"^\| `([a-z0-9-]+)` \|.*\| ([^|]*) \|[^|]*\|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE
    )
    return dict(rows)


@dataclass(frozen=True)
class Lane:
    compatibility: str
    differences: Path
    settings: Mapping[str, str]
    """Those of kohort alone."""
    is_gateway: bool = False
    """A gateway takes Apache Kafka's place."""

    @cached_property
    def ids(self) -> frozenset[str]:
        """The differences that it may show."""
        if self.is_gateway:
            return frozenset()
        is_strict = self.compatibility == "kafka"
        return frozenset(name for name, strict in documented().items() if not is_strict or strict != AS_KAFKA)


USUAL = Lane("kohort", FOLDER / "differences.txt", OF_KOHORT)
GATEWAY = Lane("kohort", FOLDER / "differences_gateway.txt", OF_KOHORT, is_gateway=True)
STRICT = Lane("kafka", FOLDER / "differences_strict.txt", {"compatibility": "kafka"})
