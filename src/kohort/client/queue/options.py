"""The settings of a work queue. Durations are in seconds, because those of jobs often are minutes or hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from kohort.client import connection_options
from kohort.client.connection_options import ConnectionOptions
from kohort.client.security.security import Security
from kohort.client.settings import refuse_unknown


class QueueOptions(ConnectionOptions, total=False):
    """The settings of a `WorkQueue`. Durations are in seconds unless the name ends in `_ms`."""

    lock: float | None
    """How long a lock lasts unless it is extended: the group's share.record.lock.duration.ms. None leaves the group's
    (Kafka: 30 s, and 15 to 60 s are allowed)."""
    max_deliveries: int
    """5: after so many deliveries without an ack a job becomes a dead letter, or is dropped."""
    dead_letter: str | None
    """The dead-letter topic. None: what is rejected is dropped, with an error in the log."""
    start: Literal["earliest", "latest"] | None
    """Where a new group begins; "earliest" by default, None leaves the group's setting."""
    retry_backoff: float
    """1: the pause after the first failure; it doubles with each delivery."""
    retry_backoff_max: float
    """300."""
    max_waiting: int
    """500: how many jobs may wait in this process, for their retry or for another job of their key. Then no more are
    fetched."""
    time_limit: float | None
    """How long a job may take: then its lock is not extended any more, and `run` cancels its work. None: any time."""
    key_concurrency: int | None
    """How many jobs with the same key are worked on at a time."""
    group_concurrency: int | None
    """How many jobs the whole group works on at a time."""
    delay_topic: str | None
    """Where jobs wait that were put with a delay; None: such jobs cannot be put."""
    create_topics: bool
    """True: missing topics are created, with the cluster's default number of partitions."""
    close_timeout: float
    """10: how long `close` waits for jobs that are worked on, before it gives them back."""
    rack: str | None


DEFAULTS: QueueOptions = {
    "lock": None,
    "max_deliveries": 5,
    "dead_letter": None,
    "start": "earliest",
    "retry_backoff": 1.0,
    "retry_backoff_max": 300.0,
    "max_waiting": 500,
    "time_limit": None,
    "key_concurrency": None,
    "group_concurrency": None,
    "delay_topic": None,
    "create_topics": True,
    "close_timeout": 10.0,
    "rack": None,
}

ABOVE_ZERO = (
    "lock",
    "max_deliveries",
    "retry_backoff",
    "retry_backoff_max",
    "max_waiting",
    "time_limit",
    "key_concurrency",
    "group_concurrency",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked settings."""

    group_id: str
    weights: Mapping[str, float]
    """The topics, with how often each is asked in relation to the others."""
    options: QueueOptions
    security: Security


def checked(topics: str | Sequence[str] | Mapping[str, float], group: str, options: QueueOptions) -> Settings:
    """Raises ValueError, TypeError."""
    refuse_unknown("WorkQueue", options, QueueOptions.__annotations__)
    if not group:
        raise ValueError("the group is empty")
    merged: QueueOptions = {**connection_options.DEFAULTS, **DEFAULTS, **options}
    values: Mapping[str, Any] = merged
    for name in ABOVE_ZERO:
        if values[name] is not None and not values[name] > 0:
            raise ValueError(f"{name} is {values[name]}; it must be above 0")
    if merged["close_timeout"] < 0:
        raise ValueError(f"close_timeout is {merged['close_timeout']}; it must not be below 0")
    if merged["start"] not in ("earliest", "latest", None):
        raise ValueError(f'start is {merged["start"]!r}; it takes "earliest", "latest" or None')
    weights = weighed(topics)
    for name in ("dead_letter", "delay_topic"):
        if values[name] in weights:
            raise ValueError(f"{name} is {values[name]!r}, which is a topic of the queue itself")
    return Settings(group, weights, merged, Security.of(merged["security"]))


def weighed(topics: str | Sequence[str] | Mapping[str, float]) -> dict[str, float]:
    """Topics with their weights. Raises ValueError, TypeError."""
    if isinstance(topics, str):
        topics = (topics,)
    weights = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1.0)
    if not weights or not all(weights):
        raise ValueError("a work queue has at least one topic, and topics have names")
    for topic, weight in weights.items():
        if not isinstance(topic, str):
            raise TypeError(f"topic {topic!r}: a topic's name is a str, not {type(topic).__name__}")
        if not isinstance(weight, int | float) or not 0 < weight < inf:
            raise ValueError(f"topic {topic!r}: its weight is {weight!r}; it must be a number above 0")
    return weights
