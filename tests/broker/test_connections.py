"""Connections: order, versions, malformed bytes (rows W1-W9), and the order of a turn."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from group_driver import heartbeat, join, join_request, stable
from wire_driver import Connection, Wire, batch, fetch_request, produce_request, values_of

from kohort.broker.apis import APIS, OF_SHARE_GROUPS
from kohort.broker.turn import Disconnect, Frame, Send, Shutdown
from kohort.config import preset
from kohort.simulator.checks.onlooker import response_of
from kohort.wire.codec import decode, encode, encode_request
from kohort.wire.errors import ErrorCode
from kohort.wire.framing import unsigned_varint
from kohort.wire.schema import schema_of
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PARTITIONS = 1
HEARTBEAT, OFFSET_DELETE = 12, 47
SOFTWARE = {"client_software_name": "librdkafka", "client_software_version": "2.11.0"}

UNKNOWN_TAGS = b"\x02" + b"\x63\x02hi" + b"\xe8\x07\x00"
"""Two undefined tagged fields: 99 of two bytes and 1000 of none."""

THROTTLED_FROM = {
    "Produce": 1, "Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetCommit": 3, "OffsetFetch": 3,
    "FindCoordinator": 1, "JoinGroup": 2, "Heartbeat": 1, "LeaveGroup": 1, "SyncGroup": 1, "DescribeGroups": 1,
    "ListGroups": 1, "ApiVersions": 1, "CreateTopics": 2, "DeleteTopics": 1, "DeleteRecords": 0, "InitProducerId": 0,
    "OffsetForLeaderEpoch": 2, "DescribeConfigs": 0, "AlterConfigs": 0, "CreatePartitions": 0, "DeleteGroups": 0,
    "IncrementalAlterConfigs": 0, "OffsetDelete": 0, "DescribeCluster": 0, "DescribeTopicPartitions": 0,
    "DescribeProducers": 0,
    "ConsumerGroupHeartbeat": 0, "ConsumerGroupDescribe": 0, "DescribeAcls": 0, "CreateAcls": 0, "DeleteAcls": 0,
    "DescribeLogDirs": 0,
    "ElectLeaders": 0, "ListPartitionReassignments": 0, "DescribeClientQuotas": 0, "AlterClientQuotas": 0,
    "DescribeUserScramCredentials": 0,
    "AlterUserScramCredentials": 0, "SaslHandshake": 32767, "SaslAuthenticate": 32767,
    "ListConfigResources": 0, "DescribeQuorum": 32767, "AddPartitionsToTxn": 0, "AddOffsetsToTxn": 0, "EndTxn": 0,
    "TxnOffsetCommit": 0,
    "WriteTxnMarkers": 32767, "DescribeTransactions": 0, "ListTransactions": 0,
    "ShareGroupHeartbeat": 0, "ShareGroupDescribe": 0, "ShareFetch": 0, "ShareAcknowledge": 0,
    "InitializeShareGroupState": 32767, "ReadShareGroupState": 32767, "WriteShareGroupState": 32767,
    "DeleteShareGroupState": 32767, "ReadShareGroupStateSummary": 32767, "DescribeShareGroupOffsets": 0,
    "AlterShareGroupOffsets": 0, "DeleteShareGroupOffsets": 0,
}  # fmt: skip
"""Kafka's message definitions: the first version whose response has throttle_time_ms; DescribeQuorum,
WriteTxnMarkers, those of SASL and of the share coordinator never have it."""


def request_header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 77, -1)


def raw(client: Connection, data: bytes) -> list[Send | Disconnect]:
    """Send bytes as a frame and return what is released, undecoded."""
    turn = client.wire.broker.step((Frame(client.id, data),), client.wire.now)
    client.wire.storage.commit(turn.operations, client.wire.storage.acquire())
    return list(turn.releases)


@pytest.mark.conformance("W1")
@pytest.mark.parametrize("version", [5, 6, 120, -1])
def test_w1_unsupported_version_of_api_versions_is_answered_in_version_0(client: Connection, version: int) -> None:
    (release,) = raw(client, request_header(18, version) + b"\x00")
    assert isinstance(release, Send)
    assert struct.unpack(">ii", release.data[:8]) == (len(release.data) - 4, 77)
    response = decode(ApiVersionsResponse, 0, release.data, 8)
    assert response.error_code == 35
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]
    assert client.ask(ApiVersionsRequest(**SOFTWARE), 3).error_code == 0, "the connection lives on"


@pytest.mark.conformance("W2", "W6")
@pytest.mark.parametrize("version", range(5))
def test_w2_the_response_header_of_api_versions_has_no_tags(client: Connection, version: int) -> None:
    frame = client.frame(ApiVersionsRequest(**(SOFTWARE if version >= 3 else {})), version)
    (release,) = raw(client, frame.data)
    assert isinstance(release, Send)
    response = decode(ApiVersionsResponse, version, release.data, 8)
    assert response.error_code == 0
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert set(ranges) == set(APIS) - OF_SHARE_GROUPS
    assert (ranges[0], ranges[11]) == ((0, 13), (0, 9)), "Produce is advertised from 0"


@pytest.mark.conformance("W3")
@pytest.mark.parametrize(
    ("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1."), ("é", "1")]
)
def test_w3_software_names_follow_the_pattern(client: Connection, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response = client.ask(request, 3)
    assert (response.error_code, response.api_keys) == (42, ())


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


@pytest.mark.conformance("W5")
def test_w5_a_parked_join_holds_back_what_follows_on_its_connection(wire: Wire, client: Connection) -> None:
    client.send(join_request(), 3)
    client.send(MetadataRequest(topics=None), 9)
    frame = client.frame(FindCoordinatorRequest(key="g"), 2)
    waiting = wire.broker.waiting.bytes_of(client.id)
    wire.step(frame)
    assert wire.broker.waiting.bytes_of(client.id) == waiting + len(frame.data) > len(frame.data)
    other = wire.connect()
    assert other.ask(MetadataRequest(topics=None), 9).brokers, "other connections go on"
    assert client.responses == []
    wire.advance(3_000)
    assert wire.broker.waiting.bytes_of(client.id) == 0
    joined, metadata, coordinator = client.responses
    assert joined.generation_id == 1
    assert metadata.brokers
    assert coordinator.node_id == 1


@pytest.mark.conformance("W5")
def test_a_pipeline_in_one_step_is_answered_in_order(wire: Wire, client: Connection) -> None:
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
    fetching = client.frame(fetch_request("t", max_wait_ms=60_000), 11)
    asking = client.frame(FindCoordinatorRequest(key="g"), 2)
    for frames in [(fetching, asking)] if together else [(fetching,), (asking,)]:
        assert client.responses == []
        wire.step(*frames)
    fetched, coordinator = client.responses
    assert values_of(fetched) == []
    assert coordinator.node_id == 1


def test_a_fetch_of_a_strict_server_waits_on_when_another_request_is_behind_it() -> None:
    strict = Wire(**preset({"compatibility": "kafka"}))
    client = strict.connect()
    client.create_topic("t")
    client.send(fetch_request("t", max_wait_ms=500), 11)
    strict.step(client.frame(MetadataRequest(topics=None), 9))
    assert client.responses == []
    strict.advance(500)
    fetched, metadata = client.responses
    assert values_of(fetched) == []
    assert metadata.brokers


def test_a_woken_fetch_with_too_little_data_does_not_wait_again(wire: Wire, client: Connection) -> None:
    wire.step(
        client.frame(produce_request("t", batch("a")), 9),
        client.frame(fetch_request("t", min_bytes=10_000, max_wait_ms=60_000), 11),
        client.frame(MetadataRequest(topics=None), 9),
    )
    _, fetched, metadata = client.responses
    assert values_of(fetched) == [b"a"]
    assert metadata.brokers


def test_a_fetch_waits_on_when_another_fetch_is_behind_it(wire: Wire, client: Connection) -> None:
    for offset in (0, 1):
        client.send(fetch_request("t", offset=offset, max_wait_ms=500), 11)
    wire.step(client.frame(MetadataRequest(topics=None), 9))
    assert client.responses == []
    other = wire.connect()
    other.produce("t", "a")
    first, second, metadata = client.responses
    assert values_of(first) == [b"a"]
    assert values_of(second) == [], "the metadata is behind it"
    assert metadata.brokers


@pytest.mark.conformance("W8")
def test_w8_acks_0_has_no_response_and_an_error_closes_the_connection(wire: Wire, client: Connection) -> None:
    frame = client.frame(produce_request("t", batch("a"), acks=0), 9)
    client.awaited.pop()
    wire.step(frame)
    assert client.responses == []
    assert client.disconnected is None
    assert client.values("t") == [b"a"]
    client.send(produce_request("absent", batch("a"), acks=0), 9)
    assert client.responses == []
    assert "UNKNOWN_TOPIC_OR_PARTITION" in (client.disconnected or "")


def test_a_leader_may_name_the_members_of_a_large_group() -> None:
    client = Wire(group_request_max_bytes=2048).connect()
    for members in (100, 200):
        given = tuple(SyncGroupRequestAssignment(member_id=f"member-{n}", assignment=bytes(50)) for n in range(members))
        client.send(SyncGroupRequest(group_id="g", generation_id=1, member_id="a", assignments=given), 4)
    assert [answer.error_code for answer in client.responses] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert "group.request.max.bytes" in (client.disconnected or "")


def test_a_closed_connection_gets_nothing_and_its_requests_are_dropped(wire: Wire, client: Connection) -> None:
    joining, fetching = wire.connect(), wire.connect()
    joining.send(join_request(), 3)
    joining.send(MetadataRequest(topics=None), 9)
    fetching.send(fetch_request("t", max_wait_ms=1000), 11)
    joining.close()
    fetching.close()
    client.produce("t", "a")
    wire.advance(10_000)
    assert joining.responses == fetching.responses == []


@pytest.mark.conformance("R1")
def test_shutdown_answers_parked_requests(wire: Wire, client: Connection) -> None:
    joining, fetching = wire.connect(), wire.connect()
    joining.send(join_request(), 3)
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


def test_bytes_after_a_request_are_ignored(client: Connection) -> None:
    """The request of librdkafka 2.11 for the metadata of all topics: the placeholder of the count stays four bytes
    long."""
    (release,) = raw(client, bytes.fromhex("0003000d00000004000772646b61666b610000000000010000"))
    assert isinstance(release, Send)


def test_hostile_bytes_end_their_own_connection_only(wire: Wire, client: Connection) -> None:
    """Valid requests that are cut short, grown or changed in one byte, and random bytes after a header."""
    chance = random.Random(7)
    requests: list[tuple[Any, int]] = [
        (MetadataRequest(topics=None), 12),
        (join_request("h"), 6),
        (fetch_request("t", max_wait_ms=10), 12),
        (produce_request("t", batch("x", "y")), 9),
        (FindCoordinatorRequest(coordinator_keys=("g",)), 4),
    ]
    for _ in range(200):
        data = encode_request(*chance.choice(requests), 1, "c")[4:]
        at = chance.randrange(len(data))
        changed = data[:at] + chance.randbytes(1) + data[at + 1 :]
        header = request_header(chance.choice(list(APIS)), chance.randrange(14))
        hostile = (data[:at], data + chance.randbytes(8), changed, header + chance.randbytes(60))
        other = wire.connect()
        raw(other, chance.choice(hostile))
        assert client.ask(MetadataRequest(topics=None), 9).brokers
        other.close()


# -- rows of docs/conformance.md at the level of bytes


@pytest.mark.conformance("W4")
def test_a_version_that_is_not_served_closes_the_connection_for_every_api(wire: Wire) -> None:
    for api in APIS.values():
        if api.name == "ApiVersions":
            continue
        for version in (api.first - 1, api.last + 1, -1, 32767):
            (release,) = raw(wire.connect(), request_header(api.key, version) + bytes(8))
            assert isinstance(release, Disconnect), f"{api.name} v{version}"
            assert f"version {version}" in release.reason


@pytest.mark.conformance("W7")
def test_unknown_tagged_fields_in_header_and_body_are_skipped(client: Connection) -> None:
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert body.endswith(b"\0")
    (release,) = raw(client, request_header(HEARTBEAT, 4) + UNKNOWN_TAGS + body[:-1] + UNKNOWN_TAGS)
    assert isinstance(release, Send)
    assert release.data[4:] == struct.pack(">ixih", 77, 0, 25) + b"\0"


@pytest.mark.conformance("W7")
def test_null_and_empty_differ_and_have_a_compact_form(client: Connection) -> None:
    plain = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="", group_instance_id=None), 3)
    assert plain == b"\0\x01g" + b"\0\0\0\x01" + b"\0\0" + b"\xff\xff"
    compact = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="", group_instance_id=None), 4)
    assert compact == b"\x02g" + b"\0\0\0\x01" + b"\x01" + b"\0" + b"\0"
    long = encode(HeartbeatRequest(group_id="g" * 300, generation_id=1, member_id=""), 4)
    assert long.startswith(unsigned_varint(301) + b"ggg")


@pytest.mark.conformance("W7")
def test_offset_delete_is_never_flexible(client: Connection) -> None:
    assert APIS[OFFSET_DELETE].flexible_from > APIS[OFFSET_DELETE].last == 0
    assert encode(OffsetDeleteRequest(group_id="g", topics=()), 0) == b"\0\x01g" + bytes(4)
    (release,) = raw(client, request_header(OFFSET_DELETE, 0) + b"\0\x01g" + bytes(4))
    assert isinstance(release, Send)
    assert release.data[4:] == struct.pack(">ihii", 77, 69, 0, 0), "no tags: neither in the header nor in the body"


@pytest.mark.conformance("W9")
def test_the_throttle_time_is_there_from_its_version_on_and_zero() -> None:
    assert set(THROTTLED_FROM) == {api.name for api in APIS.values()}
    for api in APIS.values():
        response: Any = response_of(api.request)
        throttled = [field.versions for field in schema_of(response).fields if field.name == "throttle_time_ms"]
        for version in range(api.first, api.last + 1):
            has_it = any(version in versions for versions in throttled)
            assert has_it == (version >= THROTTLED_FROM[api.name]), f"{api.name} v{version}"


@pytest.mark.conformance("W9")
@pytest.mark.parametrize("version", range(5))
def test_the_throttle_time_of_a_heartbeat(client: Connection, version: int) -> None:
    tags = b"\0" if version >= 4 else b""
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), version)
    (release,) = raw(client, request_header(HEARTBEAT, version) + tags + body)
    assert isinstance(release, Send)
    throttle = b"" if version == 0 else bytes(4)
    assert release.data[8:] == tags + throttle + struct.pack(">h", 25) + tags


@pytest.mark.conformance("H10")
def test_a_heartbeat_carries_an_instance_id_from_version_3(client: Connection, wire: Wire) -> None:
    """A static member that was replaced: below version 3 the request does not show that it is static, so it is
    unknown; from 3 on it is fenced."""
    former = join(client, version=5, group_instance_id="i").member_id
    assert client.ask(join_request("g", group_instance_id="i"), 5).member_id != former
    for version, error in ((0, 25), (1, 25), (2, 25), (3, 82), (4, 82)):
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=former, group_instance_id="i")
        assert client.ask(beat, version).error_code == error, f"v{version}"
    old = b"\0\x01g" + struct.pack(">i", 1) + struct.pack(">h", len(former)) + former.encode()
    assert encode(HeartbeatRequest(group_id="g", generation_id=1, member_id=former), 2) == old
    assert encode(HeartbeatRequest(group_id="g", generation_id=1, member_id=former), 3) == old + b"\xff\xff"


@pytest.mark.conformance("W4")
@pytest.mark.parametrize("key", [*range(4, 8), 71, *range(80, 83), 88, 89, 1000, -1])
def test_an_api_that_is_not_served_is_not_advertised_and_closes_the_connection(client: Connection, key: int) -> None:
    """Streams groups among them: docs/conformance.md says so."""
    assert key not in APIS
    (release,) = raw(client, request_header(key, 0) + bytes(8))
    assert isinstance(release, Disconnect)


@pytest.mark.conformance("L12")
def test_a_client_that_closes_without_leaving_is_a_member_until_its_session_ends(
    client: Connection, wire: Wire
) -> None:
    joined = stable(client)
    client.close()
    other = wire.connect()
    wire.advance(9_999)
    assert heartbeat(other, joined) == 0
    wire.advance(10_000)
    assert heartbeat(other, joined) == ErrorCode.UNKNOWN_MEMBER_ID
