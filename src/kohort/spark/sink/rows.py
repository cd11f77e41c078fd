"""Rows of a DataFrame as records for the producer.

An invalid schema is refused at the start of the query, an invalid row by its task; the error names the column.
Source: Spark's `KafkaWriter` (columns, types), Kafka's `ProducerRecord` and `RecordHeader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

Record = dict[str, Any]
"""The arguments of `Producer.produce`."""

Columns = frozenset[str]
"""The names of the columns to read; others are ignored."""

PART_BYTES = 4 * 1024 * 1024
"""The size of the parts in which a batch is converted to Python objects."""


class SchemaError(ValueError):
    """The DataFrame's schema cannot be written; the message names the column."""


class RowError(ValueError):
    """A row cannot be a record; the message names the column."""


def check(schema: StructType, topic: str | None) -> Columns:
    """The DataFrame's columns that count. The option `topic` overrides the column. Raises SchemaError."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise SchemaError(f"there is no column value; the columns are {', '.join(fields) or 'none'}")
    if topic is None and "topic" not in fields:
        raise SchemaError("there is no topic: neither an option topic nor a column topic")
    wanted: dict[str, tuple[tuple[type[DataType], ...], str]] = {
        "value": ((StringType, BinaryType), "string or binary"),
        "key": ((StringType, BinaryType), "string or binary"),
        "partition": ((IntegerType,), "int"),
        "timestamp": ((TimestampType, DoubleType), "timestamp, or double for seconds"),
    }
    if topic is None:
        wanted["topic"] = ((StringType,), "string")
    for name, (types, words) in wanted.items():
        if name in fields and type(fields[name]) not in types:
            raise SchemaError(f"column {name} is of type {fields[name].simpleString()}; it must be {words}")
    if "headers" in fields and not _is_headers_type(fields["headers"]):
        raise SchemaError(
            f"column headers is of type {fields['headers'].simpleString()}; "
            "it must be array<struct<key:string,value:binary>>"
        )
    return frozenset(fields) & {*wanted, "headers"}


def _is_headers_type(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def records(columns: Columns, topic: str | None, batch: pa.RecordBatch) -> Iterator[Iterator[Record]]:
    """The rows of a batch as records, in parts. Raises RowError."""
    return (records_of(columns, topic, part) for part in parts(batch))


def parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of about PART_BYTES."""
    rows = max(1, PART_BYTES * batch.num_rows // max(batch.nbytes, 1))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def records_of(columns: Columns, topic: str | None, batch: pa.RecordBatch) -> Iterator[Record]:
    """The rows one after the other, with only the columns that the DataFrame has. Raises RowError."""
    count = batch.num_rows
    values = _bytes(batch.column("value"))
    keys = _bytes(batch.column("key")) if "key" in columns else [None] * count
    topics = batch.column("topic").to_pylist() if "topic" in columns else [topic] * count
    partitions = batch.column("partition").to_pylist() if "partition" in columns else None
    headers = batch.column("headers").to_pylist() if "headers" in columns else None
    timestamps = _millis(batch.column("timestamp")) if "timestamp" in columns else None
    for row, (name, value, key) in enumerate(zip(topics, values, keys, strict=True)):
        if name is None:
            raise RowError("column topic is null in a row; give every row a topic, or set the option topic")
        record: Record = {"topic": name, "value": value, "key": key}
        if partitions is not None and (partition := partitions[row]) is not None:
            if partition < 0:
                why = "partitions count from 0, and null lets the producer choose"
                raise RowError(f"column partition is {partition} in a row; {why}")
            record["partition"] = partition
        if headers is not None and (given := headers[row]) is not None:
            record["headers"] = [_header(header) for header in given]
        if timestamps is not None and (millis := timestamps[row]) is not None:
            if millis <= 0:
                raise RowError(
                    f"column timestamp is {millis} ms since 1970 in a row; it must be positive (null means now)"
                )
            record["timestamp"] = millis
        yield record


def _bytes(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values


def _header(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        raise RowError("column headers has a header without a key in a row")
    return header["key"], header["value"]


def _millis(column: pa.Array) -> list[int | None]:
    """Milliseconds since 1970, rounded down, from microseconds or from seconds with a fraction."""
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        return [None if seconds is None else int(seconds * 1000) for seconds in column.to_pylist()]
    return [None if micros is None else micros // 1000 for micros in column.cast(pa.int64()).to_pylist()]
