"""The search for a group's coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from recording_coordinator import Recording
from scripted_broker import CLOSE, SILENCE, ScriptedBroker

from kohort.client import ServerError
from kohort.client.errors import ConnectionFailed, TimedOut, Unreachable, UnsupportedVersion
from kohort.client.wire.discovery import Discovery
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.metadata import MetadataRequest


@pytest.fixture
def finder() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({}) as broker:
        yield broker


def discovery(servers: str, request_timeout_ms: int = 5_000) -> Discovery:
    return Discovery(servers, client_id="c", connect_timeout_ms=1_000, request_timeout_ms=request_timeout_ms)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
async def test_the_coordinator_is_found_in_every_version(finder: ScriptedBroker, version: int) -> None:
    finder.versions[FindCoordinatorRequest] = (version, version)
    searching = discovery(f"127.0.0.1:1,{finder.address}")
    assert not searching.reached
    assert await searching.coordinator("orders") == (finder.host, finder.port)
    assert searching.reached
    [asked] = finder.seen(FindCoordinatorRequest)
    assert (asked.coordinator_keys if version >= 4 else (asked.key,)) == ("orders",)


async def test_brokers_from_metadata_are_asked_too(finder: ScriptedBroker) -> None:
    with ScriptedBroker({MetadataRequest: finder.metadata(), FindCoordinatorRequest: finder.found_here()}) as given:
        searching = discovery(given.address)
        await searching.coordinator("orders")
    await searching.coordinator("orders")  # the one that was given is gone
    assert len(finder.seen(FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(("error", "retriable"), [(15, True), (14, True), (30, False), (24, False)])
async def test_errors_of_the_search(finder: ScriptedBroker, error: int, retriable: bool) -> None:
    finder.script[FindCoordinatorRequest] = finder.found_here(error)
    with pytest.raises(ServerError, match="orders") as caught:
        await discovery(finder.address).coordinator("orders")
    assert (caught.value.code, caught.value.retriable) == (error, retriable)


async def test_a_search_without_an_answer(finder: ScriptedBroker) -> None:
    finder.script |= {FindCoordinatorRequest: SILENCE, MetadataRequest: SILENCE}
    with pytest.raises(TimedOut, match="FindCoordinator"):
        await discovery(finder.address, request_timeout_ms=200).coordinator("orders")
    finder.script[FindCoordinatorRequest] = CLOSE
    with pytest.raises(ConnectionFailed):
        await discovery(finder.address).coordinator("orders")


async def test_no_reachable_broker() -> None:
    with pytest.raises(Unreachable) as caught:
        await discovery("127.0.0.1:1").coordinator("orders")
    assert caught.value.retriable


async def test_a_coordinator_tells_what_the_search_was_answered(finder: ScriptedBroker) -> None:
    finder.script[FindCoordinatorRequest] = finder.found_here(30)
    async with Recording(finder.address, "orders") as member:
        with pytest.raises(ServerError) as caught:
            await member.ensure_active_group()
        assert caught.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        finder.script[FindCoordinatorRequest] = finder.found_here()
        with pytest.raises(UnsupportedVersion, match="JoinGroup"):
            await member.ensure_active_group()
