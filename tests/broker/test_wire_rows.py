"""Rows of docs/conformance.md about the wire, at the level of bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from test_connections import raw
from test_groups import join_request, stable
from wire_driver import RESPONSES, Connection, Wire, create_topic

from kohort.broker.apis import APIS
from kohort.broker.turn import Disconnect, Send
from kohort.wire.codec import encode
from kohort.wire.framing import unsigned_varint
from kohort.wire.schema import schema_of
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest

HEARTBEAT, OFFSET_DELETE = 12, 47
UNKNOWN_TAGS = b"\x02" + b"\x63\x02hi" + b"\xe8\x07\x00"
"""Two undefined tagged fields: 99 of two bytes and 1000 of none."""

THROTTLED_FROM = {
    "Produce": 1, "Fetch": 1, "ListOffsets": 2, "Metadata": 3, "OffsetCommit": 3, "OffsetFetch": 3,
    "FindCoordinator": 1, "JoinGroup": 2, "Heartbeat": 1, "LeaveGroup": 1, "SyncGroup": 1, "DescribeGroups": 1,
    "ListGroups": 1, "ApiVersions": 1, "CreateTopics": 2, "DeleteTopics": 1, "DeleteRecords": 0, "InitProducerId": 0,
    "OffsetForLeaderEpoch": 2, "DescribeConfigs": 0, "AlterConfigs": 0, "CreatePartitions": 0, "DeleteGroups": 0,
    "IncrementalAlterConfigs": 0, "OffsetDelete": 0, "DescribeCluster": 0, "DescribeTopicPartitions": 0,
    "ConsumerGroupHeartbeat": 0, "ConsumerGroupDescribe": 0,
}  # fmt: skip
"""Kafka's message definitions: the first version whose response has throttle_time_ms."""


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 7, -1)


@pytest.mark.conformance("W4")
def test_a_version_that_is_not_served_closes_the_connection_for_every_api(wire: Wire) -> None:
    for api in APIS.values():
        if api.name == "ApiVersions":
            continue
        for version in (api.first - 1, api.last + 1, 32767):
            (release,) = raw(wire.connect(), header(api.key, version) + bytes(8))
            assert isinstance(release, Disconnect), f"{api.name} v{version}"


@pytest.mark.conformance("W7")
def test_unknown_tagged_fields_in_header_and_body_are_skipped(client: Connection) -> None:
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert body.endswith(b"\0")
    (release,) = raw(client, header(HEARTBEAT, 4) + UNKNOWN_TAGS + body[:-1] + UNKNOWN_TAGS)
    assert isinstance(release, Send)
    assert release.data[4:] == struct.pack(">ixih", 7, 0, 25) + b"\0"


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
    (release,) = raw(client, header(OFFSET_DELETE, 0) + b"\0\x01g" + bytes(4))
    assert isinstance(release, Send)
    assert release.data[4:] == struct.pack(">ihii", 7, 69, 0, 0), "no tags: neither in the header nor in the body"


@pytest.mark.conformance("W9")
def test_the_throttle_time_is_there_from_its_version_on_and_zero() -> None:
    assert set(THROTTLED_FROM) == {api.name for api in APIS.values()}
    for api in APIS.values():
        response: Any = RESPONSES[api.request]
        [throttle] = [field for field in schema_of(response).fields if field.name == "throttle_time_ms"]
        for version in range(api.first, api.last + 1):
            assert (version in throttle.versions) == (version >= THROTTLED_FROM[api.name]), f"{api.name} v{version}"


@pytest.mark.conformance("W9")
@pytest.mark.parametrize("version", range(5))
def test_the_throttle_time_of_a_heartbeat(client: Connection, version: int) -> None:
    tags = b"\0" if version >= 4 else b""
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), version)
    (release,) = raw(client, header(HEARTBEAT, version) + tags + body)
    assert isinstance(release, Send)
    throttle = b"" if version == 0 else bytes(4)
    assert release.data[8:] == tags + throttle + struct.pack(">h", 25) + tags


@pytest.mark.conformance("H10")
def test_a_heartbeat_carries_an_instance_id_from_version_3(client: Connection, wire: Wire) -> None:
    """A static member that was replaced: below version 3 the request does not show that it is static, so it is
    unknown; from 3 on it is fenced."""
    create_topic(client, "t")
    client.send(join_request("g", group_instance_id="i"), 5)
    wire.advance(3000)
    former = client.take().member_id
    assert client.ask(join_request("g", group_instance_id="i"), 5).member_id != former
    for version, error in ((0, 25), (1, 25), (2, 25), (3, 82), (4, 82)):
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=former, group_instance_id="i")
        assert client.ask(beat, version).error_code == error, f"v{version}"
    old = b"\0\x01g" + struct.pack(">i", 1) + struct.pack(">h", len(former)) + former.encode()
    assert encode(HeartbeatRequest(group_id="g", generation_id=1, member_id=former), 2) == old
    assert encode(HeartbeatRequest(group_id="g", generation_id=1, member_id=former), 3) == old + b"\xff\xff"


@pytest.mark.parametrize(
    "key", [24, 25, 26, 27, 28, 61, 65, 66, 76, 77, 78, 79, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92]
)
def test_what_is_not_served_is_not_advertised(client: Connection, key: int) -> None:
    """Transactions, share and streams groups: docs/conformance.md says so."""
    assert key not in APIS
    (release,) = raw(client, header(key, 0) + bytes(8))
    assert isinstance(release, Disconnect)


@pytest.mark.conformance("L12")
def test_a_client_that_closes_without_leaving_is_a_member_until_its_session_ends(
    client: Connection, wire: Wire
) -> None:
    create_topic(client, "t")
    joined = stable(client)
    client.close()
    other = wire.connect()
    beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    wire.advance(9_999)
    assert other.ask(beat, 3).error_code == 0
    wire.advance(10_000)
    assert other.ask(beat, 3).error_code == 25
