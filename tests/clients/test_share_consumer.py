"""confluent-kafka's ShareConsumer (librdkafka), unmodified, against share groups."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kohort.testing import KohortServer

pytestmark = pytest.mark.client
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
SHARES: dict[str, Any] = {
    "group_share_enable": True,
    "group_share_record_lock_duration_ms": 2_000,
    "group_share_min_record_lock_duration_ms": 1_000,
    "group_share_assignment_interval_ms": 0,
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KohortServer]:
    with KohortServer(data_dir=tmp_path, **SHARES) as found:
        yield found


def prepare(server: KohortServer, records: int, partitions: int = 1, *, dead_letters: bool = False) -> None:
    """A topic `jobs` with records, which the group `g` reads from the beginning."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic("jobs", partitions)])["jobs"].result()
    resource = ConfigResource(ConfigResource.Type.GROUP, "g")
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
    if dead_letters:
        topic = NewTopic("dlq.jobs", 1, config={"errors.deadletterqueue.group.enable": "true"})
        admin.create_topics([topic])["dlq.jobs"].result()
        for name, value in (("topic.name", "dlq.jobs"), ("copy.record.enable", "true")):
            change = ConfigResource(ConfigResource.Type.GROUP, "g")
            name = f"errors.deadletterqueue.{name}"
            change.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
            for done in admin.incremental_alter_configs([change]).values():
                done.result()
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "batch.num.messages": 10})
    for index in range(records):
        producer.produce("jobs", str(index).encode(), partition=index % partitions)
    assert producer.flush(10) == 0


def consumer(server: KohortServer, **config: Any) -> ShareConsumer:
    found = ShareConsumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "share.acknowledgement.mode": "explicit",
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    found.subscribe(["jobs"])
    return found


def take(
    member: ShareConsumer, count: int, kind: Callable[[int], Any] = lambda number: ACCEPT
) -> list[tuple[int, int]]:
    """The numbers of at least so many records, each with its count of deliveries."""
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        for message in member.poll(1.0):
            assert message.error() is None, message.error()
            number = int(message.value())
            found.append((number, message.delivery_count()))
            member.acknowledge(message, kind(number))
        assert not any(member.commit_sync(10.0).values())
    return sorted(found)


@pytest.mark.conformance("SH34")
def test_records_are_accepted_released_and_rejected(server: KohortServer) -> None:
    prepare(server, 20, partitions=2)
    with consumer(server) as member:
        kinds = {3: RELEASE, 5: REJECT}
        assert take(member, 20, lambda number: kinds.get(number, ACCEPT)) == [(number, 1) for number in range(20)]
        assert take(member, 1) == [(3, 2)]
        assert list(member.poll(0.2)) == []


def test_members_share_a_partition_and_a_member_that_closes_gives_back(server: KohortServer) -> None:
    prepare(server, 30)
    first, second = consumer(server, max_poll_records=10), consumer(server, max_poll_records=10)
    try:
        held = list(first.poll(10.0))
        assert len(held) == 10
        others = take(second, 20)
        assert {number for number, _ in others}.isdisjoint(int(message.value()) for message in held)
        first.close()
        assert {count for _, count in take(second, 10)} == {2}
    finally:
        second.close()


HOLDER = """
import sys
from confluent_kafka import ShareConsumer
member = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "share.acknowledgement.mode": "explicit"})
member.subscribe(["jobs"])
while not (held := list(member.poll(1.0))):
    pass
print(len(held), flush=True)
sys.stdin.read()
"""


@pytest.mark.conformance("SH57")
def test_the_records_of_a_member_that_was_killed_are_delivered_again(server: KohortServer) -> None:
    prepare(server, 5)
    program = [sys.executable, "-c", HOLDER, server.bootstrap_servers]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "5\n"
        holder.kill()
    with consumer(server) as member:
        assert take(member, 5) == [(number, 2) for number in range(5)]


@pytest.mark.conformance("SH32")
def test_acknowledgements_outlast_a_crash_of_the_server(server: KohortServer) -> None:
    prepare(server, 10)
    with consumer(server) as member:
        assert len(take(member, 10, lambda number: RELEASE if number == 7 else ACCEPT)) == 10
        server.kill()
        server.start()
        assert take(member, 1) == [(7, 2)]
        assert list(member.poll(0.2)) == []


def letters(server: KohortServer, count: int) -> list[tuple[bytes, dict[str, str]]]:
    """The values and headers of all dead letters, of which there are at least so many."""
    reader = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "r", "auto.offset.reset": "earliest"})
    found = []
    deadline = time.monotonic() + 20
    reader.assign([TopicPartition("dlq.jobs", 0, 0)])
    try:
        while time.monotonic() < deadline:
            message = reader.poll(0.2 if len(found) >= count else 5.0)
            if message is None:
                if len(found) >= count:
                    break
                continue
            assert message.error() is None, message.error()
            headers = {key.removeprefix("__dlq.errors."): value.decode() for key, value in message.headers()}
            found.append((message.value(), headers))
    finally:
        reader.close()
    return found


@pytest.mark.conformance("SH60", "SH61", "SH62")
def test_rejected_records_are_dead_letters_once_also_after_a_crash_of_the_server(server: KohortServer) -> None:
    prepare(server, 20, dead_letters=True)
    with consumer(server) as member:
        assert len(take(member, 20, lambda number: REJECT if number % 3 == 0 else ACCEPT)) == 20
        server.kill()
        server.start()
        found = letters(server, 7)
        assert [value for value, _ in found] == [str(number).encode() for number in range(0, 20, 3)]
        assert found[1][1] == {
            "topic": "jobs",
            "partition": "0",
            "offset": "3",
            "group": "g",
            "delivery.count": "1",
            "message": "Offset rejected by client.",
        }
        assert list(member.poll(0.2)) == []
