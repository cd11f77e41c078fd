"""Responses to bytes: at once, or in steps if a response has many rows."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from kohort.broker.apis import FETCH
from kohort.broker.request import InSteps, RequestContext
from kohort.broker.turn import Send
from kohort.wire.codec import response_pieces
from kohort.wire.steps import response_steps, rows_of


class Encoded(msgspec.Struct, frozen=True, gc=False):
    send: Send
    size: int


def encoded(context: RequestContext, response: Any, *, at_once: bool) -> Encoded | InSteps:
    """The response's frame, or (unless `at_once`) the steps that return it. Records of a Fetch are not encoded."""
    version, api_key = context.api_version, context.api_key
    path = () if at_once or api_key == FETCH.key else rows_of(response, version)
    if not path:
        return _encoded(context, response_pieces(response, version, context.correlation_id, api_key=api_key))
    return InSteps(_steps(context, response_steps(response, version, context.correlation_id, path, api_key=api_key)))


def _steps(context: RequestContext, steps: Generator[None, None, list[bytes]]) -> Generator[None, None, Encoded]:
    return _encoded(context, (yield from steps))


def _encoded(context: RequestContext, pieces: list[bytes]) -> Encoded:
    return Encoded(Send(context.connection, pieces[0], tuple(pieces[1:])), sum(map(len, pieces)))
