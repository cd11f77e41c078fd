"""What operators see of share groups, and records that are delivered again because one asks for it."""

from __future__ import annotations

import json
from typing import Any

from share_driver import ACCEPT, REJECT, RELEASE, Member, share_world
from test_scrape import lines_of, scrape_of
from wire_driver import GROUP, SET, Connection, Wire, delete_topics

from kohort.broker.metrics.samples import Samples
from kohort.coordinator.shares.events import ShareKey
from kohort.wire.schemas.alter_share_group_offsets import (
    NOT_SET,
    AlteredOffset,
    AlterShareGroupOffsetsRequest,
    NewOffset,
    NewOffsetsTopic,
    OffsetRange,
)
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribedOffset,
    DescribeShareGroupOffsetsRequest,
    OffsetsAskedGroup,
)


def described(client: Connection, most: int = 10) -> DescribedOffset:
    request = DescribeShareGroupOffsetsRequest(
        groups=(OffsetsAskedGroup(group_id="g", topics=None),), records_most=most
    )
    found: DescribedOffset = client.ask(request, 1).groups[0].topics[0].partitions[0]
    return found


def records(client: Connection, most: int = 10) -> Any:
    return json.loads(described(client, most).records)


def stories(client: Connection) -> list[str]:
    """The causes of all happenings."""
    row = client.ask(DescribeGroupsRequest(groups=("g",), explain_last=50), 6).groups[0]
    found = []
    for story in map(json.loads, row.stories):
        for one in (story["cause"], *story.get("happenings", ())):
            found.append(f"{one['what']}: {one.get('cause', '')}")
    return found


def redeliver(client: Connection, *wanted: tuple[int, int], start: int = NOT_SET) -> AlteredOffset:
    again = tuple(OffsetRange(first_offset=first, last_offset=last) for first, last in wanted)
    partition = NewOffset(partition_index=0, start_offset=start, redeliver=again)
    request = AlterShareGroupOffsetsRequest(
        group_id="g", topics=(NewOffsetsTopic(topic_name="t", partitions=(partition,)),)
    )
    answer = client.ask(request, 0)
    assert not answer.error_code, answer.error_message
    found: AlteredOffset = answer.responses[0].partitions[0]
    return found


def test_what_is_in_flight_by_whom_and_how_often_it_was_delivered() -> None:
    wire, client, [a, b] = share_world(10)
    assert a.take(max_records=4, batch_size=1) == [(at, at, 1) for at in range(4)]
    assert a.ack((1, 1, RELEASE)) == 0
    assert b.take(max_records=1) == [(1, 1, 2)]
    assert b.take(max_records=1) == [(4, 4, 1)]
    wire.advance(1_000)
    found = records(client)
    assert found["in_flight"] == [
        [0, 0, "a", 1, 29_000],
        [1, 1, "b", 2, 29_000],
        [2, 2, "a", 1, 29_000],
        [3, 3, "a", 1, 29_000],
        [4, 4, "b", 1, 29_000],
    ]
    assert found["holders"] == {
        "a": {"records": 3, "deliveries": {"1": 3}, "next_end_ms": 29_000},
        "b": {"records": 2, "deliveries": {"1": 1, "2": 1}, "next_end_ms": 29_000},
    }
    assert (found["first_member"], found["first_deliveries"], found["most_deliveries"]) == ("a", 1, 2)
    assert (found["next_offset"], found["log_end"], found["stands_ms"]) == (5, 10, 1_000)
    assert described(client).lag == 10
    assert len(records(client, 2)["in_flight"]) == 2
    assert "in_flight" not in records(client, 0)
    assert described(client, -1).records == b""


def test_what_was_archived_and_why() -> None:
    wire, client, [a, b] = share_world(6)
    client.alter_configs("g", GROUP, ("share.delivery.count.limit", SET, "2"))
    assert a.take(batch_size=1)[-1] == (5, 5, 1)
    assert a.ack((0, 1, ACCEPT), (2, 3, ACCEPT, REJECT), (4, 4, RELEASE), (5, 5, 0)) == 0
    assert b.take() == [(4, 4, 2)]
    wire.advance(30_000)
    found = records(client)
    assert [row[:5] for row in found["archived"]] == [
        [3, 3, 1, "rejected", "a"],
        [4, 4, 2, "delivered too often", "b"],
    ]
    assert found["counts"] == {
        "delivered": 7,
        "accepted": 3,
        "rejected": 1,
        "released": 1,
        "gaps": 1,
        "delivered too often": 1,
    }
    assert described(client).lag == 0
    told = stories(client)
    assert "records archived: 1 record rejected: t[0] 3 (delivered 1 ×)" in told
    assert "records archived: 1 record delivered too often: t[0] 4 (delivered 2 ×)" in told
    assert told[:2] == ["member joined: ", "member joined: "]


def test_a_flood_of_rejected_records_is_few_entries() -> None:
    _, client, [a] = share_world(20, members="a")
    a.take(batch_size=1)
    for at in range(20):
        assert a.ack((at, at, REJECT)) == 0
    told = [one for one in stories(client) if one.startswith("records archived")]
    assert [one.partition(" rejected")[0] for one in told] == [
        "records archived: 1 record",
        "records archived: 19 records",
    ]


def test_finished_records_are_delivered_again() -> None:
    wire, client, [a, b] = share_world(10)
    assert a.take(max_records=6, batch_size=1) == [(at, at, 1) for at in range(6)]
    assert a.ack((0, 2, ACCEPT), (3, 3, REJECT)) == 0
    assert described(client).start_offset == 4, "4 and 5 are still locked"
    assert redeliver(client, (3, 3), (1, 1), (4, 4), (8, 9)).redelivered == 2
    row = described(client)
    assert (row.start_offset, row.lag) == (1, 8)
    assert b.take() == [(1, 1, 1), (3, 3, 1), (6, 9, 1)], "what is locked stays so"
    assert b.ack((1, 1, ACCEPT), (3, 3, ACCEPT)) == 0
    assert a.ack((4, 5, ACCEPT)) == 0
    assert described(client).start_offset == 6
    assert "records redelivered: 2 records: t[0] 3 1 4 8-9" in stories(client)
    for shard in wire.broker.state.shares.shards:
        shard.validate()


def test_archived_records_that_are_delivered_again_are_archived_no_more() -> None:
    _, client, [a] = share_world(6, members="a")
    a.take()
    assert a.ack((0, 5, REJECT)) == 0
    assert [row[:2] for row in records(client)["archived"]] == [[0, 5]]
    assert redeliver(client, (1, 1), (5, 5)).redelivered == 2
    assert [row[:2] for row in records(client)["archived"]] == [[0, 0], [2, 4]]


def test_redelivered_records_survive_a_restart() -> None:
    wire, client, [a] = share_world(6, members="a")
    a.take()
    assert a.ack((0, 5, ACCEPT)) == 0
    assert redeliver(client, (2, 3)).redelivered == 2
    again = wire.restarted(group_share_enable=True, share_coordinator_state_topic_num_partitions=3)
    client = again.connect()
    assert described(client).start_offset == 2
    member = Member(again, "a", a.topic_id)
    member.beat("t", epoch=0)
    assert member.take() == [(2, 3, 1)]


def test_what_cannot_be_delivered_again() -> None:
    _, client, [a] = share_world(6, members="a")
    a.take()
    assert a.ack((0, 5, ACCEPT)) == 0
    assert redeliver(client, (0, 1), start=0).error_code == 42, "another broker would reset the offset"
    assert redeliver(client, (3, 2)).error_code == 42
    assert redeliver(client, (10, 20)).redelivered == 0
    assert described(client).start_offset == 6
    partition = DeleteRecordsPartition(partition_index=0, offset=4)
    client.ask(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=1), 1)
    assert redeliver(client, (0, 4)).redelivered == 1, "the others are deleted"
    assert a.take() == [(4, 4, 1)]


def test_strict_kafka_shows_nothing_and_refuses() -> None:
    _, client, [a] = share_world(3, members="a", compatibility="kafka")
    a.take()
    a.ack((0, 2, ACCEPT))
    assert described(client).records == b""
    assert redeliver(client, (0, 1)).error_code == 42


def test_reports_are_forgotten_with_the_share_partition() -> None:
    wire, client, [a] = share_world(2, members="a")
    a.take()
    state = wire.broker.state
    key = ShareKey("g", a.topic_id, 0)
    shard = state.shares.find(key)
    assert shard is not None
    assert key in shard.tallies
    client.ask(delete_topics("t"), 5)
    assert key not in shard.tallies


def test_metrics_of_a_share_group() -> None:
    wire, client, [a, b] = share_world(10)
    a.take(max_records=4, batch_size=1)
    assert a.ack((0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE)) == 0
    b.take(max_records=1)
    wire.advance(2_000)
    found = scraped(wire)
    labels = '{group="g",topic="t",partition="0"}'
    assert found["members"] == ['{group="g"} 2']
    assert found["lag"] == [f"{labels} 8"]
    assert found["lag_sum"] == ['{group="g"} 8']
    assert found["start_offset"] == [f"{labels} 2"]
    assert found["in_flight"] == [f"{labels} 2"]
    assert found["in_flight_sum"] == ['{group="g"} 2']
    assert found["given_back"] == [f"{labels} 0"], "b has what a gave back"
    assert found["standing_seconds"] == [f"{labels} 2"]
    assert found["records_total"] == [
        '{group="g",outcome="accepted"} 1',
        '{group="g",outcome="delivered"} 5',
        '{group="g",outcome="rejected"} 1',
        '{group="g",outcome="released"} 1',
    ]
    [lag] = found["lag"]
    assert lag == f"{labels} {described(client).lag}", "both are exact"


def test_metrics_of_share_groups_have_a_limit() -> None:
    wire, _, [a] = share_world(3, members="a", metrics_groups_granularity="group")
    a.take()
    found = scraped(wire)
    assert found["lag_sum"] == ['{group="g"} 3']
    assert "lag" not in found
    wire, _, [a] = share_world(3, members="a", metrics_max_series=260)
    a.take()
    assert "lag" not in scraped(wire), "no room for partitions"


def scraped(wire: Wire) -> dict[str, list[str]]:
    """The series of share groups, by the rest of their names."""
    found: dict[str, list[str]] = {}
    for line in lines_of(_all(wire), "kohort_share_group_"):
        name, brace, rest = line.removeprefix("kohort_share_group_").partition("{")
        found.setdefault(name, []).append(brace + rest)
    return found


def _all(wire: Wire) -> Samples:
    scrape = scrape_of(wire)
    try:
        while True:
            next(scrape)
    except StopIteration as done:
        found: Samples = done.value
        return found
