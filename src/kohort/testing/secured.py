"""A secured server for tests: certificates of its own, users with passwords, and the settings of their clients."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kohort.client.cluster import Cluster
from kohort.security.certificates import AUTHORITY, SERVER, development_certificates, write_certificates

ADMIN = "KOHORT-TESTING"
"""The listener on loopback without TLS and SASL, for the calls of `KohortServer` itself."""
SECURED = "SECURED"
MECHANISM = "SCRAM-SHA-512"
BEARER = "OAUTHBEARER"
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
ISSUER, AUDIENCE = "kohort-testing", "kohort"
DAYS = 90
"""Until the certificates expire."""
KEYS = "keys.json"
"""The file of the key that signs tokens."""


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
            write_certificates(self.folder, *development_certificates(("localhost", "127.0.0.1"), (), DAYS))
        self._bearer = Bearer(self.folder) if protocol.startswith("SASL_") and find_spec("jwt") is not None else None

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
        if self._bearer is not None:
            settings["sasl_enabled_mechanisms"] += f",{BEARER}"
            settings |= self._bearer.settings
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
            settings["sasl.mechanism"] = mechanism
        if self.protocol.startswith("SASL_") and mechanism != BEARER:
            name = next(iter(self.users), "") if user is None else user
            if name not in self.users:
                raise ValueError(f"there is no user {name!r}; users= has {', '.join(self.users) or 'none'}")
            settings |= {"sasl.username": name, "sasl.password": self.users[name]}
        return settings

    def bearer_token(self, user: str, life_s: float) -> str:
        """Raises RuntimeError without PyJWT, and for a server without SASL."""
        if self._bearer is None:
            raise RuntimeError("tokens take a server with SASL and the package PyJWT: pip install 'kohort[oauth]'")
        return self._bearer.token(user, life_s)

    def close(self) -> None:
        self._folder.cleanup()


class Bearer:
    """An issuer of tokens for OAUTHBEARER, whose key is in a file."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec  # these take the extra oauth
        from jwt.algorithms import ECAlgorithm

        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        file = folder / KEYS
        file.write_text(json.dumps({"keys": [public | {"kid": ISSUER, "use": "sig"}]}))
        self.settings = {
            "sasl_oauthbearer_jwks_endpoint_url": file.as_uri(),
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
        }

    def token(self, user: str, life_s: float) -> str:
        import jwt

        now = time.time()
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + life_s}
        return jwt.encode(claims, self._key, "ES256", headers={"kid": ISSUER})
