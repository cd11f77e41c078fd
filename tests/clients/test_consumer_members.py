"""Groups of the consumer protocol (KIP-848) with the server's defaults: assignors, static members, many members, topics
that come and go, heartbeats that are held. confluent-kafka's consumers, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from crowd import Crowd, Member
from produce import create_topic, produce

from kohort.client.cluster import Cluster

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
SERVER = {"brokers": 3, "broker_rack": "a,b,c", "auto_create_topics_enable": False}


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@contextmanager
def producing(bootstrap: str, topic: str, partitions: int) -> Iterator[list[str]]:
    """All the while, some hundreds of values a second. They are all acknowledged at the end."""
    values: list[str] = []
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap})

    def run() -> None:
        while not stop.wait(0.05):
            batch = [f"v{len(values) + number}" for number in range(20)]
            values.extend(batch)
            for number, value in enumerate(batch, len(values)):
                producer.produce(topic, value.encode(), partition=number % partitions)
            assert producer.flush(20) == 0

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield values
    finally:
        stop.set()
        thread.join()


def partitions_of(member: Member) -> set[int]:
    return {index for _, index in member.assigned}


@pytest.mark.parametrize("name", ["uniform", "range", "rack", "lag"])
def test_a_member_chooses_the_assignor(bootstrap: str, admin: AdminClient, unique: str, name: str) -> None:
    create_topic(bootstrap, unique, 6)
    with Crowd(bootstrap, unique, unique) as crowd:
        b = crowd.join(group_remote_assignor=name, client_rack="b")
        c = crowd.join(group_remote_assignor=name, client_rack="c")
        crowd.wait_shared([3, 3])
        described = admin.describe_consumer_groups([unique])[unique].result(10)
        assert described.partition_assignor == name
        assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        if name == "range":
            assert sorted(sorted(partitions_of(member)) for member in (b, c)) == [[0, 1, 2], [3, 4, 5]]
        if name == "rack":
            assert ({1, 4} <= partitions_of(b), {2, 5} <= partitions_of(c)) == (True, True)


def test_an_assignor_that_the_server_does_not_have_is_an_error_at_once(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, 1)
    with Crowd(bootstrap, unique, unique) as crowd:
        member = crowd.join(group_remote_assignor="absent")
        crowd.wait(lambda: bool(member.errors), "an error", timeout=10)
        assert member.errors[0].code() == KafkaError._FATAL
        assert "assignor" in member.errors[0].str()
        assert not member.assigned


def test_the_second_holder_of_an_instance_id_is_turned_away(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, 2)
    with Crowd(bootstrap, unique, unique) as crowd:
        first = crowd.join(group_instance_id="i")
        crowd.wait_shared([2])
        second = crowd.join(group_instance_id="i")
        crowd.wait(lambda: bool(second.errors), "an error", timeout=10)
        assert second.errors[0].code() == KafkaError._FATAL
        assert "instance" in second.errors[0].str()
        crowd.leave(second)
        assert (len(first.assigned), first.errors) == (2, []), "the first is not disturbed"
        held = first.assigned
        crowd.leave(first)
        back = crowd.join(group_instance_id="i")
        crowd.wait(lambda: back.assigned == held, "the same partitions under another member id")


def test_members_share_topics_that_come_grow_and_go(bootstrap: str, admin: AdminClient, unique: str) -> None:
    early, late = f"{unique}.early", f"{unique}.late"
    create_topic(bootstrap, early, 2)
    with Crowd(bootstrap, unique, early, late) as crowd:
        members = [crowd.join(), crowd.join()]
        crowd.wait_shared([1, 1])
        create_topic(bootstrap, late, 4)
        crowd.wait_shared([3, 3])
        produce("confluent", bootstrap, late, [f"v{number}" for number in range(40)], 4)
        crowd.wait(lambda: len(crowd.values()) == 40, "40 values")
        admin.delete_topics([early])[early].result(10)
        crowd.wait_shared([2, 2])
        assert {topic for member in members for topic, _ in member.assigned} == {late}
        create_topic(bootstrap, early, 2)
        crowd.wait_shared([3, 3])
        produce("confluent", bootstrap, early, [f"w{number}" for number in range(20)], 2)
        crowd.wait(lambda: len(crowd.values()) == 60, "20 values more, of a topic under its former name")
        unknown = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION
        others = [error for member in members for error in member.errors if error.code() not in unknown]
        assert others == []


def test_many_members_come_and_go_and_every_commit_holds(bootstrap: str, unique: str) -> None:
    """A commit is sent with the member's epoch. The group's epoch rises meanwhile, and the commit is accepted."""
    create_topic(bootstrap, unique, 60)
    with Crowd(bootstrap, unique, unique) as crowd:
        first = [crowd.join() for _ in range(10)]
        crowd.wait_shared([6] * 10)
        with producing(bootstrap, unique, 60) as produced:
            more = [crowd.join() for _ in range(10)]
            crowd.wait_shared([3] * 20)
            crowd.leave(*first)
            crowd.wait_shared([6] * 10)
            crowd.wait(lambda: all(member.read for member in more), "values for all of them")
        crowd.wait(lambda: len(crowd.values()) == len(produced), f"{len(produced)} values")
        assert crowd.values().total() == len(produced), "what moves was committed before it did"
        assert crowd.errors() == []


def test_heartbeats_are_held_so_changes_take_no_heartbeat_interval(bootstrap: str, unique: str) -> None:
    """The interval is 15 s. Neither do commits wait behind a held heartbeat, nor does close()."""
    create_topic(bootstrap, unique, 6)
    with Cluster(bootstrap) as cluster:
        cluster.alter_group_configs(unique, {"consumer.heartbeat.interval.ms": "15000"})
    with Crowd(bootstrap, unique, unique) as crowd:
        a, b = crowd.join(), crowd.join()
        crowd.wait_shared([3, 3])
        produce("confluent", bootstrap, unique, [f"v{number}" for number in range(60)], 6)
        crowd.wait(lambda: len(crowd.values()) == 60, "60 values")
        assert max(a.slowest_commit_s, b.slowest_commit_s) < 10
        c = crowd.join()
        assert crowd.wait_shared([2, 2, 2], timeout=12) < 10
        began = monotonic()
        crowd.leave(c)
        assert monotonic() - began < 10
        assert crowd.wait_shared([3, 3], timeout=12) < 10
        assert crowd.errors() == []
