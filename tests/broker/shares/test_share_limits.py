"""Share groups with ACLs, quotas, transactions, several brokers, and storage that answers later."""

from __future__ import annotations

from typing import Any

import pytest
from acl_driver import Secured
from quota_driver import FETCH, Limited
from share_driver import ACCEPT, Member, ranges, row, share_wire, share_world
from share_requests import share_requests
from transaction_driver import Transactional
from wire_driver import GROUP, SET

from kohort.broker.authorization import Operation, Principal, Resource
from kohort.broker.shares import sessions, shards
from kohort.broker.turn import MovePartition
from kohort.coordinator.share_groups import targets
from kohort.coordinator.share_groups.assignor import assigned
from kohort.coordinator.shares.events import ShareKey
from kohort.storage.memory import MemoryStorage
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, NewOffset, NewOffsetsTopic
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    OffsetsAskedGroup,
    OffsetsAskedTopic,
)

_O, _R = Operation, Resource
BEGIN = {"group_share_enable": True, "share_coordinator_state_topic_num_partitions": 3}


@pytest.mark.conformance("SH3", "SH4", "SH5")
def test_rights_are_asked_for_each_topic_of_a_session() -> None:
    secured = Secured(**BEGIN)
    topic_id = secured.root.create_topic("t")
    secured.root.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "earliest"))
    secured.root.produce("t", "0", "1")
    member = Member(secured.wire, "a", topic_id, principal=Principal("a"))
    assert member.beat("t").error_code == 30
    secured.allow("User:a", _O.READ, _R.GROUP, "g")
    assert member.beat("t").error_code == 29
    assert member.fetch(share_session_epoch=0).error_code == 0
    secured.allow("User:a", _O.READ, _R.TOPIC, "t")
    assert member.beat("t").error_code == 0
    member.epoch = 0
    assert member.take() == [(0, 1, 1)]
    assert member.ack((0, 0, ACCEPT)) == 0
    secured.delete({})
    assert member.fetch().error_code == 30
    secured.allow("User:a", _O.READ, _R.GROUP, "g")
    secured.root.produce("t", "2")
    assert row(member.fetch()).error_code == 29, "a topic of an earlier request"
    assert member.ack((1, 1, ACCEPT)) == 29
    other = Member(secured.wire, "b", topic_id, principal=Principal("b"))
    assert other.fetch().error_code == 30
    assert other.acknowledge((0, 0, ACCEPT), epoch=1).error_code == 30


def test_shared_records_count_for_the_quota_of_fetches() -> None:
    limited = Limited(**BEGIN)
    topic_id = limited.admin.create_topic("t")
    limited.admin.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "earliest"))
    limited.admin.produce("t", b"x" * 50_000)
    limited.set(FETCH, 1_000, user="a")
    member = Member(limited.wire, "a", topic_id, principal=Principal("a"))
    member.beat("t")
    answer = member.fetch()
    assert ranges(answer) == [(0, 0, 1)], "they are locked for it, so it gets them"
    assert answer.throttle_time_ms == 1_000, "its connection has heartbeats, so it is muted for a second at a time"
    assert limited.is_muted(member.connection)


@pytest.mark.conformance("SH52")
def test_committed_records_alone() -> None:
    wire, client, [a, b] = share_world(0)
    assert client.alter_configs("g", GROUP, ("share.isolation.level", SET, "read_committed"))[0] == 0
    producer = Transactional(wire.connect())
    assert producer.init() == 0
    assert producer.produce("open") == 0
    assert a.take() == []
    a.send(max_wait_ms=60_000)
    assert producer.abort() == 0
    assert not [got for got in a.connection.responses if ranges(got)], "an aborted record is for nobody"
    assert producer.produce("kept") == 0
    assert producer.commit() == 0
    found = [got for answer in a.connection.responses for got in ranges(answer)] or a.take()
    assert [(first, count) for first, _, count in found] == [(2, 1)]
    assert b.take() == []


@pytest.mark.conformance("SH6", "SH59")
def test_another_leader_begins_anew() -> None:
    wire = share_wire(brokers=2)
    client = wire.connect()
    topic_id = client.create_topic("t")
    client.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "earliest"))
    leader = wire.broker.state.catalog.topics["t"].partitions[0].leader
    other = 3 - leader
    (client if leader == 1 else wire.connect(leader)).produce("t", "0", "1")
    member = Member(wire, "a", topic_id, broker_id=wire.coordinator("g"))
    member.beat("t")
    member.connection = wire.connect(leader)
    assert member.take() == [(0, 1, 1)]
    assert member.ack((0, 0, ACCEPT)) == 0
    wire.step(MovePartition("t", 0, other))
    refused = row(member.fetch(partitions=(0,)))
    assert (refused.error_code, refused.current_leader.leader_id) == (6, other)
    assert member.ack((1, 1, ACCEPT)) == 6
    member.connection, member.epoch = wire.connect(other), 0
    assert member.take() == [(1, 1, 1)]
    wire.broker.validate()


def test_records_that_storage_reads_later() -> None:
    storage = MemoryStorage()
    _, _, [a, _] = share_world(5, storage=storage)
    again = share_wire(storage=storage, parks_reads=True)
    members = [Member(again, name, a.topic_id) for name in "xy"]
    for member in members:
        member.send(max_wait_ms=60_000, max_records=3, share_acquire_mode=1)
        assert not member.connection.responses
    again.do_reads()
    again.do_reads()
    found: list[Any] = [ranges(member.connection.take()) for member in members]
    assert found == [[(0, 2, 1)], [(3, 4, 1)]]


def test_groups_without_members_have_a_limit() -> None:
    """They stay until they are deleted, whether members or offsets that were set have founded them."""
    wire, client, _ = share_world(0, "", group_max_total_bytes=1_048_576)
    topics = (NewOffsetsTopic(topic_name="t", partitions=(NewOffset(partition_index=0, start_offset=0),)),)

    def altered(name: str) -> int:
        request = AlterShareGroupOffsetsRequest(group_id=name, topics=topics)
        return int(client.ask(request, 0).error_code)

    def joined(name: str) -> int:
        member = Member(wire, "m", group=name)
        error = member.beat("unknown").error_code
        member.beat(epoch=-1)
        return error

    assert altered("first") == joined("second") == 0
    founded = [altered(f"{index}{'x' * 5_000}") or joined(f"{index}{'y' * 5_000}") for index in range(80)]
    assert 20 < founded.index(81) < 60
    assert altered("first") == 0, "it needs no more"


def test_the_pieces_of_a_large_topic_make_two_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(subscribed: Any, partitions: Any, former: Any) -> Any:
        found = assigned(subscribed, partitions, former)
        made.append(sum(len(one.partitions) for given in found.values() for one in given))
        return found

    monkeypatch.setattr(targets, "assigned", counted)
    wire = share_wire()
    wire.connect().create_topic("t", 2_100)
    member = Member(wire, "a")
    answer = member.beat("t")
    assert answer.assignment is not None
    assert made == [0, 2_100]
    [given] = member.beat().assignment.topic_partitions
    assert len(given.partitions) == 2_100
    wire.broker.validate()


def test_long_names_in_requests_are_not_kept() -> None:
    _, client, [a, _] = share_world(0)
    kept = shards._cached_shard_of.cache_info().currsize
    topics = (OffsetsAskedTopic(topic_name="t", partitions=(0,)),)
    groups = (OffsetsAskedGroup(group_id="x" * 30_000, topics=topics),)
    [found] = client.ask(DescribeShareGroupOffsetsRequest(groups=groups), 0).groups
    assert found.topics[0].partitions[0].start_offset == -1
    assert shards._cached_shard_of.cache_info().currsize == kept
    long = ShareKey("y" * 300, a.topic_id, 5)
    assert shards._shard_of(long, 50) == shards._cached_shard_of(long, 50)


def test_a_fetch_that_wants_many_bytes_does_not_stop_those_behind_it() -> None:
    wire, client, [a, b, c] = share_world(0, "abc")
    for member in (a, b):
        member.send(max_wait_ms=20_000, min_bytes=2**31 - 1)
    c.send(max_wait_ms=60_000)
    client.produce("t", "0")
    assert ranges(c.connection.take()) == [(0, 0, 1)]
    c.send(max_wait_ms=60_000)
    wire.advance(10_000)
    assert not a.connection.responses
    client.produce("t", "1")
    assert ranges(c.connection.take()) == [(1, 1, 1)]
    client.produce("t", "2")
    wire.advance(10_000)
    assert ranges(a.connection.take()) == [(2, 2, 1)], "the time is over"


def test_a_connection_leaves_room_for_sessions_of_others() -> None:
    wire, _, [a, _] = share_world(0, group_share_max_share_sessions=200)
    opened = 0
    for index in range(200):
        member = Member(wire, f"m{index}", a.topic_id)
        member.connection = a.connection
        opened += member.fetch().error_code == 0
    assert opened == 100
    others = [Member(wire, f"other-{index}", a.topic_id).fetch().error_code for index in range(60)]
    assert others == [0] * 60


def test_a_session_leaves_room_for_partitions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_PARTITIONS", 2_000)
    _, _, [a, b] = share_world(0)
    assert a.fetch(partitions=range(501)).error_code == 133
    assert a.fetch(share_session_epoch=0, partitions=range(500)).error_code == 0
    assert b.fetch(partitions=range(376)).error_code == 133
    assert b.fetch(share_session_epoch=0, partitions=range(375)).error_code == 0
    a.epoch = 1
    assert a.fetch(partitions=range(500)).error_code == 0, "these are known"
    a.connection.close()
    b.epoch = 0
    assert b.fetch(partitions=range(500)).error_code == 0
    a.wire.broker.state.shares.sessions.check()


def test_states_that_tools_add_have_a_limit() -> None:
    wire, client, [a, _] = share_world(0, group_max_total_bytes=1_048_576)
    kind = share_requests((), (), ())["InitializeShareGroupState"]
    found = []
    for index in range(200):
        topics = share_requests((), (a.topic_id,), (0,))["InitializeShareGroupState"].topics
        [result] = client.ask(type(kind)(group_id=f"{index}{'x' * 7_000}", topics=topics), 0).results
        found.append(result.partitions[0].error_code)
    assert set(found) == {0, 15}
    assert 100 < found.index(15) < 150
    assert a.fetch().error_code == 0
    group = Member(wire, "m", a.topic_id, group="another")
    assert len(group.beat("t").assignment.topic_partitions) == 1, "what groups need has a limit of its own"
    wire.broker.validate()
