"""Groups of the consumer protocol (KIP-848), with confluent-kafka's consumers in processes of their own."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from group import SHORT_CONSUMER_SESSIONS, Worker, consumer_group, until
from produce import produce

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
PARTITIONS = 6
SERVER = SHORT_CONSUMER_SESSIONS


def described(bootstrap: str, group: str) -> tuple[str, int, dict[str, tuple[int, list[int]]]]:
    """The state, the epoch, and the epoch and partitions of each member by its client id."""
    request = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
    with Cluster(bootstrap) as cluster:
        [found] = cluster.connection(cluster.controller_id()).request(request, ConsumerGroupDescribeResponse).groups
    members = {
        member.client_id: (
            member.member_epoch,
            [index for topic in member.assignment.topic_partitions for index in topic.partitions],
        )
        for member in found.members
    }
    return found.group_state, found.group_epoch, members


def say_all(*workers: Worker) -> list[list[int]]:
    return [list(worker.assigned) for worker in workers]


def test_a_join_moves_few_partitions_and_a_killed_member_is_replaced(bootstrap: str, unique: str) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        produce("confluent", bootstrap, unique, [f"v{n}" for n in range(120)], PARTITIONS)
        a = group.start("a")
        group.wait_assigned([6], a)
        # A batch of librdkafka may hold records of a partition that was given up meanwhile; these are read again.
        group.wait(lambda: len(group.values()) == 120 and not a.has_uncommitted, "120 values, committed")
        b = group.start("b")
        group.wait_assigned([3, 3], a, b)
        c = group.start("c")
        group.wait_assigned([2, 2, 2], a, b, c)
        for had in a.assignments[a.assignments.index([*range(PARTITIONS)]) :]:
            assert set(a.assigned) <= set(had), "a partition that it keeps, it always had"
        produce("confluent", bootstrap, unique, [f"w{n}" for n in range(12)], PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 132, "132 values")
        assert len(group.values()) == 132, "nothing is read twice: each was committed before it moved"
        b.kill()
        group.wait_assigned([3, 3], a, c, timeout=10)
        group.close()
        assert not group.errors()


def test_a_static_member_comes_back_to_its_partitions(bootstrap: str, unique: str) -> None:
    # Its place is kept until its session ends: longer than a client takes to start on a busy machine.
    with Cluster(bootstrap) as cluster:
        cluster.alter_group_configs(unique, {"consumer.session.timeout.ms": "30000"})
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a = group.start("a", instance="instance-a")
        b = group.start("b", instance="instance-b")
        group.wait_assigned([3, 3], a, b)
        before, of_a = say_all(b, a)
        epoch = described(bootstrap, unique)[1]
        b.close()
        b2 = group.start("b2", instance="instance-b")
        group.wait(lambda: b2.assigned == before, "the same partitions again")
        assert a.assigned == of_a, "nobody else was disturbed"
        assert described(bootstrap, unique)[1] == epoch, "it is no change of the group"


def test_new_partitions_reach_a_group_whose_heartbeats_are_held(bootstrap: str, unique: str) -> None:
    with consumer_group(bootstrap, unique, 2) as group:
        a, b = group.share([1, 1], "a", "b")
        kept = say_all(a, b)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(unique, 4)])[unique].result(10)
        group.wait_assigned([2, 2], a, b)
        assert all(set(had) <= set(has) for had, has in zip(kept, say_all(a, b), strict=True))


def test_a_restart_of_the_server_keeps_epochs_and_assignments(
    server: KohortServer, bootstrap: str, unique: str
) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a, b = group.share([3, 3], "a", "b")
        until(lambda: described(bootstrap, unique)[0] == "Stable", "stable")
        before, held = described(bootstrap, unique), say_all(a, b)
        server.restart()
        produce("confluent", bootstrap, unique, [f"v{n}" for n in range(60)], PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 60, "60 values")
        assert (described(bootstrap, unique), say_all(a, b)) == (before, held)
        c = group.start("c")
        group.wait_assigned([2, 2, 2], a, b, c)


def test_the_server_is_killed_while_the_group_changes(server: KohortServer, bootstrap: str, unique: str) -> None:
    """No produced record is left out, no committed record is read again, and no partition has two owners."""
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
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
        until(lambda: described(bootstrap, unique)[0] == "Stable", "stable: members that keep all learn of it last")
        members = described(bootstrap, unique)[2]
        assert sorted(index for _, held in members.values() for index in held) == [*range(PARTITIONS)]
