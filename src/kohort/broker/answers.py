"""Responses to bytes: at once, or in steps if a response has many rows. The size of an answer in steps is bounded."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from kohort.broker.apis import APIS, FETCH, PRODUCE
from kohort.broker.request import CloseConnection, InSteps, RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.turn import Send
from kohort.wire.codec import response_pieces
from kohort.wire.steps import ROWS, response_steps, rows_of


class Encoded(msgspec.Struct, frozen=True, gc=False):
    send: Send
    size: int


def encoded(state: BrokerState, context: RequestContext, response: Any, *, at_once: bool) -> Encoded | InSteps:
    """The response's frame, or (unless `at_once`) the steps that return it. Its errors are counted, if there is
    /metrics.

    The size of an answer in steps is limited; what passes it closes the connection. The answers of most APIs are far
    from the limit, or their handlers refuse what does not fit (request.Room)."""
    if state.errors is not None:
        state.errors.add(context.api_key, response)
    version, api_key = context.api_version, context.api_key
    path = () if at_once or _is_short(api_key, response) else rows_of(response, version)
    if not path:
        return _encoded(context, response_pieces(response, version, context.correlation_id, api_key=api_key))
    steps = response_steps(response, version, context.correlation_id, path, api_key=api_key)
    return InSteps(_bounded(context, steps, state.most_answer_bytes))


def _is_short(api_key: int, response: Any) -> bool:
    """True for a Fetch whose records are sent as they were read: in steps, they are copied. And for a batch that was
    appended, the most frequent answer."""
    if api_key == PRODUCE.key:
        topics = response.responses
        return len(topics) == 1 == len(rows := topics[0].partition_responses) and not rows[0].record_errors
    return api_key == FETCH.key and sum(len(topic.partitions) for topic in response.responses) <= ROWS


def _bounded(
    context: RequestContext, steps: Generator[int, None, list[bytes]], most_bytes: int
) -> Generator[int, None, Encoded | CloseConnection]:
    size = 0
    while True:
        try:
            grown = next(steps)
        except StopIteration as done:
            return _encoded(context, done.value)
        size += grown
        if size > most_bytes:
            what = f"an answer to {APIS[context.api_key].name} of more than {most_bytes} bytes"
            return CloseConnection(f"{what}; see queued.max.response.bytes")
        yield grown


def _encoded(context: RequestContext, pieces: list[bytes]) -> Encoded:
    return Encoded(Send(context.connection, pieces[0], tuple(pieces[1:])), sum(map(len, pieces)))
