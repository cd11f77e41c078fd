"""The metadata of committed offsets that say which Spark query reads for a group.

A program that commits without being a member does not appear in the group's description. So kohort's Spark source
writes its identity into the metadata of each offset that it commits, as a small JSON object, and `kohort groups
describe` shows it. Other programs' metadata have no meaning here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

MARK = "kohort-spark"
LONGEST_NAME = 200
"""Characters of a name that are kept: brokers accept 4,096 bytes of metadata (offset.metadata.max.bytes)."""


@dataclass(frozen=True, slots=True)
class GroupReader:
    """A Spark query that reads for a group, and its last finished batch. Unknown fields are None.

    `query` is the id that a query keeps over restarts, `run` the id of this start; `host` is the driver's host and
    `process` the query's planning process there.
    """

    query: str | None = None
    name: str | None = None
    run: str | None = None
    batch: int | None = None
    application: str | None = None
    host: str | None = None
    process: int | None = None

    def metadata(self) -> str:
        """As committed: JSON in one line, without unknown fields."""
        known = {
            "by": MARK,
            "query": self.query,
            "name": self.name and self.name[:LONGEST_NAME],
            "run": self.run,
            "batch": self.batch,
            "application": self.application and self.application[:LONGEST_NAME],
            "host": self.host and self.host[:LONGEST_NAME],
            "process": self.process,
        }
        return json.dumps({key: value for key, value in known.items() if value is not None}, separators=(",", ":"))

    def same_run(self, other: GroupReader) -> bool:
        """Whether both are the same start of the same query."""
        if self.run and other.run:
            return self.run == other.run
        return (self.host, self.process) == (other.host, other.process)

    def __str__(self) -> str:
        called = " ".join(filter(None, (self.name, self.query and f"({self.query})" if self.name else self.query)))
        parts = [
            f"Spark query {called}" if called else "a Spark query",
            f"of {self.application}" if self.application else "",
            f"on {self.host}" if self.host else "",
        ]
        batch = f", batch {self.batch}" if self.batch is not None else ""
        return " ".join(filter(None, parts)) + batch


def group_reader_of(metadata: str) -> GroupReader | None:
    """The reader that an offset's metadata name; None if they are not of kohort's Spark source."""
    try:
        found = json.loads(metadata)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("by") != MARK:
        return None

    def text(key: str) -> str | None:
        value = found.get(key)
        return value if isinstance(value, str) else None

    def number(key: str) -> int | None:
        value = found.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    return GroupReader(
        text("query"),
        text("name"),
        text("run"),
        number("batch"),
        text("application"),
        text("host"),
        number("process"),
    )
