"""Subscriptions by regular expression through the broker: the work inside a turn, and the work beside the turns."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import consumer_beat, consumer_join
from wire_driver import Connection, Wire

from kohort.broker.turn import TaskDone
from kohort.coordinator.events import PatternsAsked
from kohort.coordinator.patterns.regex import search
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState

HOSTILE = ("(a*)*b", "(?:(?:[ab]{0,30}){0,30}a)", "(?:a|b|ab|ba|aab|bba){220}", "(?:" * 300 + "a" + ")*" * 300)


def join(member: str, regex: str, group: str = "g") -> ConsumerGroupHeartbeatRequest:
    return consumer_join(member, group=group, subscribed_topic_names=None, subscribed_topic_regex=regex)


def topic_ids(response: Any) -> set[bytes]:
    return {topic.topic_id for topic in response.assignment.topic_partitions}


def resolve(wire: Wire) -> list[PatternsAsked]:
    """Do what was handed out, and what that hands out."""
    done = []
    while wire.tasks:
        handed_out = wire.tasks.pop(0)
        assert isinstance(handed_out.task, PatternsAsked)
        done.append(handed_out.task)
        wire.step(TaskDone(handed_out.shard, search(handed_out.task)))
    return done


@pytest.mark.conformance("N15")
def test_pattern_searches_run_outside_of_turns(wire: Wire, client: Connection) -> None:
    ids = {name: client.create_topic(name) for name in ("orders-eu", "orders-us", "payments")}
    first = client.ask(join("m", "orders-.*"), 1)
    assert (first.error_code, first.member_epoch, topic_ids(first), first.heartbeat_interval_ms) == (0, 1, set(), 250)
    (task,) = resolve(wire)
    assert task.asked[0][0] == "orders-.*"
    assert topic_ids(client.ask(consumer_beat("m", 1), 1)) == {ids["orders-eu"], ids["orders-us"]}
    ids["orders-asia"] = client.create_topic("orders-asia")
    wire.advance(1_000)
    assert [task.asked for task in resolve(wire)] == [(("orders-.*", ("orders-asia",)),)]
    assert topic_ids(client.ask(consumer_beat("m", 2), 1)) == {ids[name] for name in ids if name != "payments"}
    client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="orders-eu"),)), 6)
    wire.advance(1_000)
    assert topic_ids(client.ask(consumer_beat("m", 3), 1)) == {ids["orders-us"], ids["orders-asia"]}
    assert wire.tasks == []


@pytest.mark.conformance("N15")
def test_internal_topics_never_match(wire: Wire, client: Connection) -> None:
    topic_id = client.create_topic("t")
    client.ask(join("m", ".*"), 1)
    (task,) = resolve(wire)
    assert task.asked == ((".*", ("t",)),)
    assert topic_ids(client.ask(consumer_beat("m", 1), 1)) == {topic_id}


def test_pattern_matches_survive_a_restart(wire: Wire, client: Connection) -> None:
    topic_id = client.create_topic("t1")
    client.ask(join("m", "t."), 1)
    resolve(wire)
    client.ask(consumer_beat("m", 1), 1)
    client.create_topic("t2")
    # The process dies before any pattern is compared with the new topic.
    after = wire.restarted()
    client = after.connect()
    [described] = client.ask(ConsumerGroupDescribeRequest(group_ids=("g",)), 1).groups
    (member,) = described.members
    assert member.subscribed_topic_regex == "t."
    assert [t.topic_id for t in member.assignment.topic_partitions] == [topic_id]
    (pattern,) = after.shard().consumers.groups["g"].patterns.values()
    assert pattern.topics == {"t1"}
    assert 0 < pattern.version <= after.broker.state.topics.metadata.end_offset
    assert [sorted(names) for task in resolve(after) for _, names in task.asked] == [["t1", "t2"]]
    after.advance(1_000)
    assert len(topic_ids(client.ask(consumer_beat("m", 2), 1))) == 2


def test_a_story_names_the_matched_topics(wire: Wire, client: Connection) -> None:
    client.create_topic("t1")
    client.ask(join("m", "t."), 1)
    resolve(wire)
    client.ask(consumer_beat("m", 1), 1)
    client.ask(join("n", "t["), 1)
    joined, rebalanced, refused = wire.broker.state.journal.stories("g", 10)
    assert b'"what":"member joined"' in joined
    assert b'"cause":{"what":"topics matched","cause":"t.: +t1"}' in rebalanced
    assert b'"what":"subscription refused"' in refused


def test_a_hostile_pattern_costs_a_turn_what_any_pattern_costs(wire: Wire, client: Connection) -> None:
    """Counted in the interpreter's instructions; RE2's work for the check is bounded by the pattern's size."""
    for number in range(50):
        client.create_topic("ab" * 100 + str(number))
    client.ask(join("m0", "ordinary.*", "g0"), 1)
    wire.tasks.clear()
    ordinary = wire.operations(client.frame(join("m1", "ordinary.+", "g1"), 1))
    for number, pattern in enumerate(HOSTILE):
        cost = wire.operations(client.frame(join(f"h{number}", pattern, f"h{number}"), 1))
        assert cost < 1.5 * ordinary, pattern
    assert all(isinstance(handed_out.task, PatternsAsked) for handed_out in wire.tasks)
