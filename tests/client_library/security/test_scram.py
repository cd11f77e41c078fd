"""SCRAM: the RFC's own exchange, and servers that do not prove what they should."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.security.scram import MAX_ITERATIONS, Distrusted, conversation

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begun(mechanism: str = "SCRAM-SHA-256") -> Generator[bytes, bytes, None]:
    """A conversation whose first message has been sent."""
    talk = conversation(mechanism, "user", "pencil", NONCE)
    assert next(talk) == f"n,,n=user,r={NONCE}".encode()
    return talk


def test_the_exchange_of_rfc_7677() -> None:
    talk = begun()
    server_nonce = CHALLENGE.split(",")[0]
    assert talk.send(CHALLENGE.encode()) == f"c=biws,{server_nonce},p={PROOF}".encode()
    with pytest.raises(StopIteration):
        talk.send(f"v={SIGNATURE}".encode())


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    assert next(conversation("SCRAM-SHA-512", "a=b,c", "x", NONCE)) == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        ("r=somebodyelses,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue"),
        (f"r={NONCE}x,s=,i=4096", "no SCRAM salt"),
        (f"r={NONCE}x,s=!!!,i=4096", "salt is malformed"),
        (f"r={NONCE}x,s=AAAA,i=4095", "asks for 4095 SCRAM iterations"),
        (f"r={NONCE}x,s=AAAA,i={MAX_ITERATIONS + 1}", "asks for 1000001 SCRAM iterations"),
        (f"r={NONCE}x,s=AAAA,i=99999999999", "iterations is '99999999999'"),
        (f"r={NONCE}x,s=AAAA,i=-1", "iterations is '-1'"),
        (f"r={NONCE}x,s=AAAA", "iterations is ''"),
        (f"m=ext,r={NONCE}x,s=AAAA,i=4096", "extension"),
        ("nonsense", "malformed"),
        ("", "malformed"),
    ],
)
def test_bad_challenges(challenge: str, why: str) -> None:
    with pytest.raises(Distrusted, match=why):
        begun().send(challenge.encode())


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (f"v={base64.b64encode(hashlib.sha256(b'').digest()).decode()}", "does not know this user's password"),
        ("v=", "does not know"),
        ("v=***", "signature is malformed"),
        ("e=invalid-proof", "invalid-proof"),
        ("", "malformed"),
    ],
)
def test_a_server_that_does_not_know_the_password(ending: str, why: str) -> None:
    talk = begun()
    talk.send(CHALLENGE.encode())
    with pytest.raises(Distrusted, match=why):
        talk.send(ending.encode())


@given(st.binary(max_size=200))
def test_garbage_is_distrusted(answer: bytes) -> None:
    with pytest.raises(Distrusted):
        begun("SCRAM-SHA-512").send(answer)
