"""Responses that are encoded in steps have the same bytes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from kohort.wire.codec import response_pieces, supported_versions
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kohort.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kohort.wire.steps import response_steps, rows_of

SYNONYM = DescribeConfigsSynonym(name="retention.ms", value="1", source=1)
CONFIG = DescribeConfigsResourceResult(
    name="retention.ms", value="1", read_only=False, is_sensitive=False, config_source=1, synonyms=(SYNONYM,)
)
RESPONSES = {
    "topics of different sizes": MetadataResponse(
        brokers=(),
        cluster_id="c",
        controller_id=1,
        topics=tuple(
            MetadataResponseTopic(
                error_code=0,
                name=f"t{number}",
                topic_id=bytes(16),
                is_internal=False,
                partitions=tuple(
                    MetadataResponsePartition(
                        error_code=0, partition_index=index, leader_id=1, replica_nodes=(1,), isr_nodes=(1,)
                    )
                    for index in range(number % 7 * 90)
                ),
            )
            for number in range(40)
        ),
    ),
    "the partitions of one topic": ListOffsetsResponse(
        topics=(
            ListOffsetsTopicResponse(
                name="t",
                partitions=tuple(ListOffsetsPartitionResponse(partition_index=n, error_code=0) for n in range(1_300)),
            ),
        )
    ),
    "the partitions of one topic of one group": OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(
                group_id="g",
                topics=(
                    OffsetFetchResponseTopics(
                        name="t",
                        partitions=tuple(
                            OffsetFetchResponsePartitions(
                                partition_index=n, committed_offset=n, metadata="m" * 100, error_code=0
                            )
                            for n in range(1_300)
                        ),
                    ),
                ),
            ),
        )
    ),
    "arrays in rows": DescribeConfigsResponse(
        results=tuple(
            DescribeConfigsResult(
                error_code=0, error_message=None, resource_type=2, resource_name=f"t{n}", configs=(CONFIG,) * 30
            )
            for n in range(200)
        )
    ),
}


def finished(steps: Generator[None, None, list[bytes]]) -> tuple[list[bytes], int]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


@pytest.mark.parametrize("name", RESPONSES)
def test_the_bytes_are_the_same(name: str) -> None:
    response: Any = RESPONSES[name]
    keys = {MetadataResponse: 3, ListOffsetsResponse: 2, OffsetFetchResponse: 9, DescribeConfigsResponse: 32}
    key = keys[type(response)]
    for version in supported_versions(type(response)):
        if key == 9 and version < 8:  # it had no groups
            continue
        path = rows_of(response, version)
        pieces, count = finished(response_steps(response, version, 7, path, api_key=key))
        assert b"".join(pieces) == b"".join(response_pieces(response, version, 7, api_key=key)), version
        assert count > 2


def test_a_short_response_has_no_steps() -> None:
    assert rows_of(ListOffsetsResponse(topics=()), 7) == ()
    assert rows_of(DescribeConfigsResponse(results=RESPONSES["arrays in rows"].results[:5]), 4) == ()
