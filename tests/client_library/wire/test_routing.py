"""Addresses, retries and their limits, against scripted brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from scripted_broker import CLOSE, ScriptedBroker, end_offset, in_turn, topic

from kohort.client.admin.explanations import NoJournal
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import BadAnswer, ServerError, Unreachable
from kohort.client.wire.routing import Router, Timing, parse_addresses
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribedOffset,
    DescribedOffsetsGroup,
    DescribedOffsetsTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.list_offsets import ListOffsetsRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponseTopic
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", (("a", 1),)),
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , b ,", (("a", 1), ("b", 9092))),
        ("[::1]:9093", (("::1", 9093),)),
        ("[::1]", (("::1", 9092),)),
        ("::1", (("::1", 9092),)),
    ],
)
def test_addresses(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", " , ", ":9092", "a:b", "a:0", "a:65536", "[::1", "a:-1"])
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)


def quick(**changes: int) -> Router:
    return Router("h:1", "test", Timing(**({"backoff": 1, "backoff_max": 2, "api": 2_000, "bootstrap": 200} | changes)))


def test_retriable_failures_are_retried() -> None:
    error = ServerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "group g")
    flaky = Mock(side_effect=[error, error, error, "done"])
    assert quick().retrying(flaky) == "done"
    assert flaky.call_count == 4


def test_other_failures_are_not() -> None:
    flaky = Mock(side_effect=ServerError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic t"))
    with pytest.raises(ServerError, match="topic t"):
        quick().retrying(flaky)
    assert flaky.call_count == 1


def test_retries_end_with_the_last_error_and_the_attempts() -> None:
    flaky = Mock(side_effect=ServerError(ErrorCode.NOT_COORDINATOR, "group g"))
    with pytest.raises(ServerError, match=r"group g \(gave up after \d+ attempts\)"):
        quick(api=50, bootstrap=50).retrying(flaky)


def test_pauses_double_up_to_a_limit() -> None:
    router = Router("h:1", "test", Timing(backoff=100, backoff_max=1_000))
    pauses = [router.backoff(attempt) for attempt in range(1, 8)]
    for pause, nominal in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1, 1, 1], strict=True):
        assert 0.8 * nominal <= pause <= 1.2 * nominal


def options(**changes: int) -> dict[str, int]:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "bootstrap_timeout_ms": 200, "api_timeout_ms": 5_000}
    return quick | changes


@contextmanager
def serving(
    script: dict[type, Any], *topics: MetadataResponseTopic, versions: Any = None, **changes: int
) -> Iterator[tuple[ScriptedBroker, Cluster]]:
    with (
        ScriptedBroker(script, *topics, versions=versions) as broker,
        Cluster(broker.address, **options(**changes)) as cluster,
    ):
        yield broker, cluster


def test_an_unreachable_cluster_names_every_address() -> None:
    started = time.monotonic()
    with (
        Cluster("127.0.0.1:1,127.0.0.1:2", **options()) as cluster,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:[12]: connection refused; 127\.0\.0\.1:[12]: connection"),
    ):
        cluster.topics()
    assert time.monotonic() - started < 3


def test_a_server_that_is_not_kafka_is_not_retried() -> None:
    script = {ApiVersionsRequest: lambda *_: b"\x00\x00\x00\x08HTTP/1.1"}
    with (
        serving(script, bootstrap_timeout_ms=60_000) as (_, cluster),
        pytest.raises(Unreachable, match="is this Kafka"),
    ):
        cluster.topics()


def test_a_malformed_answer_is_not_asked_for_again() -> None:
    malformed = b"\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00"
    with serving({MetadataRequest: lambda *_: malformed}) as (broker, cluster):
        with pytest.raises(BadAnswer):
            cluster.topics()
        assert len(broker.seen(MetadataRequest)) == 1


@pytest.mark.parametrize("first", [CLOSE, end_offset(-1, 6), end_offset(-1, 74), end_offset(-1, 5)])
def test_a_leader_that_moves_is_looked_up_again(first: Any) -> None:
    with serving({ListOffsetsRequest: in_turn(first, end_offset(42))}, topic("t")) as (broker, cluster):
        assert cluster.offsets([("t", 0)]) == {("t", 0): 42}
        assert len(broker.seen(MetadataRequest)) == 2


def test_a_partition_without_a_leader_is_waited_for() -> None:
    with serving({ListOffsetsRequest: end_offset(42)}) as (broker, cluster):
        leaderless, led = broker.metadata(topic("t", -1)), broker.metadata(topic("t"))
        broker.script[MetadataRequest] = in_turn(leaderless, leaderless, led)
        assert cluster.offsets([("t", 0)]) == {("t", 0): 42}


def test_a_missing_topic_is_retried_for_less_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.client.wire.routing.MISSING_TOPIC_PATIENCE_MS", 50)
    with (
        serving({ListOffsetsRequest: end_offset(1)}, api_timeout_ms=600_000) as (_, cluster),
        pytest.raises(ServerError, match="topic nix: UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        cluster.offsets([("nix", 0)])


def described(state: str, error: int = 0, **explained: Any) -> DescribeGroupsResponse:
    fields = {"group_id": "g", "protocol_type": "", "protocol_data": "", "members": ()} | explained
    row = DescribedGroup(error_code=error, group_state=state, **fields)
    return DescribeGroupsResponse(groups=(row,))


@pytest.mark.parametrize("code", [14, 15, 16])
@pytest.mark.parametrize("newest", [3, 6])
def test_a_coordinator_that_moves_or_loads_is_asked_again(code: int, newest: int) -> None:
    script = {DescribeGroupsRequest: in_turn(described("", code), described("Empty"))}
    with serving(script, versions={FindCoordinatorRequest: (0, newest)}) as (broker, cluster):
        assert cluster.describe_groups(["g"])["g"].state == "Empty"
        assert len(broker.seen(FindCoordinatorRequest)) == 2


@pytest.mark.parametrize("newest", [4, 6])
def test_a_coordinator_that_keeps_no_journal_is_named(newest: int) -> None:
    script = {DescribeGroupsRequest: described("Stable")}
    with serving(script, versions={DescribeGroupsRequest: (0, newest)}) as (broker, cluster):
        with pytest.raises(NoJournal, match=f"{broker.address} shows no journal.*may not DESCRIBE the cluster"):
            cluster.explain_group("g")
        assert cluster.describe_groups(["g"])["g"].state == "Stable"


@pytest.mark.parametrize("code", [16, 0])
def test_an_explanation_is_asked_for_again_where_its_coordinator_moved(code: int) -> None:
    stories = (b'{"number": 1}',)
    first = described("Stable", code, explanation=b"{", stories=stories)
    then = described("Stable", explanation=b'{"now_ms": 5}', stories=stories)
    with serving({DescribeGroupsRequest: in_turn(first, then)}) as (broker, cluster):
        if code == 0:
            with pytest.raises(BadAnswer, match="no JSON"):
                cluster.explain_group("g")
        found = cluster.explain_group("g", last=3)
        assert (found.now_ms, found.stories, found.status) == (5, ({"number": 1},), None)
        assert broker.seen(DescribeGroupsRequest)[-1].explain_last == 3


@pytest.mark.parametrize("newest", [2, 7, 8, 10])
def test_committed_offsets_in_old_and_new_versions(newest: int) -> None:
    def answer(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        fields = [{"partition_index": 0, "committed_offset": 5}, {"partition_index": 1, "committed_offset": -1}]
        if version >= 8:
            rows = tuple(OffsetFetchResponsePartitions(metadata="m", **row) for row in fields)
            found = OffsetFetchResponseTopics(name="t", partitions=rows)
            return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(found,)),))
        old = tuple(OffsetFetchResponsePartition(metadata="m", **row) for row in fields)
        return OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=old),))

    with serving({OffsetFetchRequest: answer}, versions={OffsetFetchRequest: (1, newest)}) as (_, cluster):
        assert cluster.committed("g") == {("t", 0): Committed(5, -1, "m")}
        assert cluster.committed("g", [("t", 0), ("t", 1)]) == {("t", 0): Committed(5, -1, "m")}
        assert cluster.committed("g", []) == {}


@pytest.mark.parametrize(("newest", "finds"), [(3, 250), (6, 3)])
def test_many_groups_are_described_in_few_requests(newest: int, finds: int) -> None:
    moved = ["g120"]

    def answer(request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        """In another order than they are asked for, as Apache Kafka may answer."""
        code = ErrorCode.NOT_COORDINATOR if moved and moved[0] in request.groups else 0
        if code:
            moved.clear()
        rows = [described("Empty", code, group_id=group_id).groups[0] for group_id in reversed(request.groups)]
        return DescribeGroupsResponse(groups=tuple(rows))

    names = [f"g{number}" for number in range(250)]
    script = {DescribeGroupsRequest: answer}
    with serving(script, versions={FindCoordinatorRequest: (0, newest)}) as (broker, cluster):
        found = cluster.describe_groups(names)
        assert list(found) == names
        assert all((name, "Empty") == (group.group_id, group.state) for name, group in found.items())
        sizes = [len(request.groups) for request in broker.seen(DescribeGroupsRequest)]
        assert sizes == [100, 100, 100, 50], "those of the second request again, because one of them had moved"
        again = 100 if newest < 4 else 1
        assert len(broker.seen(FindCoordinatorRequest)) == finds + again


def test_a_group_without_room_in_the_answer_is_asked_for_alone() -> None:
    def answer(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        row = OffsetFetchResponseTopics(name="t", partitions=(OffsetFetchResponsePartitions(committed_offset=5),))
        groups = [OffsetFetchResponseGroup(group_id=one.group_id, topics=(row,)) for one in request.groups]
        if len(groups) > 1:
            groups[1] = OffsetFetchResponseGroup(group_id="b", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return OffsetFetchResponse(groups=tuple(groups))

    script = {OffsetFetchRequest: answer, ListOffsetsRequest: end_offset(9)}
    with serving(script, topic("t")) as (broker, cluster):
        lags = cluster.group_lags(["a", "b", "c"])
        assert {group_id: lag.total for group_id, lag in lags.items()} == {"a": 4, "b": 4, "c": 4}
        asked = [[one.group_id for one in request.groups] for request in broker.seen(OffsetFetchRequest)]
        assert asked == [["a", "b", "c"], ["b"]]


def test_offsets_of_a_share_group_are_read_again_when_its_coordinator_has_moved() -> None:
    def row(error: int = 0) -> DescribeShareGroupOffsetsResponse:
        offset = DescribedOffset(partition_index=0, start_offset=2, leader_epoch=0, lag=7)
        topics = (DescribedOffsetsTopic(topic_name="t", topic_id=bytes(16), partitions=(offset,)),)
        group = DescribedOffsetsGroup(group_id="g", topics=() if error else topics, error_code=error)
        return DescribeShareGroupOffsetsResponse(groups=(group,))

    script = {DescribeShareGroupOffsetsRequest: in_turn(row(ErrorCode.NOT_COORDINATOR), row())}
    with serving(script, topic("t")) as (_, cluster):
        assert cluster.share_groups.offsets(["g"])["g"].lag == 7
    with serving({DescribeShareGroupOffsetsRequest: row(ErrorCode.GROUP_ID_NOT_FOUND)}) as (_, cluster):
        assert cluster.share_groups.offsets(["g"])["g"].partitions == {}


def test_an_answer_that_lacks_a_group_is_a_defect_of_the_server() -> None:
    with (
        serving({DescribeGroupsRequest: DescribeGroupsResponse(groups=())}) as (_, cluster),
        pytest.raises(BadAnswer, match="an answer without group a"),
    ):
        cluster.describe_groups(["a", "b"])


def test_group_states_come_from_describe_where_the_list_has_none() -> None:
    listed = ListGroupsResponse(error_code=0, groups=(ListedGroup(group_id="g", protocol_type="consumer"),))
    script = {ListGroupsRequest: listed, DescribeGroupsRequest: described("Stable")}
    with serving(script, versions={ListGroupsRequest: (0, 2)}) as (_, cluster):
        assert [group.state for group in cluster.list_groups(states=["stable"])] == ["Stable"]
        assert cluster.list_groups(states=["Empty"]) == []
        assert [group.state for group in cluster.list_groups()] == [""]


def test_a_missing_group_is_dead_in_every_version() -> None:
    with serving({DescribeGroupsRequest: described("", 69)}) as (_, cluster):
        assert cluster.describe_groups(["g"])["g"].state == "Dead"
