"""Transactions that were fenced or timed out are in the journal, and DescribeTransactions shows them to who asks."""

from __future__ import annotations

import json
from typing import Any

from transaction_driver import Transactional
from wire_driver import Connection, Wire, with_topic

from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.config import Config, preset
from kohort.coordinator.events import Client, Ending, Record
from kohort.coordinator.journal.transaction_aborts import MOST_PARTITIONS, TransactionAborts
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.schemas.describe_transactions import DescribeTransactionsRequest

MINUTE = 60_000


def aborts(client: Connection, name: str = "x", last: int = 10) -> list[dict[str, Any]]:
    request = DescribeTransactionsRequest(transactional_ids=(name,), aborts_last=last)
    [row] = client.ask(request, 0).transaction_states
    return [json.loads(entry) for entry in row.aborts]


def began(client: Connection, name: str = "x", *partitions: int) -> Transactional:
    producer = Transactional(client, name)
    assert producer.init() == 0
    assert producer.add("t", *partitions or (0,)) == 0
    return producer


def test_a_transaction_that_timed_out() -> None:
    client = with_topic(3)
    producer = began(client, "x", 0, 2)
    began_ms = client.wire.now
    assert aborts(client) == []
    client.wire.advance(MINUTE + 1)
    [entry] = aborts(client)
    assert began_ms + MINUTE < entry["at_ms"] <= client.wire.now
    assert entry["open_for_ms"] == entry["at_ms"] - began_ms
    assert entry == {
        "transactional_id": "x",
        "number": 1,
        "at_ms": entry["at_ms"],
        "what": "timed out",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "open_for_ms": entry["open_for_ms"],
        "timeout_ms": MINUTE,
        "partitions_count": 2,
        "partitions": {"t": [0, 2]},
    }


def test_a_fenced_producer_and_who_fenced_it() -> None:
    client = with_topic(1)
    first = began(client)
    second = Transactional(client.wire.connect(client_id="the other"), "x")
    client.wire.advance(700)
    assert second.init() == 0
    [entry] = aborts(client)
    assert (entry["what"], entry["client_id"], entry["host"]) == ("fenced", "the other", "/127.0.0.1")
    assert (entry["producer_epoch"], entry["open_for_ms"]) == (first.epoch, 700)


def test_what_producers_end_themselves_is_no_entry() -> None:
    client = with_topic(1)
    producer = began(client)
    assert producer.commit() == 0
    assert producer.produce("a") == 0
    assert producer.abort() == 0
    assert producer.init() == 0
    client.wire.advance(2 * MINUTE)
    assert aborts(client) == []


def test_only_who_asks_gets_entries_and_only_the_newest() -> None:
    client = with_topic(1)
    for _ in range(3):
        began(client)
    assert Transactional(client, "x").init() == 0
    assert [entry["number"] for entry in aborts(client)] == [1, 2, 3]
    assert [entry["number"] for entry in aborts(client, last=2)] == [2, 3]
    assert aborts(client, last=0) == aborts(client, last=-1) == []
    assert aborts(client, "unknown") == []


def test_entries_survive_a_restart_beside_stories_of_groups() -> None:
    client = with_topic(1, journal_max_stories_per_group=2)
    for _ in range(4):
        began(client)
    before = aborts(client)
    assert [entry["number"] for entry in before] == [2, 3]
    again = client.wire.restarted(journal_max_stories_per_group=2)
    assert again.complaints == []
    client = again.connect()
    assert aborts(client) == before
    began(client)
    assert [entry["number"] for entry in aborts(client)] == [3, 4]


def test_an_entry_is_a_record_of_the_journals_topic() -> None:
    client = with_topic(1)
    began(client)
    client.wire.advance(MINUTE + 1)
    client.wire.step()
    [log] = client.wire.partitions(JOURNAL_TOPIC)
    records = [
        record for run in log.read(0, 1 << 20) for _, data in split_batches(run) for record in decode_records(data)
    ]
    assert [(record.key, json.loads(record.value or b"")) for record in records] == [
        (b"transaction x#1", aborts(client)[0])
    ]


def test_a_strict_server_has_no_journal() -> None:
    client = with_topic(1, **preset({"compatibility": "kafka"}))
    Transactional(client, "x")  # the first look is answered with 15
    began(client)
    client.wire.advance(MINUTE + 1)
    assert JOURNAL_TOPIC not in client.wire.broker.state.catalog.topics
    assert aborts(client) == []


def test_without_the_topic_entries_last_until_the_restart() -> None:
    client = with_topic(1, journal_enable=False)
    began(client)
    client.wire.advance(MINUTE + 1)
    assert len(aborts(client)) == 1
    assert aborts(client.wire.restarted(journal_enable=False).connect()) == []


# -- limits


def ending(name: str = "x", partitions: int = 1, **fields: Any) -> Ending:
    places = tuple(("t", index) for index in range(partitions))
    return Ending(name, 1000, 1, False, places, **({"cause": "timed out", "started": 5, "timeout_ms": 10} | fields))


def names(journal: TransactionAborts, *among: str) -> list[str]:
    return [name for name in among if journal.last(name, 10)]


def test_long_names_and_many_partitions_are_cut() -> None:
    journal = TransactionAborts(Config())
    client = Client("c" * 1000, "/" + "h" * 1000)
    journal.tell(ending("x" * 5000, 10_000, cause="fenced", fenced_by=client), 20)
    [entry] = journal.last("x" * 5000, 1)
    decoded = json.loads(entry)
    assert decoded["partitions_count"] == 10_000
    assert len(decoded["partitions"]["t"]) == MOST_PARTITIONS
    assert len(entry) < 2_500


def test_the_id_whose_last_entry_is_oldest_is_dropped_first() -> None:
    journal = TransactionAborts(Config(journal_max_groups=2))
    for name in ("a", "b", "a", "c"):
        journal.tell(ending(name), 20)
    assert names(journal, "a", "b", "c") == ["a", "c"]


def test_bytes_are_limited() -> None:
    config = Config(journal_max_bytes=65_536, journal_max_stories_per_group=10_000)
    journal = TransactionAborts(config)
    for number in range(500):
        journal.tell(ending(f"x{number % 100}", 20), 20)
    kept = [entry for number in range(100) for entry in journal.last(f"x{number}", 1_000)]
    assert 0 < sum(map(len, kept)) <= config.journal_max_bytes // 4
    for _ in range(500):
        journal.tell(ending("x0", 20), 20)
    assert names(journal, *(f"x{number}" for number in range(100))) == ["x0"]
    assert 0 < sum(map(len, journal.last("x0", 1_000))) <= config.journal_max_bytes // 4


def test_damaged_entries_are_skipped_at_a_start() -> None:
    client = with_topic(1)
    began(client)
    client.wire.advance(MINUTE + 1)
    broken = [b'{"transactional_id":"x"}', b'{"transactional_id":7}', b'{"transactional_id":"x","number":']
    wire: Wire = client.wire
    partition = wire.partitions(JOURNAL_TOPIC)[0]
    wire.broker.state.turn.append_records(
        partition, [Record(f"junk{index}".encode(), value) for index, value in enumerate(broken)]
    )
    wire.step()
    before = aborts(client)
    again = wire.restarted()
    assert [complaint.kind for complaint in again.complaints] == ["damaged data"]
    assert aborts(again.connect()) == before
