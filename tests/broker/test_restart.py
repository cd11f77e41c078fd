"""Restarts: a broker replayed from its logs is the broker that wrote them; a crash loses nothing acknowledged."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from group_driver import commit, committed, join, join_request, stable, sync_request
from shard_world import returned
from wire_driver import START_MS, Wire, batch, delete_topics, produce_request, with_topic

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.topics.catalog import JOURNAL_TOPIC, METADATA_LOG, OFFSETS_TOPIC
from kohort.broker.turn import MoveGroup, MovePartition
from kohort.config import Config
from kohort.coordinator.events import Record
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import CreateLog, DeleteLog, StorageError
from kohort.storage.sqlite import SqliteStorage
from kohort.wire.codec import encode
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.metadata_records import MetadataKey


def picture(wire: Wire) -> dict[str, Any]:
    """A broker's whole state, to compare two brokers."""
    wire.step()
    state = wire.broker.state
    return {
        "cluster": state.catalog.cluster_id,
        "topics": {
            name: (topic.topic_id, topic.partitions, topic.configs, topic.settings)
            for name, topic in sorted(state.catalog.topics.items())
        },
        "ends": {
            partition.log: (partition.start_offset, partition.end_offset, partition.leader_epoch, partition.size)
            for partition in state.topics.all_partitions()
        },
        "groups": [
            (group, returned(shard.describe(group.group_id, 5)))
            for shard in state.shards
            for group in shard.list_groups((), ())
        ],
        "alike": state.catalog._alike,
        "count": state.catalog.partition_count,
    }


def test_the_first_turn_writes_what_is_missing_and_later_ones_nothing() -> None:
    storage = MemoryStorage()
    config = Config(offsets_topic_num_partitions=3)
    settings: dict[str, Any] = {"now": START_MS, "endpoints": [Endpoint("h", 1)]}
    broker = Broker(config, storage, random=random.Random(1), **settings).load()
    assert storage.logs() == [], "loading writes nothing"
    first = broker.step((), START_MS)
    assert sum(isinstance(operation, CreateLog) for operation in first.operations) == 5
    storage.commit(first.operations, storage.acquire())
    assert broker.step((), START_MS).operations == ()
    again = Broker(config, storage, random=random.Random(2), **settings).load()
    assert again.state.catalog.cluster_id == broker.state.catalog.cluster_id
    assert again.step((), START_MS).operations == ()


def test_the_number_of_shards_is_fixed_at_the_first_start() -> None:
    wire = Wire(offsets_topic_num_partitions=3)
    again = wire.restarted(offsets_topic_num_partitions=7)
    assert len(again.broker.state.shards) == 3
    assert len(again.broker.state.catalog.topics[OFFSETS_TOPIC].partitions) == 3


@pytest.mark.conformance("R3")
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_a_restart_equals_before(engine: str, tmp_path: Path) -> None:
    wire = Wire(MemoryStorage() if engine == "memory" else SqliteStorage(tmp_path), brokers=2)
    client, other = wire.connect(1), wire.connect(2)
    client.create_topic("a", 3, 2)
    client.create_topic("gone", 2)
    topics = tuple(CreatableTopic(name=f"t{index}", num_partitions=3, replication_factor=1) for index in range(100))
    assert not any(topic.error_code for topic in client.ask(CreateTopicsRequest(topics=topics), 7).topics)
    for index in range(10):
        client.produce("a", f"value-{index}")
    client.ask(delete_topics("gone"), 5)
    wire.step(MovePartition("a", 0, 2), MoveGroup("moved", 1))
    other.produce("a", "after the move")
    owner = client if wire.coordinator("g") == 1 else other
    stable(owner)
    commit(owner, 5, topic="a")
    before = picture(wire)
    for _ in range(2):
        if engine == "sqlite":
            wire.storage.close()
            wire.storage = SqliteStorage(tmp_path)
        wire = wire.restarted()
        assert picture(wire) == before
        assert wire.connect(2).values("a") == [*(b"value-%d" % index for index in range(10)), b"after the move"]
    wire.storage.close()


def test_fewer_brokers_lead_everything() -> None:
    wire = Wire(brokers=3)
    wire.connect().create_topic("t", 3, 2)
    again = wire.restarted(brokers=1)
    client = again.connect()
    for partition in range(3):
        client.produce("t", "x", partition=partition)
    topics = client.ask(MetadataRequest(topics=None), 9).topics
    assert {part.leader_id for topic in topics for part in topic.partitions} == {1}
    epochs = [part.leader_epoch for topic in topics if topic.name == "t" for part in topic.partitions]
    assert epochs == [0, 1, 1], "an epoch more where the leader changed"
    more = again.restarted(brokers=3)
    assert picture(more)["topics"] == picture(again)["topics"]


class Crash(Exception):
    """The process stopped before this commit."""


class CrashingStorage(MemoryStorage):
    """Stops at the n-th commit, before it or after it."""

    def __init__(self, commits: int, after: bool) -> None:
        super().__init__()
        self.left = commits
        self.after = after

    def commit(self, operations: Any, lease: Any) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Crash
        super().commit(operations, lease)
        if self.left == 0:
            raise Crash


def workload(wire: Wire, acknowledged: dict[str, Any]) -> None:
    """Notes what was answered, as a client would."""
    client = wire.connect()
    for index in range(3):
        name = f"topic-{index}"
        client.create_topic(name, 2)
        acknowledged.setdefault("topics", []).append(name)
        for number in range(4):
            value = f"{name}/{number}"
            assert client.produce(name, value) == number
            acknowledged.setdefault(name, []).append(value.encode())
            assert commit(client, number, group=f"group-{number}", topic=name) == 0
            acknowledged.setdefault("offsets", {})[f"group-{number}", name] = number
    client.ask(delete_topics("topic-0"), 5)
    acknowledged["topics"].remove("topic-0")
    acknowledged["deleted"] = "topic-0"


@pytest.mark.conformance("R4")
@pytest.mark.parametrize("after", [False, True])
def test_r4_a_crash_at_any_commit_loses_nothing_acknowledged(after: bool) -> None:
    for crash_at in range(1, 200):
        storage = CrashingStorage(crash_at, after)
        acknowledged: dict[str, Any] = {}
        with contextlib.suppress(Crash):
            workload(Wire(storage), acknowledged)
            assert crash_at > 25, "the workload commits more often than that"
            return
        storage.left = -1
        check_nothing_lost(Wire(storage, seed=5), acknowledged)
    pytest.fail("the workload never ended")


@pytest.mark.conformance("R4", "J14", "J30", "S5")
@pytest.mark.parametrize("after", [False, True])
def test_r4_a_crash_at_any_commit_keeps_what_members_received(after: bool) -> None:
    """A static member joins, syncs, returns under another id, and rejoins, with a crash at every commit on the way."""
    for crash_at in range(1, 60):
        storage = CrashingStorage(crash_at, after)
        told: dict[str, Any] = {"generation": 0, "member": "", "assignment": None}
        with contextlib.suppress(Crash):
            members_come_and_go(Wire(storage), told)
            assert crash_at > 5, "they commit more often than that"
            return
        storage.left = -1
        member = Wire(storage, seed=5).connect()
        if told["assignment"] is not None:
            answer = member.ask(sync_request(told["member"], told["generation"], group_instance_id="i"), 3)
            # A later step that is durable and was not answered may have replaced or fenced it; nothing else may.
            if not after or answer.error_code not in (22, 27, 82):
                assert (answer.error_code, answer.assignment) == (0, told["assignment"]), f"crash at {crash_at}"
        member.send(join_request(group_instance_id="i", session_timeout_ms=6_000), 5)
        member.wire.advance(60_000)
        assert member.take().generation_id >= told["generation"]
    pytest.fail("they never came to an end")


def members_come_and_go(wire: Wire, told: dict[str, Any]) -> None:
    """Notes the last answer to the member."""
    client = wire.connect()
    for assignment in (b"first", b"second"):
        joined = join(client, version=5, group_instance_id="i")
        if joined.generation_id > told["generation"]:
            told.update(assignment=None)
        told.update(member=joined.member_id, generation=joined.generation_id)
        sync = sync_request(joined.member_id, joined.generation_id, assignment, group_instance_id="i")
        told.update(assignment=client.ask(sync, 3).assignment)
    # The leader rejoins: its old generation is over as soon as the new one is taken.
    rejoined = client.ask(join_request(member=joined.member_id, group_instance_id="i"), 5)
    told.update(generation=rejoined.generation_id, assignment=None)


def check_nothing_lost(wire: Wire, acknowledged: dict[str, Any]) -> None:
    client = wire.connect()
    names = {topic.name for topic in client.ask(MetadataRequest(topics=None), 9).topics}
    deleted = acknowledged.get("deleted")
    assert deleted not in names
    for name in acknowledged.get("topics", []):
        if name not in names:
            # A deletion without an answer yet is allowed for the topic that the workload deletes.
            assert name == "topic-0"
            assert len(acknowledged.get("offsets", ())) == 12
            continue
        kept = client.values(name)
        wanted = acknowledged.get(name, [])
        assert kept[: len(wanted)] == wanted
        assert len(kept) <= len(wanted) + 1
        for (group, topic), offset in acknowledged.get("offsets", {}).items():
            if topic == name:
                assert committed(client, group, topic) == offset


@pytest.mark.conformance("R4", "O19")
def test_a_lost_turn_was_never_shown() -> None:
    """No client sees a turn's decisions before its commit: neither the turn's own client nor another one."""
    client = with_topic()
    wire, other = client.wire, client.wire.connect()
    turn = wire.broker.step((client.frame(produce_request("t", batch("a")), 9),), wire.now)
    assert turn.operations
    again = Wire(wire.storage, seed=3)
    assert again.connect().values("t") == []
    assert other.responses == []


def test_damaged_data_is_refused() -> None:
    wire = with_topic().wire
    log = wire.broker.state.catalog.topics["t"].log_key(0)
    wire.storage.commit([DeleteLog(log)], wire.storage.acquire())
    with pytest.raises(StorageError, match="lacks the log of t-0"):
        wire.restarted()
    wire.storage.commit([CreateLog(log), CreateLog(log._replace(partition=9))], wire.storage.acquire())
    with pytest.raises(StorageError, match="of no topic"):
        wire.restarted()


def test_data_of_a_newer_format_is_refused() -> None:
    wire = Wire()
    record = Record(encode(MetadataKey(kind="quantum", name="x"), 0), b"\x00\x00")
    wire.broker.state.turn.append_records(wire.broker.state.topics.metadata, [record])
    wire.step()
    with pytest.raises(StorageError, match=r"newer format.*quantum"):
        wire.restarted()


def test_the_metadata_log_is_compacted_and_replays_the_same() -> None:
    wire = Wire(log_retention_check_interval_ms=1000)
    client = wire.connect()
    client.create_topic("kept")

    def create_and_delete(count: int) -> None:
        for index in range(count):
            client.create_topic(f"brief-{index}")
            client.ask(delete_topics(f"brief-{index}"), 5)

    create_and_delete(40)
    size = wire.broker.state.topics.metadata.size
    wire.advance(1000)
    assert wire.broker.state.topics.metadata.size < size
    before = picture(wire)
    assert picture(wire.restarted()) == before
    wire.now += 2 * 86_400_000
    create_and_delete(80)
    wire.advance(1000)
    assert wire.broker.state.topics.metadata.size < size, "also the first tombstones are gone"
    assert set(wire.restarted().broker.state.catalog.topics) == {OFFSETS_TOPIC, JOURNAL_TOPIC, "kept"}
    assert METADATA_LOG in {info.key for info in wire.storage.logs()}
