"""A schema out of a sample, names for columns: without Spark."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from kohort.spark.lake.json_schema import MOST_FIELDS, column_names, describe, extended, infer, renamed


def inferred(*values: object) -> str:
    kind = infer([value if isinstance(value, bytes) else json.dumps(value).encode() for value in values])
    return describe(kind) if kind is not None else "nothing"


def test_every_value_fits_the_inferred_type_without_loss() -> None:
    assert inferred({"a": 1}, {"a": 2}) == "struct<a: bigint>"
    assert inferred({"a": 1}, {"a": 2.5}) == "struct<a: double>"
    assert inferred({"a": 2**53 + 1}, {"a": 2.5}) == "struct<a: string>"
    assert inferred({"a": 2**63 - 1}, {"a": -(2**63)}) == "struct<a: bigint>"
    assert inferred({"a": 2**63}) == "struct<a: string>"
    assert inferred({"a": True}, {"a": 1}) == "struct<a: string>"
    assert inferred(b'{"a": 1e999, "b": 1e3}') == "struct<a: string, b: double>"
    assert inferred({"a": None, "b": [], "c": {}, "d": [None]}) == (
        "struct<a: string, b: array<string>, c: string, d: array<string>>"
    )
    assert inferred({"a": [1, "x"]}, {"b": {"c": [[{"d": 1}]]}}) == (
        "struct<a: array<string>, b: struct<c: array<array<struct<d: bigint>>>>>"
    )
    assert inferred({"a": {"b": 1}}, {"a": 3}) == "struct<a: string>"
    assert inferred({"a": [{"b": 1}, {"c": "x"}]}) == "struct<a: array<struct<b: bigint, c: string>>>"


def test_values_that_are_not_objects_are_skipped() -> None:
    assert inferred(b"no", b"\xff", b"[1]", b"3", b"null", b"") == "nothing"
    assert infer([None, b"x", b'{"a": 1}']) == infer([b'{"a": 1}'])
    assert inferred(b"[" * 100_000, {}) == "nothing"


def test_an_object_with_too_many_names_becomes_a_string() -> None:
    many = {f"f{n}": n for n in range(MOST_FIELDS + 5)}
    assert inferred({"ids": many}) == "struct<ids: string>"
    kind = infer([json.dumps(many).encode()])
    assert kind is not None
    assert len(kind["fields"]) == MOST_FIELDS


def test_a_schema_grows_and_its_types_stay() -> None:
    known = infer([b'{"a": 1, "b": {"c": 1}, "d": [{"e": 1}]}'])
    found = infer([b'{"z": 1, "a": "x", "b": {"c": 1, "new": 2}, "d": [{"f": 1}]}'])
    assert describe(extended(known, found)) == (
        "struct<a: bigint, b: struct<c: bigint, new: bigint>, d: array<struct<e: bigint, f: bigint>>, z: bigint>"
    )
    assert extended(known, known) == known


def test_column_names_differ_in_more_than_case() -> None:
    assert column_names(["id", "Id", "KEY", "", "value_key", "ID"], ["key", "topic"]) == [
        "id", "Id_2", "value_KEY", "_", "value_key_2", "ID_3",
    ]  # fmt: skip
    kind = infer([b'{"a": {"x": 1, "X": 2, "key": 3}, "key": [{"y": 1, "Y": 2}]}'])
    assert describe(renamed(kind, ["key"])) == (
        "struct<a: struct<x: bigint, X_2: bigint, key: bigint>, value_key: array<struct<y: bigint, Y_2: bigint>>>"
    )


@given(st.lists(st.text("aAbB_2", max_size=4)))
def test_no_two_columns_are_alike(names: list[str]) -> None:
    columns = column_names(names, ["a", "value_b"])
    assert len({column.lower() for column in [*columns, "a", "value_b"]}) == len(columns) + 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=4), min_size=1, max_size=5))
def test_every_value_of_the_sample_fits(values: list[dict[str, Any]]) -> None:
    kind = infer([json.dumps(value).encode() for value in values])
    assert all(kind is None or fits(value, kind) for value in values)
    assert kind is None or StructType.fromJson(kind).toNullable().jsonValue() == kind


def fits(value: Any, kind: Any) -> bool:
    if value is None or kind == "string":
        return True
    if isinstance(kind, dict) and kind["type"] == "array":
        return isinstance(value, list) and all(fits(part, kind["elementType"]) for part in value)
    if isinstance(kind, dict):
        types = {field["name"]: field["type"] for field in kind["fields"]}
        return isinstance(value, dict) and all(
            name in types and fits(part, types[name]) for name, part in value.items()
        )
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "long":
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return kind == "double" and isinstance(value, int | float) and not isinstance(value, bool)
