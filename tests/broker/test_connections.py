"""Connections: order, versions, malformed bytes (rows W1-W5, W8), and the order of a turn."""

from __future__ import annotations

import random
import struct

import pytest
from wire_driver import (
    Connection,
    Wire,
    batch,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    values_of,
)

from kohort.broker.apis import APIS
from kohort.broker.turn import Disconnect, Frame, Send, Shutdown
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.11.0"}


def raw(client: Connection, data: bytes) -> list[Send | Disconnect]:
    """Send bytes as a frame and return what is released, undecoded."""
    turn = client.wire.broker.step((Frame(client.id, data),), client.wire.now)
    client.wire.storage.commit(turn.operations, client.wire.storage.acquire())
    return list(turn.releases)


@pytest.mark.conformance("W1")
@pytest.mark.parametrize("version", [5, 6, 120, -1])
def test_w1_unsupported_version_of_api_versions_is_answered_in_version_0(client: Connection, version: int) -> None:
    request = struct.pack(">hhih", 18, version, 77, -1) + b"\x00"
    (release,) = raw(client, request)
    assert isinstance(release, Send)
    assert struct.unpack(">ii", release.data[:8]) == (len(release.data) - 4, 77)
    response = decode(ApiVersionsResponse, 0, release.data, 8)
    assert response.error_code == 35
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]
    assert client.ask(ApiVersionsRequest(**SOFTWARE), 3).error_code == 0, "the connection lives on"


@pytest.mark.conformance("W2")
@pytest.mark.parametrize("version", range(5))
def test_w2_the_response_header_of_api_versions_has_no_tags(client: Connection, version: int) -> None:
    frame = client.frame(ApiVersionsRequest(**(SOFTWARE if version >= 3 else {})), version)
    (release,) = raw(client, frame.data)
    assert isinstance(release, Send)
    response = decode(ApiVersionsResponse, version, release.data, 8)
    assert response.error_code == 0
    assert {api.api_key for api in response.api_keys} == set(APIS)


@pytest.mark.conformance("W6")
def test_w6_produce_is_advertised_from_0(client: Connection) -> None:
    response = client.ask(ApiVersionsRequest(), 0)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[11] == (0, 9)


@pytest.mark.conformance("W3")
@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1."), ("é", "1")]
)
def test_w3_software_names_follow_the_pattern(client: Connection, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response = client.ask(request, 3)
    assert (response.error_code, response.api_keys) == (42, ())


@pytest.mark.conformance("W4")
@pytest.mark.parametrize(("key", "version"), [(0, 0), (0, 2), (0, 14), (1, 3), (3, 14), (3, -1), (11, 10), (10, 6)])
def test_w4_unsupported_versions_close_the_connection(client: Connection, key: int, version: int) -> None:
    (release,) = raw(client, struct.pack(">hhih", key, version, 1, -1) + b"\x00" * 8)
    assert isinstance(release, Disconnect)
    assert f"version {version}" in release.reason


@pytest.mark.conformance("W4")
@pytest.mark.parametrize("key", [4, 5, 6, 7, 24, 71, 1000, -1])
def test_unknown_apis_close_the_connection(client: Connection, key: int) -> None:
    (release,) = raw(client, struct.pack(">hhih", key, 0, 1, -1) + b"\x00" * 8)
    assert isinstance(release, Disconnect)


def test_nothing_is_handled_after_a_disconnect(client: Connection) -> None:
    assert len(raw(client, b"nonsense")) == 1
    assert raw(client, encode_request(MetadataRequest(topics=None), 9, 5, "x")[4:]) == []


def test_requests_after_the_malformed_one_are_dropped_with_it(wire: Wire, client: Connection) -> None:
    frames = [
        client.frame(MetadataRequest(topics=None), 9),
        Frame(client.id, b"\x00"),
        client.frame(MetadataRequest(topics=None), 9),
    ]
    wire.step(*frames)
    assert len(client.responses) == 1
    assert client.disconnected is not None


def join(group: str = "g", **values: object) -> JoinGroupRequest:
    fields = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name="range", metadata=b"m"),),
    }
    return JoinGroupRequest(**(fields | values))  # type: ignore[arg-type]


@pytest.mark.conformance("W5")
def test_w5_a_parked_join_holds_back_what_follows_on_its_connection(wire: Wire, client: Connection) -> None:
    client.send(join(), 3)
    client.send(MetadataRequest(topics=None), 9)
    frame = client.frame(FindCoordinatorRequest(key="g"), 2)
    waiting = wire.broker.waiting_bytes(client.id)
    wire.step(frame)
    assert wire.broker.waiting_bytes(client.id) == waiting + len(frame.data) > len(frame.data)
    other = wire.connect()
    assert other.ask(MetadataRequest(topics=None), 9).brokers, "other connections go on"
    assert client.responses == []
    wire.advance(3_000)
    assert wire.broker.waiting_bytes(client.id) == 0
    joined, metadata, coordinator = client.responses
    assert joined.generation_id == 1
    assert metadata.brokers
    assert coordinator.node_id == 1


@pytest.mark.conformance("W5")
def test_a_pipeline_in_one_step_is_answered_in_order(wire: Wire, client: Connection) -> None:
    create_topic(client, "t")
    wire.step(
        client.frame(produce_request("t", batch("a")), 9),
        client.frame(MetadataRequest(topics=None), 9),
        client.frame(fetch_request("t", max_wait_ms=100), 11),
        client.frame(HeartbeatRequest(group_id="nope", generation_id=1, member_id="m"), 3),
        client.frame(produce_request("t", batch("b")), 9),
        client.frame(fetch_request("t", offset=1, max_wait_ms=100), 11),
    )
    produced, _, first, beat, second_produced, second = client.responses
    assert produced.responses[0].partition_responses[0].base_offset == 0
    assert values_of(first) == [b"a"]
    assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert second_produced.responses[0].partition_responses[0].base_offset == 1
    assert values_of(second) == [b"b"]


@pytest.mark.parametrize("together", [True, False])
def test_a_fetch_waits_no_longer_when_another_request_is_behind_it(
    wire: Wire, client: Connection, together: bool
) -> None:
    create_topic(client, "t")
    fetching = client.frame(fetch_request("t", max_wait_ms=60_000), 11)
    asking = client.frame(FindCoordinatorRequest(key="g"), 2)
    for frames in [(fetching, asking)] if together else [(fetching,), (asking,)]:
        assert client.responses == []
        wire.step(*frames)
    fetched, coordinator = client.responses
    assert values_of(fetched) == []
    assert coordinator.node_id == 1


def test_nor_does_a_fetch_that_still_has_too_little_when_it_is_looked_at_again(wire: Wire, client: Connection) -> None:
    create_topic(client, "t")
    wire.step(
        client.frame(produce_request("t", batch("a")), 9),
        client.frame(fetch_request("t", min_bytes=10_000, max_wait_ms=60_000), 11),
        client.frame(MetadataRequest(topics=None), 9),
    )
    _, fetched, metadata = client.responses
    assert values_of(fetched) == [b"a"]
    assert metadata.brokers


def test_a_fetch_waits_on_when_another_fetch_is_behind_it(wire: Wire, client: Connection) -> None:
    create_topic(client, "t")
    for offset in (0, 1):
        client.send(fetch_request("t", offset=offset, max_wait_ms=500), 11)
    wire.step(client.frame(MetadataRequest(topics=None), 9))
    assert client.responses == []
    other = wire.connect()
    produce(other, "t", "a")
    first, second, metadata = client.responses
    assert values_of(first) == [b"a"]
    assert values_of(second) == [], "the metadata is behind it"
    assert metadata.brokers


@pytest.mark.conformance("W8")
def test_w8_acks_0_has_no_response_and_an_error_closes_the_connection(wire: Wire, client: Connection) -> None:
    create_topic(client, "t")
    frame = client.frame(produce_request("t", batch("a"), acks=0), 9)
    client.awaited.pop()
    wire.step(frame)
    assert client.responses == []
    assert client.disconnected is None
    assert values_of(client.ask(fetch_request("t"), 11)) == [b"a"]
    client.send(produce_request("absent", batch("a"), acks=0), 9)
    assert client.responses == []
    assert "UNKNOWN_TOPIC_OR_PARTITION" in (client.disconnected or "")


def test_large_requests_of_group_apis_close_the_connection(wire: Wire) -> None:
    wire = Wire(group_request_max_bytes=2048)
    client = wire.connect()
    client.send(join(protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(3000)),)), 3)
    assert "group.request.max.bytes" in (client.disconnected or "")


def test_a_leader_may_name_the_members_of_a_large_group() -> None:
    wire = Wire(group_request_max_bytes=2048)
    client = wire.connect()
    for members in (100, 200):
        given = tuple(SyncGroupRequestAssignment(member_id=f"member-{n}", assignment=bytes(50)) for n in range(members))
        client.send(SyncGroupRequest(group_id="g", generation_id=1, member_id="a", assignments=given), 4)
    assert [answer.error_code for answer in client.responses] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert "group.request.max.bytes" in (client.disconnected or "")


def test_a_closed_connection_gets_nothing_and_its_backlog_is_dropped(wire: Wire, client: Connection) -> None:
    client.send(join(), 3)
    client.send(MetadataRequest(topics=None), 9)
    client.close()
    wire.advance(10_000)
    assert client.responses == []


def test_a_fetch_of_a_closed_connection_is_forgotten(wire: Wire, client: Connection) -> None:
    create_topic(client, "t")
    waiting = wire.connect()
    waiting.send(fetch_request("t", max_wait_ms=1000), 11)
    waiting.close()
    produce(client, "t", "a")
    wire.advance(2000)
    assert waiting.responses == []


@pytest.mark.conformance("R1")
def test_shutdown_answers_what_is_parked(wire: Wire, client: Connection) -> None:
    create_topic(client, "t")
    joining, fetching = wire.connect(), wire.connect()
    joining.send(join(), 3)
    joining.send(MetadataRequest(topics=None), 9)
    fetching.send(fetch_request("t", max_wait_ms=60_000), 11)
    wire.step(Shutdown())
    assert joining.take().error_code == ErrorCode.NOT_COORDINATOR
    assert joining.responses == []
    assert values_of(fetching.take()) == []
    client.send(MetadataRequest(topics=None), 9)
    assert client.responses == []
    assert not wire.broker.busy
    assert wire.broker.next_deadline() is None


def test_bytes_behind_a_request_are_ignored(client: Connection) -> None:
    """The request of librdkafka 2.11 for the metadata of all topics: the placeholder of the count stays four bytes
    long."""
    (release,) = raw(client, bytes.fromhex("0003000d00000004000772646b61666b610000000000010000"))
    assert isinstance(release, Send)


def test_hostile_bytes_end_their_connection_and_nothing_else(wire: Wire) -> None:
    """Random frames, and valid requests cut short, grown, or with a flipped byte: no exception, ever."""
    chance = random.Random(7)
    healthy = wire.connect()
    create_topic(healthy, "t", 2)
    valid = [
        encode_request(request, version, 1, "c")[4:]
        for request, version in [
            (MetadataRequest(topics=None), 12),
            (join(), 6),
            (join(), 3),
            (fetch_request("t", max_wait_ms=10), 12),
            (produce_request("t", batch("x", "y")), 9),
            (produce_request("t", batch("x", "y")), 7),
            (FindCoordinatorRequest(key="g", coordinator_keys=("g",)), 4),
            (ApiVersionsRequest(**SOFTWARE), 3),
        ]
    ]
    for _ in range(1500):
        data = bytearray(chance.choice(valid))
        match chance.randrange(4):
            case 0:
                data = data[: chance.randrange(len(data))]
            case 1:
                data += chance.randbytes(chance.randrange(1, 9))
            case 2:
                data[chance.randrange(len(data))] = chance.randrange(256)
            case _:
                data = bytearray(
                    struct.pack(">hh", chance.choice(list(APIS)), chance.randrange(14))
                ) + chance.randbytes(chance.randrange(60))
        client = wire.connect()
        raw(client, bytes(data))
        wire.broker.step((), wire.now)
        del wire.connections[client.id]
    assert healthy.ask(MetadataRequest(topics=None), 9).brokers
