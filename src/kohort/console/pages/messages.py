"""The newest records of a partition, or one of them whole. Nothing is consumed: the page joins no group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kohort.cli.groups.wording import instant
from kohort.client.errors import ServerError
from kohort.client.records.fetched_records import FetchedRecord
from kohort.client.records.partition_leaders import Isolation
from kohort.console.payload import Shown, cut, shown
from kohort.console.reading.newest import Newest, newest, one
from kohort.console.shared import console_of
from kohort.console.words import Chip
from kohort.wire.errors import ErrorCode

ROOM, ROOM_OF_ONE = 50_000, 100_000
"""Bytes of HTML for all keys, values and headers of a page; of a single record."""
KEY, HEADERS = 0.15, 0.2
"""Parts of a record's room."""
MOST_HEADERS, MOST_HEADERS_OF_ALL = 20, 200
MARKS = {"aborted": Chip("aborted", "gone"), "open": Chip("not committed yet", "busy")}
LAST_INSTANT_MS = 253_370_000_000_000
DENIED = "The console's user may not read this topic: it needs READ on it."


@dataclass(frozen=True, slots=True)
class Row:
    offset: int
    at_ms: int
    when: str
    key: Shown
    value: Shown
    headers: tuple[tuple[Markup, Shown], ...]
    more_headers: int
    mark: Chip | None


async def messages(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    name = query.get("topic", "")
    topic = (await console.look()).topics.get(name)
    if topic is None:
        raise HTTPException(404, f"topic {name} does not exist, or is newer than what was read last")
    partition = wanted_number(query, "partition") or 0
    if partition >= topic.partitions:
        raise HTTPException(404, f"topic {name} has no partition {partition}: it has {topic.partitions}, from 0 on")
    isolation: Isolation = "read_committed" if query.get("isolation") == "read_committed" else "read_uncommitted"
    offset = wanted_number(query, "offset")
    if offset is None:
        ask = partial(newest, topic=name, partition=partition, isolation=isolation)
    else:
        ask = partial(one, topic=name, partition=partition, offset=offset)
    refusal, found = "", Newest((), 0, 0, 0)
    try:
        found = await console.answers.get(("records", name, partition, isolation, offset), ask)
    except ServerError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        refusal = DENIED
    return console.page(
        request,
        "messages.html",
        title=f"Messages of {name}",
        topic=topic,
        partition=partition,
        isolation=isolation,
        offset=offset,
        found=found,
        rows=rows_of(found),
        refusal=refusal,
    )


def wanted_number(query: QueryParams, name: str) -> int | None:
    """Raises HTTPException."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise HTTPException(404, f"{text!r} is no {name}")
    return int(text)


def rows_of(found: Newest) -> list[Row]:
    count = max(len(found.records), 1)
    room = ROOM // count if count > 1 else ROOM_OF_ONE
    most_headers = min(max(MOST_HEADERS_OF_ALL // count, 1), MOST_HEADERS)
    return [row_of(record, found, room, most_headers) for record in found.records]


def row_of(record: FetchedRecord, found: Newest, room: int, most_headers: int) -> Row:
    kept = record.headers[:most_headers]
    of_headers = int(room * HEADERS) // max(len(kept), 1)
    headers = tuple((cut(name, of_headers // 3)[0], shown(value, of_headers * 2 // 3)) for name, value in kept)
    mark = found.marks.get(record.offset)
    known = 0 <= record.timestamp < LAST_INSTANT_MS
    return Row(
        record.offset,
        record.timestamp if known else 0,
        f"{instant(record.timestamp)}.{record.timestamp % 1000:03}" if known else "",
        shown(record.key, int(room * KEY)),
        shown(record.value, int(room * (1 - KEY - HEADERS))),
        headers,
        len(record.headers) - len(kept),
        MARKS[mark] if mark else None,
    )


ROUTES = {"/messages": messages}
