"""Commits fenced by ownership, with confluent-kafka's consumers: a lost partition is refused, the rest is committed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from group import Group, Worker
from produce import create_topic, produce

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
SERVER = {"group_min_session_timeout_ms": 1_000, "group_consumer_assignment_interval_ms": 0}


def fence(bootstrap: str, group: str) -> None:
    with Cluster(bootstrap) as cluster:
        cluster.alter_group_configs(group, {"consumer.ownership.fencing.enable": "true"})


def indexes(member: Consumer) -> list[int]:
    return sorted(one.partition for one in member.assignment())


def committed_by(bootstrap: str, group: str) -> dict[int, int]:
    """The group's offsets in the topic of its name."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = reader.committed([TopicPartition(group, partition) for partition in range(4)], timeout=10)
    reader.close()
    return {one.partition: one.offset for one in found if one.offset >= 0}


class Pair:
    """Consumers `a`, which had all four partitions, and `b`, which has got two of them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        create_topic(bootstrap, topic, 4)
        produce("confluent", bootstrap, topic, [f"v{n}" for n in range(40)], 4)
        self.reported: list[tuple[KafkaError | None, list[TopicPartition]]] = []
        self.members: list[Consumer] = []
        self.a = self.consumer("a")
        self.poll_until(4)
        self.b = self.consumer("b")
        self.poll_until(2, 2)
        self.kept, self.lost = map(indexes, self.members)

    def consumer(self, name: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.topic,
                "client.id": name,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "on_commit": lambda error, partitions: self.reported.append((error, partitions)),
            }
        )
        consumer.subscribe([self.topic])
        self.members.append(consumer)
        return consumer

    def poll_until(self, *counts: int) -> None:
        deadline = time.monotonic() + 20
        while [len(indexes(member)) for member in self.members] != list(counts):
            assert time.monotonic() < deadline, counts
            self.poll()

    def poll(self) -> None:
        for member in self.members:
            message = member.poll(0.02)
            assert message is None or message.error() is None

    def at(self, *partitions: int, offset: int = 3) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition, offset) for partition in partitions]

    def committed(self) -> dict[int, int]:
        found = self.a.committed(self.at(0, 1, 2, 3), timeout=10)
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def close(self) -> None:
        began = time.monotonic()
        for member in self.members:
            member.close()
        assert time.monotonic() - began < 10, "a commit that is refused for good keeps nobody"


@pytest.fixture
def pair(server: KohortServer, bootstrap: str, unique: str) -> Iterator[Pair]:
    fence(bootstrap, unique)
    made = Pair(bootstrap, unique)
    yield made
    made.close()


def test_a_commit_of_a_lost_partition_is_refused_and_the_rest_of_it_accepted(pair: Pair) -> None:
    (kept, _), (lost, _) = pair.kept, pair.lost
    with pytest.raises(KafkaException) as refused:
        pair.a.commit(offsets=pair.at(kept, lost), asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.FENCED_MEMBER_EPOCH
    assert not refused.value.args[0].fatal()
    assert pair.committed() == {kept: 3}
    pair.b.commit(offsets=pair.at(lost, offset=5), asynchronous=False)
    assert pair.committed() == {kept: 3, lost: 5}


def test_nobody_leaves_the_group_for_a_refused_commit(pair: Pair) -> None:
    pair.a.commit(offsets=pair.at(*pair.lost), asynchronous=True)
    deadline = time.monotonic() + 10
    while not pair.reported:
        assert time.monotonic() < deadline
        pair.poll()
    [(error, partitions)] = pair.reported
    assert error is not None
    assert error.code() == KafkaError.FENCED_MEMBER_EPOCH
    assert {one.error.code() for one in partitions if one.error} == {KafkaError.FENCED_MEMBER_EPOCH}
    pair.a.commit(offsets=pair.at(*pair.kept), asynchronous=False)
    assert list(map(indexes, pair.members)) == [pair.kept, pair.lost]
    assert list(pair.committed()) == pair.kept


def test_other_groups_commit_what_they_like(bootstrap: str, unique: str) -> None:
    pair = Pair(bootstrap, unique)
    deadline = time.monotonic() + 20
    while list(pair.committed()) != [0, 1, 2, 3]:
        assert time.monotonic() < deadline
        with contextlib.suppress(KafkaException):  # 113 while the epoch that it received is over, as in Kafka
            pair.a.commit(offsets=pair.at(0, 1, 2, 3), asynchronous=False)
        pair.poll()
    pair.close()


@pytest.mark.parametrize("cooperative", [True, False], ids=["cooperative", "eager"])
def test_in_a_mixed_group_everybody_commits_what_is_its_own(bootstrap: str, unique: str, cooperative: bool) -> None:
    """The member may also commit partitions that it is about to give up, in either protocol."""
    fence(bootstrap, unique)
    create_topic(bootstrap, unique, 6)
    with Group("confluent", bootstrap, unique, unique, cooperative=cooperative) as group:
        members: list[Worker] = []
        for name, protocol, share in (("a", "classic", 6), ("b", "consumer", 3), ("c", "classic", 2)):
            members.append(group.start(name, protocol=protocol))
            group.wait_assigned([share] * len(members), *members)
            count = 60 * len(members)
            produce("confluent", bootstrap, unique, [f"v{n}" for n in range(count - 60, count)], 6)
            group.wait(lambda count=count: len(set(group.values())) == count, f"{count} values")
        group.close()
        assert not [error for error in group.errors() if "fenced" in error.lower()]
        assert len(group.values()) == count, "nothing is read twice"


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_classic_members_of_older_clients_commit_what_is_theirs(bootstrap: str, unique: str, client: str) -> None:
    """They commit in versions of OffsetCommit without topic ids."""
    fence(bootstrap, unique)
    create_topic(bootstrap, unique, 4)
    with Group("confluent", bootstrap, unique, unique) as group:
        members = [group.start("a", protocol="consumer")]
        group.wait_assigned([4], *members)
        members.append(group.start("b", client=client))
        group.wait_assigned([2, 2], *members)
        produce("confluent", bootstrap, unique, [f"v{n}" for n in range(40)], 4)
        group.wait(lambda: len(set(group.values())) == 40, "40 values")
        group.wait(lambda: members[1].commits > 0, "a commit of the classic member")
        group.close()
        assert not group.errors()
    assert sum(committed_by(bootstrap, unique).values()) == 40
