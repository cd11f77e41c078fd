"""The asyncio connection and the search for a coordinator, against a broker that behaves in every way but well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from recording_coordinator import Recording
from scripted_broker import CLOSE, SILENCE, ScriptedBroker

from kohort.client import ServerError
from kohort.client.errors import BadAnswer, ConnectionFailed, KafkaError, TimedOut, Unreachable, UnsupportedVersion
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.discovery import Discovery
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.fetch import FetchRequest, FetchResponse
from kohort.wire.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.metadata import MetadataRequest

T = TypeVar("T")

GROUPS = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="orders", protocol_type="consumer"),))


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({ListGroupsRequest: GROUPS}) as running:
        yield running


def connected(broker: ScriptedBroker, story: Callable[[AsyncConnection], Awaitable[T]], **options: Any) -> T:
    async def run() -> T:
        connection = await AsyncConnection.open(broker.host, broker.port, **options)
        try:
            return await asyncio.wait_for(story(connection), 10)
        finally:
            connection.close()

    return asyncio.run(run())


async def listed(connection: AsyncConnection) -> list[str]:
    answer = await connection.ask(ListGroupsRequest(), ListGroupsResponse)
    return [group.group_id for group in answer.groups]


def test_it_says_who_it_is_and_speaks_the_highest_common_version(broker: ScriptedBroker) -> None:
    broker.versions[ListGroupsRequest] = (1, 3)
    assert connected(broker, listed) == ["orders"]
    assert broker.request_versions == [4, 3]
    assert broker.seen(ApiVersionsRequest)[0].client_software_name == "kohort"


def test_several_questions_at_once(broker: ScriptedBroker) -> None:
    async def story(connection: AsyncConnection) -> None:
        answers = [connection.ask(ListGroupsRequest(), ListGroupsResponse) for _ in range(5)]
        assert connection.unanswered == ("ListGroups",) * 5
        answers[2].cancel()  # gives up its answer, and no other
        for n in (0, 1, 3, 4):
            assert (await answers[n]).groups == GROUPS.groups
        assert connection.unanswered == ()

    connected(broker, story)


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (CLOSE, ConnectionFailed, "while ListGroups was in flight"),
        (b"\0\0\0\x08\0\0\0\x63\0\0\0\0", BadAnswer, "correlation id 99"),
        (b"\0\0\0\x05\0\0\0\x02\0", BadAnswer, "malformed ListGroups"),
        (b"\xff\xff\xff\xff", BadAnswer, "cannot be"),
        (b"\x7f\xff\xff\xff", BadAnswer, "cannot be"),
    ],
)
def test_bad_answers_close_the_connection(
    broker: ScriptedBroker, answer: Any, error: type[KafkaError], match: str
) -> None:
    async def story(connection: AsyncConnection) -> None:
        broker.script[ListGroupsRequest] = answer
        first, second = (connection.ask(ListGroupsRequest(), ListGroupsResponse) for _ in range(2))
        with pytest.raises(error, match=match):
            await first
        assert connection.closed
        for later in (second, connection.ask(ListGroupsRequest(), ListGroupsResponse)):
            with pytest.raises(ConnectionFailed):
                await later

    connected(broker, story)


def test_an_api_that_is_not_served(broker: ScriptedBroker) -> None:
    async def story(connection: AsyncConnection) -> None:
        with pytest.raises(UnsupportedVersion, match="Fetch"):
            connection.ask(FetchRequest(topics=()), FetchResponse)

    connected(broker, story)


def test_a_broker_that_says_nothing() -> None:
    with ScriptedBroker({ApiVersionsRequest: SILENCE}) as broker, pytest.raises(ConnectionFailed, match="200 ms"):
        connected(broker, listed, connect_timeout_ms=200)


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectionFailed, match="connection refused"):
        await AsyncConnection.open("127.0.0.1", 1)
    with pytest.raises(ConnectionFailed):
        await AsyncConnection.open("no.such.host.invalid", 9092)


# -- the search for a coordinator


def found(broker: ScriptedBroker, error: int = 0) -> Any:
    def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        if version < 4:
            assert request.key == "orders"
            return FindCoordinatorResponse(error_code=error, node_id=1, host=broker.host, port=broker.port)
        [key] = request.coordinator_keys
        row = Coordinator(key=key, node_id=1, host=broker.host, port=broker.port, error_code=error)
        return FindCoordinatorResponse(coordinators=(row,))

    return answer


@pytest.fixture
def finder() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({}) as broker:
        broker.script |= {MetadataRequest: broker.metadata(), FindCoordinatorRequest: found(broker)}
        yield broker


def discovery(servers: str, request_timeout_ms: int = 5_000) -> Discovery:
    return Discovery(servers, client_id="c", connect_timeout_ms=1_000, request_timeout_ms=request_timeout_ms)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
def test_the_coordinator_is_found_in_every_version(finder: ScriptedBroker, version: int) -> None:
    finder.versions[FindCoordinatorRequest] = (version, version)
    searching = discovery(f"127.0.0.1:1,{finder.address}")
    assert not searching.reached
    assert asyncio.run(searching.coordinator("orders")) == (finder.host, finder.port)
    assert searching.reached


def test_brokers_that_were_heard_of_are_asked_too(finder: ScriptedBroker) -> None:
    with ScriptedBroker({MetadataRequest: finder.metadata(), FindCoordinatorRequest: found(finder)}) as given:
        searching = discovery(given.address)
        asyncio.run(searching.coordinator("orders"))
    asyncio.run(searching.coordinator("orders"))  # the one that was given is gone
    assert len(finder.seen(FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(("error", "retriable"), [(15, True), (14, True), (30, False), (24, False)])
def test_errors_of_the_search(finder: ScriptedBroker, error: int, retriable: bool) -> None:
    finder.script[FindCoordinatorRequest] = found(finder, error)
    with pytest.raises(ServerError, match="orders") as caught:
        asyncio.run(discovery(finder.address).coordinator("orders"))
    assert (caught.value.code, caught.value.retriable) == (error, retriable)


def test_a_search_without_an_answer(finder: ScriptedBroker) -> None:
    finder.script |= {FindCoordinatorRequest: SILENCE, MetadataRequest: SILENCE}
    with pytest.raises(TimedOut, match="FindCoordinator"):
        asyncio.run(discovery(finder.address, request_timeout_ms=200).coordinator("orders"))
    finder.script[FindCoordinatorRequest] = CLOSE
    with pytest.raises(ConnectionFailed):
        asyncio.run(discovery(finder.address).coordinator("orders"))


def test_nobody_to_ask() -> None:
    with pytest.raises(Unreachable) as caught:
        asyncio.run(discovery("127.0.0.1:1").coordinator("orders"))
    assert caught.value.retriable


async def test_a_coordinator_tells_what_the_search_was_answered(finder: ScriptedBroker) -> None:
    finder.script[FindCoordinatorRequest] = found(finder, 30)

    async with Recording(finder.address, "orders") as member:
        with pytest.raises(ServerError) as caught:
            await member.ensure_active_group()
        assert caught.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        finder.script[FindCoordinatorRequest] = found(finder)
        with pytest.raises(UnsupportedVersion, match="JoinGroup"):
            await member.ensure_active_group()
