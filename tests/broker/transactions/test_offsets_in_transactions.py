"""Offsets of groups in transactions (TX37, TX38, TX49 to TX59): TxnOffsetCommit, what fetches show, what markers do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from group_driver import (
    commit,
    commit_request,
    committed,
    consumer_beat,
    consumer_join,
    heartbeat,
    join_request,
    leave,
    stable,
    sync_request,
)
from transaction_driver import Transactional, fetched, found, offsets_request, shard_of, state_of, write_markers
from wire_driver import GROUP, SET, Connection, Wire, delete_topics, with_topic

from kohort.broker.handlers import transactional_offsets
from kohort.broker.handlers.groups import ask_shard
from kohort.broker.handlers.transactional_offsets import MOST_PENDING, STEP
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.broker.transactions.connections import MOST_PRODUCERS, NewestConnections
from kohort.config import preset
from kohort.coordinator.transactions.events import ProducerInit
from kohort.coordinator.transactions.transaction import State
from kohort.wire.batches import read_header, split_batches
from kohort.wire.codec import encode
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import HeartbeatTopicPartitions
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.end_txn import EndTxnRequest
from kohort.wire.schemas.join_group import JoinGroupRequestProtocol
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
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
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

PARTITIONS = 3
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def transactional(client: Connection, name: str = "x", version: int = 2, group: str = "g") -> Transactional:
    """A producer that may commit offsets of the group in its next transaction."""
    producer = Transactional(client, name, version=version)
    assert producer.init() == 0
    if version == 1:
        assert producer.add_offsets(group) == 0
    return producer


def pending_places(wire: Wire, group: str = "g") -> set[tuple[str, int]]:
    return set(wire.shard(group).hard.pending.places(group))


# -- the transaction


@pytest.mark.parametrize("version", range(7))
def test_offsets_are_committed_with_the_transaction_in_every_version(client: Connection, version: int) -> None:
    producer = transactional(client, version=2 if version >= 5 else 1)
    assert commit(client, 5) == 0
    assert producer.commit_offsets(9, version=version, metadata=None if version == 2 else "näh") == 0
    assert (fetched(client, stable=False), fetched(client)) == ((5, 0), (-1, UNSTABLE))
    assert producer.commit() == 0
    assert fetched(client) == (9, 0)
    value = client.wire.shard().hard.offsets["g"]["t", 0]
    expected = (9, "" if version == 2 else "näh", 3 if version >= 2 else -1, client.wire.now, -1)
    assert expected == (
        value.offset, value.metadata, value.leader_epoch, value.commit_timestamp, value.expire_timestamp
    )  # fmt: skip


def test_a_turn_writes_batches_and_markers_in_the_order_of_its_requests(client: Connection) -> None:
    producer = transactional(client)
    other = client.wire.connect()
    third = client.wire.connect()
    request = offsets_request(9, **producer.producer, partitions=(0, 1))
    client.wire.step(
        other.frame(commit_request(1, partition=2), 7),
        client.frame(request, 5),
        third.frame(commit_request(2), 7),
        other.frame(commit_request(3, partition=1), 7),
        client.frame(EndTxnRequest(**producer.producer, committed=True), 5),
        other.frame(commit_request(4), 7),
    )
    assert [each.take().topics[0].partitions[0].error_code for each in (*[other] * 3, client, third)] == [0] * 5
    assert client.take().error_code == 0
    wire = client.wire
    wire.step()
    log = wire.partitions(OFFSETS_TOPIC)[wire.broker.state.shard_of("g")]
    headers = [read_header(data) for run in log.read(0, 1 << 20) for _, data in split_batches(run)]
    kinds = ["marker" if each.is_control else "pending" if each.is_transactional else "plain" for each in headers]
    shape = [(kind, each.producer_id, each.record_count) for kind, each in zip(kinds, headers, strict=True)]
    mine = producer.producer_id
    assert shape == [("plain", -1, 1), ("pending", mine, 2), ("plain", -1, 2), ("marker", mine, 1), ("plain", -1, 1)]
    assert (headers[1].producer_epoch, headers[1].base_sequence) == (producer.epoch, -1)
    assert [committed(client, partition=index) for index in range(3)] == [4, 3, 1]


@pytest.mark.parametrize(("version", "error"), [(0, 48), (3, 48), (4, 120), (5, 0), (6, 0)])
@pytest.mark.conformance("TX37")
def test_tx37_the_groups_partition_must_be_in_the_transaction(client: Connection, version: int, error: int) -> None:
    producer = Transactional(client, version=1)
    assert producer.init() == 0
    assert producer.add("t", 1) == 0
    assert producer.commit_offsets(9, version=version) == error
    assert pending_places(client.wire) == ({("t", 0)} if not error else set())


@pytest.mark.conformance("TX37")
def test_tx37_verification_can_be_turned_off_for_older_clients() -> None:
    client = with_topic(transaction_partition_verification_enable=False)
    producer = Transactional(client, version=1)
    assert producer.init() == 0
    assert producer.commit_offsets(9, version=4) == 0
    assert fetched(client) == (-1, UNSTABLE)


@pytest.mark.parametrize("version", [3, 5, 6])
@pytest.mark.conformance("TX38")
def test_tx38_a_late_commit_of_an_ended_transaction_is_fenced(client: Connection, version: int) -> None:
    producer = transactional(client, version=2 if version >= 5 else 1)
    assert producer.commit_offsets(9) == 0
    late = producer.copy()
    assert producer.commit() == 0
    assert producer.init(again=version == 3) == 0
    assert late.commit_offsets(5, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (fetched(client), pending_places(client.wire)) == ((9, 0), set())


@pytest.mark.conformance("TX38")
def test_tx38_without_new_epochs_a_late_commit_on_an_older_connection_is_fenced() -> None:
    """A copy of the first transaction's request must not replace what the second one, at the same epoch, has pending.
    The client has given the older connection up."""
    assert late_commit(with_topic(PARTITIONS)) == (47, 6)


def test_a_strict_server_takes_a_late_commit_for_one_of_this_transaction() -> None:
    assert late_commit(with_topic(PARTITIONS, **preset({"compatibility": "kafka"}))) == (0, 5)


def late_commit(client: Connection) -> tuple[int, int]:
    """The error of the first transaction's commit of offset 5, which comes late in the second one, that of offset 6;
    and the offset that is committed at the end."""
    slow = transactional(client, version=1)
    quick = slow.copy()
    assert quick.commit_offsets(5) == 0, "again, on a newer connection"
    assert quick.commit() == 0
    assert quick.add_offsets() == 0
    assert quick.commit_offsets(6) == 0
    error = slow.commit_offsets(5)
    assert quick.commit() == 0
    return error, fetched(client)[0]


def test_a_producer_may_alternate_between_brokers_and_groups() -> None:
    """It has a connection to each broker, and one of them is the older one."""
    wire = Wire(brokers=2)
    clients = {broker: wire.connect(broker) for broker in (1, 2)}
    clients[1].create_topic("t", 1)
    coordinators = {name: wire.broker.state.coordinator_of(wire.broker.state.shard_of(name)) for name in "abcdef"}
    assert {*coordinators.values()} == {*clients}
    home = clients[found(clients[1])]
    producer = Transactional(home, version=1)
    producer.init()
    for number in range(2):
        for group, broker in coordinators.items():
            producer.client = home
            assert producer.add_offsets(group) == 0
            producer.client = clients[broker]
            assert producer.commit_offsets(number, group=group) == 0
        producer.client = home
        assert producer.commit() == 0


def test_the_connections_of_many_producers_are_forgotten() -> None:
    newest = NewestConnections()
    for producer_id in range(MOST_PRODUCERS + 1):
        assert not newest.is_late(producer_id, 0, 1, 7)
        assert not newest.is_late(0, 0, 1, 7), "in use"
    assert [newest.is_late(producer_id, 0, 1, 6) for producer_id in (0, 2, 1)] == [True, True, False]
    assert [newest.is_late(0, 0, 2, 6), newest.is_late(0, 1, 1, 6), newest.is_late(0, 0, 1, 8)] == [False, False, True]


@pytest.mark.conformance("TX37")
def test_refusals_of_the_coordinator_have_codes_that_producers_know(client: Connection) -> None:
    producer = transactional(client)
    stranger = producer.copy()
    stranger.producer_id += 1
    unknown = producer.copy()
    unknown.name = "unknown"
    nobody = producer.copy()
    nobody.producer_id = nobody.epoch = -1
    wrong = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for version in (3, 5):
        assert [each.commit_offsets(1, version=version) for each in (stranger, unknown, nobody)] == [wrong] * 3
    without_epoch, without_name = producer.copy(), producer.copy()
    without_epoch.epoch = -1
    without_name.name = ""
    for version in (3, 5):
        assert without_epoch.commit_offsets(1, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert without_name.commit_offsets(1, version=version) == ErrorCode.INVALID_REQUEST
    assert producer.commit_offsets(1, group="") == ErrorCode.INVALID_GROUP_ID
    state = client.wire.broker.state
    for error in (14, 15, 16):
        for shard in state.transactions.shards:
            shard.unavailable = ErrorCode(error)
        assert producer.commit_offsets(1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group's coordinator is right"
        assert producer.commit_offsets(1, version=1) == ErrorCode.COORDINATOR_NOT_AVAILABLE, "old producers end with 14"
    for shard in state.transactions.shards:
        shard.unavailable = ErrorCode.NONE
    for group_shard in state.shards:
        group_shard.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.commit_offsets(1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.commit_offsets(1, version=1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state_of(client.wire).state is State.EMPTY, "nothing was added"
    for group_shard in state.shards:
        group_shard.unavailable = ErrorCode.NONE
    assert producer.commit_offsets(1, group="g" * 32_000) == ErrorCode.INVALID_GROUP_ID


def test_another_broker_is_not_the_coordinator() -> None:
    wire = Wire(brokers=2)
    client = wire.connect()
    client.create_topic("t", 1)
    other = wire.connect(broker_id=3 - wire.coordinator("g"))
    producer = transactional(client)
    producer.client = other
    assert producer.commit_offsets(1) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.conformance("TX28", "TX37")
def test_a_partition_with_offsets_of_the_transaction_needs_no_question(client: Connection, version: int) -> None:
    """As a partition with its records (TX28)."""
    producer = transactional(client)
    assert producer.commit_offsets(1) == 0
    del shard_of(client.wire).ids["x"]
    assert producer.commit_offsets(2, version=version) == 0
    late = producer.copy()
    late.epoch -= 1
    assert late.commit_offsets(3, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_epoch_that_the_log_has_passed_is_fenced_although_the_coordinator_knows_nothing(client: Connection) -> None:
    """An operator has written a marker of a higher epoch."""
    producer = transactional(client)
    place = (OFFSETS_TOPIC, client.wire.broker.state.shard_of("g"))
    assert write_markers(client, producer.producer_id, producer.epoch + 1, place) == [0]
    assert producer.commit_offsets(9) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert pending_places(client.wire) == set()


@pytest.mark.conformance("TX37")
def test_unknown_topics_and_partitions_are_refused_alone(client: Connection) -> None:
    producer = transactional(client)
    one = offsets_request(9, partitions=(0, 3, -1)).topics[0]
    topics = (one, TxnOffsetCommitRequestTopic(name="absent", partitions=one.partitions))
    errors = producer.committed_offsets(9, topics=topics)
    assert errors == {("t", 0): 0} | {place: 3 for place in errors if place != ("t", 0)}
    assert len(errors) == 6
    assert set(producer.committed_offsets(9, topics=topics[1:]).values()) == {3}
    by_id = producer.committed_offsets(9, topics=topics, version=6)
    assert by_id == errors | {place: ErrorCode.UNKNOWN_TOPIC_ID for place in errors if place[0] == "absent"}
    assert set(producer.committed_offsets(9, topics=topics[1:], version=6).values()) == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert producer.commit() == 0
    assert committed(client) == 9


def test_a_transaction_has_a_limit_of_pending_offsets(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PENDING >= 20_000
    monkeypatch.setattr(transactional_offsets, "MOST_PENDING", 4)
    producer = transactional(client)
    assert producer.commit_offsets(1, partitions=(0, 1)) == 0
    assert producer.commit_offsets(2, partitions=(0, 1)) == 0, "as often as it likes"
    assert producer.commit_offsets(1, group="another", partitions=(0, 1)) == 0
    assert producer.commit_offsets(1, group="a third") == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    monkeypatch.setattr(transactional_offsets, "MOST_PARTITIONS", 2)
    assert producer.commit_offsets(1, partitions=(0, 1, 2)) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert producer.commit() == 0
    assert producer.commit_offsets(3, group="a third") == 0


def test_pending_offsets_are_counted_over_all_groups_and_at_a_start(client: Connection) -> None:
    producer = transactional(client)
    groups = ("g", "h", "i")
    assert len({client.wire.broker.state.shard_of(group) for group in groups}) > 1
    for group in groups:
        assert producer.commit_offsets(1, group=group, partitions=(0, 1)) == 0
    for wire in (client.wire, client.wire.restarted()):
        assert wire.broker.state.groups.pending_offsets(producer.producer_id) == 6
    assert producer.commit() == 0
    assert client.wire.broker.state.groups.pending_offsets(producer.producer_id) == 0


def test_a_large_commit_is_made_in_steps_and_is_whole() -> None:
    client = with_topic(10 * STEP)
    producer = transactional(client)
    partitions = tuple(range(10 * STEP))
    one = offsets_request(9, partitions=partitions).topics[0]
    beside = tuple(msgspec.structs.replace(one.partitions[0], partition_index=index) for index in (-1, 10 * STEP))
    topics = (one, TxnOffsetCommitRequestTopic(name="t", partitions=beside))
    for version in (5, 6):
        errors = producer.committed_offsets(9, topics=topics, version=version)
        assert {place for place, error in errors.items() if not error} == {("t", index) for index in partitions}
        assert set(errors.values()) == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(pending_places(client.wire)) == len(partitions)
    assert producer.commit() == 0
    assert {value.offset for value in client.wire.shard().hard.offsets["g"].values()} == {9}
    assert len(client.wire.shard().hard.offsets["g"]) == len(partitions)
    assert pending_places(client.wire) == set()


def test_a_large_commit_is_refused_as_a_whole_if_a_step_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member leaves between two steps. The producer has to abort, which drops what is pending."""
    client = with_topic(3 * STEP)
    producer = transactional(client)
    joined = stable(client)
    asked = []

    def ask(state: BrokerState, shard: int, request: Any, context: RequestContext) -> Any:
        asked.append(len(request.topics[0].partitions))
        if len(asked) == 2:
            leaving = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
            ask_shard(state, shard, leaving, msgspec.structs.replace(context, api_version=2))
        return ask_shard(state, shard, request, context)

    monkeypatch.setattr(transactional_offsets, "ask_shard", ask)
    partitions = tuple(range(3 * STEP))
    fields = member_fields(joined.member_id, joined.generation_id)
    errors = producer.committed_offsets(1, partitions=partitions, **fields)
    assert errors == dict.fromkeys((("t", index) for index in partitions), ErrorCode.UNKNOWN_MEMBER_ID)
    assert asked == [STEP, STEP], "no step follows a refused one"
    assert producer.abort() == 0
    assert pending_places(client.wire) == set()
    assert fetched(client) == (-1, 0)


def test_a_transaction_that_ends_between_two_steps_takes_the_later_ones_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = with_topic(3 * STEP)
    producer = transactional(client)
    zombie = producer.copy()
    asked = []

    def ask(state: BrokerState, shard: int, request: Any, context: RequestContext) -> Any:
        asked.append(request)
        made = ask_shard(state, shard, request, context)
        if len(asked) == 2:
            init = ProducerInit(context.request_id, "x", 60_000)
            state.transactions.ask_owner(init)
        return made

    monkeypatch.setattr(transactional_offsets, "ask_shard", ask)
    errors = zombie.committed_offsets(1, partitions=tuple(range(3 * STEP)))
    assert set(errors.values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert len(asked) == 2
    assert pending_places(client.wire) == set()


# -- who may commit


def member_fields(member_id: str, generation: int, instance: str | None = None) -> dict[str, Any]:
    return {"member_id": member_id, "generation_id": generation, "group_instance_id": instance}


@pytest.mark.conformance("TX49")
def test_tx49_without_a_group(client: Connection) -> None:
    producer = transactional(client)
    stranger = member_fields("m", 1)
    assert producer.commit_offsets(1, **stranger) == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offsets(1, version=6, **stranger) == ErrorCode.GROUP_ID_NOT_FOUND
    assert producer.commit_offsets(1, **member_fields("m", -1, "i")) == 0, "the group is founded"
    assert producer.commit_offsets(1, **stranger) == ErrorCode.UNKNOWN_MEMBER_ID
    [listed] = client.ask(ListGroupsRequest(), 4).groups
    assert (listed.group_id, listed.group_state) == ("g", "Empty")


@pytest.mark.conformance("TX49")
def test_tx49_a_classic_group(client: Connection) -> None:
    producer = transactional(client)
    joined = stable(client)
    member, generation = joined.member_id, joined.generation_id
    assert producer.commit_offsets(1) == 0, "older clients name no member"
    assert producer.commit_offsets(2, **member_fields(member, generation)) == 0
    for version in (5, 6):
        older = member_fields(member, generation - 1)
        assert producer.commit_offsets(3, version=version, **older) == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offsets(3, **member_fields(member, -1)) == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offsets(3, **member_fields("other", generation)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.commit_offsets(3, **member_fields(member, generation, "i")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.commit() == 0
    assert committed(client) == 2
    leave(client, member)
    assert producer.commit_offsets(3, **member_fields(member, generation)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.commit_offsets(4, **member_fields("whoever", -1, "whatever")) == 0, "the group is empty"


@pytest.mark.conformance("TX49")
def test_tx49_an_instance_id_fences_a_static_member(client: Connection) -> None:
    producer = transactional(client)
    other = client.wire.connect()
    client.send(join_request(group_instance_id="i"), 5)
    client.wire.advance(3000)
    joined = client.take()
    assert client.ask(sync_request(joined.member_id, joined.generation_id, b"all"), 3).error_code == 0
    returned = other.ask(join_request(group_instance_id="i"), 5)
    former = member_fields(joined.member_id, returned.generation_id, "i")
    assert producer.commit_offsets(1, **former) == ErrorCode.FENCED_INSTANCE_ID
    assert producer.commit_offsets(1, **member_fields(returned.member_id, returned.generation_id, "i")) == 0


@pytest.mark.conformance("TX49")
def test_tx49_the_end_of_a_rebalance_does_not_matter_and_no_session_is_extended(client: Connection) -> None:
    producer = transactional(client)
    joined = stable(client)
    newcomer = client.wire.connect()
    newcomer.send(join_request(), 3)
    client.send(join_request(member=joined.member_id), 3)
    client.wire.advance(100)
    again = client.take()
    assert again.generation_id == joined.generation_id + 1
    me = member_fields(again.member_id, again.generation_id)
    assert producer.commit_offsets(1, **me) == 0, "27 for OffsetCommit"
    asked = commit(client, 1, member_id=again.member_id, generation_id_or_member_epoch=again.generation_id)
    assert asked == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(4):
        client.wire.advance(4_000)
        producer.commit_offsets(1, **me)
    assert producer.commit_offsets(1, **me) == ErrorCode.UNKNOWN_MEMBER_ID, "its session of 10 s has ended"


@pytest.mark.conformance("TX49")
def test_a_member_that_awaits_its_first_generation_may_not_commit(client: Connection) -> None:
    producer = transactional(client)
    joined = stable(client)
    newcomer = client.wire.connect()
    newcomer.send(join_request(), 3)
    shard = client.wire.shard()
    [new] = set(shard.running.groups["g"].members) - {joined.member_id}
    assert producer.commit_offsets(1, **member_fields(new, joined.generation_id)) == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offsets(1, **member_fields(joined.member_id, joined.generation_id)) == 0
    assert heartbeat(client, joined) == ErrorCode.REBALANCE_IN_PROGRESS


class Mixed:
    """Group `g`: the consumer `x` has partition 0 of `t`, a classic member has partition 1."""

    def __init__(self, *, fencing: bool) -> None:
        self.client: Connection = with_topic(
            2, group_consumer_assignment_interval_ms=0, group_heartbeat_hold_enable=False
        )
        topic_id = self.client.wire.broker.state.catalog.topics["t"].topic_id
        if fencing:
            assert self.client.alter_configs("g", GROUP, ("consumer.ownership.fencing.enable", SET, "true"))[0] == 0
        self.producer = transactional(self.client)
        self.client.ask(consumer_join("x", instance_id="ix"), 1)
        self._joins("")
        self.client.ask(consumer_beat("x", 1), 1)
        owned = (HeartbeatTopicPartitions(topic_id=topic_id, partitions=(0,)),)
        self.epoch = self.client.ask(consumer_beat("x", 1, owned), 1).member_epoch
        self._joins(self.member_id)

    def _joins(self, member_id: str) -> None:
        metadata = b"\0\0" + encode(ConsumerProtocolSubscription(topics=("t",)), 0)
        protocols = (JoinGroupRequestProtocol(name="range", metadata=metadata),)
        joined = self.client.ask(join_request(member=member_id, protocols=protocols), 3)
        assert joined.error_code == 0
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assert self.client.ask(sync_request(joined.member_id, joined.generation_id), 2).error_code == 0

    def commits(
        self, member_id: str, epoch: int, *partitions: int, instance: str | None = None, version: int = 5
    ) -> int:
        fields = member_fields(member_id, epoch, instance)
        return self.producer.commit_offsets(1, partitions=partitions, version=version, **fields)


@pytest.mark.conformance("TX50")
def test_tx50_members_of_a_consumer_group() -> None:
    group = Mixed(fencing=False)
    x, epoch = "x", group.epoch
    assert epoch == 2
    assert group.commits(x, epoch, 0, 1, instance="ix") == 0, "Kafka checks no ownership at the present epoch"
    assert group.commits(group.member_id, group.generation, 0, 1) == 0
    assert group.commits("", -1, 0) == 0, "older clients name no member"
    assert group.commits("stranger", epoch, 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commits("other", epoch, 0, instance="ix") == ErrorCode.FENCED_INSTANCE_ID
    assert group.commits(x, epoch + 1, 0) == ErrorCode.ILLEGAL_GENERATION
    assert group.commits(group.member_id, group.generation + 1, 0) == ErrorCode.ILLEGAL_GENERATION
    assert group.commits(x, epoch - 1, 0) == 0, "it has had the partition since then (KIP-1251)"
    assert group.commits(x, epoch - 1, 0, 1) == ErrorCode.ILLEGAL_GENERATION, "the whole request"
    for wrong in ((epoch + 1, 0), (epoch - 1, 0, 1)):
        assert group.commits(x, *wrong, version=6) == ErrorCode.STALE_MEMBER_EPOCH
    classic = group.commits(group.member_id, group.generation + 1, 0, version=6)
    assert classic == ErrorCode.ILLEGAL_GENERATION, "it knows generations"
    assert group.commits("stranger", epoch, 0, version=6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert pending_places(group.client.wire) == {("t", 0), ("t", 1)}
    assert group.producer.abort() == 0
    assert group.commits(x, epoch - 1, 0, 1) == ErrorCode.ILLEGAL_GENERATION
    assert pending_places(group.client.wire) == set(), "nothing of it is pending"


@pytest.mark.conformance("TX50")
def test_ownership_fences_the_whole_request_and_never_with_110() -> None:
    group = Mixed(fencing=True)
    assert group.commits("x", group.epoch, 0) == 0
    assert group.commits("x", group.epoch, 0, 1) == ErrorCode.ILLEGAL_GENERATION
    assert group.commits("x", group.epoch, 0, 1, version=6) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.commits(group.member_id, group.generation, 1) == 0
    assert group.commits(group.member_id, group.generation, 0) == ErrorCode.ILLEGAL_GENERATION
    assert group.commits("", -1, 0, 1) == 0, "only the transactional id fences clients that name no member"
    assert group.producer.commit() == 0
    assert [fetched(group.client, partition=index) for index in (0, 1)] == [(1, 0), (1, 0)]


def test_a_topic_that_was_recreated_in_this_turn_belongs_to_no_member() -> None:
    group = Mixed(fencing=True)
    group.client.ask(delete_topics("t"), 5)
    group.client.create_topic("t", 2)
    assert group.commits("x", group.epoch, 0) == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.conformance("TX51")
def test_tx51_metadata_that_is_too_long_leaves_nothing_pending(client: Connection) -> None:
    producer = transactional(client)
    [short] = offsets_request(9, partitions=(0,)).topics
    [long] = offsets_request(9, partitions=(1,), metadata="m" * 5000).topics
    topics = (TxnOffsetCommitRequestTopic(name="t", partitions=(*short.partitions, *long.partitions)),)
    errors = producer.committed_offsets(9, topics=topics)
    assert errors == {("t", 0): 0, ("t", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert [fetched(client, partition=index) for index in (0, 1)] == [(-1, UNSTABLE), (-1, 0)]


def test_pending_offsets_count_as_committed_ones_do() -> None:
    client = with_topic(2_000, group_max_total_bytes=4 << 20)
    producer = transactional(client)
    total = client.wire.shard().hard.total
    everything = tuple(range(2_000))
    for number in range(4):
        producer.committed_offsets(1, group=f"large {number}", partitions=everything, metadata="m" * 200)
    assert 1.4 * (1 << 20) < total.bytes <= 1.5 * (1 << 20)
    assert producer.commit_offsets(1, group="large 9", metadata="m" * 200) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert producer.commit_offsets(2, group="large 0", metadata="m" * 200) == 0, "what is there is accepted again"
    assert producer.commit_offsets(2, group="short", metadata="m") == 0, "the last quarter is for short metadata"
    before = total.bytes
    assert producer.commit() == 0
    assert total.bytes == before, "what was pending is committed"
    assert producer.commit_offsets(3, group="large 0") == 0
    assert producer.abort() == 0
    assert total.bytes == before


# -- markers


@pytest.mark.parametrize("committed_first", [False, True])
@pytest.mark.conformance("TX52")
def test_tx52_the_place_of_the_record_decides_not_that_of_the_marker(client: Connection, committed_first: bool) -> None:
    producer, other = transactional(client), transactional(client, "y")
    assert producer.commit_offsets(1) == 0
    assert producer.commit_offsets(1, partitions=(1,)) == 0
    assert other.commit_offsets(2) == 0
    assert commit(client, 3, partition=1) == 0
    first, second = (other, producer) if committed_first else (producer, other)
    assert first.commit() == 0
    assert fetched(client, stable=False) == ((2, 0) if committed_first else (1, 0))
    assert fetched(client) == (-1, UNSTABLE), "the other is undecided"
    assert second.commit() == 0
    assert (fetched(client), fetched(client, partition=1)) == ((2, 0), (3, 0))
    again = client.wire.restarted().connect()
    assert (fetched(again), fetched(again, partition=1)) == ((2, 0), (3, 0))


def test_a_repeated_commit_takes_precedence_over_what_is_pending(client: Connection) -> None:
    producer = transactional(client)
    member = client.wire.connect()
    for offset in range(1, 5):
        assert commit(member, offset) == 0
    assert producer.commit_offsets(100) == 0
    assert commit(member, 5) == 0
    commits = client.wire.broker.repeats.commits
    assert commits.in_vain(member.id) == 0, "it was a repetition"
    assert commits.kept(member.id) is not None
    assert (fetched(client), fetched(client, stable=False)) == ((-1, UNSTABLE), (5, 0))
    assert producer.commit() == 0
    assert fetched(client) == (5, 0)


@pytest.mark.conformance("TX53")
def test_tx53_an_abort_marker_drops_and_a_marker_of_nothing_has_no_effect(client: Connection) -> None:
    producer, other = transactional(client), transactional(client, "y")
    assert commit(client, 5) == 0
    assert producer.commit_offsets(9) == 0
    place = (OFFSETS_TOPIC, client.wire.broker.state.shard_of("g"))
    assert write_markers(client, other.producer_id, other.epoch, place, committed=True) == [0]
    assert fetched(client) == (-1, UNSTABLE)
    assert producer.abort() == 0
    assert fetched(client) == (5, 0)
    assert producer.abort() == 0


@pytest.mark.conformance("TX53")
def test_the_timeout_of_a_transaction_drops_its_offsets(client: Connection) -> None:
    producer = transactional(client)
    assert producer.commit_offsets(9) == 0
    client.wire.advance(70_000)
    assert fetched(client) == (-1, 0)
    assert producer.commit_offsets(9) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.conformance("O18", "TX54")
def test_tx54_what_is_pending_is_unstable_until_the_marker(client: Connection, version: int) -> None:
    producer = transactional(client)
    assert commit(client, 5) == 0
    assert producer.commit_offsets(9, partitions=(0, 1)) == 0

    def offsets(*, stable: bool, everything: bool = False) -> dict[int, tuple[int, int, int, str | None]]:
        wanted = (OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1, 2)),)
        group = OffsetFetchRequestGroup(group_id="g", topics=None if everything else wanted)
        request = OffsetFetchRequest(
            group_id="g", topics=group.topics, groups=(group,) if version >= 8 else (), require_stable=stable
        )
        answer = client.ask(request, version)
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        return {
            found.partition_index: (
                found.committed_offset, found.error_code, found.committed_leader_epoch, found.metadata
            )
            for topic in topics
            for found in topic.partitions
        }  # fmt: skip

    none, unstable = (-1, 0, -1, ""), (-1, UNSTABLE, -1, "")
    assert offsets(stable=True) == {0: unstable, 1: unstable, 2: none}
    assert offsets(stable=False) == {0: (5, 0, -1, "note"), 1: none, 2: none}
    assert offsets(stable=True, everything=True) == {0: unstable}, "1 has only a pending offset"
    assert offsets(stable=False, everything=True) == {0: (5, 0, -1, "note")}
    assert producer.commit() == 0
    assert offsets(stable=True) == {0: (9, 0, 3, "note"), 1: (9, 0, 3, "note"), 2: none}


@pytest.mark.conformance("TX54")
def test_tx54_two_phases_keep_the_offset_unstable_until_the_marker(client: Connection) -> None:
    producer = transactional(client)
    wire = client.wire
    wire.broker.state.transactions.endings.splits = lambda ending: True
    assert producer.commit_offsets(9) == 0
    reader = wire.connect()
    wanted = (OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
    stable_fetch = OffsetFetchRequest(group_id="g", topics=wanted, require_stable=True)
    frames = (
        client.frame(EndTxnRequest(**producer.producer, committed=True), 5),
        reader.frame(stable_fetch, 7),
    )
    wire.end(wire.broker.step(frames, wire.now))
    assert client.take().error_code == 0, "the decision is durable"
    [found] = reader.take().topics[0].partitions
    assert (found.committed_offset, found.error_code) == (-1, UNSTABLE)
    assert wire.broker.state.transactions.endings.busy
    wire.step()
    assert fetched(client) == (9, 0)


def test_offsets_by_topic_id_are_unstable_too(client: Connection) -> None:
    topic_id = client.create_topic("by-id")
    producer = transactional(client)
    assert producer.commit_offsets(9, topic="by-id") == 0
    wanted = (OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=(0,)),)
    groups = (OffsetFetchRequestGroup(group_id="g", topics=wanted),)
    for _ in range(2):
        answer = client.ask(OffsetFetchRequest(groups=groups, require_stable=True), 10)
        [found] = answer.groups[0].topics[0].partitions
        if found.error_code:
            assert (found.committed_offset, found.error_code) == (-1, UNSTABLE)
            assert producer.commit() == 0
    assert (found.committed_offset, found.error_code) == (9, 0)


# -- deletion and expiry


def delete_offset(client: Connection, group: str = "g", partition: int = 0) -> int:
    partitions = (OffsetDeleteRequestPartition(partition_index=partition),)
    topics = (OffsetDeleteRequestTopic(name="t", partitions=partitions),)
    answer = client.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("how", ["offset", "group", "topic"])
@pytest.mark.parametrize("has_committed", [False, True])
@pytest.mark.conformance("TX55", "TX57")
def test_tx55_a_tombstone_takes_what_is_pending(client: Connection, how: str, has_committed: bool) -> None:
    producer, other = transactional(client), transactional(client, "y")
    if has_committed:
        assert commit(client, 5) == 0
    assert producer.commit_offsets(9) == 0
    assert other.commit_offsets(10) == 0
    if how == "offset":
        assert delete_offset(client) == 0
    elif how == "group":
        [result] = client.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
        assert result.error_code == 0, "pending offsets do not keep a group"
    else:
        client.ask(delete_topics("t"), 5)
        client.create_topic("t", 3)
    assert fetched(client) == (-1, 0)
    assert producer.commit() == 0
    assert other.commit() == 0
    assert fetched(client) == (-1, 0), "a later marker brings nothing back"
    assert fetched(client.wire.restarted().connect()) == (-1, 0)


@pytest.mark.conformance("TX55")
def test_a_commit_after_the_tombstone_counts(client: Connection) -> None:
    producer = transactional(client)
    assert producer.commit_offsets(9) == 0
    assert delete_offset(client) == 0
    assert producer.commit_offsets(10) == 0
    assert producer.commit() == 0
    assert fetched(client) == (10, 0)


def test_a_group_of_pending_offsets_only_is_known(client: Connection) -> None:
    producer = transactional(client)
    assert producer.commit_offsets(9) == 0
    for wire in (client.wire, client.wire.restarted()):
        reader = wire.connect()
        [listed] = reader.ask(ListGroupsRequest(), 4).groups
        assert (listed.group_id, listed.group_state) == ("g", "Empty")
    restarted = wire.connect()
    assert delete_offset(restarted) == 0
    assert delete_offset(restarted, "unknown") == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_offset(restarted) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.conformance("X5", "TX56")
def test_tx56_pending_offsets_do_not_expire_and_keep_their_group(restart: bool) -> None:
    config = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 60_000}
    client = with_topic(3, **config)
    producer = transactional(client)
    assert commit(client, 5) == 0
    assert commit(client, 6, partition=1) == 0
    assert producer.init(timeout_ms=900_000) == 0
    assert producer.commit_offsets(9) == 0
    if restart:
        client = client.wire.restarted(**config).connect()
        producer.client = client
    client.wire.advance(600_000)
    assert fetched(client, stable=False) == (5, 0)
    assert fetched(client, partition=1) == (-1, 0), "it has expired"
    assert producer.abort() == 0
    client.wire.advance(600_000)
    assert fetched(client, stable=False) == (-1, 0)
    assert client.ask(ListGroupsRequest(), 4).groups == ()


@pytest.mark.conformance("X5", "TX56")
def test_tx56_pending_offsets_keep_a_consumer_group() -> None:
    config = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 60_000}
    client = with_topic(1, **config)
    producer = transactional(client)
    assert producer.init(timeout_ms=900_000) == 0
    client.ask(consumer_join("m"), 1)
    assert producer.commit_offsets(9) == 0
    client.ask(consumer_beat("m", -1), 1)
    client.wire.advance(600_000)
    assert client.wire.shard().consumers.groups.keys() == {"g"}
    assert producer.abort() == 0
    client.wire.advance(600_000)
    assert client.wire.shard().consumers.groups.keys() == set()


@pytest.mark.conformance("TX58")
def test_tx58_what_was_accepted_stands_when_its_member_leaves(client: Connection) -> None:
    producer = transactional(client)
    joined = stable(client)
    assert producer.commit_offsets(9, **member_fields(joined.member_id, joined.generation_id)) == 0
    leave(client, joined.member_id)
    client.ask(consumer_join("m"), 1)  # the group becomes a consumer group
    assert client.wire.shard().consumers.groups.keys() == {"g"}
    assert producer.commit() == 0
    assert fetched(client) == (9, 0)


# -- restarts


@pytest.mark.conformance("TX59")
def test_tx59_an_open_transaction_survives_restarts(client: Connection) -> None:
    producer = transactional(client, version=1)
    assert commit(client, 5) == 0
    assert producer.commit_offsets(9) == 0
    assert commit(client, 6, partition=1) == 0
    client = client.wire.restarted().connect()
    assert (fetched(client), fetched(client, stable=False)) == ((-1, UNSTABLE), (5, 0))
    producer.client = client
    found(client)
    assert producer.commit_offsets(10, partitions=(1,)) == 0
    client = client.wire.restarted().connect()
    producer.client = client
    assert producer.commit() == 0
    assert [fetched(client, partition=index) for index in (0, 1)] == [(9, 0), (10, 0)]
    client = client.wire.restarted().connect()
    assert [fetched(client, partition=index) for index in (0, 1)] == [(9, 0), (10, 0)]


@pytest.mark.conformance("TX59")
def test_tx59_an_aborted_or_open_offset_hides_no_committed_one_at_a_start(client: Connection) -> None:
    producer, other = transactional(client), transactional(client, "y")
    assert commit(client, 5) == 0
    assert producer.commit_offsets(9) == 0
    assert producer.abort() == 0
    assert other.commit_offsets(10) == 0
    restarted = client.wire.restarted().connect()
    assert (fetched(restarted), fetched(restarted, stable=False)) == ((-1, UNSTABLE), (5, 0))


def test_a_request_without_partitions_is_answered(client: Connection) -> None:
    producer = transactional(client)
    request = TxnOffsetCommitRequest(group_id="g", topics=(), **producer.producer)
    assert client.ask(request, 5).topics == ()
