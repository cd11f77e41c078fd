"""Requests of real clients (golden/requests.json, written by golden/capture.py): read, and written back identically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kio_oracle import top_level_schemas

from kohort.wire.batches import check_crc, decode_records, encode_batch, read_header, split_batches
from kohort.wire.codec import decode, encode, encode_request, is_flexible
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import FrameSplitter, body_offset, read_request_header
from kohort.wire.records import NewRecord
from kohort.wire.schemas.join_group import JoinGroupRequest

ENTRIES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "requests.json").read_text())
CLASSES = {known.name: known.cls for known in top_level_schemas()}
IDS = [f"{entry['client']}-{entry['api']}-v{entry['version']}-{index}" for index, entry in enumerate(ENTRIES)]
PRODUCES = [entry for entry in ENTRIES if entry["api"] == "Produce"]


def test_three_clients_are_here() -> None:
    assert {entry["client"] for entry in ENTRIES} == {"aiokafka", "confluent-kafka", "kafka-python"}
    assert len(ENTRIES) >= 40


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_read_and_written_back_identically(entry: dict[str, Any]) -> None:
    frame = bytes.fromhex(entry["hex"])
    cls = CLASSES[entry["api"] + "Request"]
    version = entry["version"]
    header = read_request_header(frame)
    assert header.api_version == version
    start = body_offset(frame, is_flexible(cls, version))
    message = decode(cls, version, frame, start)
    assert encode(message, version) == frame[start:]
    again = encode_request(message, version, header.correlation_id, header.client_id)
    assert FrameSplitter(10_000_000).feed(again) == [frame]
    for cut in range(start, len(frame), 1 if len(frame) < 200 else 13):
        with pytest.raises(ProtocolError):
            decode(cls, version, frame[:cut], start)


@pytest.mark.parametrize("entry", PRODUCES, ids=[f"{entry['client']}-{i}" for i, entry in enumerate(PRODUCES)])
def test_record_batches_of_real_producers(entry: dict[str, Any]) -> None:
    frame = bytes.fromhex(entry["hex"])
    cls = CLASSES["ProduceRequest"]
    request: Any = decode(cls, entry["version"], frame, body_offset(frame, is_flexible(cls, entry["version"])))
    [(header, batch)] = split_batches(request.topic_data[0].partition_data[0].records)
    assert check_crc(batch, header)
    records = decode_records(batch, header)
    assert len(records) == header.record_count > 0
    first = records[0].value.count(b"value ") if records[0].value else 0
    null = (("n", None),) if entry["client"] == "confluent-kafka" else ()
    for i, record in enumerate(records, first):
        assert record.value == b"value " * i
        assert record.key == (b"key" if i % 2 else None)
        assert record.headers == (("h", b"x"), *null)
        assert record.offset == i - first
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
    found = set()
    for entry in PRODUCES:
        frame = bytes.fromhex(entry["hex"])
        cls = CLASSES["ProduceRequest"]
        request: Any = decode(cls, entry["version"], frame, body_offset(frame, is_flexible(cls, entry["version"])))
        found.add((entry["client"], read_header(request.topic_data[0].partition_data[0].records).compression))
    assert {codec for _, codec in found} == {0, 1, 2, 3, 4}
    assert {codec for client, codec in found if client == "confluent-kafka"} == {0, 1, 2, 3, 4}


def test_what_consumers_carry_in_join_group_is_readable() -> None:
    cls = CLASSES["ConsumerProtocolSubscription"]
    for entry in ENTRIES:
        if entry["api"] != "JoinGroup":
            continue
        frame = bytes.fromhex(entry["hex"])
        flexible = is_flexible(JoinGroupRequest, entry["version"])
        request = decode(JoinGroupRequest, entry["version"], frame, body_offset(frame, flexible))
        for protocol in request.protocols:
            version = int.from_bytes(protocol.metadata[:2], "big")
            subscription: Any = decode(cls, version, protocol.metadata, 2)
            assert subscription.topics == ("t",)
