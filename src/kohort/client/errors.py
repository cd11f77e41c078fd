"""What can go wrong between a client and a cluster.

Every failure of a cluster is a `KafkaError`. Its `message` is one line that says what failed and where; `retriable`
says whether the same call may succeed later. `Cluster` retries retriable failures until its deadline, so that a caller
who sees one knows that it lasted. A mistake of the calling program is a `Misuse`.
"""

from __future__ import annotations

import copy
from typing import Any, Self

from kohort.wire.errors import ErrorCode

_CODES = {int(code): code for code in ErrorCode}


class KafkaError(Exception):
    """A call to the cluster failed. `code` is the server's error code, None where no answer carried one."""

    retriable = False

    def __init__(self, code: ErrorCode | None, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.__dict__)  # subclasses take other arguments than `args`

    def because(self, text: str) -> Self:
        """The same error, its message followed by `text`."""
        longer = copy.copy(self)
        longer.message = f"{self.message} ({text})"
        longer.args = (self.code, longer.message)
        return longer


class ConnectionFailed(KafkaError):
    """No connection to `address` could be opened, or it broke; the outcome of a request in flight is unknown."""

    retriable = True

    def __init__(self, address: str, why: str) -> None:
        super().__init__(None, f"{address}: {why}")
        self.address = address
        self.why = why


class BadAnswer(ConnectionFailed):
    """What answers at `address` does not follow the protocol: not a Kafka broker, or one with a defect."""

    retriable = False


class Unreachable(ConnectionFailed):
    """None of the bootstrap servers could be reached."""


class AuthenticationFailed(KafkaError):
    """The client and the broker at `address` do not trust each other: a certificate or credentials are refused.

    `code` is the server's, None where TLS failed or where it is the client that refuses.
    """

    def __init__(self, address: str, why: str, code: ErrorCode | None = None) -> None:
        super().__init__(code, f"{address}: {why}")
        self.address = address
        self.why = why


class TimedOut(KafkaError):
    """A broker accepted a request and did not answer in time."""

    retriable = True

    def __init__(self, message: str) -> None:
        super().__init__(None, message)


class UnsupportedVersion(KafkaError):
    """The broker and this client have no version of an API in common."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ServerError(KafkaError):
    """The cluster answered with an error code."""

    code: ErrorCode

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        return self.code.retriable


class NotOwned(KafkaError):
    """A partition does not belong to this member of the group, or not any more: somebody else may have it."""


class Misuse(RuntimeError):
    """The library was called in a way that can never work: the program has to change."""


class Closed(Misuse):
    """What was called is closed."""


def _revive(cls: type[KafkaError], args: tuple[Any, ...], attributes: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def error_code(number: int) -> ErrorCode:
    """The error code of an answer; a code of a newer Kafka than this client counts as UNKNOWN_SERVER_ERROR."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def server_error(number: int, what: str, text: str | None = None) -> ServerError:
    """The exception for an answer's error code. `what` names the call and its object, `text` is the server's words."""
    code = error_code(number)
    name = code.name if code == number else f"error {number}"
    return ServerError(code, f"{what}: {name}: {text or code.message}")


def check(number: int, what: str, text: str | None = None) -> None:
    """Raise ServerError unless the error code is 0."""
    if number:
        raise server_error(number, what, text)
