"""DescribeUserScramCredentials, AlterUserScramCredentials. Source: ScramControlManager.java, ScramImage.java.

A password never arrives here: clients send what they have hashed it to, and the keys of that are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from kohort.broker.change_log import difference, tell_change
from kohort.broker.request import ROW_BYTES, RequestContext, in_steps, rows
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import scram_record
from kohort.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, NAMES, Credential, credential, key_bytes
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.wire.schemas.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MOST_USERS = 20_000
LONGEST_NAME = 256
"""Characters of the name of a user."""
MOST_SALT_BYTES = 1_024
CHANGES = 20
"""Changes that are one step."""
TWICE = "A user credential cannot be altered twice in the same request"

_Refusal = tuple[ErrorCode, str]
_Change = ScramCredentialDeletion | ScramCredentialUpsertion


@in_steps
def describe_user_scram_credentials(
    state: BrokerState, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Generator[int, None, DescribeUserScramCredentialsResponse]:
    """Mechanisms and iterations, never salts or keys. Without names, all users."""
    times = Counter(user.name for user in request.users or ())
    names = list(times) or sorted(state.catalog.credentials.by_user)
    results = yield from rows(names, lambda name: _described(state, name, times[name]))
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message=None, results=results)


def _described(state: BrokerState, name: str, times: int) -> DescribeUserScramCredentialsResult:
    error, message = ErrorCode.NONE, None
    found = state.catalog.credentials.by_user.get(name, {})
    if times > 1:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        found = {}
    elif not found:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=error,
        error_message=message,
        credential_infos=tuple(
            CredentialInfo(mechanism=code, iterations=found[code].iterations) for code in sorted(found)
        ),
    )


@in_steps
def alter_user_scram_credentials(
    state: BrokerState, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> Generator[int, None, AlterUserScramCredentialsResponse]:
    """Each user's change is one record of the metadata log."""
    changes: list[_Change] = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    last = {change.name: change for change in changes}
    results = []
    for at, name in enumerate(last, 1):
        results.append(_changed(state, last[name], times[name], context))
        if at % CHANGES == 0:
            yield CHANGES * ROW_BYTES
    return AlterUserScramCredentialsResponse(results=tuple(results))


def _changed(
    state: BrokerState, change: _Change, times: int, context: RequestContext
) -> AlterUserScramCredentialsResult:
    refusal = (ErrorCode.DUPLICATE_RESOURCE, TWICE) if times > 1 else _refusal(state, change)
    if refusal is None:
        former = state.catalog.credentials.find(change.name, change.mechanism)
        new = None
        if isinstance(change, ScramCredentialUpsertion):
            mechanism = NAMES[change.mechanism]
            new = credential(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
        state.topics.decide(scram_record(change.name, change.mechanism, new))
        what = "user credential deleted" if new is None else "user credential set"
        changes = difference(_told(former), _told(new))
        tell_change(state, context, what, user=change.name, mechanism=NAMES[change.mechanism], changes=changes)
    error, message = refusal or (ErrorCode.NONE, None)
    return AlterUserScramCredentialsResult(user=change.name, error_code=error, error_message=message)


def _told(found: Credential | None) -> dict[str, int]:
    """What the log may say of a credential."""
    return {} if found is None else {"iterations": found.iterations}


def _refusal(state: BrokerState, change: _Change) -> _Refusal | None:
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in NAMES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    known = state.catalog.credentials
    if isinstance(change, ScramCredentialDeletion):
        if known.find(change.name, change.mechanism) is None:
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        return None
    if change.iterations < MIN_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if not 0 < len(change.salt) <= MOST_SALT_BYTES:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt has between 1 and {MOST_SALT_BYTES} bytes"
    if len(change.salted_password) != key_bytes(NAMES[change.mechanism]):
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password has not the length of the mechanism's hash"
    if len(change.name) > LONGEST_NAME:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The name of a user has at most {LONGEST_NAME} characters"
    if change.name not in known.by_user and len(known.by_user) >= MOST_USERS:
        return ErrorCode.POLICY_VIOLATION, f"There are {MOST_USERS} users already"
    return None
