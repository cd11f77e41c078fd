"""Endings of transactions: in one turn, in two phases, over restarts and moves of the coordinator."""

from __future__ import annotations

import pytest
from transaction_driver import Transactional, described, found, listed, log_of, state_of
from wire_driver import Connection, Wire

from kohort.broker.broker import Broker
from kohort.broker.topics.catalog import TRANSACTIONS_TOPIC
from kohort.broker.transactions.endings import MARKERS_A_TURN, MARKERS_AT_ONCE, SHARE
from kohort.broker.turn import BrokerPresence, MovePartition
from kohort.coordinator.transactions.transaction import State
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.end_txn import EndTxnRequest

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
MANY = 250
"""More partitions than one turn writes markers for."""


@pytest.fixture
def wire() -> Wire:
    return Wire()


def producing(client: Connection, name: str = "x", *, partitions: int = MANY, version: int = 2) -> Transactional:
    """A producer with an open transaction of so many partitions, and a record in the first two."""
    if "t" not in client.wire.broker.state.catalog.topics:
        client.create_topic("t", MANY)
    producer = Transactional(client, name, version=version)
    assert producer.init() == 0
    assert producer.add("t", *range(partitions)) == 0
    for partition in (0, 1):
        assert producer.produce(name, partition=partition) == 0
    return producer


def one_turn(client: Connection, producer: Transactional, *, committed: bool = True) -> int:
    """End the transaction, and take no further turn. Returns the error."""
    wire = client.wire
    frame = client.frame(EndTxnRequest(**producer.producer, committed=committed), 5 if producer.version == 2 else 4)
    wire.end(wire.broker.step([frame], wire.now))
    return int(client.take().error_code)


def markers(wire: Wire) -> int:
    """How many partitions of `t` have a marker."""
    return sum(partition.end_offset > (index < 2) for index, partition in enumerate(wire.partitions("t")))


def turns_until_done(wire: Wire) -> list[int]:
    """Take turns until all is done. Returns the markers after each."""
    counts = []
    while wire.broker.state.transactions.endings.busy:
        wire.end(wire.broker.step((), wire.now))
        counts.append(markers(wire))
    return counts


# -- in one turn


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.conformance("TX18", "TX19")
def test_a_small_transaction_ends_in_one_turn(wire: Wire, version: int, committed: bool) -> None:
    client = wire.connect()
    producer = producing(client, partitions=MARKERS_AT_ONCE, version=version)
    assert one_turn(client, producer, committed=committed) == 0
    assert markers(wire) == MARKERS_AT_ONCE
    assert state_of(wire).state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert not wire.broker.state.transactions.endings.busy


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize(("begins", "ends"), [(2, 1), (1, 2)])
def test_the_version_of_the_end_decides_about_its_markers(wire: Wire, begins: int, ends: int, splits: bool) -> None:
    """@platformatic/kafka adds partitions as version 2 does and ends as version 1 does: its markers keep the epoch."""
    client = wire.connect()
    client.create_topic("t", 1)
    wire.broker.state.transactions.endings.splits = lambda ending: splits
    producer = Transactional(client, version=begins)
    assert producer.init() == 0
    assert begins == 2 or producer.add("t") == 0
    assert producer.produce("a") == 0  # adds the partition in version 2
    producer.version = ends
    assert one_turn(client, producer) == 0
    turns_until_done(wire)
    wire.step()  # the last markers are durable
    [partition] = wire.partitions("t")
    assert (partition.last_stable_offset, partition.end_offset) == (2, 2)


def test_the_decision_and_the_completion_are_one_record(wire: Wire) -> None:
    client = wire.connect()
    producer = producing(client, partitions=2)
    ends = [partition.end_offset for partition in wire.partitions(TRANSACTIONS_TOPIC)]
    assert one_turn(client, producer) == 0
    wire.step()
    assert sum(partition.end_offset for partition in wire.partitions(TRANSACTIONS_TOPIC)) - sum(ends) == 1


def test_a_turn_that_is_lost_ends_nothing(wire: Wire) -> None:
    client = wire.connect()
    producer = producing(client, partitions=2)
    wire.broker.step([client.frame(EndTxnRequest(**producer.producer, committed=True), 5)], wire.now)
    again = wire.restarted()
    assert state_of(again).state is State.ONGOING
    assert log_of(again) == ["x"]
    producer.client = again.connect()
    assert producer.commit() == 0
    assert log_of(again) == ["x", f"COMMIT {producer.producer_id}/1"]


@pytest.mark.parametrize("splits", [False, True])
def test_the_partition_of_a_deleted_topic_gets_no_marker(wire: Wire, splits: bool) -> None:
    client = wire.connect()
    wire.broker.state.transactions.endings.splits = lambda ending: splits
    producer = producing(client, partitions=2)
    client.create_topic("gone", 2)
    assert producer.produce("a", topic="gone") == 0
    state = wire.broker.state
    state.turn.begin(wire.now)
    state.delete_topics([state.catalog.topics["gone"]])
    wire.step()
    assert producer.commit() == 0
    assert log_of(wire)[-1] == f"COMMIT {producer.producer_id}/1"
    assert state_of(wire).state is State.COMPLETE_COMMIT


# -- in two phases


@pytest.mark.parametrize("version", [1, 2])
def test_a_large_transaction_ends_over_several_turns(wire: Wire, version: int) -> None:
    client = wire.connect()
    producer = producing(client, version=version)
    assert one_turn(client, producer) == 0
    assert (markers(wire), state_of(wire).state) == (0, State.PREPARE_COMMIT), "the decision comes first"
    assert turns_until_done(wire) == [100, 200, 250]
    assert state_of(wire).state is State.COMPLETE_COMMIT
    epoch = version - 1
    assert log_of(wire) == ["x", f"COMMIT {producer.producer_id}/{epoch}"]


@pytest.mark.conformance("TX20")
def test_tx20_while_a_transaction_ends_its_producer_waits(wire: Wire) -> None:
    client = wire.connect()
    producer = producing(client)
    lost = producer.copy()
    assert one_turn(client, producer) == 0
    wire.end(wire.broker.step((), wire.now))
    [topic] = described(client).topics
    assert len(topic.partitions) == MANY - MARKERS_A_TURN, "those without a marker"
    assert wire.broker.busy is False
    assert lost.commit() == 0
    assert lost.epoch == 1


@pytest.mark.conformance("TX22", "TX25")
def test_requests_in_between_get_51(wire: Wire) -> None:
    client = wire.connect()
    producer = producing(client)
    assert one_turn(client, producer) == 0
    producer.epoch = 1
    producer.sequences.clear()
    answers = []
    for ask in (
        lambda: producer.client.frame(EndTxnRequest(**producer.producer, committed=False), 5),
        lambda: producer.client.frame(EndTxnRequest(**producer.producer, committed=True), 4),
    ):
        wire.end(wire.broker.step([ask()], wire.now))
        answers.append(client.take().error_code)
    assert answers == [BUSY, BUSY]
    wire.step()
    assert [one.transaction_state for one in listed(client).transaction_states] == ["CompleteCommit"]
    assert producer.produce("next") == 0


def test_large_transactions_take_turns(wire: Wire) -> None:
    client = wire.connect()
    producers = [producing(client, name) for name in ("x", "y")]
    frames = [client.frame(EndTxnRequest(**producer.producer, committed=True), 5) for producer in producers]
    wire.end(wire.broker.step(frames, wire.now))
    wire.end(wire.broker.step((), wire.now))
    endings = wire.broker.state.transactions
    left = [MANY - len(endings.unwritten(producer.name)) for producer in producers]
    assert sum(left) == MARKERS_A_TURN
    assert abs(left[0] - left[1]) <= SHARE


def test_a_restart_begins_with_the_first_marker(wire: Wire) -> None:
    client = wire.connect()
    producer = producing(client)
    assert one_turn(client, producer) == 0
    wire.end(wire.broker.step((), wire.now))
    assert markers(wire) == MARKERS_A_TURN
    again = wire.restarted()
    assert state_of(again).state is State.COMPLETE_COMMIT
    assert markers(again) == MANY
    commit = f"COMMIT {producer.producer_id}/1"
    assert log_of(again) == ["x", commit, commit], "a repeated marker has no effect"
    assert log_of(again, partition=MANY - 1) == [commit]
    producer.client, producer.epoch = again.connect(), 1
    producer.sequences.clear()
    assert producer.produce("next") == 0
    assert producer.commit() == 0


@pytest.mark.parametrize("crash_after", range(6))
def test_a_crash_at_any_turn_of_an_ending(crash_after: int) -> None:
    """Every commit of the ending is durable or not; afterwards the transaction is whole or open."""
    wire = Wire()
    client = wire.connect()
    producer = producing(client)
    frame = client.frame(EndTxnRequest(**producer.producer, committed=True), 5)
    turn = wire.broker.step([frame], wire.now)
    for _ in range(crash_after):
        wire.end(turn)
        turn = wire.broker.step((), wire.now)
    again = wire.restarted()
    if crash_after == 0:
        assert state_of(again).state is State.ONGOING
        producer.client = again.connect()
        assert producer.commit() == 0
    assert state_of(again).state is State.COMPLETE_COMMIT
    assert {log_of(again, partition=index)[-1] for index in range(MANY)} == {f"COMMIT {producer.producer_id}/1"}


def test_the_forced_path_decides_first(wire: Wire) -> None:
    """The simulator forces small transactions to end in two phases."""
    wire.broker.state.transactions.endings.splits = lambda ending: True
    client = wire.connect()
    producer = producing(client, partitions=2)
    assert one_turn(client, producer, committed=False) == 0
    assert (markers(wire), state_of(wire).state) == (0, State.PREPARE_ABORT)
    assert turns_until_done(wire) == [2]
    assert state_of(wire).state is State.COMPLETE_ABORT


@pytest.mark.conformance("TX9")
def test_init_waits_for_an_abort_in_two_phases(wire: Wire) -> None:
    client = wire.connect()
    producer = producing(client)
    assert producer.init() == BUSY
    assert producer.init() == 0
    assert log_of(wire) == ["x", f"ABORT {producer.producer_id}/1"]


# -- time-outs


def test_many_transactions_that_time_out_are_aborted_over_several_turns() -> None:
    wire = Wire(transaction_state_log_num_partitions=2)
    client = wire.connect()
    producers = [producing(client, f"x-{index}", partitions=20) for index in range(40)]
    wire.now += 60_001
    counts = []
    while any(one.transaction_state != "CompleteAbort" for one in listed(client).transaction_states):
        counts.append(markers(wire))
        assert len(counts) < 100
    for producer in producers:
        assert state_of(wire, producer.name).state is State.COMPLETE_ABORT
    assert len([notice for notice in wire.notices if notice.what == "transaction timed out"]) == 40


def test_a_time_out_counts_from_the_first_partition_also_after_a_restart(wire: Wire) -> None:
    client = wire.connect()
    producing(client, partitions=2)
    wire.advance(40_000)
    again = wire.restarted()
    again.advance(20_000)
    assert state_of(again).state is State.ONGOING
    again.advance(1)
    assert state_of(again).state is State.COMPLETE_ABORT


# -- moves


def test_a_move_of_the_coordinator_keeps_the_open_transaction() -> None:
    wire = Wire(brokers=3)
    first = found(wire.connect())
    client = wire.connect(first)
    client.create_topic("t", 1)
    leader = wire.broker.state.catalog.topics["t"].partitions[0].leader
    producer = Transactional(client)
    producer.init()
    producer.client = wire.connect(leader)
    assert producer.produce("a") == 0
    second = first % 3 + 1
    index = wire.broker.state.transactions.of("x")
    assert index is not None
    wire.step(MovePartition(TRANSACTIONS_TOPIC, index, second))
    producer.client = client
    assert producer.commit() == ErrorCode.NOT_COORDINATOR
    assert found(client) == second
    producer.client = wire.connect(second)
    assert producer.commit() == 0
    assert log_of(wire) == ["a", f"COMMIT {producer.producer_id}/1"]


def test_an_ending_under_way_goes_on_after_a_move() -> None:
    wire = Wire(brokers=2)
    first = found(wire.connect())
    client = wire.connect(first)
    client.create_topic("t", MANY)
    producer = Transactional(client)
    producer.init()
    producer.add("t", *range(MANY))
    assert one_turn(client, producer) == 0
    wire.end(wire.broker.step((), wire.now))
    wire.step(BrokerPresence(first, present=False))
    assert state_of(wire).state is State.COMPLETE_COMMIT
    assert {log_of(wire, partition=index)[-1] for index in range(MANY)} == {f"COMMIT {producer.producer_id}/1"}
    assert found(wire.connect(3 - first)) == 3 - first


def test_the_first_turn_of_a_start_writes_nothing_for_finished_transactions(wire: Wire) -> None:
    client = wire.connect()
    assert producing(client, partitions=2).commit() == 0
    wire.step()
    again = wire.restarted()
    broker: Broker = again.broker
    assert not broker.busy
    assert {index: partition.end_offset for index, partition in enumerate(again.partitions("t"))} == {
        index: partition.end_offset for index, partition in enumerate(wire.partitions("t"))
    }
