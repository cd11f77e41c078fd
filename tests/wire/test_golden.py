"""Requests of real clients, read and written back identically: golden/requests.json, which `make peers-clients` writes
from the requests that its relays record (tests/matrix/matrix_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kio_oracle import top_level_schemas

from kohort.wire.batches import check_crc, decode_records, encode_batch, read_header, split_batches
from kohort.wire.codec import decode, decode_prefix, encode, encode_request, is_flexible
from kohort.wire.embedded import subscription_of
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import FrameSplitter, body_offset, read_request_header
from kohort.wire.records import NewRecord

ENTRIES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "requests.json").read_text())
CLASSES = {known.name: known.cls for known in top_level_schemas()}
IDS = [f"{entry['client']}-{entry['api']}-v{entry['version']}-{index}" for index, entry in enumerate(ENTRIES)]
PRODUCES = [entry for entry in ENTRIES if entry["api"] == "Produce"]


def parts_of(entry: dict[str, Any]) -> tuple[type, bytes, int, Any]:
    """The class of the message, the frame, where its body starts, and the message."""
    cls, frame = CLASSES[entry["api"] + "Request"], bytes.fromhex(entry["hex"])
    start = body_offset(frame, is_flexible(cls, entry["version"]))
    return cls, frame, start, decode(cls, entry["version"], frame, start)


def batches_of(entry: dict[str, Any]) -> bytes:
    """The records of a Produce request."""
    records: bytes = parts_of(entry)[-1].topic_data[0].partition_data[0].records
    return records


LIBRARIES = {
    "aiokafka",
    "confluent",
    "franz-go",
    "java",
    "kafka-go",
    "kafka-python",
    "kafkajs",
    "kcat",
    "platformatic",
    "sarama",
}
PROGRAMS = {
    "Spark's Kafka source",
    "kafka-connect",
    "kafka-connect-eos",
    "kafka-streams",
    "kafka-streams-eos",
    "kafka-transactions",
}
"""They choose a compression themselves, or produce nothing."""


def test_all_clients_are_here() -> None:
    assert {entry["client"] for entry in ENTRIES} == LIBRARIES | PROGRAMS
    assert len(ENTRIES) >= 250


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_read_and_written_back_identically(entry: dict[str, Any]) -> None:
    cls, frame, start, message = parts_of(entry)
    version = entry["version"]
    header = read_request_header(frame)
    assert header.api_version == version
    assert encode(message, version) == frame[start:]
    again = encode_request(message, version, header.correlation_id, header.client_id)
    assert FrameSplitter(10_000_000).feed(again) == [frame]
    for cut in range(start, len(frame), 1 + len(frame) // 50):
        with pytest.raises(ProtocolError):
            decode(cls, version, frame[:cut], start)
    with pytest.raises(ProtocolError, match="3 bytes too many"):
        decode(cls, version, frame + b"\0\0\0", start)
    assert decode_prefix(cls, version, frame + b"\0\0\0", start) == (message, len(frame))


@pytest.mark.parametrize("entry", PRODUCES, ids=[f"{entry['client']}-{i}" for i, entry in enumerate(PRODUCES)])
def test_record_batches_of_real_producers(entry: dict[str, Any]) -> None:
    [(header, batch)] = split_batches(batches_of(entry))
    assert check_crc(batch, header)
    records = decode_records(batch, header)
    assert len(records) == header.record_count > 0
    numbers = [int((record.key or b"")[1:]) for record in records]
    assert numbers == list(range(numbers[0], numbers[-1] + 1, numbers[1] - numbers[0]))
    for i, (number, record) in enumerate(zip(numbers, records, strict=True)):
        assert record.value == b"v%d" % number + 60 * b"."
        assert record.headers == (("h", b"x"), *((("n", None),) if entry["client"] == "confluent" else ()))
        assert record.offset == i
        assert header.base_timestamp <= record.timestamp <= header.max_timestamp
    if header.compression == 0:
        again = encode_batch(
            [NewRecord(r.key, r.value, r.timestamp, r.headers) for r in records],
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            leader_epoch=header.partition_leader_epoch,
        )
        assert again == batch


def test_all_four_compressions_are_here() -> None:
    found = {(entry["client"], read_header(batches_of(entry)).compression) for entry in PRODUCES}
    for codec in range(5):
        assert {client for client, known in found if known == codec} >= LIBRARIES - (
            {"platformatic"} if codec == 4 else set()
        )


SHORT = {"kafka-go", "platformatic"}
"""They write version 1 of a subscription without the field that version 1 has added."""


def test_consumer_metadata_in_join_group_is_readable() -> None:
    for entry in (entry for entry in ENTRIES if entry["api"] == "JoinGroup"):
        request = parts_of(entry)[-1]
        for protocol in request.protocols:
            subscription = subscription_of(protocol.metadata)
            if entry["client"] in SHORT:
                assert subscription is None
            elif request.protocol_type == "consumer":
                assert subscription.topics, entry["client"]
