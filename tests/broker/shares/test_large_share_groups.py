"""Share groups with thousands of share-partitions: no step is long, and a crash between two steps loses nothing."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from share_driver import ACCEPT, Member, share_wire
from wire_driver import GROUP, SET, Connection, Wire, delete_topics

from kohort.broker.turn import Arrived, Closed
from kohort.coordinator.share_groups.states import AT_ONCE
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, NamedTopic
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    OffsetsAskedGroup,
    OffsetsAskedTopic,
)

MANY = 3 * AT_ONCE + 100
OPERATIONS = 360_000
"""Bytecode instructions of the longest turn: some ten milliseconds in pure Python."""


def turn(wire: Wire, *arrived: Arrived) -> int:
    """A turn that has time for one step. Returns its bytecode instructions."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    polls = iter((False,))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        done = wire.broker.step(arrived, wire.now, lambda: next(polls, True))
    finally:
        sys.settrace(before)
    wire.end(done)
    return count


def longest(wire: Wire, *arrived: Arrived) -> int:
    """The longest turn until nothing is left to do."""
    found = [turn(wire, *arrived)]
    while is_busy(wire):
        found.append(turn(wire))
    return max(found)


def is_busy(wire: Wire) -> bool:
    due = wire.broker.next_deadline()
    return wire.broker.busy or (due is not None and due <= wire.now)


def starts(client: Connection, count: int = MANY) -> dict[int, int]:
    topics = (OffsetsAskedTopic(topic_name="t", partitions=tuple(range(count))),)
    request = DescribeShareGroupOffsetsRequest(groups=(OffsetsAskedGroup(group_id="g", topics=topics),))
    [found] = client.ask(request, 1).groups
    return {one.partition_index: one.start_offset for topic in found.topics for one in topic.partitions}


def states(wire: Wire) -> int:
    return sum(len(shard.states) for shard in wire.broker.state.shares.shards)


def large(partitions: int = MANY) -> tuple[Wire, Connection, Member]:
    wire = share_wire(group_share_assignment_interval_ms=0)
    client = wire.connect()
    return wire, client, Member(wire, "a", client.create_topic("t", partitions))


@pytest.mark.conformance("SH20", "SH28")
@pytest.mark.parametrize("turns", range(5))
def test_a_crash_while_a_large_topic_is_initialized(turns: int) -> None:
    """The topic is new to the group, so the group begins where it is told to, in all partitions."""
    wire, _, member = large()
    turn(wire, member.connection.frame(member.request_to_join("t"), 1))
    for _ in range(turns):
        turn(wire)
    again = wire.restarted(group_share_enable=True)
    again.broker.validate()
    assert set(starts(again.connect()).values()) == {-1}
    member.wire, member.connection = again, again.connect()
    answer = member.beat("t", epoch=0)
    [given] = answer.assignment.topic_partitions
    assert len(given.partitions) == states(again) == MANY


def test_what_has_a_state_keeps_it_when_an_initialization_begins_again() -> None:
    wire, client, member = large(8 * AT_ONCE)
    client.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "earliest"))
    client.produce("t", "0")
    reader = Member(wire, "early", member.topic_id)
    turn(wire, member.connection.frame(member.request_to_join("t"), 1))
    turn(wire)
    for reader.epoch, acks in ((0, ()), (1, [(0, 0, ACCEPT)])):
        turn(wire, reader.connection.frame(reader.request(acks), 2))
        while not reader.connection.responses:
            turn(wire)
        assert reader.connection.take().error_code == 0
    assert wire.shard().shares.groups["g"].initializing, "it is under way"
    again = wire.restarted(group_share_enable=True)
    assert starts(again.connect())[0] == 1


@pytest.mark.conformance("SH29")
def test_a_crash_while_many_new_partitions_are_initialized() -> None:
    wire, client, member = large(10)
    assert member.beat("t").error_code == 0
    grow = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=MANY),), timeout_ms=1)
    frame = client.frame(grow, 3)
    turn(wire, frame)
    while not any(group.initializing for group in wire.shard().shares.groups.values()):
        turn(wire)
    turn(wire)
    again = wire.restarted(group_share_enable=True)
    found = starts(again.connect())
    assert {found[index] for index in range(10)} == {-1}
    assert {found[index] for index in range(10, MANY)} == {0}


@pytest.mark.conformance("SH27")
@pytest.mark.parametrize("turns", range(4))
def test_a_crash_while_a_large_group_is_deleted(turns: int) -> None:
    wire, client, member = large()
    member.beat("t")
    member.beat(epoch=-1)
    request = DeleteGroupsRequest(groups_names=("g",))
    turn(wire, client.frame(request, 2))
    for _ in range(turns):
        turn(wire)
    again = wire.restarted(group_share_enable=True)
    again.broker.validate()
    assert states(again) == 0, "the deletion goes on"
    assert again.connect().ask(request, 2).results[0].error_code == 0, "a repeat ends it"
    assert not again.shard().shares.groups


def test_a_topic_that_is_deleted_while_it_is_initialized() -> None:
    wire, client, member = large()
    turn(wire, member.connection.frame(member.request_to_join("t"), 1))
    turn(wire)
    client.ask(delete_topics("t"), 5)
    assert states(wire) == 0
    wire.broker.validate()


def test_a_member_that_joins_while_offsets_are_deleted() -> None:
    """What is deleted is initialized again, when it is gone."""
    wire, client, member = large()
    member.beat("t")
    member.beat(epoch=-1)
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=(NamedTopic(topic_name="t"),))
    turn(wire, client.frame(request, 0))
    group = wire.shard().shares.groups["g"]
    assert group.deleting
    assert starts(wire.connect(), 1) == {0: -1}
    member.member_epoch = 0
    member.beat("t")
    assert not group.deleting
    [given] = member.beat("t").assignment.topic_partitions
    assert len(given.partitions) == states(wire) == MANY
    wire.broker.validate()


def test_no_step_of_a_large_group_is_long() -> None:
    wire, client, a = large(2_000)
    b, c = (Member(wire, name, a.topic_id) for name in "bc")
    found = {}

    def beat(what: str, member: Member, *topics: str, epoch: int | None = None) -> None:
        frame = member.connection.frame(member.request_to_join(*topics, epoch=epoch), 1)
        found[what] = longest(wire, frame)
        answer = member.connection.take()
        assert answer.error_code == 0
        member.member_epoch = answer.member_epoch

    beat("join", a, "t")
    beat("assignment", a)
    beat("another join", b, "t")
    beat("another assignment", a)
    c.send(partitions=range(2_000))
    found["close"] = longest(wire, Closed(c.connection.id))
    c.connection, c.epoch = wire.connect(), 0
    c.send(partitions=range(2_000))
    found["close by a request"] = longest(wire, c.connection.frame(c.request(share_session_epoch=-1), 2))
    assert not wire.broker.state.shares.releases
    beat("leave", b, epoch=-1)
    beat("last leave", a, epoch=-1)
    found["deletion"] = longest(wire, client.frame(DeleteGroupsRequest(groups_names=("g",)), 2))
    assert {what: steps for what, steps in found.items() if steps > OPERATIONS} == {}
    assert states(wire) == 0
