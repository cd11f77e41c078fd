"""What pushed filters leave of a read, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import datasource as spark

from kohort.client.metadata import TopicPartition
from kohort.spark.source.filters import Narrowing

RANGES = {("a", 0): (10, 100), ("a", 1): (0, 50), ("b", 0): (0, 7)}
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def left(*filters: Any, first: Mapping[TopicPartition, int] | None = None) -> tuple[dict[TopicPartition, Any], int]:
    """The ranges that are read, and the number of filters that are Spark's."""
    narrowing = Narrowing()
    of_spark = narrowing.take(filters)
    return narrowing.of(RANGES, lambda moments: first or dict.fromkeys(moments, -1)), len(of_spark)


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], RANGES),
        ([spark.EqualTo(("topic",), "b")], {("b", 0): (0, 7)}),
        ([spark.In(("topic",), ("b", "c"))], {("b", 0): (0, 7)}),
        ([spark.In(("partition",), (1, 5)), spark.IsNotNull(("partition",))], {("a", 1): (0, 50)}),
        ([spark.GreaterThanOrEqual(("partition",), 1)], {("a", 1): (0, 50)}),
        ([spark.LessThan(("partition",), 0)], {}),
        ([spark.EqualTo(("offset",), 8)], {("a", 1): (8, 9)}),
        ([spark.EqualNullSafe(("offset",), 10)], {("a", 0): (10, 11), ("a", 1): (10, 11)}),
        ([spark.GreaterThan(("offset",), 48)], {("a", 0): (49, 100), ("a", 1): (49, 50)}),
        ([spark.GreaterThanOrEqual(("offset",), 50)], {("a", 0): (50, 100)}),
        ([spark.LessThan(("offset",), 1)], {("a", 1): (0, 1), ("b", 0): (0, 1)}),
        ([spark.LessThanOrEqual(("offset",), 1)], {("a", 1): (0, 2), ("b", 0): (0, 2)}),
        ([spark.LessThan(("offset",), 5), spark.LessThan(("offset",), 3), spark.GreaterThan(("offset",), 1)],
         {("a", 1): (2, 3), ("b", 0): (2, 3)}),
    ],
)  # fmt: skip
def test_what_is_decided_here(filters: list[Any], ranges: dict[TopicPartition, Any]) -> None:
    assert left(*filters) == (ranges, 0)


@pytest.mark.parametrize(
    "other",
    [
        spark.EqualTo(("value",), b"x"),
        spark.Not(spark.EqualTo(("partition",), 0)),
        spark.StringStartsWith(("topic",), "a"),
        spark.GreaterThan(("topic",), "a"),
        spark.IsNull(("offset",)),
        spark.In(("offset",), (1, 2)),
        spark.LessThan(("timestamp",), BEGAN),
        spark.EqualTo(("headers", "key"), "x"),
        spark.GreaterThan(("timestamp",), BEGAN.replace(tzinfo=None)),
        spark.GreaterThan(("timestamp",), datetime(1969, 12, 31, tzinfo=UTC)),
    ],
    ids=repr,
)
def test_what_stays_with_spark(other: Any) -> None:
    assert left(other) == (RANGES, 1)


def test_a_time_moves_the_start_and_stays_with_spark() -> None:
    first = {("a", 0): 40, ("a", 1): -1, ("b", 0): 0}
    ranges = {("a", 0): (40, 100), ("b", 0): (0, 7)}
    for one in (spark.GreaterThan, spark.GreaterThanOrEqual, spark.EqualTo):
        assert left(one(("timestamp",), BEGAN), first=first) == (ranges, 1)


def test_the_latest_of_several_times_counts() -> None:
    narrowing = Narrowing()
    narrowing.take(spark.GreaterThan(("timestamp",), BEGAN + timedelta(hours=hours)) for hours in (0, 2, 1))
    assert narrowing.since_ms == int((BEGAN + timedelta(hours=2)).timestamp() * 1000) - 1
