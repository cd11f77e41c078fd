"""Running groups that change their protocol: confluent-kafka's consumers, restarted one by one with the other one."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient
from group import SHORT_CONSUMER_SESSIONS, Group, Worker
from produce import create_topic, produce

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]
PARTITIONS = 6
BATCH = 60
SERVER = {
    "group_min_session_timeout_ms": 1_000,
    "group_initial_rebalance_delay_ms": 200,
    **SHORT_CONSUMER_SESSIONS,
}


class Rolled:
    """A group, and what was produced for it up to now."""

    def __init__(self, bootstrap: str, name: str, *, cooperative: bool, session_timeout_ms: int = 3_000) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.produced = 0
        create_topic(bootstrap, name, PARTITIONS)
        self.group = Group(
            "confluent", bootstrap, name, name, cooperative=cooperative, session_timeout_ms=session_timeout_ms
        )
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def more(self) -> None:
        produce(
            "confluent",
            self.bootstrap,
            self.name,
            [f"v{n}" for n in range(self.produced, self.produced + BATCH)],
            PARTITIONS,
        )
        self.produced += BATCH

    def settles(self, *workers: Worker) -> None:
        """They share all partitions, and everything that was produced is read."""
        share = PARTITIONS // len(workers)
        self.group.wait_assigned([share] * len(workers), *workers)
        self.more()
        self.group.wait(lambda: len(set(self.group.values())) == self.produced, f"{self.produced} values")

    def restart(self, worker: Worker, name: str, protocol: str, *, instance: str | None = None) -> Worker:
        worker.close()
        self.more()
        return self.group.start(name, protocol=protocol, instance=instance)

    @property
    def type(self) -> ConsumerGroupType:
        (listed,) = [g for g in self.admin.list_consumer_groups().result(10).valid if g.group_id == self.name]
        return listed.type

    def nothing_went_wrong(self) -> None:
        """No value is missing, and none was read twice, except values whose commit was refused and reported so."""
        values = self.group.values()
        assert set(values) == {f"v{n}" for n in range(self.produced)}
        errors = [error for worker in self.group.workers for error in worker.errors]
        assert len(values) == len(set(values)) or errors, "read twice, although every commit succeeded"
        assert not [error for error in errors if "commit" not in error.lower() and "REBALANCE" not in error], errors


@pytest.mark.conformance("N18", "J35", "H13")
@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_a_group_is_rolled_over_to_the_consumer_protocol_and_back(
    bootstrap: str, unique: str, cooperative: bool
) -> None:
    rolled = Rolled(bootstrap, unique, cooperative=cooperative)
    with rolled.group as group:
        a = group.start("a")
        rolled.settles(a)
        # With the second generation librdkafka's sticky assignors begin to send data of their own with assignments.
        b = group.start("b")
        rolled.settles(a, b)
        assert rolled.type is ConsumerGroupType.CLASSIC
        # While a third member joins, both kinds are there, and every member has partitions.
        c = group.start("c", protocol="consumer")
        rolled.settles(a, b, c)
        assert rolled.type is ConsumerGroupType.CONSUMER
        a = rolled.restart(a, "a2", "consumer")
        rolled.settles(a, b, c)
        b = rolled.restart(b, "b2", "consumer")
        rolled.settles(a, b, c)
        # And back.
        a = rolled.restart(a, "a3", "classic")
        rolled.settles(a, b, c)
        b = rolled.restart(b, "b3", "classic")
        rolled.settles(a, b, c)
        assert rolled.type is ConsumerGroupType.CONSUMER
        c = rolled.restart(c, "c2", "classic")
        rolled.settles(a, b, c)
        assert rolled.type is ConsumerGroupType.CLASSIC
        rolled.nothing_went_wrong()
        group.close()


def test_static_members_change_their_protocol_without_a_rebalance(bootstrap: str, unique: str) -> None:
    # A member's place is kept until its session ends: longer than a client takes to start on a busy machine.
    with Cluster(bootstrap) as cluster:
        cluster.alter_group_configs(unique, {"consumer.session.timeout.ms": "30000"})
    rolled = Rolled(bootstrap, unique, cooperative=False, session_timeout_ms=20_000)
    with rolled.group as group:
        a, b = group.start("a", instance="i-a"), group.start("b", instance="i-b")
        rolled.settles(a, b)
        of_a, of_b = a.assigned, b.assigned
        rebalances = len(b.rebalances)
        a = rolled.restart(a, "a2", "consumer", instance="i-a")
        rolled.settles(a, b)
        assert rolled.type is ConsumerGroupType.CONSUMER
        assert (a.assigned, b.assigned) == (of_a, of_b)
        assert len(b.rebalances) == rebalances, "nobody else is disturbed"
        b = rolled.restart(b, "b2", "consumer", instance="i-b")
        rolled.settles(a, b)
        assert (a.assigned, b.assigned) == (of_a, of_b)
        a = rolled.restart(a, "a3", "classic", instance="i-a")
        rolled.settles(a, b)
        assert (a.assigned, b.assigned) == (of_a, of_b)
        b = rolled.restart(b, "b3", "classic", instance="i-b")
        rolled.settles(a, b)
        assert rolled.type is ConsumerGroupType.CLASSIC
        rolled.nothing_went_wrong()


def test_the_last_consumer_is_killed_and_the_server_restarts(server: KohortServer, bootstrap: str, unique: str) -> None:
    rolled = Rolled(bootstrap, unique, cooperative=True)
    with rolled.group as group:
        a, b = group.start("a"), group.start("b", protocol="consumer")
        rolled.settles(a, b)
        server.restart()
        rolled.settles(a, b)
        assert rolled.type is ConsumerGroupType.CONSUMER
        b.kill()
        rolled.settles(a)
        assert rolled.type is ConsumerGroupType.CLASSIC


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_classic_members_of_other_clients_share_with_a_consumer(bootstrap: str, unique: str, client: str) -> None:
    """They were there before it, and one comes after it."""
    rolled = Rolled(bootstrap, unique, cooperative=False)
    with rolled.group as group:
        a = group.start("a", client=client)
        rolled.settles(a)
        b = group.start("b", protocol="consumer")
        rolled.settles(a, b)
        c = group.start("c", client=client)
        rolled.settles(a, b, c)
        b.close()
        rolled.settles(a, c)
        assert rolled.type is ConsumerGroupType.CLASSIC
        assert set(group.values()) == {f"v{n}" for n in range(rolled.produced)}
