"""Answers that are much larger than their requests, or take long: made in steps, bounded, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from wire_driver import (
    Connection,
    Wire,
    batch,
    delete_topics,
    fetch_request,
    produce_request,
    values_of,
    with_topic,
)

from kohort.broker.handlers.fetch import LARGE
from kohort.broker.messages import changed
from kohort.broker.turn import Closed, Frame, Unread
from kohort.broker.waits.fetch_waits import FetchWait, FetchWaits
from kohort.storage.protocol import LogKey
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

STEPS = 5
"""Polls of the time that a turn of these tests has."""


def turns_of(wire: Wire, frame: Frame, meanwhile: Frame | None = None) -> int:
    """Turns of STEPS polls until the request is answered or parked. `meanwhile` arrives after the first turn."""
    arrived: tuple[Frame, ...] = (frame,)
    turns = 0
    while arrived or wire.broker.busy:
        left = iter(range(STEPS))
        wire.end(wire.broker.step(arrived, wire.now, lambda left=left: next(left, None) is None))  # type: ignore[misc]
        arrived = (meanwhile,) if meanwhile is not None and not turns else ()
        turns += 1
        assert turns < 10_000
    return turns


def naming(*partitions: int, **fields: Any) -> FetchRequest:
    asked = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000_000) for index in partitions
    )
    return changed(fetch_request("t"), topics=(FetchTopic(topic="t", partitions=asked),), **fields)


# -- Fetch


@pytest.mark.parametrize("times", [3, 20_000])
def test_a_fetch_reads_a_partition_once_however_often_it_is_named(times: int) -> None:
    client = with_topic()
    client.produce("t", "first")
    turns_of(client.wire, client.frame(naming(*[0] * times), 4))
    [topic] = client.take().responses
    [partition] = topic.partitions
    assert partition.records


def test_of_a_partition_that_is_named_twice_the_last_entry_counts() -> None:
    client = with_topic()
    client.produce("t", "first")
    client.produce("t", "second")
    entries = tuple(FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1_000_000) for at in (0, 1))
    topics = tuple(FetchTopic(topic="t", partitions=(entry,)) for entry in entries)
    assert values_of(client.ask(changed(fetch_request("t"), topics=topics), 4)) == [b"second"]


def test_a_waiting_fetch_that_names_one_partition_often_wakes_at_once() -> None:
    client = with_topic()
    turns_of(client.wire, client.frame(naming(*[0] * 20_000, max_wait_ms=500, min_bytes=1), 4))
    client.wire.connect().produce("t", "new")
    assert values_of(client.take()) == [b"new"]


def test_a_fetch_of_many_partitions_is_read_in_steps_and_waits_for_its_whole_time() -> None:
    client = with_topic(LARGE + 1)
    request = naming(*range(LARGE + 1), max_wait_ms=500, min_bytes=1)
    assert turns_of(client.wire, client.frame(request, 4)) > 1
    client.wire.connect().produce("t", "new", partition=7)
    assert client.wire.broker.next_deadline() == client.wire.now + 500
    client.wire.advance(500)
    response = client.take()
    assert sum(len(topic.partitions) for topic in response.responses) == LARGE + 1
    assert values_of(changed(response, responses=response.responses)) == [b"new"]


@pytest.mark.parametrize("min_bytes", [1, 3])
def test_a_fetch_in_steps_sees_what_is_appended_between_them(min_bytes: int) -> None:
    """A record counts as a byte: for more bytes the fetch may wait longer than it must, until its deadline."""
    client = with_topic(LARGE)
    frame = client.frame(naming(*range(LARGE), max_wait_ms=500, min_bytes=min_bytes), 4)
    other = client.wire.connect()
    turns = turns_of(client.wire, frame, other.frame(produce_request("t", batch("a", "b"), partition=0), 9))
    assert turns > 2
    assert other.take().responses[0].partition_responses[0].error_code == 0
    if min_bytes > 2:
        client.wire.advance(500)
    assert values_of(client.take()) == [b"a", b"b"]


def test_a_fetch_in_steps_sees_that_a_topic_is_deleted_between_them() -> None:
    client = with_topic(LARGE)
    client.create_topic("u")
    request = naming(*range(LARGE - 1), max_wait_ms=500, min_bytes=1)
    [first] = fetch_request("u").topics
    frame = client.frame(changed(request, topics=(first, *request.topics)), 4)
    other = client.wire.connect()
    turns_of(client.wire, frame, other.frame(delete_topics("u"), 5))
    deleted, present = client.take().responses
    assert [row.error_code for row in deleted.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert {row.error_code for row in present.partitions} == {0}


def test_a_fetch_in_steps_watches_its_partitions() -> None:
    client = with_topic(LARGE)
    turns_of(client.wire, client.frame(naming(*range(LARGE), max_wait_ms=500, min_bytes=1), 4))
    client.wire.connect().produce("t", "new", partition=7)
    assert values_of(client.take()) == [b"new"]


def test_large_fetches_that_wait_leave_room_for_small_ones() -> None:
    waits = FetchWaits()
    parked = 0
    while waits.has_room(10_000):
        context: Any = type("Context", (), {"request_id": parked})
        waits.park(FetchWait(None, context, 10_000, 500))
        parked += 1
    assert 10 < parked < 40
    assert waits.has_room(100)
    assert len(waits.take_all()) == parked
    assert waits.has_room(25_000)


def test_a_turn_answers_few_large_fetches_of_share_groups() -> None:
    waits = FetchWaits()
    for request_id in range(10):
        context: Any = type("Context", (), {"request_id": request_id})
        wait = FetchWait(None, context, 1_000, 500)
        wait.shares = tuple((LogKey(bytes(16), index), "g") for index in range(1_000))
        waits.park(wait, woken=True)
    assert len(waits.take_woken()) == 2
    assert len(waits.take_due(500)) == 2


# -- OffsetFetch


def with_offsets(client: Connection, group: str, partitions: int, metadata: str = "") -> None:
    for first in range(0, partitions, 1_000):
        committed = tuple(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata=metadata)
            for index in range(first, min(first + 1_000, partitions))
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(OffsetCommitRequestTopic(name="t", partitions=committed),),
        )
        assert client.ask(request, 5).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_offsets_are_fetched_in_steps(version: int) -> None:
    client = with_topic(5_000)
    with_offsets(client, "g", 5_000)
    every = tuple(range(5_000))
    if version < 8:
        request = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=every),))
    else:
        wanted = OffsetFetchRequestTopics(name="t", partition_indexes=every)
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=(wanted,)),))
    assert turns_of(client.wire, client.frame(request, version)) > 5
    answer = client.take()
    [topic] = answer.topics if version < 8 else answer.groups[0].topics
    assert [row.committed_offset for row in topic.partitions] == list(every)


def groups_request(*groups: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=tuple(OffsetFetchRequestGroup(group_id=group) for group in groups))


def test_groups_that_do_not_fit_into_an_answer_are_asked_for_again() -> None:
    """Java's admin client repeats the request for groups with error 14 alone."""
    client = with_topic(100, queued_max_response_bytes=1_048_576)
    for group in "abc":
        with_offsets(client, group, 40, "m" * 4_000)
    answer = client.ask(groups_request("a", "b", "c"), 8)
    again = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [group.error_code for group in answer.groups] == [0, again, again]
    assert client.ask(groups_request("b"), 8).groups[0].error_code == 0


def test_a_group_whose_offsets_never_fit_is_refused_for_good() -> None:
    client = with_topic(100, queued_max_response_bytes=1_048_576)
    with_offsets(client, "g", 100, "m" * 4_000)
    assert client.ask(groups_request("g"), 8).groups[0].error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(OffsetFetchRequest(group_id="g", topics=None), 7).error_code == ErrorCode.INVALID_REQUEST
    assert [complaint.kind for complaint in client.wire.complaints] == ["answer refused"] * 2


# -- over all connections


def test_the_largest_answer_under_way_is_dropped_when_memory_is_short() -> None:
    client = with_topic(5_000, queued_max_response_bytes=1_048_576)
    wire, small = client.wire, client.wire.connect()
    with_offsets(client, "g", 5_000)
    indexes = OffsetFetchRequestTopic(name="t", partition_indexes=tuple(range(5_000)))
    large = OffsetFetchRequest(group_id="g", topics=(indexes,) * 7)
    turns_of(wire, client.frame(large, 7))
    assert client.disconnected is not None
    assert "memory is short" in client.disconnected
    assert wire.broker.works.size == 0
    assert small.ask(groups_request("none"), 8).groups[0].error_code == 0


def test_large_answers_of_many_clients_are_made_one_after_the_other() -> None:
    client = with_topic(5_000, queued_max_response_bytes=8_388_608)
    wire, works = client.wire, client.wire.broker.works
    clients = [wire.connect() for _ in range(20)]
    arrived = [one.frame(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 8) for one in clients]
    largest = 0
    while arrived or wire.broker.busy:
        left = iter(range(STEPS))
        wire.end(wire.broker.step(arrived, wire.now, lambda left=left: next(left, None) is None))  # type: ignore[misc]
        arrived = []
        largest = max(largest, works.size)
    assert {len(one.take().topics[0].partitions) for one in clients} == {5_000}
    assert works.limit // 2 < largest < works.limit, "and nobody is disconnected"
    assert works.size == 0


def test_answers_of_clients_that_go_at_once_are_freed_in_turns() -> None:
    """To free one of megabytes takes milliseconds, and twenty clients may close their connections in one moment."""
    client = with_topic(5_000)
    wire, works = client.wire, client.wire.broker.works
    ask = MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 8
    clients = [wire.connect() for _ in range(8)]
    for one in clients:
        few = iter((False, False, False))
        wire.end(wire.broker.step([one.frame(*ask)], wire.now, lambda few=few: next(few, True)))  # type: ignore[misc]
    sizes = [works.size]
    closed: list[Closed] = [Closed(one.id) for one in clients]
    while closed or wire.broker.busy:
        few = iter((False,))
        wire.end(wire.broker.step(closed, wire.now, lambda few=few: next(few, True)))  # type: ignore[misc]
        closed = []
        sizes.append(works.size)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(clients) + 1
    assert sizes[-1] == 0


def test_nobody_waits_for_the_answer_of_a_client_that_does_not_read() -> None:
    client = with_topic(5_000, queued_max_response_bytes=8_388_608)
    wire, works = client.wire, client.wire.broker.works
    ask = MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 8
    deaf, others = [wire.connect() for _ in range(12)], [wire.connect() for _ in range(6)]
    for one in deaf:
        few = iter((False, False))
        wire.end(wire.broker.step([one.frame(*ask)], wire.now, lambda few=few: next(few, True)))  # type: ignore[misc]
    while works.size <= works.limit // 2:
        few = iter((False, False))
        wire.end(wire.broker.step([], wire.now, lambda few=few: next(few, True)))  # type: ignore[misc]
    works.share(lambda size, largest: size + 100_000)
    arrived = [one.frame(*ask) for one in others]
    wire.step(*(Unread(one.id, unread=True) for one in deaf), *arrived)
    assert {len(one.take().topics[0].partitions) for one in others} == {5_000}
    assert any(one.disconnected for one in deaf)
    assert not any(one.responses for one in deaf)
