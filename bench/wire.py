"""The codec beside kio: microseconds a message, to decode and to encode.

The messages are those that a coordinator sees most, and the largest ones. kio's decoder is native code, its encoder
is Python. Times are the best of several rounds, the two taken in turns, so that a busy machine hurts both.
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable
from typing import Any

from kohort.wire.batches import NewRecord, decode_columns, decode_records, encode_batch
from kohort.wire.codec import decode, encode
from kohort.wire.schemas.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

ROUNDS = 7
ROUND_SECONDS = 0.05
MEMBER = f"consumer-orders-1-{uuid.UUID(int=7)}"
METADATA = b"\0\1\0\0\0\1\0\x06orders\xff\xff\xff\xff" + bytes(24)


def messages() -> list[tuple[str, Any, int]]:
    """Name, message and version, as reference figures of earlier measurements have them."""
    members = tuple(
        JoinGroupResponseMember(member_id=f"{MEMBER}-{i:03}", metadata=METADATA, group_instance_id=f"i-{i}")
        for i in range(100)
    )
    commits = tuple(
        OffsetCommitRequestPartition(partition_index=i, committed_offset=1000 + i, committed_metadata="")
        for i in range(50)
    )
    committed = tuple(OffsetCommitResponsePartition(partition_index=i) for i in range(50))
    fetches = tuple(
        FetchPartition(partition=i, fetch_offset=10 * i, partition_max_bytes=1048576, current_leader_epoch=3)
        for i in range(50)
    )
    fetched = tuple(PartitionData(partition_index=i, high_watermark=99, records=bytes(1024)) for i in range(50))
    return [
        ("HeartbeatRequest v4", HeartbeatRequest(group_id="orders", generation_id=5, member_id=MEMBER), 4),
        ("HeartbeatResponse v4", HeartbeatResponse(), 4),
        (
            "JoinGroupRequest v9",
            JoinGroupRequest(
                group_id="orders",
                session_timeout_ms=45000,
                rebalance_timeout_ms=300000,
                member_id=MEMBER,
                protocol_type="consumer",
                protocols=tuple(JoinGroupRequestProtocol(name=n, metadata=METADATA) for n in ("range", "sticky")),
            ),
            9,
        ),
        (
            "JoinGroupResponse v9 x100",
            JoinGroupResponse(
                generation_id=5,
                protocol_type="consumer",
                protocol_name="range",
                leader=MEMBER,
                member_id=MEMBER,
                members=members,
            ),
            9,
        ),
        (
            "OffsetCommitRequest v8 x50",
            OffsetCommitRequest(
                group_id="orders",
                generation_id_or_member_epoch=5,
                member_id=MEMBER,
                topics=(OffsetCommitRequestTopic(name="orders", partitions=commits),),
            ),
            8,
        ),
        (
            "OffsetCommitResponse v8 x50",
            OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="orders", partitions=committed),)),
            8,
        ),
        (
            "FetchRequest v12 x50",
            FetchRequest(
                max_wait_ms=500, min_bytes=1, topics=(FetchTopic(topic="orders", partitions=fetches),), rack_id=""
            ),
            12,
        ),
        (
            "FetchResponse v12 x50",
            FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=fetched),)),
            12,
        ),
    ]


def kio_codec(name: str, version: int, data: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Decode `data` with kio, and encode the result again."""
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    keys = {"Heartbeat": 12, "JoinGroup": 11, "OffsetCommit": 8, "Fetch": 1}
    load: Any = load_request_schema if name.endswith("Request") else load_response_schema
    cls = load(keys[name.removesuffix("Request").removesuffix("Response")], version)
    read, write = entity_reader(cls), entity_writer(cls)
    entity, _ = read(data, 0)

    def encode_again() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    assert encode_again() == data
    return lambda: read(data, 0), encode_again


def best(*functions: Callable[[], Any]) -> list[float]:
    """Microseconds a call, the best of some rounds, the functions taking turns."""
    loops = []
    for function in functions:
        count = 1
        while True:
            started = time.perf_counter()
            for _ in range(count):
                function()
            elapsed = time.perf_counter() - started
            if elapsed > ROUND_SECONDS / 4:
                break
            count *= 4
        loops.append(max(1, round(count * ROUND_SECONDS / elapsed)))
    least = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for index, function in enumerate(functions):
            started = time.perf_counter()
            for _ in range(loops[index]):
                function()
            least[index] = min(least[index], (time.perf_counter() - started) / loops[index] * 1e6)
    return least


def main() -> None:
    print(
        f"{'message':28} {'bytes':>6}   {'decode':>8} {'kio':>8} {'ratio':>6}   {'encode':>8} {'kio':>8} {'ratio':>6}"
    )
    for name, message, version in messages():
        cls = type(message)
        data = encode(message, version)
        kio_decode, kio_encode = kio_codec(name.split()[0], version, data)
        ours_in, theirs_in, ours_out, theirs_out = best(
            lambda cls=cls, version=version, data=data: decode(cls, version, data),
            kio_decode,
            lambda message=message, version=version: encode(message, version),
            kio_encode,
        )
        print(
            f"{name:28} {len(data):6}   {ours_in:8.2f} {theirs_in:8.2f} {theirs_in / ours_in:6.2f}"
            f"   {ours_out:8.2f} {theirs_out:8.2f} {theirs_out / ours_out:6.2f}"
        )
    records_table()


def records_table() -> None:
    """Record batches: 1000 records of 100 bytes, microseconds a record."""
    records = [NewRecord(b"key%05d" % i, b"v" * 100, 1_700_000_000_000 + i) for i in range(1000)]
    print()
    print(f"{'records, us each':28} {'encode':>8} {'records':>8} {'columns':>8}")
    for codec, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        batch = encode_batch(records, compression=codec)
        figures = best(
            lambda codec=codec: encode_batch(records, compression=codec),
            lambda batch=batch: decode_records(batch),
            lambda batch=batch: decode_columns(batch),
        )
        print(f"{name:28} " + " ".join(f"{figure / len(records):8.3f}" for figure in figures))


if __name__ == "__main__":
    main()
