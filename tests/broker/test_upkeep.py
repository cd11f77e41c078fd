"""Upkeep through the broker: retention, compaction, bounded turns."""

from __future__ import annotations

import pytest
from wire_driver import START_MS, Connection, Wire, delete_topics, fetch_request, produce_request

from kohort.broker import upkeep
from kohort.wire.batches import NewRecord, encode_batch

CHECK_MS = 1000


@pytest.fixture
def wire() -> Wire:
    return Wire(log_retention_check_interval_ms=CHECK_MS)


def keyed(client: Connection, topic: str, **pairs: str | None) -> None:
    records = [
        NewRecord(key.encode(), None if value is None else value.encode(), client.wire.now)
        for key, value in pairs.items()
    ]
    assert client.produced(produce_request(topic, encode_batch(records))).error_code == 0


def test_old_records_go(wire: Wire, client: Connection) -> None:
    client.create_topic("short", retention_ms="5000")
    client.create_topic("long")
    for topic in ("short", "long"):
        client.produce(topic, "old")
    wire.advance(5000)
    assert client.values("short") == [b"old"]
    wire.advance(1000)
    assert client.ask(fetch_request("short"), 11).responses[0].partitions[0].log_start_offset == -1, "out of range"
    assert client.values("long") == [b"old"]
    again = wire.restarted().connect()
    assert again.produce("short", "new") == 1


def test_a_log_is_kept_small(wire: Wire, client: Connection) -> None:
    client.create_topic("t", retention_bytes="1000")
    for index in range(50):
        client.produce("t", f"{index:>100}")
    wire.advance(CHECK_MS)
    [partition] = wire.partitions("t")
    assert 1000 <= partition.size < 1200
    assert partition.start_offset > 40


def test_a_compacted_topic_keeps_the_newest_of_each_key(wire: Wire, client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact", delete_retention_ms="5000")
    for index in range(20):
        keyed(client, "t", a=f"a{index}", b=f"b{index}")
    keyed(client, "t", b=None)
    keyed(client, "t", last="x")
    wire.advance(CHECK_MS)
    assert client.values("t") == [b"a19", None, b"x"]
    assert wire.restarted().connect().values("t") == [b"a19", None, b"x"]
    wire.advance(5000)
    for index in range(20):
        keyed(client, "t", a=f"more{index}")
    wire.advance(CHECK_MS)
    assert None not in client.values("t")


def test_compaction_can_be_switched_off() -> None:
    wire = Wire(log_retention_check_interval_ms=CHECK_MS, log_cleaner_enable=False)
    client = wire.connect()
    client.create_topic("t", cleanup_policy="compact")
    for index in range(5):
        keyed(client, "t", a=f"a{index}")
    wire.advance(CHECK_MS)
    assert len(client.values("t")) == 5


def test_a_topic_may_be_deleted_during_its_compaction(wire: Wire, client: Connection) -> None:
    client.create_topic("t", cleanup_policy="compact")
    for index in range(50):
        keyed(client, "t", a=f"a{index}")
    wire.now += CHECK_MS
    for _ in range(20):
        turn = wire.broker.step((), wire.now)
        if turn.operations:
            wire.storage.commit(turn.operations, wire.storage.acquire())
        if wire.broker._upkeep._compaction is not None:
            break
    assert wire.broker._upkeep._compaction is not None
    client.ask(delete_topics("t"), 5)
    assert not wire.broker.busy
    client.create_topic("t")
    wire.advance(CHECK_MS)


def test_a_round_is_cut_into_turns(wire: Wire, client: Connection) -> None:
    client.create_topic("t", 5 * upkeep.LOGS_A_TURN)
    wire.now = START_MS + CHECK_MS
    turns = 0
    wire.broker.step((), wire.now)
    while wire.broker.busy:
        turns += 1
        wire.broker.step((), wire.now)
    assert turns == 5
    assert wire.broker.next_deadline() == START_MS + 2 * CHECK_MS
