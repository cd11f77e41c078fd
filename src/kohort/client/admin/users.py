"""Users with SCRAM credentials: list, add, delete (KIP-554). Passwords are hashed here and never sent."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from kohort.client.admin.topics import controller
from kohort.client.errors import check
from kohort.client.wire.routing import Router
from kohort.security.scram import CODES, NAMES, SALT_BYTES, salted_password
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.wire.schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


@dataclass(frozen=True, slots=True)
class ScramUser:
    name: str
    iterations: dict[str, int]
    """By mechanism."""


def describe_request(names: Iterable[str] | None) -> DescribeUserScramCredentialsRequest:
    users = None if names is None else tuple(UserName(name=name) for name in dict.fromkeys(names))
    return DescribeUserScramCredentialsRequest(users=users)


def described(answer: DescribeUserScramCredentialsResponse) -> list[ScramUser]:
    """By name, without those that do not exist. Raises ServerError."""
    check(answer.error_code, "cannot list users", answer.error_message)
    found = []
    for row in answer.results:
        if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        check(row.error_code, f"cannot describe user {row.user}", row.error_message)
        mechanisms = {
            NAMES[info.mechanism]: info.iterations for info in row.credential_infos if info.mechanism in NAMES
        }
        found.append(ScramUser(row.user, mechanisms))
    return sorted(found, key=lambda user: user.name)


def addition(name: str, password: str, mechanism: str, iterations: int) -> AlterUserScramCredentialsRequest:
    """Takes some milliseconds to hash the password."""
    salt = secrets.token_bytes(SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=name,
        mechanism=CODES[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
    return AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,))


def deletion(name: str, mechanism: str) -> AlterUserScramCredentialsRequest:
    gone = ScramCredentialDeletion(name=name, mechanism=CODES[mechanism])
    return AlterUserScramCredentialsRequest(deletions=(gone,), upsertions=())


def check_altered(answer: AlterUserScramCredentialsResponse) -> None:
    """Raises ServerError."""
    for row in answer.results:
        check(row.error_code, f"cannot change user {row.user}", row.error_message)


def scram_users(router: Router, names: Iterable[str] | None) -> list[ScramUser]:
    request = describe_request(names)
    return router.retrying(lambda: described(controller(router).request(request, DescribeUserScramCredentialsResponse)))


def alter(router: Router, request: AlterUserScramCredentialsRequest) -> None:
    router.retrying(lambda: check_altered(controller(router).request(request, AlterUserScramCredentialsResponse)))
