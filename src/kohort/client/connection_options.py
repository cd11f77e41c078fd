"""The settings with which consumers and work queues reach a cluster, and what connects with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from kohort.client.cluster import Cluster
from kohort.client.security.security import Security
from kohort.client.wire.discovery import Discovery


class ConnectionOptions(TypedDict, total=False):
    """Durations are in milliseconds."""

    client_id: str
    request_timeout_ms: int
    api_timeout_ms: int
    connect_timeout_ms: int
    bootstrap_timeout_ms: int
    security: Security | Mapping[str, str] | None
    """As `Cluster`'s."""


DEFAULTS: ConnectionOptions = {
    "client_id": "kohort",
    "request_timeout_ms": 30_000,
    "api_timeout_ms": 60_000,
    "connect_timeout_ms": 10_000,
    "bootstrap_timeout_ms": 10_000,
    "security": None,
}


def cluster_of(bootstrap_servers: str | Sequence[str], options: ConnectionOptions) -> Cluster:
    return Cluster(
        bootstrap_servers,
        options["client_id"],
        request_timeout_ms=options["request_timeout_ms"],
        api_timeout_ms=options["api_timeout_ms"],
        bootstrap_timeout_ms=options["bootstrap_timeout_ms"],
        connect_timeout_ms=options["connect_timeout_ms"],
        security=options["security"],
    )


def discovery_of(bootstrap_servers: str | Sequence[str], options: ConnectionOptions) -> Discovery:
    return Discovery(
        bootstrap_servers,
        client_id=options["client_id"],
        connect_timeout_ms=options["connect_timeout_ms"],
        request_timeout_ms=options["request_timeout_ms"],
        security=Security.of(options["security"]),
    )
