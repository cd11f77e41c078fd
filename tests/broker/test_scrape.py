"""A scrape in steps: each is short, and what happens between them never shows as a lag that was not there."""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import FrameType
from typing import Any

from group_driver import commit_request
from wire_driver import Connection, Wire, with_topic

from kohort.broker.metrics import families as f
from kohort.broker.metrics.samples import Samples
from kohort.broker.metrics.scrape import Metrics
from kohort.broker.metrics.turn_times import TurnTimes
from kohort.broker.sharing.slots import Slots
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

OPERATIONS = 90_000
"""As in test_long_steps.py: 2 to 3 ms."""


def scrape_of(wire: Wire) -> Generator[None, None, Samples]:
    metrics = Metrics(wire.broker.state, TurnTimes(), lambda: wire.now, lambda samples: None)
    return metrics.scrape()


def lines_of(samples: Samples, name: str) -> list[str]:
    text = b"".join(samples.text(open_metrics=False)).decode()
    return [line for line in text.splitlines() if line.startswith(name)]


def commit_to(client: Connection, group: str, topic: str, offsets: list[int]) -> None:
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in enumerate(offsets)
    )
    topics = (OffsetCommitRequestTopic(name=topic, partitions=parts),)
    assert client.ask(commit_request(0, topics=topics, group=group), 7).topics[0].partitions[0].error_code == 0


def test_offsets_and_ends_are_of_one_instant() -> None:
    """The groups commit what is appended, in the same turn as far as others see. So nobody ever lags."""
    client = with_topic()
    wire, groups = client.wire, [f"group-{n}" for n in range(20)]
    end = 0

    def go_on() -> None:
        nonlocal end
        end = client.produce("t", "a", "b") + 2
        for group in groups:
            commit_to(client, group, "t", [end])

    go_on()
    scrape, steps = scrape_of(wire), 0
    try:
        while True:
            next(scrape)
            steps += 1
            if steps % 5 == 0:
                go_on()
    except StopIteration as done:
        samples = done.value
    assert steps > 20
    lags = lines_of(samples, f.GROUP_LAG.name + "{")
    assert len(lags) == len(groups)
    assert all(line.endswith(" 0") for line in lags)
    offsets = [int(line.rpartition(" ")[2]) for line in lines_of(samples, f.GROUP_OFFSET.name + "{")]
    assert len(set(offsets)) > 1, "the scrape took several instants"
    [at] = lines_of(samples, f.END_OFFSET.name + '{topic="t"')
    assert max(offsets) <= int(at.rpartition(" ")[2]), "topics are read after the groups"


def test_what_goes_away_during_a_scrape() -> None:
    client = with_topic()
    client.produce("t", "a", "b")
    commit_to(client, "g", "t", [1])
    scrape = scrape_of(client.wire)
    for _ in range(4):
        next(scrape)
    state = client.wire.broker.state
    topic = state.topic("t")
    assert topic is not None
    state.turn.begin(client.wire.now)
    state.delete_topics([topic])
    client.wire.end(state.end_turn(()))
    for _ in scrape:
        pass


def test_no_step_is_long() -> None:
    """Of a wide topic, a group that lags in all of its partitions, and hundreds of groups; at the second scrape, when
    there are points to look into."""
    client = with_topic(2_500, max_partitions=100_000)
    client.create_topic("narrow")
    for partition in client.wire.partitions("t"):
        partition.end_offset = partition.high_watermark = 10
    commit_to(client, "wide", "t", list(range(10)) * 250)
    for n in range(50):
        commit_to(client, f"group-{n}", "narrow", [0])
    longest = max(longest_step(scrape_of(client.wire)) for _ in range(2))
    assert longest < OPERATIONS


def longest_step(steps: Generator[None, None, Samples]) -> int:
    """In bytecode instructions."""
    count = longest = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    while True:
        count = 0
        sys.settrace(trace)
        try:
            next(steps)
        except StopIteration:
            return max(longest, count)
        finally:
            sys.settrace(before)
            longest = max(longest, count)


def test_slots_are_told_where_all_nodes_serve() -> None:
    wire = with_topic().wire

    def told() -> list[str]:
        scrape = scrape_of(wire)
        while True:
            try:
                next(scrape)
            except StopIteration as end:
                return lines_of(end.value, "kohort_slots")

    assert told() == []
    wire.broker.state.slots = Slots(node=1)
    wire.broker.state.slots.held = {0, 3, 4}
    assert told() == ["kohort_slots 3"]
