"""Who may use the console, and for what: decided when it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kohort.client.cluster import Cluster

OpenCluster = Callable[[], Cluster]
OpenAs = Callable[[str, str], OpenCluster]
"""Makes clients for a user with this name and password, or bearer token; it does not connect yet."""


@dataclass(frozen=True, slots=True)
class Access:
    """By default everybody who reaches the console reads with the console's own connections."""

    login: bool = False
    """Each user then has connections of their own."""
    allow_changes: bool = False
    actor: str = ""
    """Without a login: the user of the console's own connections, for the log."""
    https: bool = False
    """The console's own listener has TLS."""
    by_address: bool = False
    """Serve requests that name the console by any IP address, because other machines reach it. Only a name can be made
    to point here by an attacker's DNS."""

    @property
    def takes_forms(self) -> bool:
        return self.allow_changes or self.login
