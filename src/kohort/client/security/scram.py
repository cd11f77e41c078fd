"""SCRAM, the client's side: proves that the client knows a password without sending it, and that the server knows it.

RFC 5802 with the hashes of RFC 7677 (SHA-256) and SHA-512, without channel binding, as Kafka implements it: names and
passwords are UTF-8 without SASLprep. The client checks the answers: that the nonce begins with its own, that the number
of iterations is within limits (with too few, a false server would learn a hash that is cheap to search; too many would
block this process), and the server's signature. No IO, and no randomness but the nonce that is passed in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

MIN_ITERATIONS = 4_096
MAX_ITERATIONS = 1_000_000
"""Kafka's brokers allow 4,096 to 16,384. A million takes half a second."""

NO_CHANNEL_BINDING = "n,,"


class Distrusted(Exception):
    """The server's messages fail verification, or cannot be read. The text contains no secret."""


def conversation(mechanism: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields messages to send, gets the answers, and ends when the server has proved that it knows the password.

    `nonce` is printable ASCII without a comma, and new each time. Raises Distrusted; KeyError for another mechanism.
    """
    algorithm = MECHANISMS[mechanism]
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={escaped},r={nonce}"
    answered = _text((yield f"{NO_CHANNEL_BINDING}{first}".encode()))
    server_nonce, salt, iterations = _challenge(answered, nonce)
    binding = base64.b64encode(NO_CHANNEL_BINDING.encode()).decode()
    last = f"c={binding},r={server_nonce}"
    signed = f"{first},{answered},{last}".encode()
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = _hmac(algorithm, salted, b"Client Key")
    signature = _hmac(algorithm, hashlib.new(algorithm, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    ending = _attributes(_text((yield f"{last},p={base64.b64encode(proof).decode()}".encode())))
    if "e" in ending:
        raise Distrusted(f"the broker ended SCRAM with the error {ending['e']!r}")
    expected = _hmac(algorithm, _hmac(algorithm, salted, b"Server Key"), signed)
    if not hmac.compare_digest(_decoded(ending.get("v", ""), "signature"), expected):
        raise Distrusted("the broker's SCRAM signature is wrong: it does not know this user's password")


def _challenge(text: str, nonce: str) -> tuple[str, bytes, int]:
    """The server's nonce, salt and iterations."""
    attributes = _attributes(text)
    if "m" in attributes:
        raise Distrusted("the broker demands a SCRAM extension that this client does not know")
    server_nonce = attributes.get("r", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise Distrusted("the broker's SCRAM nonce does not continue this client's")
    salt = _decoded(attributes.get("s", ""), "salt")
    if not salt:
        raise Distrusted("the broker sent no SCRAM salt")
    count = attributes.get("i", "")
    if not (count.isascii() and count.isdecimal() and len(count) < 10):
        raise Distrusted(f"the broker's number of SCRAM iterations is {count[:20]!r}")
    if not MIN_ITERATIONS <= int(count) <= MAX_ITERATIONS:
        raise Distrusted(
            f"the broker asks for {count} SCRAM iterations; this client does {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    return server_nonce, salt, int(count)


def _attributes(text: str) -> dict[str, str]:
    """The attributes of `a=…,b=…` by letter; if a letter repeats, its first value."""
    found: dict[str, str] = {}
    for part in text.split(","):
        if part[1:2] != "=":
            raise Distrusted("the broker's SCRAM message is malformed")
        found.setdefault(part[0], part[2:])
    return found


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Distrusted("the broker's SCRAM message is malformed") from None


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Distrusted(f"the broker's SCRAM {what} is malformed") from None


def _hmac(algorithm: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, algorithm)
