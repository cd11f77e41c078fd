"""DescribeUserScramCredentials, AlterUserScramCredentials: what is stored, told and refused."""

from __future__ import annotations

from typing import Any

import pytest
from wire_driver import Connection, Wire

from kohort.security.scram import CODES, credential, salted_password
from kohort.wire.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.wire.schemas.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

SALT = b"0123456789abcdef"
SHA_256, SHA_512 = CODES["SCRAM-SHA-256"], CODES["SCRAM-SHA-512"]
SALTED = {
    SHA_256: salted_password("SCRAM-SHA-256", "secr3t", SALT, 4096),
    SHA_512: salted_password("SCRAM-SHA-512", "secr3t", SALT, 4096),
}


def put(name: str, mechanism: int = SHA_512, **changes: Any) -> ScramCredentialUpsertion:
    values = {"iterations": 4096, "salt": SALT, "salted_password": SALTED.get(mechanism, b"")} | changes
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **values)


def gone(name: str, mechanism: int = SHA_512) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(client: Connection, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(change for change in changes if isinstance(change, ScramCredentialDeletion)),
        upsertions=tuple(change for change in changes if isinstance(change, ScramCredentialUpsertion)),
    )
    return {row.user: row.error_code for row in client.ask(request, 0).results}


def describe(client: Connection, *names: str) -> dict[str, Any]:
    users = tuple(UserName(name=name) for name in names) if names else None
    answer = client.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    return {
        row.user: row.error_code or {info.mechanism: info.iterations for info in row.credential_infos}
        for row in answer.results
    }


@pytest.mark.conformance("AU17")
def test_users_are_described_with_mechanisms_and_iterations() -> None:
    client = Wire().connect()
    assert describe(client) == {}
    assert alter(client, put("alice"), put("bob", SHA_256, iterations=5000)) == {"alice": 0, "bob": 0}
    assert alter(client, put("alice", SHA_256)) == {"alice": 0}
    everybody = {"alice": {SHA_256: 4096, SHA_512: 4096}, "bob": {SHA_256: 5000}}
    assert describe(client) == everybody
    assert describe(client, "bob", "nobody", "alice", "alice") == {"bob": everybody["bob"], "nobody": 91, "alice": 92}


@pytest.mark.conformance("AU17")
def test_credentials_survive_a_restart_and_are_keys_only() -> None:
    wire = Wire()
    client = wire.connect()
    alter(client, put("alice"), put("bob"))
    assert alter(client, gone("bob"), put("alice", SHA_256)) == {"bob": 0, "alice": 0}
    again = wire.restarted()
    assert describe(again.connect()) == {"alice": {SHA_256: 4096, SHA_512: 4096}}
    stored = again.broker.state.catalog.credentials.find("alice", SHA_512)
    assert stored == credential("SCRAM-SHA-512", SALTED[SHA_512], SALT, 4096)
    assert not any(SALTED[SHA_512] in record for record in (repr(wire.notices).encode(), repr(stored).encode()))


@pytest.mark.conformance("AU17")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ((put("x"), put("x", SHA_256)), 92),
        ((put("x"), gone("x")), 92),
        ((gone("x"), gone("x")), 92),
        ((gone("x"),), 91),
        ((gone("alice", SHA_256),), 91),
        ((put("x", 3),), 33),
        ((gone("alice", 0),), 33),
        ((put("x", iterations=4095),), 93),
        ((put("x", iterations=16385),), 93),
        ((put("x", salt=b""),), 93),
        ((put("x", salted_password=b"short"),), 93),
        ((put(""),), 93),
        ((gone(""),), 93),
    ],
)
def test_changes_that_are_refused(changes: tuple[Any, ...], error: int) -> None:
    client = Wire().connect()
    alter(client, put("alice"))
    assert alter(client, *changes, put("other")) == {changes[0].name: error, "other": 0}
    assert set(describe(client)) == {"alice", "other"}
