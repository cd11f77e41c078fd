"""Errors keep their kind, code and message over a copy and between processes (Spark's workers pickle them)."""

from __future__ import annotations

import pickle

import pytest

from kohort.client.errors import (
    ConnectionFailed,
    KafkaError,
    ServerError,
    TimedOut,
    Unreachable,
    UnsupportedVersion,
    server_error,
)
from kohort.wire.errors import ErrorCode

ERRORS = [
    ConnectionFailed("h:1", "connection refused"),
    Unreachable("cannot reach the cluster", "h:1: connection refused"),
    TimedOut("h:1: Fetch was not answered in time"),
    UnsupportedVersion("no common version"),
    ServerError(ErrorCode.NOT_COORDINATOR, "group g: moved"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_because_adds_to_its_message(error: KafkaError) -> None:
    again, longer = pickle.loads(pickle.dumps(error)), error.because("gave up after 3 attempts")
    assert type(again) is type(longer) is type(error)
    assert (again.code, again.message, again.retriable) == (error.code, error.message, error.retriable)
    assert (longer.code, longer.retriable) == (error.code, error.retriable)
    assert str(longer) == f"{error} (gave up after 3 attempts)"


def test_retriable_follows_the_code() -> None:
    assert server_error(ErrorCode.NOT_COORDINATOR, "group g").retriable
    assert not server_error(ErrorCode.TOPIC_ALREADY_EXISTS, "topic t").retriable


def test_a_code_of_a_newer_kafka_keeps_its_number() -> None:
    error = server_error(9_999, "topic t")
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "error 9999" in str(error)
