"""Jobs that wait in a delay topic, as records.

The delay topic has one partition and is compacted. A job's record there has a key of its own, which is deleted when the
job is moved; the job's own key, topic and time are in headers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from kohort.client.queue.job import Job
from kohort.wire.batches import NewRecord

DUE, TOPIC, KEY, NULL, DELIVERIES = (
    "kohort.job.due",
    "kohort.job.topic",
    "kohort.job.key",
    "kohort.job.null",
    "kohort.job.deliveries",
)
OWN = frozenset({DUE, TOPIC, KEY, NULL})

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Delayed:
    """A job that waits."""

    topic: str
    due_ms: int
    """In milliseconds since 1970."""
    record: NewRecord
    """As it will be in the topic."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def delayed(topic: str, record: NewRecord, due_ms: int) -> NewRecord:
    """The record for the delay topic."""
    headers: list[tuple[str, bytes | None]] = [(DUE, str(due_ms).encode()), (TOPIC, topic.encode())]
    if record.key is not None:
        headers.append((KEY, record.key))
    if record.value is None:
        headers.append((NULL, b""))  # without a value, the record would delete its key from the compacted topic
    return NewRecord(os.urandom(16), record.value or b"", record.timestamp, (*headers, *record.headers))


def delayed_again(job: Job, pause: float) -> NewRecord:
    """The record for the delay topic of a job that is to be delivered again after so many seconds."""
    headers = (*job.headers, (DELIVERIES, str(job.deliveries).encode()))
    return delayed(job.topic, NewRecord(job.key, job.value, job.timestamp, headers), now_ms() + int(pause * 1000))


def read_delayed(value: bytes, headers: Headers, timestamp: int) -> Delayed | None:
    """The job of a record of the delay topic; None if it is not such a record."""
    own = {name: content for name, content in headers if name in OWN}
    try:
        topic, due_ms = (own[TOPIC] or b"").decode(), int(own[DUE] or b"")
    except (KeyError, ValueError):
        return None
    kept = tuple(header for header in headers if header[0] not in OWN)
    return Delayed(topic, due_ms, NewRecord(own.get(KEY), None if NULL in own else value, timestamp, kept))


def deliveries_in(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """How often a job was delivered before it waited in the delay topic."""
    for name, content in headers:
        if name == DELIVERIES and content is not None and content.isdigit():
            return int(content[:9])
    return 0
