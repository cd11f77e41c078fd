"""The history of Apache Kafka's groups, live and from segment files, compared with what its clients did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import _kafka as apache
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_peer import LIKE_KOHORT
from micro_batches import until

from kohort.spark.history import history
from kohort.spark.history.store import Store
from kohort.spark.runtime.session import spark_session

pytestmark = [pytest.mark.peers, pytest.mark.spark, pytest.mark.timeout(400)]


class Members:
    """Consumers of one group, in the order in which they joined."""

    def __init__(self, servers: str, group: str, protocol: str) -> None:
        self._settings = {
            "bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "enable.auto.commit": False,
        }  # fmt: skip
        self.consumers: list[Consumer] = []
        self.ids: list[str] = []

    def join(self, partitions: int) -> None:
        """Add a consumer, and wait until all of them together have each partition once."""
        one = Consumer({**self._settings, "client.id": f"c{len(self.consumers)}"})
        one.subscribe(["t"])
        self.consumers.append(one)
        share = partitions // len(self.consumers)
        until(lambda: min(map(self._turn, self.consumers)) >= share and self._count() == partitions)
        self.ids = [c.memberid() for c in self.consumers]

    def _turn(self, consumer: Consumer) -> int:
        consumer.poll(0.05)
        return len(consumer.assignment())

    def _count(self) -> int:
        return sum(len(c.assignment()) for c in self.consumers)

    def owners(self) -> dict[int, str]:
        return {p.partition: i for c, i in zip(self.consumers, self.ids, strict=True) for p in c.assignment()}

    def commit(self, offset: int) -> None:
        for one in self.consumers:
            one.commit(offsets=[TopicPartition("t", p.partition, offset) for p in one.assignment()], asynchronous=False)

    def leave(self) -> None:
        for one in self.consumers:
            one.close()


def play(servers: str) -> dict[str, Any]:
    """Run the clients; returns their ids and partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(400):
        producer.produce("t", b"v", partition=number % 4)
    producer.flush()
    seen: dict[str, Any] = {}
    for group, protocol in (("old", "classic"), ("new", "consumer")):
        members = Members(servers, group, protocol)
        members.join(4)
        members.commit(10)
        members.join(4)
        members.commit(60)
        seen[group] = (members.ids, members.owners())
        members.leave()
    seen["transactional"] = transactions(servers)
    return seen


def transactions(servers: str) -> list[int]:
    """Commit offsets in transactions; returns the committed ones."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "txn", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    until(lambda: (consumer.poll(0.05), consumer.assignment())[1])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
    producer.init_transactions()
    for offset, aborts in ((5, False), (50, True), (7, False)):
        producer.begin_transaction()
        producer.produce("t", b"w", partition=0)
        producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], consumer.consumer_group_metadata())
        if aborts:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    consumer.close()
    return [5, 7]


def check(output: Path, seen: dict[str, Any], *, lag: bool) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        table = Store(str(output)).table(name)
        assert table is not None
        found: list[dict[str, Any]] = table.to_pylist()
        return found

    commits = rows("commits")
    for group in ("old", "new"):
        mine = sorted((row["partition"], row["offset"]) for row in commits if row["group"] == group and row["offset"])
        assert mine == [(partition, offset) for partition in range(4) for offset in (10, 60)]
        ids, owners = seen[group]
        members = {row["member_id"]: row for row in rows("members") if row["group"] == group}
        assert set(members) == set(ids)
        assert [members[one]["client_id"] for one in ids] == ["c0", "c1"]
        assert {row["protocol"] for row in members.values()} == {"classic" if group == "old" else "consumer"}
        assert all(row["until"] is not None and row["topics"] == ["t"] for row in members.values())
        owned = [row for row in rows("ownership") if row["group"] == group]
        assert {row["topic"] for row in owned} == {"t"}
        # When the first member leaves, the other one may briefly have all partitions.
        for partition in range(4):
            spans = sorted((row for row in owned if row["partition"] == partition), key=lambda row: row["since"])
            assert spans[0]["member_id"] == ids[0]
            assert owners[partition] in {row["member_id"] for row in spans}
            assert all(row["until"] is not None for row in spans)
        settled = [row for row in rows("rebalances") if row["group"] == group and row["settled"]]
        assert [row["members_after"] for row in settled][:2] == [1, 2]
        assert settled[1]["joined"] == [ids[1]]
        assert settled[1]["moved"] == 2
    taken = [row["offset"] for row in commits if row["group"] == "txn"]
    assert taken == seen["transactional"]
    statuses = {row["status"] for row in rows("records")}
    assert statuses <= {"read", "tombstone"}, rows("records")
    assert not rows("findings"), rows("findings")
    found = rows("lag")
    assert bool(found) == lag
    if lag:
        last = max(row["at"] for row in found)
        ends = {row["partition"]: row["end"] for row in found if row["group"] == "old" and row["at"] == last}
        assert [ends[partition] for partition in (1, 2, 3)] == [100] * 3


def test_the_history_of_apache_kafkas_own_groups(class_path: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    spark = spark_session("history of Apache Kafka")
    try:
        settings = LIKE_KOHORT | {"group.consumer.assignment.interval.ms": "0", "log.dirs": str(data)}
        with apache.kafka(class_path, settings, java_options=apache.BRIEF) as (_, (host, port)):
            seen = play(f"{host}:{port}")
            live = history(spark, output=tmp_path / "live", bootstrap_servers=f"{host}:{port}")
            check(tmp_path / "live", seen, lag=True)
        dumped = history(spark, output=tmp_path / "dumped", files=[str(data)])
        check(tmp_path / "dumped", seen, lag=False)
        # The one aborted commit, which read_uncommitted includes.
        assert dumped.left_out == 1
        every = history(spark, output=tmp_path / "every", files=[str(data)], isolation="read_uncommitted")
        assert (live.groups, dumped.groups, every.groups) == (3, 3, 3)
        assert every.records == dumped.records + 1
    finally:
        spark.stop()
