"""A secured server for tests: certificates of its own, users with passwords, and the settings of their clients."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kohort.client.cluster import Cluster
from kohort.security.certificates import AUTHORITY, SERVER, development_certificates, write_certificates

ADMIN = "KOHORT-TESTING"
"""The listener on loopback without TLS and SASL, for the calls of `KohortServer` itself."""
SECURED = "SECURED"
MECHANISM = "SCRAM-SHA-512"
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Secured:
    """What `KohortServer(security=…)` adds to the settings of a server, and the settings of its clients."""

    def __init__(self, protocol: str, users: Mapping[str, str]) -> None:
        """Raises ValueError for another protocol than those of PROTOCOLS."""
        if protocol not in PROTOCOLS:
            raise ValueError(f"security is {protocol!r}; it takes one of {', '.join(PROTOCOLS)}")
        if users and not protocol.startswith("SASL_"):
            raise ValueError(f"users have passwords, but security={protocol!r} asks for none")
        self.protocol = protocol
        self.users = dict(users)
        self._folder = tempfile.TemporaryDirectory(prefix="kohort-testing-")
        if protocol.endswith("SSL"):
            write_certificates(self.folder, *development_certificates(("localhost", "127.0.0.1"), (), 2))

    @property
    def folder(self) -> Path:
        return Path(self._folder.name)

    @property
    def ca_location(self) -> str:
        """The file of the authority that clients trust."""
        return str(self.folder / AUTHORITY)

    def settings(self) -> dict[str, Any]:
        settings = {
            "listeners": f"{SECURED}://127.0.0.1:0,{ADMIN}://127.0.0.1:0",
            "listener_security_protocol_map": f"{SECURED}:{self.protocol},{ADMIN}:PLAINTEXT",
            "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        if self.protocol.endswith("SSL"):
            settings["ssl_keystore_location"] = str(self.folder / SERVER)
        return settings

    def add_users(self, cluster: Cluster) -> None:
        known = {user.name for user in cluster.scram_users()}
        for name, password in self.users.items():
            if name not in known:
                for mechanism in ("SCRAM-SHA-256", MECHANISM):
                    cluster.add_scram_user(name, password, mechanism=mechanism)

    def client_settings(self, user: str | None, mechanism: str) -> dict[str, str]:
        """Raises ValueError for an unknown user."""
        settings = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            settings["ssl.ca.location"] = self.ca_location
        if self.protocol.startswith("SASL_"):
            name = next(iter(self.users), "") if user is None else user
            if name not in self.users:
                raise ValueError(f"there is no user {name!r}; users= has {', '.join(self.users) or 'none'}")
            settings |= {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": self.users[name]}
        return settings

    def close(self) -> None:
        self._folder.cleanup()
