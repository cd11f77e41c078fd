"""Upkeep through the broker: retention, compaction, bounded turns."""

from __future__ import annotations

import pytest
from wire_driver import (
    START_MS,
    Connection,
    Wire,
    create_topic,
    delete_topics,
    fetch_request,
    produce,
    produce_request,
    produced,
    values_of,
)

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
    assert produced(client, produce_request(topic, encode_batch(records))).error_code == 0


def test_old_records_go(wire: Wire, client: Connection) -> None:
    create_topic(client, "short", retention_ms="5000")
    create_topic(client, "long")
    for topic in ("short", "long"):
        produce(client, topic, "old")
    wire.advance(5000)
    assert values_of(client.ask(fetch_request("short"), 11)) == [b"old"]
    wire.advance(1000)
    assert client.ask(fetch_request("short"), 11).responses[0].partitions[0].log_start_offset == -1, "out of range"
    assert values_of(client.ask(fetch_request("long"), 11)) == [b"old"]
    again = wire.restarted().connect()
    assert produce(again, "short", "new") == 1


def test_a_log_is_kept_small(wire: Wire, client: Connection) -> None:
    create_topic(client, "t", retention_bytes="1000")
    for index in range(50):
        produce(client, "t", f"{index:>100}")
    wire.advance(CHECK_MS)
    [partition] = wire.partitions("t")
    assert 1000 <= partition.size < 1200
    assert partition.start_offset > 40


def test_a_compacted_topic_keeps_the_newest_of_each_key(wire: Wire, client: Connection) -> None:
    create_topic(client, "t", cleanup_policy="compact", delete_retention_ms="5000")
    for index in range(20):
        keyed(client, "t", a=f"a{index}", b=f"b{index}")
    keyed(client, "t", b=None)
    keyed(client, "t", last="x")
    wire.advance(CHECK_MS)
    assert values_of(client.ask(fetch_request("t"), 11)) == [b"a19", None, b"x"]
    assert values_of(wire.restarted().connect().ask(fetch_request("t"), 11)) == [b"a19", None, b"x"]
    wire.advance(5000)
    for index in range(20):
        keyed(client, "t", a=f"more{index}")
    wire.advance(CHECK_MS)
    assert None not in values_of(client.ask(fetch_request("t"), 11))


def test_compaction_can_be_switched_off() -> None:
    wire = Wire(log_retention_check_interval_ms=CHECK_MS, log_cleaner_enable=False)
    client = wire.connect()
    create_topic(client, "t", cleanup_policy="compact")
    for index in range(5):
        keyed(client, "t", a=f"a{index}")
    wire.advance(CHECK_MS)
    assert len(values_of(client.ask(fetch_request("t"), 11))) == 5


def test_a_topic_may_go_in_the_middle_of_its_compaction(wire: Wire, client: Connection) -> None:
    create_topic(client, "t", cleanup_policy="compact")
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
    create_topic(client, "t")
    wire.advance(CHECK_MS)


def test_a_round_is_cut_into_turns(wire: Wire, client: Connection) -> None:
    create_topic(client, "t", 5 * upkeep.LOGS_A_TURN)
    wire.now = START_MS + CHECK_MS
    turns = 0
    wire.broker.step((), wire.now)
    while wire.broker.busy:
        turns += 1
        wire.broker.step((), wire.now)
    assert turns == 5
    assert wire.broker.next_deadline() == START_MS + 2 * CHECK_MS
