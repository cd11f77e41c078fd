"""The sink's options and columns, and rows as records: without Spark's session and without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.client.records.partitioner import partition_for_key
from kohort.spark.options.exactly_once import OWN, REQUIRED, USED
from kohort.spark.options.sink import parse_sink
from kohort.spark.options.values import OptionError
from kohort.spark.sink.key_hashes import key_hashes
from kohort.spark.sink.rows import RowError, SchemaError, check, records

BASE = {"kafka.bootstrap.servers": "h:1"}
ONCE = {"delivery": "exactly-once"}
NAMED = ONCE | {"txnAppId": "a", "txnVersion": "1"}


def producer(**settings: str) -> dict[str, str]:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    return dict(parse_sink(BASE | given).producer)


def test_the_defaults_are_those_of_javas_producer_where_the_data_depend_on_them() -> None:
    settings = producer()
    assert settings["partitioner"] == "murmur2_random"
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", "true")
    assert settings["delivery.timeout.ms"] == "120000"
    assert settings["queue.buffering.max.kbytes"] == "32768"


def test_javas_names_become_librdkafkas() -> None:
    settings = producer(
        max_request_size="2000000",
        buffer_memory="1048576",
        request_timeout_ms="7000",
        batch_size="16384",
        linger_ms="3",
        compression_type="zstd",
        compression_zstd_level="5",
        compression_gzip_level="9",
        send_buffer_bytes="-1",
        partitioner_ignore_keys="true",
        metric_reporters="",
    )
    expected = {
        "message.max.bytes": "2000000",
        "queue.buffering.max.kbytes": "1024",
        "request.timeout.ms": "7000",
        "socket.timeout.ms": "7000",
        "batch.size": "16384",
        "linger.ms": "3",
        "compression.type": "zstd",
        "compression.level": "5",
        "partitioner": "random",
    }
    assert expected.items() <= settings.items()
    assert not {"max.request.size", "compression.gzip.level", "socket.send.buffer.bytes", "metric.reporters"} & set(
        settings
    )


@pytest.mark.parametrize("setting", [{"acks": "1"}, {"retries": "0"}, {"max_in_flight_requests_per_connection": "6"}])
def test_settings_that_rule_idempotence_out_turn_it_off_unless_it_was_asked_for(setting: dict[str, str]) -> None:
    assert producer(**setting)["enable.idempotence"] == "false"
    with pytest.raises(OptionError, match=r"enable\.idempotence"):
        producer(**setting, enable_idempotence="true")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": " "}, r"kafka\.bootstrap\.servers is missing"),
        ({"topic": " "}, "option topic is empty"),
        ({"subscribe": "t"}, "unknown option subscribe of kohort's sink"),
        ({"path": "/t"}, "unknown option path of kohort's sink; it writes to a topic"),
        ({"kafka.key.serializer": "x"}, r"kafka\.key\.serializer is refused: text and bytes"),
        ({"kafka.value.serializer": "x"}, r"kafka\.value\.serializer is refused"),
        ({"kafka.interceptor.classes": "x"}, r"kafka\.interceptor\.classes is refused: there is no Java"),
        ({"kafka.partitioner.class": "x"}, r"kafka\.partitioner\.class is refused"),
        (
            {"kafka.transactional.id": "x"},
            r"kafka\.transactional\.id is refused: with delivery=exactly-once each task",
        ),
        ({"delivery": "at-most-once"}, "delivery is 'at-most-once'; it takes at-least-once or exactly-once"),
        ({"txnVersion": "1"}, "option txnVersion needs delivery=exactly-once"),
        ({"ledgerTopic": "l"}, "option ledgerTopic needs delivery=exactly-once"),
        ({"kafka.transaction.timeout.ms": "5"}, r"kafka\.transaction\.timeout\.ms needs delivery=exactly-once"),
        (ONCE | {"txnAppId": "a"}, "needs the options txnAppId and txnVersion in a batch write"),
        (ONCE | {"txnAppId": "a/b", "txnVersion": "1"}, "txnAppId is 'a/b'; it takes a name"),
        (ONCE | {"txnAppId": "a", "txnVersion": "-1"}, "txnVersion is '-1'; it takes a whole number"),
        (ONCE | {"txnAppId": "a", "txnVersion": "1", "ledgerTopic": " "}, "option ledgerTopic is empty"),
        (ONCE | {"kafka.acks": "1"}, r"kafka\.acks must be all with delivery=exactly-once"),
        (ONCE | {"kafka.enable.idempotence": "false"}, r"kafka\.enable\.idempotence must be true"),
        (ONCE | {"kafka.partitioner": "random"}, r"kafka\.partitioner is not supported with delivery=exactly-once"),
        (NAMED | {"kafka.compression.type": "brotli"}, r"kafka\.compression\.type is 'brotli'"),
        ({"kafka.linger": "5"}, r"kafka\.linger is '5'; librdkafka: No such configuration property"),
        ({"kafka.linger.ms": "soon"}, r"kafka\.linger\.ms is 'soon'; librdkafka: Invalid value"),
        ({"kafka.buffer.memory": "much"}, r"kafka\.buffer\.memory is 'much'; it takes a whole number"),
        ({"kafka.max.block.ms": "-1"}, r"kafka\.max\.block\.ms is '-1'; it takes a whole number"),
        ({"kafka.on_delivery": "x"}, r"kafka\.on_delivery is 'x'"),
        ({"kafka.acks": "0"}, r"kafka\.acks is refused: with 0 a row counts as written before"),
        ({"kafka.request.required.acks": " 0 "}, r"kafka\.request\.required\.acks is refused"),
        (
            {"kafka.max.request.size": "5"},
            r"kafka\.max\.request\.size is '5'; librdkafka: Configuration property \"max\.request\.size\" value 5",
        ),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_sink(BASE | options)


def test_security_in_javas_names_is_librdkafkas_then() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hunter2";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    options = parse_sink(BASE | {f"kafka.{name}": value for name, value in given.items()})
    assert "hunter2" not in repr(options)
    assert options.security.librdkafka() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
    }
    with pytest.raises(OptionError, match=r"security\.protocol is 'TLS'"):
        parse_sink(BASE | {"kafka.security.protocol": "TLS"})
    with pytest.raises(OptionError, match=r"ssl\.enabled\.protocols: librdkafka has no setting"):
        parse_sink(BASE | {"kafka.security.protocol": "SSL", "kafka.ssl.enabled.protocols": "TLSv1.3"})


HEADER = StructType().add("key", StringType()).add("value", BinaryType())
HEADERS = ArrayType(HEADER)
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
STRING, INT, LONG = StringType(), IntegerType(), LongType()


def schema(types: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("types", "topic", "message"),
    [
        ({"key": STRING}, "t", "there is no column value; the columns are key"),
        ({"value": STRING}, None, "neither an option topic nor a column topic"),
        ({"value": INT}, "t", "column value is of type int; it must be string or binary"),
        ({"value": STRING, "key": LONG}, "t", "column key is of type bigint"),
        ({"value": STRING, "topic": INT}, None, "column topic is of type int; it must be string"),
        ({"value": STRING, "partition": LONG}, "t", "column partition is of type bigint; it must be int"),
        (
            {"value": STRING, "timestamp": LONG},
            "t",
            "column timestamp is of type bigint; it must be timestamp, or double",
        ),
        (
            {"value": STRING, "headers": HEADER},
            "t",
            "column headers is of type struct<key:string,value:binary>; it must",
        ),
        (
            {"value": STRING, "headers": ArrayType(StructType().add("key", STRING).add("value", STRING))},
            "t",
            "column headers is of type array<struct<key:string,value:string>>; it must be",
        ),
    ],
)
def test_a_schema_that_cannot_be_written_names_the_column(
    types: dict[str, DataType], topic: str | None, message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        check(schema(types), topic)


def rows(option: str | None, columns: dict[str, tuple[DataType, pa.Array]]) -> list[dict[str, Any]]:
    """The records of a batch with these columns."""
    known = check(schema({name: kind for name, (kind, _) in columns.items()}), option)
    batch = pa.RecordBatch.from_pydict({name: array for name, (_, array) in columns.items()})
    return [row for part in records(known, option, batch) for row in part]


def test_rows_become_records() -> None:
    assert rows("t", {"value": (STRING, pa.array(["a", None, ""]))}) == [
        {"topic": "t", "key": None, "value": b"a"},
        {"topic": "t", "key": None, "value": None},
        {"topic": "t", "key": None, "value": b""},
    ]
    moment = datetime(2020, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)
    full = rows(
        None,
        {
            "key": (BinaryType(), pa.array([b"k", None])),
            "value": (BinaryType(), pa.array([b"v", b"w"])),
            "topic": (STRING, pa.array(["t", "u"])),
            "partition": (INT, pa.array([2, None], pa.int32())),
            "timestamp": (TimestampType(), pa.array([moment, None], pa.timestamp("us", tz="UTC"))),
            "colour": (STRING, pa.array(["red", None])),
            "headers": (
                HEADERS,
                pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], ARROW_HEADERS),
            ),
        },
    )
    millis = int(moment.timestamp()) * 1000 + 1
    headers = [("h", b"1"), ("h", None)]
    assert full == [
        {"topic": "t", "key": b"k", "value": b"v", "partition": 2, "timestamp": millis, "headers": headers},
        {"topic": "u", "key": None, "value": b"w"},
    ]


def test_the_option_topic_wins_over_the_column() -> None:
    columns = {"value": (STRING, pa.array(["a"])), "topic": (STRING, pa.array([None], pa.string()))}
    assert [record["topic"] for record in rows("mine", columns)] == ["mine"]


def test_large_batches_are_taken_in_parts_that_lose_nothing() -> None:
    values = [bytes([n % 256]) * 100_000 for n in range(150)]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values)})
    parts = [list(part) for part in records(check(schema({"value": BinaryType()}), "t"), "t", batch)]
    assert len(parts) > 3
    assert [record["value"] for part in parts for record in part] == values


NO_KEY = "column headers has a header without a key"


@pytest.mark.parametrize(
    ("name", "kind", "column", "message"),
    [
        ("topic", STRING, pa.array([None], pa.string()), "column topic is null"),
        ("partition", INT, pa.array([-1], pa.int32()), "column partition is -1"),
        ("timestamp", DoubleType(), pa.array([-0.5]), "column timestamp is -500 ms since 1970"),
        ("headers", HEADERS, pa.array([[{"key": None, "value": b""}]], ARROW_HEADERS), NO_KEY),
        ("headers", HEADERS, pa.array([[{"key": "k", "value": b""}, None]], ARROW_HEADERS), NO_KEY),
    ],
)
def test_a_row_that_is_no_record_names_the_column(name: str, kind: DataType, column: pa.Array, message: str) -> None:
    columns = {"value": (STRING, pa.array(["v"])), "topic": (STRING, pa.array(["t"])), name: (kind, column)}
    with pytest.raises(RowError, match=message):
        rows(None, columns)


def test_a_streaming_query_has_its_own_name_and_numbers() -> None:
    found = parse_sink(BASE | {"delivery": "Exactly-Once", "kafka.compression.type": "zstd"}, streaming=True)
    assert found.exactly_once is not None
    assert (found.exactly_once.application, found.exactly_once.version) == (None, None)
    assert (found.exactly_once.ledger_topic, found.exactly_once.compression) == ("kohort-spark-sink", 4)
    assert found.exactly_once.timeout_ms == 900_000
    with pytest.raises(OptionError, match="txnVersion is for batch writes"):
        parse_sink(BASE | ONCE | {"txnVersion": "1"}, streaming=True)
    assert parse_sink(BASE).exactly_once is None


@given(keys=st.lists(st.none() | st.binary(max_size=40)), cut=st.integers(0, 5))
def test_keys_are_hashed_as_java_does(keys: list[bytes | None], cut: int) -> None:
    """The client library's hash, one key after the other, is the oracle."""
    hashes = key_hashes(pa.array(keys, pa.binary()).slice(cut))
    assert [number % 7 for number in hashes] == [partition_for_key(key or b"", 7) for key in keys[cut:]]


def test_the_page_has_every_option_of_exactly_once() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "spark-sink.md").read_text(encoding="utf-8")
    names = [*OWN, *(f"kafka.{name}" for name in (*USED, *REQUIRED) if name != "bootstrap.servers")]
    assert [name for name in names if f"`{name}`" not in page] == []
