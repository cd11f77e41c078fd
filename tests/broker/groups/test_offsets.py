"""Offsets through the broker: every form of OffsetCommit and OffsetFetch, topic ids, topics that go, OffsetDelete."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from group_driver import commit, commit_request, committed
from wire_driver import Connection, Wire, delete_topics

from kohort.broker import group_shards
from kohort.broker.handlers import groups
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.events import Event, TopicsDeleted
from kohort.coordinator.offsets import offsets
from kohort.coordinator.records import offset_record
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

PARTITIONS = 3
ABSENT = bytes(15) + b"\x09"
"""The id of no topic."""
MANY = 15
"""Offsets that are too many for one step."""


@pytest.mark.conformance("O15")
@pytest.mark.parametrize("version", range(2, 10))
def test_commit_in_every_version(client: Connection, version: int) -> None:
    assert committed(client) == committed(client, "nobody") == committed(client, "nobody", topic="absent") == -1
    assert commit(client, 42, version) == 0
    assert committed(client) == 42


@pytest.mark.conformance("O8", "O21")
def test_commit_and_fetch_by_topic_id(client: Connection, wire: Wire) -> None:
    topic_id = client.create_topic("by-id")
    assert commit(client, 7, 10, topic="", topic_id=topic_id) == 0
    assert commit(client, 7, 10, topic="", topic_id=ABSENT) == ErrorCode.UNKNOWN_TOPIC_ID
    assert commit(client, 7, 10, topic="", topic_id=topic_id, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(client, topic="by-id") == 7
    topics = tuple(OffsetFetchRequestTopics(topic_id=wanted, partition_indexes=(0,)) for wanted in (topic_id, ABSENT))
    for wanted in (topics, None):
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=wanted),))
        (group,) = client.ask(request, 10).groups
        found = {topic.topic_id: topic.partitions[0] for topic in group.topics}
        assert found[topic_id].committed_offset == 7
        if wanted is not None:
            assert found[ABSENT].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for current in (wire, wire.restarted()):
        assert current.shard().hard.offsets["g"]["by-id", 0].topic_id == topic_id


@pytest.mark.conformance("O8")
@pytest.mark.parametrize("version", range(2, 10))
def test_unknown_places_are_refused_alone_in_every_version(client: Connection, version: int) -> None:
    parts = tuple(OffsetCommitRequestPartition(partition_index=index, committed_offset=9) for index in (0, 3, -1))
    topics = tuple(OffsetCommitRequestTopic(name=name, partitions=parts) for name in ("t", "absent"))
    response = client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), version)
    errors = {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }
    assert errors == {("t", 0): 0} | {place: 3 for place in errors if place != ("t", 0)}
    assert len(errors) == 6
    assert committed(client) == 9


@pytest.mark.conformance("O15", "O18", "O23")
@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.parametrize("stable", [False, True])
def test_committed_offsets_are_fetched_in_every_version(client: Connection, version: int, stable: bool) -> None:
    """Without transactions every offset is stable."""
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=9, committed_leader_epoch=4, committed_metadata="näh"
    )
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 8)
    old = (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)
    group = OffsetFetchRequestGroup(
        group_id="g", topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1)),)
    )
    request = OffsetFetchRequest(group_id="g", topics=old, groups=(group,), require_stable=stable and version >= 7)
    response = client.ask(request, version)
    [topic] = response.groups[0].topics if version >= 8 else response.topics
    found = [(p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code) for p in topic.partitions]
    assert found == [(9, 4 if version >= 5 else -1, "näh", 0), (-1, -1, "", 0)]


@pytest.mark.conformance("O16")
@pytest.mark.parametrize("version", range(2, 11))
def test_no_topics_and_all_topics_of_a_group(client: Connection, version: int) -> None:
    commit(client, 1)
    commit(client, 2, partition=1)
    wanted = [(name, topics) for name in "gh" for topics in (None, ())]
    if version >= 8:
        groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=topics) for name, topics in wanted)
        answers = client.ask(OffsetFetchRequest(groups=groups), version).groups
        assert [found.group_id for found in answers] == [name for name, _ in wanted]
    else:
        answers = [client.ask(OffsetFetchRequest(group_id=name, topics=topics), version) for name, topics in wanted]
    assert [found.error_code for found in answers] == [0, 0, 0, 0]
    assert [[part.committed_offset for topic in found.topics for part in topic.partitions] for found in answers] == [
        [1, 2], [], [], [],
    ]  # fmt: skip


@pytest.mark.conformance("O17")
@pytest.mark.parametrize("version", [8, 9, 10])
def test_groups_are_answered_and_fail_one_by_one(version: int) -> None:
    wire = Wire(brokers=2)
    here = wire.connect(1)
    topic_id = here.create_topic("t")
    first, second, empty = [name for name in "abcdefghijkl" if wire.coordinator(name) == 1][:3]
    other = next(name for name in "abcdefghijkl" if wire.coordinator(name) == 2)
    for offset, group in enumerate((first, second), 1):
        assert commit(here, offset, group=group) == 0
    asked = (OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=(0,)),)
    wanted = [(other, asked), (first, asked), (second, asked), (empty, asked), (first, None), (other, None)]
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=topics) for name, topics in wanted)
    answers = here.ask(OffsetFetchRequest(groups=groups), version).groups
    assert [
        (
            found.group_id,
            found.error_code,
            [part.committed_offset for topic in found.topics for part in topic.partitions],
        )
        for found in answers
    ] == [
        (other, ErrorCode.NOT_COORDINATOR, []),
        (first, 0, [1]),
        (second, 0, [2]),
        (empty, 0, [-1]),
        (first, 0, [1]),
        (other, ErrorCode.NOT_COORDINATOR, []),
    ]


@pytest.mark.conformance("O19")
@pytest.mark.parametrize("stable", [False, True])
def test_a_fetch_behind_a_commit_waits_for_it(client: Connection, wire: Wire, stable: bool) -> None:
    reader = wire.connect()
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    fetch = reader.frame(OffsetFetchRequest(groups=(group,), require_stable=stable), 8)
    turn = wire.broker.step((client.frame(commit_request(5), 7), fetch), wire.now)
    assert reader.responses == []
    assert turn.operations, "the commit; the answer leaves when it is durable, never before"
    wire.end(turn)
    assert reader.take().groups[0].topics[0].partitions[0].committed_offset == 5


@pytest.mark.conformance("O21")
def test_a_recreated_topics_id_reads_no_old_offsets(client: Connection, wire: Wire) -> None:
    """Deleting a topic deletes its offsets (O25); a log that another coordinator wrote may still hold some."""
    topic_id = client.create_topic("again", 2)
    state = wire.broker.state
    for partition, committed_under in enumerate((topic_id[::-1], topic_id)):
        value = OffsetCommitValue(
            offset=7, leader_epoch=2, metadata="m", commit_timestamp=wire.now, topic_id=committed_under
        )
        log = wire.partitions(OFFSETS_TOPIC)[state.shard_of("g")]
        state.turn.append_records(log, [offset_record("g", "again", partition, value)])
    wire.step()
    reader = wire.restarted().connect()
    asked = (OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0, 1)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=asked),))
    [topic] = reader.ask(request, 10).groups[0].topics
    assert topic.topic_id == topic_id
    assert [(p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code) for p in topic.partitions] == [
        (-1, -1, "", 0),
        (7, 2, "m", 0),
    ]
    assert committed(reader, topic="again") == 7, "by its name, as Kafka answers older versions"


@pytest.mark.conformance("O25")
def test_offsets_go_with_their_topic(client: Connection, wire: Wire) -> None:
    commit(client, 5)
    client.ask(delete_topics("t"), 5)
    client.create_topic("t")
    assert committed(client) == -1
    assert committed(wire.restarted().connect()) == -1


@pytest.mark.pure
def test_shards_with_offsets_learn_once_of_topics_that_go_together(
    client: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{index}" for index in range(20)]
    for name in names:
        client.create_topic(name)
        assert commit(client, 5, topic=name) == 0
    told: list[TopicsDeleted] = []
    ask = wire.broker.state.machines.ask

    def watched(shard: int, event: Event, awaited: Any = None) -> Any:
        if isinstance(event, TopicsDeleted):
            told.append(event)
        return ask(shard, event, awaited)

    monkeypatch.setattr(wire.broker.state.machines, "ask", watched)
    response = client.ask(delete_topics(*names, "absent", OFFSETS_TOPIC), 5)
    assert [topic.error_code for topic in response.responses] == [0] * 20 + [3, 17]
    assert told == [TopicsDeleted(tuple(names))]
    assert committed(client, topic="t7") == -1
    told.clear()
    client.ask(delete_topics("absent"), 5)
    assert not told


@pytest.fixture
def many(client: Connection, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Three groups with offsets of a topic that are too many for one step."""
    monkeypatch.setattr(group_shards, "SEARCHED", 5)
    monkeypatch.setattr(group_shards, "DELETED", 2)
    client.create_topic("many", 3)
    for group in ("g", "h", "i"):
        commit(client, 5, group=group)
        for partition in range(3):
            commit(client, 6, group=group, topic="many", partition=partition)
    return client


def left_of(wire: Wire, topic: str) -> int:
    shards = wire.broker.state.shards
    return sum(place[0] == topic for shard in shards for group in shard.hard.offsets.values() for place in group)


def begin_deletion(client: Connection) -> None:
    """The topic is gone, and some of its offsets are left."""
    polls = iter((False, False))
    wire = client.wire
    wire.end(wire.broker.step([client.frame(delete_topics("many"), 5)], wire.now, lambda: next(polls, True)))
    assert "many" not in wire.broker.state.catalog.topics
    assert left_of(wire, "many")
    assert not client.responses


@pytest.mark.pure
def test_many_offsets_go_with_their_topic_in_pieces(many: Connection) -> None:
    begin_deletion(many)
    wire = many.wire
    before = left_of(wire, "many")
    wire.end(wire.broker.step([], wire.now, lambda: True))
    assert 0 < before - left_of(wire, "many") <= 4
    wire.step()
    assert many.take().responses[0].error_code == 0
    assert left_of(wire, "many") == 0
    assert [committed(many, group) for group in ("g", "h", "i")] == [5, 5, 5]
    for of in (wire, wire.restarted()):
        for shard in of.broker.state.shards:
            shard.validate()


@pytest.mark.pure
def test_a_piece_is_as_large_as_it_may_be_and_no_larger(many: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether much is searched or not, and over several groups."""
    wire, seen = many.wire, []
    monkeypatch.setattr(group_shards, "SEARCHED", 1_000)
    monkeypatch.setattr(group_shards, "DELETED", 4)
    state = wire.broker.state
    state.delete_topics([state.catalog.topics["many"]])
    while state.groups.deletes_offsets:
        before = left_of(wire, "many")
        state.groups.delete_offsets()
        seen.append(before - left_of(wire, "many"))
    assert seen == [4, 4, 1]


@pytest.mark.pure
def test_the_answer_to_a_deletion_waits_for_the_offsets(many: Connection) -> None:
    begin_deletion(many)
    for _ in range(20):
        polls = iter((False,))
        many.wire.end(many.wire.broker.step([], many.wire.now, lambda polls=polls: next(polls, True)))
        if many.responses:
            break
    assert many.take().responses[0].error_code == 0
    assert left_of(many.wire, "many") == 0


@pytest.mark.pure
def test_a_new_topic_of_the_same_name_has_none_of_the_offsets(many: Connection) -> None:
    begin_deletion(many)
    topics = many.wire.broker.state.topics
    topics.create("many", topics.place(3, 1), {})
    assert left_of(many.wire, "many") == 0, "also before the turn ends"
    many.wire.step()
    assert commit(many.wire.connect(), 9, group="i", topic="many", partition=1) == 0
    assert [committed(many.wire.connect(), "i", "many", partition) for partition in range(3)] == [-1, 9, -1]


@pytest.mark.pure
def test_the_deletion_of_offsets_goes_on_when_the_client_has_gone(many: Connection) -> None:
    begin_deletion(many)
    many.close()
    assert left_of(many.wire, "many") == 0


@pytest.mark.pure
def test_the_deletion_of_offsets_goes_on_after_a_restart(many: Connection) -> None:
    begin_deletion(many)
    restarted = many.wire.restarted()
    assert left_of(restarted, "many") == 0
    assert [committed(restarted.connect(), group) for group in ("g", "h", "i")] == [5, 5, 5]


@pytest.fixture
def large(client: Connection, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A group with offsets that are too many for one step."""
    for module in (groups, offsets):
        monkeypatch.setattr(module, "DELETED", 2)
    client.create_topic("many", MANY)
    for partition in range(MANY):
        commit(client, 6, topic="many", partition=partition)
    return client


def delete_group(client: Connection) -> None:
    """The first steps of it."""
    polls = iter((False, False))
    wire = client.wire
    frame = client.frame(DeleteGroupsRequest(groups_names=("g",)), 2)
    wire.end(wire.broker.step([frame], wire.now, lambda: next(polls, True)))
    assert 0 < left_of(wire, "many") < MANY
    assert not client.responses


@pytest.mark.pure
def test_many_offsets_go_with_their_group_in_pieces(large: Connection) -> None:
    delete_group(large)
    large.wire.step()
    assert large.take().results[0].error_code == 0
    assert left_of(large.wire, "many") == 0
    assert large.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert left_of(large.wire.restarted(), "many") == 0


@pytest.mark.pure
def test_what_is_committed_after_the_deletion_of_a_group_stays(large: Connection) -> None:
    wire, other = large.wire, large.wire.connect()
    delete_group(large)
    polls = iter((False, False))
    late = commit_request(9, topic="many", partition=MANY - 1)
    wire.end(wire.broker.step([other.frame(late, 7)], wire.now, lambda: next(polls, True)))
    assert other.take().topics[0].partitions[0].error_code == 0
    assert left_of(wire, "many") > 1, "the deletion is under way"
    wire.step()
    assert large.take().results[0].error_code == 0
    assert [committed(other, topic="many", partition=partition) for partition in range(MANY)] == [-1] * (MANY - 1) + [9]


@pytest.mark.pure
def test_many_offsets_expire_in_pieces(large: Connection) -> None:
    wire = large.wire
    wire.advance(7 * 86_400_000 - 1)
    assert left_of(wire, "many") == MANY
    seen = []
    wire.watch = lambda turn: seen.append(left_of(wire, "many"))
    wire.advance(2 * wire.config.offsets_retention_check_interval_ms)
    assert {before - after for before, after in pairwise([MANY, *seen])} == {0, 1, 2}
    assert seen[-1] == 0


@pytest.mark.pure
def test_the_pieces_look_at_each_expired_offset_about_once(large: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, expiry = large.wire, offsets._expiry
    wire.advance(7 * 86_400_000 - 1)
    looks = []

    def counted(*arguments: Any) -> int:
        looks.append(arguments)
        return expiry(*arguments)

    monkeypatch.setattr(offsets, "_expiry", counted)
    wire.advance(2 * wire.config.offsets_retention_check_interval_ms)
    assert left_of(wire, "many") == 0
    assert MANY <= len(looks) < 2 * MANY


def test_offsets_are_deleted_one_by_one(client: Connection) -> None:
    commit(client, 5)
    commit(client, 6, partition=1)
    asked = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9))
    topics = (OffsetDeleteRequestTopic(name="t", partitions=asked),)
    (topic,) = client.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0).topics
    assert {part.partition_index: part.error_code for part in topic.partitions} == {0: 0, 9: 3}
    assert (committed(client), committed(client, partition=1)) == (-1, 6)
    absent = OffsetDeleteRequest(group_id="absent", topics=topics)
    assert client.ask(absent, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_retention_beyond_all_time_is_for_ever(client: Connection) -> None:
    assert commit(client, 3, 2, retention_time_ms=2**63 - 1) == 0
    assert committed(client) == 3
