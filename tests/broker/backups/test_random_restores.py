"""Clusters that are restored again and again, each time from any earlier backup: no number comes twice."""

from __future__ import annotations

import random

import pytest
from group_driver import consumer_join, leave, stable
from stored_world import CONFIG, producer_id
from transaction_driver import Transactional
from wire_driver import Wire

from kohort.broker.backups.raising import raise_numbers
from kohort.config import Config
from kohort.server.stopped import broker_without_server
from kohort.storage.memory import MemoryStorage

IN_2027 = 1_800_000_000_000
MINUTE = 60_000
SETTINGS = CONFIG | {
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_min_assignment_interval_ms": 0,
    "group_heartbeat_hold_enable": False,
}
"""Each new member of a consumer group gets a new epoch at once."""
DO = ("classic", "consumer", "producer", "transaction", "open transaction", "backup", "restore")


class Clusters:
    """The present cluster, the backups of all clusters, and the largest number of each name that a client has seen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wire = Wire(MemoryStorage(), now=IN_2027, **SETTINGS)
        self.wire.connect().create_topic("t", 2)
        self.backups = [self.wire.storage.copy()]
        self.seen: dict[str, tuple[int, ...]] = {}
        self.restores = 0
        self._monkeypatch = monkeypatch

    def sees(self, name: str, *number: int) -> None:
        assert number > self.seen.get(name, ()), f"{name} after {self.restores} restores"
        self.seen[name] = number

    def do(self, what: str, name: str) -> None:
        client = self.wire.connect()
        match what:
            case "classic":
                joined = stable(client, name)
                self.sees(f"classic {name}", joined.generation_id)
                leave(client, joined.member_id, name)
            case "consumer":
                member = f"member-{random.random()}"
                self.sees(f"consumer {name}", client.ask(consumer_join(member, group=f"c{name}"), 1).member_epoch)
            case "producer":
                self.sees("producers", producer_id(client))
            case "transaction" | "open transaction":
                producer = Transactional(client, name)
                while producer.init() == 51:  # the former transaction is being aborted
                    self.wire.step()
                self.sees(f"transactional id {name}", producer.producer_id, producer.epoch)
                assert producer.produce("value") == 0
                if what == "transaction":
                    assert producer.commit() == 0
                    self.sees(f"transactional id {name}", producer.producer_id, producer.epoch)
            case "backup":
                self.backups.append(self.wire.storage.copy())
            case "restore":
                self.restore(self.wire.now + MINUTE)

    def restore(self, now: int) -> None:
        storage = random.choice(self.backups).copy()
        self._monkeypatch.setattr("kohort.server.stopped.time.time_ns", lambda: now * 1_000_000)
        turn, _ = raise_numbers(broker_without_server(Config(), storage).load().state, now)
        storage.commit(turn.operations, storage.acquire())
        self.wire = Wire(storage, now=now, **SETTINGS)
        self.wire.broker.validate()
        self.restores += 1
        for partition in self.wire.partitions("t"):
            self.sees(f"leader of {partition.log.partition}", partition.leader_epoch)


@pytest.mark.parametrize("seed", range(8))
def test_no_number_comes_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(seed)
    clusters = Clusters(monkeypatch)
    for _ in range(60):
        clusters.do(random.choice(DO), random.choice("gh"))
    clusters.restore(clusters.wire.now + MINUTE)
    assert clusters.restores > 3
