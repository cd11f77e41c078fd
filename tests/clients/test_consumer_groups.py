"""Groups of the consumer protocol (KIP-848), with confluent-kafka's consumers in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from group import SHORT_CONSUMER_SESSIONS, Group, Worker
from produce import create_topic, produce

from kohort.client.cluster import Cluster
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.shard import partition_for
from kohort.testing import KohortServer

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
PARTITIONS = 6
SERVER = SHORT_CONSUMER_SESSIONS


def coordinated(server: KohortServer, group: str) -> Any:
    """The group in its shard, read from another thread; only for values that no longer change."""
    state = server._running._broker._state
    return state.shards[partition_for(group, len(state.shards))].consumers.groups[group]


def wait_until(holds: Callable[[], bool], what: str, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def consumers(bootstrap: str, unique: str) -> Group:
    return Group("confluent", bootstrap, unique, unique, protocol="consumer")


def say_all(*workers: Worker) -> list[list[int]]:
    return [list(worker.assigned) for worker in workers]


def test_a_join_moves_only_what_it_must_and_a_killed_member_is_missed(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    produce("confluent", bootstrap, unique, [f"v{n}" for n in range(120)], PARTITIONS)
    with consumers(bootstrap, unique) as group:
        a = group.start("a")
        group.wait_assigned([6], a)
        b = group.start("b")
        group.wait_assigned([3, 3], a, b)
        c = group.start("c")
        group.wait_assigned([2, 2, 2], a, b, c)
        for had in a.assignments[a.assignments.index([*range(PARTITIONS)]) :]:
            assert set(a.assigned) <= set(had), "a partition that it keeps, it always had"
        group.wait(lambda: len(set(group.values())) == 120, "120 values")
        assert len(group.values()) == 120, "nothing is read twice: each was committed before it moved"
        b.kill()
        group.wait_assigned([3, 3], a, c, timeout=10)
        group.close()
        errors = [error for worker in group.workers for error in worker.errors]
        assert not errors


def test_a_static_member_comes_back_to_its_partitions(server: KohortServer, bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    # Its place is kept until its session ends: longer than a client takes to start on a busy machine.
    with Cluster(bootstrap) as cluster:
        cluster.alter_group_configs(unique, {"consumer.session.timeout.ms": "30000"})
    with consumers(bootstrap, unique) as group:
        a = group.start("a", instance="instance-a")
        b = group.start("b", instance="instance-b")
        group.wait_assigned([3, 3], a, b)
        before, of_a = say_all(b, a)
        epoch = coordinated(server, unique).epoch
        b.close()
        b2 = group.start("b2", instance="instance-b")
        group.wait(lambda: b2.assigned == before, "the same partitions again")
        assert a.assigned == of_a, "nobody else was disturbed"
        assert coordinated(server, unique).epoch == epoch, "it is no change of the group"


def test_new_partitions_reach_a_group_whose_heartbeats_are_held(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, 2)
    with consumers(bootstrap, unique) as group:
        a, b = group.start("a"), group.start("b")
        group.wait_assigned([1, 1], a, b)
        kept = say_all(a, b)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(unique, 4)])[unique].result(10)
        group.wait_assigned([2, 2], a, b)
        assert all(set(had) <= set(has) for had, has in zip(kept, say_all(a, b), strict=True))


def test_a_restart_of_the_server_keeps_epochs_and_assignments(
    server: KohortServer, bootstrap: str, unique: str
) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    with consumers(bootstrap, unique) as group:
        a, b = group.start("a"), group.start("b")
        group.wait_assigned([3, 3], a, b)
        wait_until(lambda: state_name(coordinated(server, unique)) == "Stable", "stable")
        epoch, states, held = (
            coordinated(server, unique).epoch,
            dict(coordinated(server, unique).current),
            say_all(a, b),
        )
        server.restart()
        produce("confluent", bootstrap, unique, [f"v{n}" for n in range(60)], PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 60, "60 values")
        found = coordinated(server, unique)
        assert (found.epoch, dict(found.current), say_all(a, b)) == (epoch, states, held)
        c = group.start("c")
        group.wait_assigned([2, 2, 2], a, b, c)


def test_the_server_is_killed_while_the_group_changes(server: KohortServer, bootstrap: str, unique: str) -> None:
    """No produced record is left out, no committed record is read again, and no partition has two owners."""
    create_topic(bootstrap, unique, PARTITIONS)
    with consumers(bootstrap, unique) as group:
        group.start("a")
        group.start("b", instance="b")
        for number, sizes in enumerate(([2, 2, 2], [1, 1, 2, 2], [1, 1, 1, 1, 2])):
            produce("confluent", bootstrap, unique, [f"v{number}.{n}" for n in range(60)], PARTITIONS)
            group.start(f"c{number}")
            server.kill()
            server.start()
            produce("confluent", bootstrap, unique, [f"w{number}.{n}" for n in range(60)], PARTITIONS)
            group.wait(lambda of=120 * (number + 1): len(set(group.values())) == of, "all values")
            group.wait_assigned(sizes, *group.workers)
        values = group.values()
        again = len(values) - len(set(values))
        assert again < 60, "what was read and not committed when the server died may come again, no more"
        found = coordinated(server, unique)
        assert len(found.owners) == PARTITIONS
        assert state_name(found) == "Stable"
