"""The answer of any API that says one error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from test_apis import SPOKEN, requests

from kohort.broker.apis import APIS
from kohort.broker.decoding import Decoded, decoded, most_bytes
from kohort.broker.error_answers import error_answer
from kohort.config import Config
from kohort.wire.codec import decode, encode_request, encode_response
from kohort.wire.errors import ErrorCode
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of


def codes(message: Any) -> Iterator[int]:
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        for row in (value or ()) if isinstance(field.type, list) and not isinstance(field.type[0], str) else ():
            yield from codes(row)


@pytest.mark.conformance("AU3")
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_api_says_the_error(api: Any) -> None:
    error = ErrorCode.ILLEGAL_SASL_STATE
    request = next(request for request in requests("t") if type(request) is api.request)
    for version in range(api.first, api.last + 1):
        answer = error_answer(api, request, version, error)
        data = encode_response(answer, version, 7, api_key=api.key)[4:]
        flexible = version >= api.flexible_from
        correlation_id, start = read_response_header(data, flexible=flexible, api_key=api.key)
        assert correlation_id == 7
        found = set(codes(decode(type(answer), version, data, start)))
        assert error in found, answer
        assert found <= {error, 0}, answer
        # A request without rows has an answer, too.
        empty = error_answer(api, api.request(**SPOKEN.get(api.request, {})), version, error)
        assert encode_response(empty, version, 7, api_key=api.key)


@pytest.mark.conformance("AU3")
def test_rows_are_those_of_the_request() -> None:
    produce = next(request for request in requests("t") if type(request) is APIS[0].request)
    [topic] = error_answer(APIS[0], produce, 9, ErrorCode.ILLEGAL_SASL_STATE).responses
    [partition] = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code) == ("t", 0, 34)


def test_no_request_makes_it_fail() -> None:
    """Clients send them before they have authenticated."""
    chance = random.Random(18)
    most = most_bytes(Config())
    answered = 0
    for request in requests("t"):
        api = next(api for api in APIS.values() if type(request) is api.request)
        for _ in range(60):
            version = chance.randint(api.first, api.last)
            data = bytearray(encode_request(request, version, 7, "c")[4:])
            for _ in range(chance.randint(0, 3)):
                at = chance.randrange(8, len(data) + 1)
                data[at : at + chance.randint(0, 2)] = chance.choice((b"", b"\0", b"\0\0", b"\xff\xff", b"\1", b"\2a"))
            found = decoded(bytes(data), most)
            if isinstance(found, Decoded):
                with suppress(ValueError):
                    answer = error_answer(api, found.request, version, ErrorCode.ILLEGAL_SASL_STATE)
                    answered += bool(encode_response(answer, version, 7, api_key=api.key))
    assert answered > 500
