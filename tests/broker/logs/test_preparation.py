"""Batches that take long to decompress or to compress: in steps, with the outcome of one step."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest
from transaction_driver import Transactional
from wire_driver import SET, START_MS, TOPIC, Connection, fetch_request, produce_request, with_topic

from kohort.broker.messages import changed
from kohort.broker.ready import OVER, WITHIN
from kohort.wire.batches import (
    HEADER_SIZE,
    BatchHeader,
    NewRecord,
    check_crc,
    decode_records,
    encode_batch,
    split_batches,
)
from kohort.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

VALUE = bytes(8_000_000)


def one_step() -> Callable[[], int]:
    """For a turn that handles one request, or one step of one."""
    asked = 0

    def time_is_up() -> int:
        nonlocal asked
        asked += 1
        return WITHIN if asked == 1 else OVER

    return time_is_up


def turns_of(client: Connection, request: Any, version: int = 9) -> int:
    """How many turns of one step it takes until the request is answered."""
    wire = client.wire
    arrived = [client.frame(request, version)]
    turns = 0
    while not client.responses:
        wire.end(wire.broker.step(arrived, wire.now, one_step()))
        arrived = []
        turns += 1
        assert turns < 1_000, "it never ends"
    return turns


def error_of(client: Connection) -> int:
    """Of the answer that has come."""
    [partition] = client.responses.pop().responses[0].partition_responses
    error: int = partition.error_code
    return error


def batch(value: bytes, codec: int) -> bytes:
    return encode_batch([NewRecord(None, value, START_MS)], compression=codec)


def stored(client: Connection) -> list[tuple[int, list[bytes | None]]]:
    """The codec and the values of each batch."""
    data = client.ask(fetch_request("t", 0), 11).responses[0].partitions[0].records
    return [
        (header.compression, [record.value for record in decode_records(one)]) for header, one in split_batches(data)
    ]


def expanded(header: BatchHeader, data: bytes) -> bytes | ProtocolError:
    """The records of a batch, or why they cannot be had."""
    try:
        return decompress(header.compression, data[HEADER_SIZE:])
    except ProtocolError as error:
        return error


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_a_batch_is_decompressed_in_steps(codec: int) -> None:
    client = with_topic()
    assert turns_of(client, produce_request("t", batch(VALUE, codec))) >= len(VALUE) // 2**20
    assert error_of(client) == 0
    assert stored(client) == [(codec, [VALUE])]


@pytest.mark.parametrize("sent", [NONE, LZ4, ZSTD])
@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_is_compressed_in_steps(name: str, sent: int) -> None:
    client = with_topic(compression_type=name, message_max_bytes=10_000_000)
    codec = ["none", "gzip", "snappy", "lz4", "zstd"].index(name)
    turns = turns_of(client, produce_request("t", batch(VALUE, sent)))
    assert turns == 1 if codec == sent else turns >= len(VALUE) // 2**18
    assert error_of(client) == 0
    assert stored(client) == [(codec, [VALUE])]


def test_a_small_batch_takes_one_step() -> None:
    client = with_topic(compression_type="lz4")
    assert turns_of(client, produce_request("t", batch(bytes(1_000), GZIP))) == 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch(bytes(20_000_000), GZIP), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(VALUE, GZIP)[:-3], ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_refusal_is_the_same(data: bytes, error: ErrorCode) -> None:
    client = with_topic()
    turns_of(client, produce_request("t", data))
    assert error_of(client) == error


def test_a_batch_that_is_cut_short() -> None:
    covered = bytearray(batch(VALUE, GZIP)[:-9])
    struct.pack_into(">i", covered, 8, len(covered) - 12)
    struct.pack_into(">I", covered, 17, google_crc32c.value(bytes(covered[21:])))
    client = with_topic()
    turns_of(client, produce_request("t", bytes(covered)))
    assert error_of(client) == ErrorCode.INVALID_RECORD


def test_a_batch_that_is_too_large_is_refused_before_it_is_decompressed() -> None:
    client = with_topic(compression_type="gzip")
    data = batch(random.Random(1).randbytes(1_100_000) + VALUE, LZ4)
    assert turns_of(client, produce_request("t", data)) == 1
    assert error_of(client) == ErrorCode.MESSAGE_TOO_LARGE


def test_the_codec_of_the_topic_changes_meanwhile() -> None:
    client = with_topic(compression_type="gzip")
    wire, other = client.wire, client.wire.connect()
    setting = AlterableConfig(name="compression.type", config_operation=SET, value="zstd")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(setting,))
    wire.end(wire.broker.step([client.frame(produce_request("t", batch(VALUE, LZ4)), 9)], wire.now, one_step()))
    assert not client.responses, "it takes more than one step"
    wire.step(other.frame(IncrementalAlterConfigsRequest(resources=(resource,)), 1))
    assert error_of(client) == 0
    assert stored(client) == [(ZSTD, [VALUE])]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("kept", ["producer", "gzip", "snappy", "lz4", "zstd"])
def test_requests_that_are_prepared_side_by_side_share_nothing(codec: int, kept: str) -> None:
    """KAFKA-15653: a transactional batch was decompressed into the buffers of another request, and what was stored
    could not be read. Here the steps of three requests alternate."""
    first = with_topic(3, compression_type=kept, message_max_bytes=10_000_000)
    wire = first.wire
    clients = [first, wire.connect(), wire.connect()]
    values = [bytes([65 + index]) * 3_000_000 + random.Random(index).randbytes(2_000) for index in range(3)]
    arrived = []
    for index, (client, value) in enumerate(zip(clients, values, strict=True)):
        producer = Transactional(client, f"x{index}")
        producer.init()
        options = {"producer_id": producer.producer_id, "producer_epoch": 0, "base_sequence": 0}
        record = NewRecord(None, value, START_MS)
        data = encode_batch([record], compression=codec, is_transactional=True, **options)
        arrived.append(client.frame(changed(produce_request("t", data, index), transactional_id=producer.name), 12))
    while not all(client.responses for client in clients):
        wire.end(wire.broker.step(arrived, wire.now, one_step()))
        arrived = []
    assert [error_of(client) for client in clients] == [0, 0, 0]
    for index, value in enumerate(values):
        data = first.ask(fetch_request("t", 0, index), 11).responses[0].partitions[0].records
        [(header, one)] = split_batches(data)
        assert check_crc(one, header)
        assert expanded(header, one) == encode_batch([NewRecord(None, value, START_MS)])[HEADER_SIZE:]
