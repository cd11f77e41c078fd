"""The stories of kohort's journal, `__kohort_journal`: read from a running cluster, and kept in the table `stories`.

The journal says what the log of groups does not: why a rebalance began, which client left and why, which client changed
committed offsets. It keeps the last stories of each group, so earlier runs' stories are kept too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records import next_position, records
from kohort.spark.history.decoding.columns import TIME
from kohort.spark.history.stories import Document, client_of, plain_host
from kohort.wire.errors import ErrorCode

JOURNAL_TOPIC = "__kohort_journal"
_ABSENT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


@dataclass(frozen=True, slots=True)
class Journal:
    """The stories of all groups."""

    stories: Mapping[str, list[Document]] = field(default_factory=dict)
    """By group, in the order of their starts."""
    why_not: str = "there is none in dumps"
    """Why the journal could not be read; empty if it was."""

    @property
    def count(self) -> int:
        return sum(map(len, self.stories.values()))

    @property
    def since_ms(self) -> int | None:
        return min((stories[0]["started_ms"] for stories in self.stories.values()), default=None)

    @classmethod
    def of(cls, stories: Iterable[Document], why_not: str = "") -> Journal:
        """Of several forms of a story, which the journal writes as the rebalance goes on, the last one counts."""
        newest: dict[tuple[str, int, int], Document] = {}
        for story in stories:
            newest[str(story["group"]), int(story["number"]), int(story["started_ms"])] = story
        found: dict[str, list[Document]] = {}
        for _, story in sorted(newest.items(), key=lambda one: (one[0][2], one[0][1])):
            found.setdefault(str(story["group"]), []).append(story)
        return cls(found, why_not)

    @classmethod
    def kept(cls, table: pa.Table | None, why_not: str) -> Journal:
        """The stories in the table of an earlier run."""
        texts = [] if table is None else table.column("story").to_pylist()
        return cls.of([msgspec.json.decode(text) for text in texts], why_not)

    def extended(self, newer: Journal) -> Journal:
        if not self.stories:
            return newer
        both = [story for journal in (self, newer) for stories in journal.stories.values() for story in stories]
        return Journal.of(both, newer.why_not)

    def table(self) -> pa.Table:
        rows = [_row(story) for _, stories in sorted(self.stories.items()) for story in stories]
        return pa.Table.from_pylist(rows, schema=SCHEMA)


SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("number", pa.int64()),
        ("started", TIME),
        ("took_ms", pa.int64()),
        ("what", pa.string()),
        ("cause", pa.string()),
        ("client", pa.string()),
        ("host", pa.string()),
        ("member_id", pa.string()),
        ("outcome", pa.string()),
        ("moved", pa.int32()),
        ("story", pa.string()),
    ]
)


def _row(story: Document) -> dict[str, Any]:
    cause = story.get("cause", {})
    who = client_of(cause)
    return {
        "group": story["group"],
        "number": story["number"],
        "started": story["started_ms"] * 1000,
        "took_ms": story.get("took_ms"),
        "what": cause.get("what"),
        "cause": cause.get("cause"),
        "client": None if who is None else who.name,
        "host": plain_host(cause.get("host")) or None,
        "member_id": cause.get("member_id"),
        "outcome": story.get("outcome") or None,
        "moved": story.get("moved"),
        "story": msgspec.json.encode(story).decode(),
    }


def read_journal(cluster: Cluster) -> Journal:
    """The stories that the topic has, up to its end at the time of the call. Never raises for a missing right."""
    try:
        found = cluster.topics([JOURNAL_TOPIC])[JOURNAL_TOPIC]
        if found.error in _ABSENT:
            return Journal(why_not="the cluster has none")
        if found.error:
            return Journal(why_not=f"{JOURNAL_TOPIC}: {found.error.name}")
        places = [(JOURNAL_TOPIC, index) for index in range(len(found.partitions))]
        start, end = cluster.offsets(places, "earliest"), cluster.offsets(places, "latest")
        stories = [story for place in places for story in _read(cluster, place, start[place], end[place])]
    except KafkaError as error:
        return Journal(why_not=f"{JOURNAL_TOPIC}: {error.message}")
    return Journal.of(stories)


def _read(cluster: Cluster, place: tuple[str, int], position: int, end: int) -> Iterable[Document]:
    found: dict[bytes, Document] = {}
    while position < end:
        before = position
        for fetched in cluster.fetch({place: position}, partition_max_bytes=4 * 1024 * 1024):
            if fetched.error:
                raise KafkaError(fetched.error, f"{fetched.error.name} at offset {position}")
            for record in records(fetched, position):
                story = _story(record.value)
                if story is not None:
                    # Records of one story have the same key, and so have later stories in the same slot.
                    found[(record.key or b"") + b"%d" % story["number"]] = story
            position = next_position(fetched, position)
        if position == before:  # only compacted offsets are left
            break
    return found.values()


def _story(value: bytes | None) -> Document | None:
    """None for what is not a group's story: the journal has entries about transactions too."""
    try:
        story = msgspec.json.decode(value or b"null")
    except ValueError:
        return None
    if not isinstance(story, dict):
        return None
    numbers = story.get("number"), story.get("started_ms")
    return story if isinstance(story.get("group"), str) and all(isinstance(n, int) for n in numbers) else None
