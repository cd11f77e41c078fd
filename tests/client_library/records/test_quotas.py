"""Fetches of a client whose quota is used up, and answers that leave partitions out, against scripted brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from scripted_broker import ScriptedBroker, end_offset, in_turn, topic

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.wire.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.schemas.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kohort.wire.schemas.metadata import MetadataRequest

PLACE = ("t", 0)


def throttled(ms: int) -> FetchResponse:
    """Kafka's throttled answer, which has no partitions for any request."""
    return FetchResponse(throttle_time_ms=ms, responses=())


def answered(*partitions: int) -> FetchResponse:
    rows = tuple(
        PartitionData(
            partition_index=index, error_code=0, high_watermark=7, last_stable_offset=7, log_start_offset=0, records=b""
        )
        for index in partitions
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=rows),))


def brokers(fetches: Any) -> ScriptedBroker:
    return ScriptedBroker({FetchRequest: fetches}, topic("t"), versions={FetchRequest: (4, 12)})


def at_once(cluster: Cluster) -> list[FetchedPartition]:
    return cluster.fetch({PLACE: 0}, max_wait_ms=0)


def ahead(cluster: Cluster) -> list[FetchedPartition]:
    return cluster.fetch_ahead({PLACE: 0}, max_wait_ms=0)()


@pytest.mark.parametrize("fetch", [at_once, ahead])
def test_a_quota_is_waited_for_as_long_as_the_broker_says(fetch: Callable[[Cluster], list[FetchedPartition]]) -> None:
    with (
        brokers(in_turn(throttled(150), throttled(100), answered(0))) as broker,
        Cluster(broker.address, retry_backoff_ms=0) as cluster,
    ):
        began = time.monotonic()
        (fetched,) = fetch(cluster)
        assert fetched.high_watermark == 7
        assert time.monotonic() - began >= 0.25
        assert len(broker.seen(FetchRequest)) == 3


@pytest.mark.parametrize("fetch", [at_once, ahead])
def test_a_quota_that_lasts_is_no_failure(fetch: Callable[[Cluster], list[FetchedPartition]]) -> None:
    with brokers(throttled(100)) as broker, Cluster(broker.address, api_timeout_ms=300) as cluster:
        assert fetch(cluster) == []
        assert len(broker.seen(FetchRequest)) <= 6
        broker.script[FetchRequest] = answered(0)
        assert len(fetch(cluster)) == 1


def test_others_need_not_wait_for_a_broker_that_does_not_answer() -> None:
    with brokers(throttled(60_000)) as slow, brokers(answered(1)) as quick:
        slow.script[MetadataRequest] = slow.metadata(topic("t", 1, 2), others=(quick,))
        with Cluster(slow.address) as cluster:
            began = time.monotonic()
            fetched = cluster.fetch({("t", 0): 0, ("t", 1): 0}, max_wait_ms=0)
            assert [one.partition for one in fetched] == [1]
            assert time.monotonic() - began < 30


@pytest.mark.parametrize("fetch", [at_once, ahead])
def test_a_partition_that_is_left_out_is_asked_for_again(fetch: Callable[[Cluster], list[FetchedPartition]]) -> None:
    with brokers(in_turn(answered(), answered(), answered(0))) as broker, Cluster(broker.address) as cluster:
        assert len(fetch(cluster)) == 1
        broker.script[FetchRequest] = answered()
    with (
        brokers(answered()) as broker,
        Cluster(broker.address, api_timeout_ms=200) as cluster,
        pytest.raises(KafkaError, match=r"Fetch t-0: the answer leaves the partition out \(gave up after"),
    ):
        fetch(cluster)


def test_other_answers_are_asked_for_again_too() -> None:
    script = {ListOffsetsRequest: in_turn(ListOffsetsResponse(topics=()), end_offset(42))}
    with ScriptedBroker(script, topic("t")) as broker, Cluster(broker.address) as cluster:
        assert cluster.offsets([PLACE]) == {PLACE: 42}
