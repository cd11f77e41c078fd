"""The answer of any API that says one error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_apis import SPOKEN, requests

from kohort.broker.apis import APIS
from kohort.broker.error_answers import error_answer
from kohort.wire.codec import decode, encode_response
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


def test_rows_are_those_of_the_request() -> None:
    produce = next(request for request in requests("t") if type(request) is APIS[0].request)
    [topic] = error_answer(APIS[0], produce, 9, ErrorCode.ILLEGAL_SASL_STATE).responses
    [partition] = topic.partition_responses
    assert (topic.name, partition.index, partition.error_code) == ("t", 0, 34)
