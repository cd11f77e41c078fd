"""Log records to columns: equal to the plain decoder of the schema tables, compiled and not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kohort.coordinator import records as schema
from kohort.coordinator.events import Record
from kohort.spark.arrow.decoder import DECODER_VARIABLE
from kohort.spark.history.decoding import columns, compilation, decode, kernels
from kohort.wire.codec import encode
from kohort.wire.embedded import assignment_bytes, assignment_in, encode_subscription, rack_in, subscription_of
from kohort.wire.errors import ProtocolError
from kohort.wire.schema import NO_UUID, Field, schema_of
from kohort.wire.schemas import group_records as tables
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription

UNTAGGED = tables.ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=())
"""The plain decoder's result for a record without the tag of the classic protocol."""

MESSAGES = {
    0: (tables.OffsetCommitKey, tables.OffsetCommitValue),
    1: (tables.OffsetCommitKey, tables.OffsetCommitValue),
    2: (tables.GroupMetadataKey, tables.GroupMetadataValue),
    3: (tables.ConsumerGroupMetadataKey, tables.ConsumerGroupMetadataValue),
    5: (tables.ConsumerGroupMemberMetadataKey, tables.ConsumerGroupMemberMetadataValue),
    6: (tables.ConsumerGroupTargetAssignmentMetadataKey, tables.ConsumerGroupTargetAssignmentMetadataValue),
    7: (tables.ConsumerGroupTargetAssignmentMemberKey, tables.ConsumerGroupTargetAssignmentMemberValue),
    8: (tables.ConsumerGroupCurrentMemberAssignmentKey, tables.ConsumerGroupCurrentMemberAssignmentValue),
    16: (tables.ConsumerGroupRegularExpressionKey, tables.ConsumerGroupRegularExpressionValue),
    kernels.GENERATION: (tables.GenerationKey, tables.GenerationValue),
}

names = st.text(max_size=6)
BY_TYPE = {
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 32, 64)},
    "string": names,
    "bytes": st.binary(max_size=3),
    "uuid": st.binary(min_size=16, max_size=16),
}
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "metadata": names | st.text(min_size=120, max_size=130),
    "protocol_type": st.sampled_from(["consumer", "connect", ""]),
    "supported_protocols": st.just(()),
}


@cache
def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Messages with any values that this version can hold."""
    return st.builds(cls, **{f.name: _values(f, version) for f in schema_of(cls).fields if version in f.versions})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.name in BY_NAME:
        return BY_NAME[field.name]
    kind = field.type[0] if isinstance(field.type, list) else field.type
    values = BY_TYPE[kind] if isinstance(kind, str) else messages(kind, version)
    if isinstance(field.type, list):
        values = st.lists(values, max_size=3).map(tuple)
    absent = [None] * (version in field.nullable) + [field.default] * (field.tag is not None)
    return st.sampled_from(absent) | values if absent else values


BY_NAME["subscription"] = (
    messages(ConsumerProtocolSubscription, 3).map(encode_subscription)
    | messages(ConsumerProtocolSubscription, 0).map(lambda one: b"\0\0" + encode(one, 0))
    | st.binary(max_size=12)
)
BY_NAME["assignment"] = st.dictionaries(names, st.lists(BY_TYPE["int32"], max_size=3).map(tuple), max_size=3).map(
    lambda owned: assignment_bytes(list(owned.items()), b"\0\1")
) | st.binary(max_size=12)


def record(kind: int, key: Any, value: Any, version: int) -> Record:
    key_bytes = kind.to_bytes(2, "big", signed=True) + encode(key, kind)
    return Record(key_bytes, None if value is None else version.to_bytes(2, "big") + encode(value, version))


@st.composite
def whole(draw: st.DrawFn) -> Record:
    kind = draw(st.sampled_from(list(MESSAGES)))
    key, value = MESSAGES[kind]
    version = draw(st.sampled_from(list(schema_of(value).versions or ())))
    tombstone = draw(st.integers(0, 9)) == 9
    return record(kind, draw(messages(key, kind)), None if tombstone else draw(messages(value, version)), version)


@st.composite
def damaged(draw: st.DrawFn) -> Record:
    good = draw(whole())
    value = bytearray(good.value or b"")
    match draw(st.sampled_from(["cut", "flip", "longer", "version"])):
        case "cut":
            del value[draw(st.integers(0, len(value))) :]
        case "flip" if value:
            value[draw(st.integers(0, len(value) - 1))] ^= 1 << draw(st.integers(0, 7))
        case "longer":
            value += draw(st.binary(min_size=1, max_size=3))
        case "version":
            value[:2] = draw(st.integers(5, 99)).to_bytes(2, "big")
    return Record(good.key, bytes(value))


foreign = st.builds(
    Record,
    st.integers(-5, 40).map(lambda kind: kind.to_bytes(2, "big", signed=True) + b"\0\1g\0\1m") | st.binary(max_size=6),
    st.none() | st.binary(max_size=20),
)


def time(value: int) -> int | None:
    return value * 1000 if 0 <= value < 2**63 // 1000 else None


def expected(one: Record) -> dict[str, Any]:
    """The row, from the plain decoder."""
    row: dict[str, Any] = dict.fromkeys(decode.SCHEMA.names)
    if len(one.key) < 2:
        return row | {"status": kernels.MALFORMED}
    kind = row["kind"] = int.from_bytes(one.key[:2], "big", signed=True)
    version = (
        int.from_bytes(one.value[:2], "big", signed=True) if one.value is not None and len(one.value) > 1 else None
    )
    if not (0 <= kind <= 24 or kind == kernels.GENERATION):
        return row | {"status": kernels.UNKNOWN_TYPE}
    try:
        parsed = schema.parse(Record(one.key, None))
    except ProtocolError:
        return row | {"status": kernels.MALFORMED}
    if parsed is None:
        return row | {"status": "foreign"}
    key = parsed[0]
    row["group"] = key.group if hasattr(key, "group") else key.group_id
    row["member_id"] = getattr(key, "member_id", None)
    row["regex"] = getattr(key, "regular_expression", None)
    if kind <= 1:
        row |= {"commit_topic": key.topic, "commit_partition": key.partition}
    if one.value is None:
        return row | {"status": kernels.TOMBSTONE}
    row["version"] = version
    try:
        _, value = schema.parse(one) or (None, None)
    except ProtocolError as error:
        unknown = version is not None and "unknown version" in str(error)
        return row | {"status": kernels.UNKNOWN_VERSION if unknown else kernels.MALFORMED}
    return row | {"status": kernels.READ} | _value(kind, version or 0, value)


def _value(kind: int, version: int, value: Any) -> dict[str, Any]:
    match kind:
        case 0 | 1:
            return {
                "commit_offset": value.offset,
                "leader_epoch": value.leader_epoch if value.leader_epoch >= 0 else None,
                "metadata": value.metadata,
                "commit_time": time(value.commit_timestamp),
                "expire_time": time(value.expire_timestamp),
                "topic_id": value.topic_id if value.topic_id != NO_UUID else None,
            }
        case 2:
            return {
                "epoch": value.generation,
                "protocol_type": value.protocol_type,
                "protocol": value.protocol,
                "leader": value.leader,
                "state_time": time(value.current_state_timestamp) if version >= 2 else None,
                "members": [_classic(one, version, value.protocol_type == "consumer") for one in value.members],
            }
        case 3:
            return {"epoch": value.epoch, "hash": value.metadata_hash or None}
        case 5:
            classic = value.classic_member_metadata
            return {
                "members": [
                    member(
                        instance_id=value.instance_id,
                        rack=value.rack_id,
                        client_id=value.client_id,
                        host=value.client_host,
                        topics=list(value.subscribed_topic_names),
                        regex=value.subscribed_topic_regex,
                        rebalance_timeout_ms=value.rebalance_timeout_ms,
                        assignor=value.server_assignor,
                        session_timeout_ms=classic.session_timeout_ms if classic and classic != UNTAGGED else None,
                    )
                ]
            }
        case 6:
            return {"epoch": value.assignment_epoch, "state_time": time(value.assignment_timestamp) or None}
        case 7:
            return {"members": [member(assigned=_ids(value.topic_partitions), revoking=[])]}
        case 8:
            return {
                "epoch": value.member_epoch,
                "previous_epoch": value.previous_member_epoch,
                "state": value.state,
                "members": [
                    member(
                        assigned=_ids(value.assigned_partitions),
                        revoking=_ids(value.partitions_pending_revocation),
                    )
                ],
            }
        case 16:
            return {
                "hash": value.version,
                "state_time": time(value.timestamp),
                "members": [member(topics=list(value.topics))],
            }
    return {"epoch": value.generation}


def member(**fields: Any) -> dict[str, Any]:
    return dict.fromkeys([one.name for one in decode.MEMBER]) | fields


def _classic(one: Any, version: int, consumer: bool) -> dict[str, Any]:
    asked = subscription_of(one.subscription) if consumer else None
    has = assignment_in(one.assignment) if consumer else None
    owned = None if has is None else [_owned(topic, None, n) for topic, held in has.items() for n in held]
    if consumer and not one.assignment:
        owned = []
    return member(
        member_id=one.member_id,
        instance_id=one.group_instance_id,
        rack=rack_in(one.subscription) if consumer else None,
        client_id=one.client_id,
        host=one.client_host,
        rebalance_timeout_ms=one.rebalance_timeout if version >= 1 else None,
        session_timeout_ms=one.session_timeout,
        topics=None if asked is None else list(asked.topics),
        assigned=owned,
        revoking=None if owned is None else [],
    )


def _owned(topic: str | None, topic_id: bytes | None, partition: int, epoch: int | None = None) -> dict[str, Any]:
    return {"topic": topic, "topic_id": topic_id, "partition": partition, "epoch": epoch}


def _ids(rows: Any) -> list[dict[str, Any]]:
    owned = []
    for row in rows:
        epochs = list(getattr(row, "assignment_epochs", None) or ())
        epochs += [None] * len(row.partitions)
        owned += [_owned(None, row.topic_id, n, epoch) for n, epoch in zip(row.partitions, epochs, strict=False)]
    return owned


def table(records: list[Record]) -> tuple[pa.Array, pa.Array]:
    return pa.array([one.key for one in records], pa.binary()), pa.array([one.value for one in records], pa.binary())


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    times = {f.name for f in batch.schema if f.type == columns.TIME}
    arrays = [
        batch.column(n).cast(pa.int64()) if name in times else batch.column(n)
        for n, name in enumerate(batch.schema.names)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names).to_pylist()


def normal(row: dict[str, Any]) -> dict[str, Any]:
    """The row without the difference between a missing tag and a default, which the plain decoder lacks."""
    row = dict(row)
    if row["kind"] == 3:
        row["hash"] = row["hash"] or None
    if row["kind"] == 6:
        row["state_time"] = row["state_time"] or None
    if row["topic_id"] == NO_UUID:
        row["topic_id"] = None
    return row


@pytest.fixture(params=["numba", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways; numba comes with the extra `spark`."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv(DECODER_VARIABLE, request.param)
        yield request.param


def check(records: list[Record]) -> None:
    batch = decode.decode(*table(records))
    batch.validate(full=True)
    assert batch.schema == decode.SCHEMA
    for one, row in zip(records, rows_of(batch), strict=True):
        want = expected(one)
        if want["status"] == "foreign":
            assert row["status"] in (kernels.RECOGNISED, kernels.TOMBSTONE, kernels.MALFORMED)
            assert row["kind"] == want["kind"]
        elif any(isinstance(text, str) and "\N{REPLACEMENT CHARACTER}" in text for text in row.values()):
            # The kernels replace invalid UTF-8, as Java does; the plain decoder refuses it.
            assert row["status"] == kernels.RECOGNISED
        else:
            assert normal(row) == want


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(whole() | foreign | damaged(), max_size=8))
@example(records=[Record(b"\xff\xff\x00\x01g", b"")])  # a type of −1 is not the lack of one
def test_every_record_is_read_as_the_schema_tables_read_it(way: str, records: list[Record]) -> None:
    check(records)


def test_dictionaries_hold_the_same(way: str) -> None:
    records = [
        record(1, tables.OffsetCommitKey(group="g", topic="t", partition=n % 3), tables.OffsetCommitValue(
            offset=n, metadata="m" * (n % 2), commit_timestamp=n), 3)
        for n in range(10)
    ]  # fmt: skip
    records.append(record(3, tables.ConsumerGroupMetadataKey(group_id="h"), None, 0))
    plain, encoded = decode.decode(*table(records)), decode.decode(*table(records), dictionaries=True)
    assert encoded.to_pylist() == plain.to_pylist()
    assert pa.types.is_dictionary(encoded.schema.field("group").type)
    assert encoded.column("group").dictionary.to_pylist() == ["g", "h"]


def test_empty_chunked_and_sliced_columns(way: str) -> None:
    empty = pa.array([], pa.binary())
    assert decode.decode(empty, empty).num_rows == 0
    keys, values = table(
        [record(1, tables.OffsetCommitKey(group="g", topic="t", partition=n), None, 0) for n in range(4)]
    )
    pieces = decode.decode(pa.chunked_array([keys[1:2], keys[2:]]), pa.chunked_array([values[1:2], values[2:]]))
    assert pieces.column("commit_partition").to_pylist() == [1, 2, 3]
    assert decode.decode(keys[2:].cast(pa.large_binary()), values[2:]).column("status").to_pylist() == [1, 1]


def test_arrays_grow_for_many_members(way: str) -> None:
    """Members without names in little space, and many partitions."""
    members = tuple(
        tables.MemberMetadata(member_id="", client_id="", client_host="", session_timeout=1, subscription=b"",
                              assignment=assignment_bytes([("t", tuple(range(50)))]))
        for _ in range(40)
    )  # fmt: skip
    value = tables.GroupMetadataValue(protocol_type="consumer", generation=1, members=members)
    batch = decode.decode(*table([record(2, tables.GroupMetadataKey(group="g"), value, 4)] * 3))
    held = batch.column("members").to_pylist()
    assert [len(one) for one in held] == [40] * 3
    assert all(len(m["assigned"]) == 50 for one in held for m in one)


def test_invalid_utf8_becomes_replacement_characters(way: str) -> None:
    key = b"\0\3\0\2\xff\xfe"
    batch = decode.decode(pa.array([key], pa.binary()), pa.array([None], pa.binary()))
    assert batch.column("group").to_pylist() == ["��"]


def test_numba_is_loaded_after_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DECODER_VARIABLE, raising=False)
    monkeypatch.setattr(compilation, "_decoded", 0)
    assert not compilation.kernels_for(compilation.WORTH_IT - 1).compiled
    assert compilation.kernels_for(1).compiled
    monkeypatch.setitem(sys.modules, "numba", None)
    compilation.compiled.cache_clear()
    assert not compilation.kernels_for(1).compiled
    monkeypatch.setenv(DECODER_VARIABLE, "numba")
    with pytest.raises(ImportError):
        compilation.kernels_for(1)
