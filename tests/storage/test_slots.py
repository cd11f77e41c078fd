"""Slots: how they are dealt, and nodes on one PostgreSQL that serve at once: take, give, take over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest
from storage_batches import make_batch

from kohort.storage.postgres import leases, report
from kohort.storage.postgres.connections import UNSHOWN, shown
from kohort.storage.postgres.engine import PostgresStorage
from kohort.storage.postgres.leases import NodeAddress, Timing
from kohort.storage.protocol import Append, CreateLog, Fenced, GiveSlots, LogKey, StorageError, TakeSlots
from kohort.storage.slots import CONTROLLER_SLOT, METADATA_TOPIC_ID, SLOTS, dealt, next_moves, slot_of

METADATA = LogKey(METADATA_TOPIC_ID, 0)


def log_in(slot: int) -> LogKey:
    return next(key for key in (LogKey(b"t" * 16, number) for number in range(SLOTS)) if slot_of(key) == slot)


# -- dealing


def test_partitions_of_a_topic_lie_in_slots_that_follow_each_other() -> None:
    slots = [slot_of(LogKey(b"t" * 16, index)) for index in range(SLOTS - 1)]
    assert sorted(slots) == list(range(1, SLOTS))
    assert slot_of(METADATA) == CONTROLLER_SLOT


def test_slots_of_a_dead_node_go_to_those_with_the_fewest() -> None:
    owners = [1] * 64 + [2] * 40 + [3] * 24
    found = dealt(range(64), owners, [2, 3])
    assert [list(found.values()).count(node) for node in (2, 3)] == [24, 40]


def balanced(owners: list[int], living: list[int], drained: tuple[int, ...] = ()) -> int:
    """Carry all moves out. Returns the number of rounds."""
    for rounds in range(1000):
        moves = next_moves(owners, {}, living, drained)
        if not moves:
            return rounds
        givers = [owners[slot] for slot in moves]
        assert len(set(givers)) == len(givers)
        assert len(set(moves.values())) == len(moves)
        for slot, node in moves.items():
            assert owners[slot] != node
            owners[slot] = node
    raise AssertionError("slots move for ever")


def test_slots_are_spread_over_nodes_that_join() -> None:
    owners = [1] * SLOTS
    assert balanced(owners, [1, 2]) == SLOTS // 2
    balanced(owners, [1, 2, 3])
    assert sorted(owners.count(node) for node in (1, 2, 3)) == [42, 43, 43]
    assert owners[CONTROLLER_SLOT] == 1


def test_a_drained_node_gives_everything() -> None:
    owners = [1] * 43 + [2] * 43 + [3] * 42
    balanced(owners, [1, 2, 3], (1,))
    assert sorted(owners.count(node) for node in (1, 2, 3)) == [0, 64, 64]


def test_any_state_comes_to_rest() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        nodes = list(range(1, chance.randint(2, 6)))
        owners = [chance.choice(nodes) for _ in range(SLOTS)]
        drained = tuple(node for node in nodes if chance.random() < 0.3)
        balanced(owners, nodes, drained)
        takers = [node for node in nodes if node not in drained]
        if takers:
            assert max(map(owners.count, takers)) - min(map(owners.count, takers)) <= 1, seed


def test_a_move_under_way_counts() -> None:
    assert next_moves([1] * SLOTS, {5: 2}, [1, 2]) == {}
    assert next_moves([1] * SLOTS, {}, [1]) == {}
    assert next_moves([1] * SLOTS, {}, [1], [1]) == {}


# -- nodes


class Node:
    def __init__(self, url: str, number: int, lease_s: float) -> None:
        self.failures: list[Exception] = []
        address = NodeAddress(number, "host", 9000 + number)
        self.storage = PostgresStorage(url, address, None, self.failures.append, Timing(lease_s, 0.2), move_s=0.0)
        self.storage.open()
        self.lease = self.storage.acquire()

    def commit(self, *operations: object) -> None:
        self.storage.commit(operations, self.lease)  # type: ignore[arg-type]

    @property
    def owned(self) -> list[int]:
        seen = self.storage.look()
        assert seen is not None
        number = self.storage._node
        return [slot for slot, owner in enumerate(seen.owners) if owner == number]

    def take(self, *slots: int) -> list[LogKey]:
        found = self.storage.load_slots(slots)
        assert found is not None
        self.commit(TakeSlots(METADATA, slots))
        return [info.key for info in found]

    def close(self) -> None:
        self.storage.close()


Start = Callable[..., Node]


@pytest.fixture
def start(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(leases, "LOOK_S", 0.05)
    monkeypatch.setattr(leases, "AGAIN_S", 0.1)
    with ExitStack() as nodes:
        yield lambda number, lease_s=60.0: nodes.enter_context(closing(Node(postgres_url, number, lease_s)))


def test_a_slot_moves_with_its_logs(start: Start) -> None:
    first = start(1)
    assert len(first.owned) == SLOTS
    first.take(*range(SLOTS))
    log = log_in(5)
    first.commit(CreateLog(log), Append(log, (make_batch(0),)))
    second = start(2)
    assert second.owned == []
    with pytest.raises(StorageError):
        second.commit(CreateLog(log_in(6)))  # not its own
    first.commit(Append(log, (make_batch(1),)), GiveSlots(METADATA, ((5, 2),)))
    assert first.storage.logs() == []
    with pytest.raises(StorageError):
        first.commit(Append(log, (make_batch(2),)))
    assert second.owned == [5]
    assert second.take(5) == [log]
    second.commit(Append(log, (make_batch(2),)))
    assert [batch.base_offset for batch in second.storage.read(log, 0, 1 << 20)] == [0, 1, 2]


def test_a_slot_of_another_node_is_not_taken(start: Start) -> None:
    first, second = start(1), start(2)
    first.take(*range(SLOTS))
    with pytest.raises(Fenced):
        second.take(5)
    first.commit(CreateLog(log_in(5)))


def test_a_node_that_stops_leaves_its_slots_to_the_others(start: Start) -> None:
    first, second, third = start(1), start(2), start(3)
    first.take(*range(SLOTS))
    log = log_in(7)
    first.commit(CreateLog(log), Append(log, (make_batch(0),)))
    first.close()
    assert len(second.owned) == len(third.owned) == SLOTS // 2
    owner = second if 7 in second.owned else third
    assert owner.take(7) == [log]
    seen = owner.storage.look()
    assert seen is not None
    assert set(seen.epochs) == {1}
    owner.commit(Append(log, (make_batch(1),)))


def test_a_node_without_a_lease_is_fenced(start: Start) -> None:
    first, second = start(1, 1.0), start(2, 1.0)
    first.take(*range(SLOTS))
    log = log_in(7)
    first.commit(CreateLog(log))
    renewing = first.storage._leases._renewing
    assert renewing is not None
    first.storage._io.call(renewing.cancel)
    while not second.owned:
        second.storage.wait()
    with pytest.raises(Fenced):
        first.commit(Append(log, (make_batch(0),)))
    assert second.take(7) == [log]
    second.commit(Append(log, (make_batch(0),)))


def test_the_controller_wants_slots_to_move(start: Start) -> None:
    first, second = start(1), start(2)
    first.take(*range(SLOTS))
    for moved in range(1, 4):
        seen = first.storage.look()
        assert seen is not None
        assert list(seen.wanted.values()) == [2]
        first.commit(GiveSlots(METADATA, tuple(seen.wanted.items())))
        assert len(second.owned) == moved


def test_a_slot_that_is_where_it_should_be_does_not_stop_the_moves(start: Start, postgres_url: str) -> None:
    first, second = start(1), start(2)
    first.take(*range(SLOTS))
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE kohort.slot SET wanted = 1 WHERE id = 5")
    seen = first.storage.look()
    assert seen is not None
    assert list(seen.wanted.values()) == [2]
    first.commit(GiveSlots(METADATA, tuple(seen.wanted.items())))
    assert len(second.owned) == 1


def test_what_administrators_ask_in_vain(start: Start, postgres_url: str) -> None:
    first = start(1)
    with pytest.raises(StorageError, match="no other node can take the slots of node 1"):
        report.drain(postgres_url, 1)
    start(2).close()
    with pytest.raises(StorageError, match="node 2 has no lease"):
        report.move(postgres_url, 5, 2)
    start(3)
    with pytest.raises(StorageError, match="node 1 serves slot 5 already"):
        report.move(postgres_url, 5, 1)
    for refused in (report.drain, lambda url, node: report.move(url, 5, node)):
        with pytest.raises(StorageError, match="there is no node 9; kohort cluster nodes"):
            refused(postgres_url, 9)
    report.drain(postgres_url, 3)
    with pytest.raises(StorageError, match="node 3 is drained and takes no slots; kohort cluster drain 3 --undo"):
        report.move(postgres_url, 5, 3)
    with pytest.raises(StorageError, match="no other node can take the slots of node 1"):
        report.drain(postgres_url, 1)
    report.drain(postgres_url, 3, back=True)
    report.move(postgres_url, 5, 3)
    seen = first.storage.look()
    assert seen is not None
    assert seen.wanted[5] == 3


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret/x@host/db",  # a password with a character of URLs in it
        "postgresql://u:secret@host:port/db",
        "postgresql://u:secret@[::1/db",
        "postgresql://u:secret@host/db?sslmode=secret",
    ],
)
def test_a_url_that_is_wrong_is_refused_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(StorageError, match="the URL of the database is ") as refused:
        report.drain(url, 1)
    assert "secret" not in str(refused.value)
    assert "secret" not in shown(url)


def test_what_is_shown_of_a_url() -> None:
    assert shown("postgresql://u:secret@a.b:5432,[::1]:2/db?password=secret") == "postgresql://a.b:5432,[::1]:2/db"
    assert shown("postgresql:///db?host=/run/x") == "postgresql:///db"
    assert shown("host=a password=secret") == UNSHOWN


def test_producer_ids_are_given_once(start: Start) -> None:
    first, second = start(1), start(2)
    assert [node.storage.take_producer_ids(10) for node in (first, second, first)] == [0, 10, 20]


def test_a_database_keeps_its_mode(start: Start, postgres_url: str) -> None:
    start(1)
    alone = PostgresStorage(postgres_url, NodeAddress(2, "host", 9002))
    with closing(alone), pytest.raises(StorageError, match=r"cluster\.serving=one"):
        alone.open()
