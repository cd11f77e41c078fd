"""The errors of the client library.

Every failure of a cluster is a `KafkaError`. Its `message` is one line that names what failed and where; `retriable`
says whether the same call may succeed later. `Cluster` retries retriable failures until its deadline, so a retriable
failure that it raises has lasted that long. A mistake of the calling program is a `Misuse`.
"""

from __future__ import annotations

import copy
from typing import Any, Self

from kohort.wire.errors import ErrorCode

_CODES = {int(code): code for code in ErrorCode}


class KafkaError(Exception):
    """A call to the cluster failed. `code` is the server's error code, None if there was none."""

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
        """The same error with `text` after its message."""
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
    """The server at `address` does not follow the protocol: it is not a Kafka broker, or has a defect."""

    retriable = False


class Unreachable(ConnectionFailed):
    """None of the bootstrap servers could be reached."""


class AuthenticationFailed(KafkaError):
    """The client or the broker at `address` refused a certificate or credentials.

    `code` is the server's, None if TLS failed or if the client refused.
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
    """This member of the group does not own a partition, or not any more: another member may own it."""


class LockLost(KafkaError):
    """A job's lock has ended, or its outcome could not be stored: the job may be delivered again."""


class Misuse(RuntimeError):
    """The program uses the library in a way that can never work."""


class Closed(Misuse):
    """The called object is closed."""


def _revive(cls: type[KafkaError], args: tuple[Any, ...], attributes: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def error_code(number: int) -> ErrorCode:
    """The error code of an answer; a code of a newer Kafka than this client counts as UNKNOWN_SERVER_ERROR."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def server_error(number: int, what: str, text: str | None = None) -> ServerError:
    """The exception for an answer's error code. `what` names the call and its object, `text` is the server's
    message."""
    code = error_code(number)
    name = code.name if code == number else f"error {number}"
    return ServerError(code, f"{what}: {name}: {text or code.message}")


def check(number: int, what: str, text: str | None = None) -> None:
    """Raise ServerError unless the error code is 0."""
    if number:
        raise server_error(number, what, text)
