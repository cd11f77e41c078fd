"""Guards of requests that are lists of topics: those that are denied get rows of their own in the answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import msgspec

from kohort.broker.authorization import Operation
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS
from kohort.broker.security.guards.ask import TOPIC, Ask, Narrowed, Refused, Verdict
from kohort.wire.errors import ErrorCode

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NEVER = 32_767


class TopicRows(msgspec.Struct, frozen=True):
    """The form of such an API."""

    asked: str
    """The field of the request with the topics."""
    answered: str
    """The field of the answer."""
    refused: Callable[[Any, ErrorCode], Any]
    """The row of a topic that is refused."""
    answer: Callable[..., Any]
    """Makes an answer with these rows."""
    name: str = "name"
    """The field of a topic with its name, in the request and the answer."""
    ids_from: int = NEVER
    """The first version that names topics by their ids."""

    def key(self, row: Any, version: int) -> Any:
        return row.topic_id if version >= self.ids_from else getattr(row, self.name)


def by_topic(
    rows: TopicRows,
    operation: Operation,
    ask: Ask,
    request: Any,
    *,
    allowed: Callable[[str], bool] | None = None,
) -> Generator[int, None, Verdict]:
    """`allowed` is asked instead of the operation on the topic."""
    topics = getattr(request, rows.asked)
    by_id = ask.version >= rows.ids_from
    denied: dict[Any, None] = {}
    for at, wanted in enumerate(topics, 1):
        name = ask.topic_name(wanted.topic_id) if by_id else getattr(wanted, rows.name)
        if name is not None and not (ask.may(operation, TOPIC, name) if allowed is None else allowed(name)):
            denied[rows.key(wanted, ask.version)] = None
        if at % ROWS == 0:
            yield 0
    if not denied:
        return None
    kept: list[Any] = []
    refused: list[Any] = []
    for at, wanted in enumerate(topics, 1):
        if rows.key(wanted, ask.version) in denied:
            refused.append(rows.refused(wanted, DENIED))
        else:
            kept.append(wanted)
        if at % ROWS == 0:
            yield ROWS * ROW_BYTES
    if not kept:
        return Refused(rows.answer(**{rows.answered: tuple(refused)}))
    finish = partial(_finished, rows, ask.version, denied, tuple(refused))
    return Narrowed(changed(request, **{rows.asked: tuple(kept)}), finish)


def _finished(rows: TopicRows, version: int, denied: dict[Any, None], refused: tuple[Any, ...], answer: Any) -> Any:
    made = getattr(answer, rows.answered)
    kept = tuple(row for row in made if rows.key(row, version) not in denied)
    return changed(answer, **{rows.answered: kept + refused})
