"""SCRAM's mechanisms and keys (RFC 5802), for clients, the server and the tools that make credentials.

Names and passwords are UTF-8 without SASLprep, as in Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""In requests (ScramMechanism.java)."""
NAMES = {code: name for name, code in CODES.items()}

MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 16_384
"""What Kafka's brokers store."""
DEFAULT_ITERATIONS = 4_096
SALT_BYTES = 24


class Credential(NamedTuple):
    """What a server stores of a password. Whoever has it can be taken for the server, but not for the user."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"Credential({self.iterations} iterations)"


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes some milliseconds."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    algorithm = MECHANISMS[mechanism]
    stored = hashlib.new(algorithm, hmac.digest(salted, b"Client Key", algorithm)).digest()
    return Credential(salt, iterations, stored, hmac.digest(salted, b"Server Key", algorithm))


def key_bytes(mechanism: str) -> int:
    return hashlib.new(MECHANISMS[mechanism]).digest_size


def phantom(secret: bytes, mechanism: str, name: str) -> Credential:
    """The credential of a user that does not exist: the same for the same name, and no password fits it."""
    salt = hmac.digest(secret, f"salt {mechanism} {name}".encode(), "sha256")[:SALT_BYTES]
    key = hmac.digest(secret, f"key {mechanism} {name}".encode(), MECHANISMS[mechanism])
    return Credential(salt, DEFAULT_ITERATIONS, key, key)


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
