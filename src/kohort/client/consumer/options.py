"""The settings of `GroupConsumer` and `BlockingGroupConsumer`, with Kafka's names and defaults, and the `Ownership`
that they make.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Literal

from kohort.client import connection_options
from kohort.client.connection_options import ConnectionOptions
from kohort.client.consumer.classic_ownership import ClassicOwnership
from kohort.client.consumer.consumer_ownership import ConsumerOwnership
from kohort.client.consumer.ownership import Ownership, Wanted
from kohort.client.membership.classic import Settings
from kohort.client.membership.consumer import ConsumerSettings
from kohort.client.security.security import Security
from kohort.client.settings import heartbeat_interval, refuse_unknown

GroupProtocol = Literal["auto", "classic", "consumer"]

PROTOCOLS = ("auto", "classic", "consumer")


class ConsumerOptions(ConnectionOptions, total=False):
    """The settings of a consumer; Kafka's names and defaults. Durations are in milliseconds."""

    group_protocol: GroupProtocol
    """"consumer" is KIP-848's protocol, "classic" the older one. "auto", the default, takes the newest that the cluster
    has, and the classic one if the group is a classic group that must not be converted."""
    group_instance_id: str | None
    """Makes a static member (KIP-345): it keeps its partitions when it is closed and comes back within the session."""
    client_rack: str | None
    assignors: Sequence[str]
    """With the classic protocol, best first; default range and cooperative-sticky. See `kohort.client.assignors`."""
    group_remote_assignor: str | None
    """The server's assignor, with KIP-848's protocol; None: the server's default."""
    session_timeout_ms: int
    """45,000. With KIP-848's protocol it is the server's setting; this must not be longer."""
    rebalance_timeout_ms: int
    """300,000: how long `on_revoked` may take. Kafka's consumers call it max.poll.interval.ms."""
    heartbeat_interval_ms: int
    """3,000, or a third of a session below 9,000; with the classic protocol."""
    metadata_max_age_ms: int
    """300,000: how often to look for new topics and partitions with the classic protocol, where the server does not.
    For a missing topic that is subscribed to by name, the group's leader looks every `retry_backoff_max_ms`."""
    retry_backoff_ms: int
    retry_backoff_max_ms: int


DEFAULTS: ConsumerOptions = {
    "group_protocol": "auto",
    "group_instance_id": None,
    "client_rack": None,
    "assignors": ("range", "cooperative-sticky"),
    "group_remote_assignor": None,
    "session_timeout_ms": 45_000,
    "rebalance_timeout_ms": 300_000,
    "metadata_max_age_ms": 300_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1_000,
}


def checked(group_id: str, options: ConsumerOptions) -> ConsumerOptions:
    """The options with defaults for those that are missing. Raises ValueError, TypeError."""
    if not group_id:
        raise ValueError("the group id is empty")
    refuse_unknown("consumer", options, ConsumerOptions.__annotations__)
    merged: ConsumerOptions = {**connection_options.DEFAULTS, **DEFAULTS, **options}
    if merged["group_protocol"] not in PROTOCOLS:
        raise ValueError(f"group_protocol is {merged['group_protocol']!r}; it takes {', '.join(PROTOCOLS)}")
    merged["heartbeat_interval_ms"] = heartbeat_interval(
        merged.get("heartbeat_interval_ms"), merged["session_timeout_ms"]
    )
    merged["security"] = Security.of(merged["security"])
    classic_ownership(group_id, merged)
    return merged


def wanted(topics: str | Iterable[str], pattern: str | None) -> Wanted:
    """Raises ValueError."""
    names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if bool(names) == (pattern is not None):
        raise ValueError("subscribe: either topics or a pattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"subscribe: {pattern!r} is not a regular expression: {error}") from None
    return Wanted(names, pattern)


def classic_ownership(group_id: str, options: ConsumerOptions) -> Ownership:
    settings = Settings(
        group_id,
        (),
        instance_id=options["group_instance_id"],
        session_timeout_ms=options["session_timeout_ms"],
        rebalance_timeout_ms=options["rebalance_timeout_ms"],
        heartbeat_interval_ms=options["heartbeat_interval_ms"],
        request_timeout_ms=options["request_timeout_ms"],
        retry_backoff_ms=options["retry_backoff_ms"],
        retry_backoff_max_ms=options["retry_backoff_max_ms"],
    )
    return ClassicOwnership(settings, options["assignors"], rack=options["client_rack"])


def consumer_ownership(group_id: str, options: ConsumerOptions) -> Ownership:
    settings = ConsumerSettings(
        group_id,
        str(uuid.uuid4()),
        instance_id=options["group_instance_id"],
        rack_id=options["client_rack"],
        server_assignor=options["group_remote_assignor"],
        rebalance_timeout_ms=options["rebalance_timeout_ms"],
        session_timeout_ms=options["session_timeout_ms"],
        request_timeout_ms=options["request_timeout_ms"],
        retry_backoff_ms=options["retry_backoff_ms"],
        retry_backoff_max_ms=options["retry_backoff_max_ms"],
    )
    return ConsumerOwnership(settings)
