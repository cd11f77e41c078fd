"""One connection, blocking or on an event loop, to a broker that misbehaves in many ways."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opened_connections import Connect
from scripted_broker import CLOSE, SILENCE, ScriptedBroker

from kohort.client.errors import BadAnswer, ConnectionFailed, KafkaError, TimedOut, UnsupportedVersion
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.codec import encode_response
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.fetch import FetchRequest, FetchResponse
from kohort.wire.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUPS = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="orders", protocol_type="consumer"),))
IMPOSSIBLE = "announced an answer (of|that cannot be)"


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


BAD_ANSWERS = pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (CLOSE, ConnectionFailed, "while ListGroups was in flight"),
        (frame((99).to_bytes(4, "big") + bytes(4)), BadAnswer, "correlation id 99"),
        (frame((2).to_bytes(4, "big") + b"\0"), BadAnswer, "malformed ListGroups answer"),
        (b"\xff\xff\xff\xff", BadAnswer, IMPOSSIBLE),
        (b"\x7f\xff\xff\xff", BadAnswer, IMPOSSIBLE),
    ],
)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({ListGroupsRequest: GROUPS}) as running:
        yield running


def test_it_says_who_it_is_and_speaks_the_highest_common_version(connect: Connect, broker: ScriptedBroker) -> None:
    broker.versions[ListGroupsRequest] = (1, 3)
    assert connect(broker).request().groups == GROUPS.groups
    assert broker.request_versions == [4, 3]
    [asked] = broker.seen(ApiVersionsRequest)
    assert asked.client_software_name == "kohort"
    assert asked.client_software_version


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_refused_version_of_api_versions_is_lowered(connect: Connect, newest: int) -> None:
    def versions(request: ApiVersionsRequest, version: int) -> Any:
        rows = tuple(ApiVersion(api_key=key, min_version=0, max_version=newest) for key in (18, 16))
        if version > newest:
            refusal = ApiVersionsResponse(error_code=35, api_keys=rows)
            return encode_response(refusal, 0, 1, api_key=18)
        return ApiVersionsResponse(error_code=0, api_keys=rows)

    with ScriptedBroker({ApiVersionsRequest: versions, ListGroupsRequest: GROUPS}) as broker:
        connect(broker).request()
        assert broker.request_versions == [4, newest, newest]


def test_a_refusal_without_a_readable_range_is_followed_by_version_0(connect: Connect) -> None:
    def versions(request: ApiVersionsRequest, version: int) -> Any:
        if version > 0:
            return frame((1).to_bytes(4, "big") + b"\x00\x23")
        return ApiVersionsResponse(error_code=0, api_keys=())

    with ScriptedBroker({ApiVersionsRequest: versions}) as broker:
        connect(broker)
        assert broker.request_versions == [4, 0]


def test_an_api_without_a_common_version_is_named(connect: Connect, broker: ScriptedBroker) -> None:
    broker.versions[ListGroupsRequest] = (90, 95)
    opened = connect(broker)
    with pytest.raises(UnsupportedVersion, match="serves ListGroups in versions 90 to 95, this client speaks 0 to 5"):
        opened.request()
    with pytest.raises(UnsupportedVersion, match="does not serve Fetch"):
        opened.request(FetchRequest(topics=()), FetchResponse)
    assert not opened.connection.closed


def test_versions_that_name_topics_by_id_are_not_used() -> None:
    with ScriptedBroker({FetchRequest: SILENCE}) as broker:
        connection = Connection(broker.host, broker.port)
        assert connection.version_of(FetchRequest) == 12
        assert connection.serves(FetchRequest)
        assert not connection.serves(ListGroupsRequest)
        connection.close()


def test_nobody_listens(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: connection refused"):
        connect(SimpleNamespace(host="127.0.0.1", port=port))
    with pytest.raises(ConnectionFailed, match=r"no-such-host\.invalid:9092"):
        connect(SimpleNamespace(host="no-such-host.invalid", port=9092))


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (frame(b"HTTP/1.1 400 Bad Request"), "is this Kafka"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answered in HTTP: this is the port of a web server"),
        (b"<!DOCTYPE HTML>", "answered in HTTP"),
        (frame(b"abc"), "announced an answer of 3 bytes|is this Kafka"),
        (b"\xff\xff\xff\xff", IMPOSSIBLE),
    ],
)
def test_an_answer_that_is_not_kafkas(connect: Connect, answer: bytes, match: str) -> None:
    """An impossible length is refused before it is allocated."""
    with ScriptedBroker({ApiVersionsRequest: answer}) as broker, pytest.raises(BadAnswer, match=match):
        connect(broker)


def test_an_answer_above_the_limit_is_refused(connect: Connect, broker: ScriptedBroker) -> None:
    opened = connect(broker, max_response_bytes=300)
    broker.script[ListGroupsRequest] = ListGroupsResponse(
        error_code=0, groups=tuple(ListedGroup(group_id=f"group-{n}", protocol_type="consumer") for n in range(100))
    )
    with pytest.raises(BadAnswer, match="the limit is 300"):
        opened.request()
    assert opened.connection.closed


@BAD_ANSWERS
def test_bad_answers_close_the_connection(
    connect: Connect, broker: ScriptedBroker, answer: Any, error: type[KafkaError], match: str
) -> None:
    opened = connect(broker)
    broker.script[ListGroupsRequest] = answer
    with pytest.raises(error, match=match):
        opened.request()
    assert opened.connection.closed
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        opened.request()


def test_bytes_after_an_answer_are_ignored(connect: Connect, broker: ScriptedBroker) -> None:
    broker.script[ListGroupsRequest] = lambda _, version: frame(
        encode_response(GROUPS, version, 2, api_key=16)[4:] + b"\x00"
    )
    assert len(connect(broker).request().groups) == 1


def test_the_time_in_which_a_broker_does_not_read_is_no_part_of_the_timeout(broker: ScriptedBroker) -> None:
    def late(request: ListGroupsRequest, version: int) -> ListGroupsResponse:
        time.sleep(0.05)
        return GROUPS

    broker.script[ListGroupsRequest] = ListGroupsResponse(throttle_time_ms=10_000, error_code=0, groups=())
    connection = Connection(broker.host, broker.port)
    connection.request(ListGroupsRequest(), ListGroupsResponse)
    broker.script[ListGroupsRequest] = late
    assert connection.request(ListGroupsRequest(), ListGroupsResponse, timeout_ms=1).groups == GROUPS.groups
    with pytest.raises(TimedOut):
        Connection(broker.host, broker.port).request(ListGroupsRequest(), ListGroupsResponse, timeout_ms=1)
    connection.close()


@pytest.mark.parametrize("answer", [SILENCE, (1000).to_bytes(4, "big") + b"partial"])
def test_a_silent_broker_times_out(broker: ScriptedBroker, answer: Any) -> None:
    broker.script[ListGroupsRequest] = answer
    connection = Connection(broker.host, broker.port)
    with pytest.raises(TimedOut, match="ListGroups was not answered"):
        connection.request(ListGroupsRequest(), ListGroupsResponse, timeout_ms=50)
    assert connection.closed


def test_a_broker_that_says_nothing(connect: Connect) -> None:
    with (
        ScriptedBroker({ApiVersionsRequest: SILENCE}) as broker,
        pytest.raises((ConnectionFailed, TimedOut), match=r"within 200 ms|ApiVersions was not answered in time"),
    ):
        connect(broker, connect_timeout_ms=200)


# -- several questions at once, on an event loop


async def test_several_questions_at_once(broker: ScriptedBroker) -> None:
    connection = await AsyncConnection.open(broker.host, broker.port)
    answers = [connection.ask(ListGroupsRequest(), ListGroupsResponse) for _ in range(5)]
    assert connection.unanswered == ("ListGroups",) * 5
    answers[2].cancel()  # gives up its answer, and no other
    async with asyncio.timeout(10):
        for n in (0, 1, 3, 4):
            assert (await answers[n]).groups == GROUPS.groups
    assert connection.unanswered == ()
    connection.close()


@BAD_ANSWERS
async def test_a_bad_answer_fails_all_questions(
    broker: ScriptedBroker, answer: Any, error: type[KafkaError], match: str
) -> None:
    connection = await AsyncConnection.open(broker.host, broker.port)
    broker.script[ListGroupsRequest] = answer
    first, second = (connection.ask(ListGroupsRequest(), ListGroupsResponse) for _ in range(2))
    with pytest.raises(error, match=match):
        await asyncio.wait_for(first, 10)
    with pytest.raises(ConnectionFailed):
        await asyncio.wait_for(second, 10)
