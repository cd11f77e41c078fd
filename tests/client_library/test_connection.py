"""One connection to a broker that misbehaves in many ways."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_broker import CLOSE, SILENCE, ScriptedBroker

from kohort.client.errors import BadAnswer, ConnectionFailed, TimedOut, UnsupportedVersion
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.codec import encode_response
from kohort.wire.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUPS = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="orders", protocol_type="consumer"),))


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({ListGroupsRequest: GROUPS}) as running:
        yield running


def open_to(broker: ScriptedBroker, **options: Any) -> Connection:
    return Connection(broker.host, broker.port, **options)


def test_a_request_travels_in_the_highest_common_version(broker: ScriptedBroker) -> None:
    broker.versions[ListGroupsRequest] = (1, 3)
    connection = open_to(broker)
    answer = connection.request(ListGroupsRequest(), ListGroupsResponse)
    connection.close()
    assert [group.group_id for group in answer.groups] == ["orders"]
    assert broker.request_versions[-1] == 3


def test_the_client_says_who_it_is(broker: ScriptedBroker) -> None:
    open_to(broker).close()
    asked = broker.seen(ApiVersionsRequest)[0]
    assert asked.client_software_name == "kohort"
    assert asked.client_software_version


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_refused_version_of_api_versions_is_lowered(newest: int) -> None:
    def versions(request: ApiVersionsRequest, version: int) -> Any:
        rows = (ApiVersion(api_key=18, min_version=0, max_version=newest),)
        if version > newest:
            refusal = ApiVersionsResponse(error_code=35, api_keys=rows)
            return encode_response(refusal, 0, 1, api_key=18)
        return ApiVersionsResponse(error_code=0, api_keys=rows)

    with ScriptedBroker({ApiVersionsRequest: versions}) as broker:
        connection = open_to(broker)
        assert connection.api_versions[18] == (0, newest)
        assert broker.request_versions == [4, newest]
        connection.close()


def test_a_refusal_without_a_readable_range_is_followed_by_version_0() -> None:
    def versions(request: ApiVersionsRequest, version: int) -> Any:
        if version > 0:
            return frame((1).to_bytes(4, "big") + b"\x00\x23")
        return ApiVersionsResponse(error_code=0, api_keys=())

    with ScriptedBroker({ApiVersionsRequest: versions}) as broker:
        open_to(broker).close()
        assert broker.request_versions == [4, 0]


def test_an_api_without_a_common_version_is_named(broker: ScriptedBroker) -> None:
    broker.versions[ListGroupsRequest] = (90, 95)
    connection = open_to(broker)
    with pytest.raises(UnsupportedVersion, match="serves ListGroups in versions 90 to 95, this client speaks 0 to 5"):
        connection.request(ListGroupsRequest(), ListGroupsResponse)
    with pytest.raises(UnsupportedVersion, match="does not serve Fetch"):
        connection.version_of(FetchRequest)
    assert not connection.serves(FetchRequest)
    assert not connection.closed
    connection.close()


def test_versions_that_name_topics_by_id_are_not_used() -> None:
    with ScriptedBroker({FetchRequest: SILENCE}) as broker:
        connection = open_to(broker)
        assert connection.version_of(FetchRequest) == 12
        connection.close()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: connection refused"):
        Connection("127.0.0.1", port)


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ConnectionFailed, match=r"no-such-host\.invalid:9092"):
        Connection("no-such-host.invalid", 9092)


def test_something_else_than_kafka_answers() -> None:
    with (
        ScriptedBroker({ApiVersionsRequest: lambda *_: frame(b"HTTP/1.1 400 Bad Request")}) as broker,
        pytest.raises(BadAnswer, match="is this Kafka"),
    ):
        open_to(broker)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", (3).to_bytes(4, "big"), b"\xff\xff\xff\xff"])
def test_an_impossible_length_is_refused_before_it_is_allocated(answer: bytes) -> None:
    with (
        ScriptedBroker({ApiVersionsRequest: lambda *_: answer}) as broker,
        pytest.raises(BadAnswer, match="announced an answer of"),
    ):
        open_to(broker)


def test_an_answer_above_the_limit_is_refused(broker: ScriptedBroker) -> None:
    connection = open_to(broker, max_response_bytes=300)
    broker.script[ListGroupsRequest] = ListGroupsResponse(
        error_code=0, groups=tuple(ListedGroup(group_id=f"group-{n}", protocol_type="consumer") for n in range(100))
    )
    with pytest.raises(BadAnswer, match="the limit is 300"):
        connection.request(ListGroupsRequest(), ListGroupsResponse)
    assert connection.closed


def test_a_silent_broker_times_out(broker: ScriptedBroker) -> None:
    broker.script[ListGroupsRequest] = SILENCE
    connection = open_to(broker)
    with pytest.raises(TimedOut, match="ListGroups was not answered"):
        connection.request(ListGroupsRequest(), ListGroupsResponse, timeout_ms=50)
    assert connection.closed


def test_half_an_answer_times_out_too(broker: ScriptedBroker) -> None:
    broker.script[ListGroupsRequest] = lambda *_: (1000).to_bytes(4, "big") + b"partial"
    connection = open_to(broker)
    with pytest.raises(TimedOut):
        connection.request(ListGroupsRequest(), ListGroupsResponse, timeout_ms=50)


def test_a_dropped_connection_says_what_was_in_flight(broker: ScriptedBroker) -> None:
    broker.script[ListGroupsRequest] = CLOSE
    connection = open_to(broker)
    with pytest.raises(ConnectionFailed, match="while ListGroups was in flight"):
        connection.request(ListGroupsRequest(), ListGroupsResponse)
    with pytest.raises(ConnectionFailed, match="the connection is closed"):
        connection.request(ListGroupsRequest(), ListGroupsResponse)


def test_an_answer_to_another_question_is_refused(broker: ScriptedBroker) -> None:
    broker.script[ListGroupsRequest] = lambda _, version: encode_response(GROUPS, version, 999, api_key=16)
    connection = open_to(broker)
    with pytest.raises(BadAnswer, match="correlation id 999"):
        connection.request(ListGroupsRequest(), ListGroupsResponse)
    assert connection.closed


def test_a_malformed_answer_is_refused(broker: ScriptedBroker) -> None:
    broker.script[ListGroupsRequest] = lambda *_: frame((2).to_bytes(4, "big") + b"\x00\x00")
    connection = open_to(broker)
    with pytest.raises(BadAnswer, match="malformed ListGroups answer"):
        connection.request(ListGroupsRequest(), ListGroupsResponse)


def test_bytes_behind_an_answer_are_ignored(broker: ScriptedBroker) -> None:
    def with_a_tail(_: object, version: int) -> bytes:
        return frame(encode_response(GROUPS, version, 2, api_key=16)[4:] + b"\x00")

    broker.script[ListGroupsRequest] = with_a_tail
    connection = open_to(broker)
    assert len(connection.request(ListGroupsRequest(), ListGroupsResponse).groups) == 1
    connection.close()
