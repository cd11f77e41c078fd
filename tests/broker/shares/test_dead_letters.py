"""Dead letters that the broker writes: which records get them, with what in them, once whatever crashes (KIP-1191)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from share_driver import ACCEPT, REJECT, RELEASE, Member, share_world
from test_large_share_groups import is_busy, turn
from test_share_reports import records, redeliver, scraped, stories
from wire_driver import BROKER, GROUP, SET, START_MS, TOPIC, Connection, Wire, fetch_request, produce_request

from kohort.broker.shares.dead_letters import LETTERS_A_TURN
from kohort.coordinator.shares.cells import ARCHIVING, archiving
from kohort.coordinator.shares.events import ShareKey
from kohort.storage.memory import MemoryStorage
from kohort.wire.batches import NewRecord, Record, decode_records, encode_batch, split_batches
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest

GZIP, ZSTD = 1, 4
NAME, COPY, ALLOWED = (
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
)
SHARES = {"group_share_enable": True, "share_coordinator_state_topic_num_partitions": 3}
OPERATIONS = 500_000
"""Bytecode instructions of the longest turn: some ten milliseconds in pure Python."""


def world_with(
    count: int = 10,
    *,
    members: str = "a",
    copy: bool = False,
    create: bool = True,
    name: str = "dlq.t",
    **settings: Any,
) -> tuple[Wire, Connection, list[Member]]:
    wire, client, found = share_world(count, members=members, **settings)
    if create:
        client.create_topic(name, 2, **{ALLOWED.replace(".", "_"): "true"})
    assert client.alter_configs("g", GROUP, (NAME, SET, name), (COPY, SET, str(copy).lower())) == (0, None)
    return wire, client, found


def letters(client: Connection, topic: str = "dlq.t", partition: int = 0, offset: int = 0) -> list[Record]:
    found: list[Record] = []
    while True:
        answer = client.ask(fetch_request(topic, offset, partition), 11)
        data = answer.responses[0].partitions[0].records or b""
        found += [record for _, batch in split_batches(data, strict=False) for record in decode_records(batch)]
        if not data:
            return found
        offset = found[-1].offset + 1


def facts(letter: Record) -> dict[str, str]:
    return {key.removeprefix("__dlq.errors."): (value or b"").decode() for key, value in letter.headers}


def offsets(found: list[Record]) -> list[int]:
    return [int(facts(letter)["offset"]) for letter in found]


def stored(wire: Wire, topic_id: bytes) -> Any:
    key = ShareKey("g", topic_id, 0)
    shard = wire.broker.state.shares.find(key)
    assert shard is not None
    return shard.states[key]


@pytest.mark.conformance("SH60", "SH61", "SH62")
def test_rejected_records_and_those_delivered_too_often_have_dead_letters() -> None:
    wire, client, [a] = world_with()
    assert a.take(max_records=4, batch_size=1) == [(at, at, 1) for at in range(4)]
    turns: list[Any] = []
    wire.watch = turns.append
    assert a.ack((0, 0, ACCEPT), (1, 2, REJECT), (3, 3, RELEASE)) == 0
    [turn] = [one for one in turns if one.releases]
    logs = {operation.log.topic_id for operation in turn.operations}
    assert wire.broker.state.catalog.topics["dlq.t"].topic_id in logs, "in the commit of the acknowledgement"
    assert not archiving(stored(wire, a.topic_id).cells)
    found = letters(client)
    assert [facts(letter) for letter in found] == [
        {
            "topic": "t",
            "partition": "0",
            "offset": str(offset),
            "group": "g",
            "delivery.count": "1",
            "message": "Offset rejected by client.",
        }
        for offset in (1, 2)
    ]
    assert [(letter.key, letter.value, letter.timestamp) for letter in found] == [(None, None, START_MS)] * 2
    for count in range(2, 6):
        assert a.take(max_records=1, batch_size=1) == [(3, 3, count)]
        assert a.ack((3, 3, RELEASE)) == 0
    assert facts(letters(client)[2]) == {
        **facts(found[0]),
        "offset": "3",
        "delivery.count": "5",
        "message": "Offset delivery count exceeded the threshold.",
    }
    assert stored(wire, a.topic_id).start == 4
    assert letters(client, partition=1) == [], "the partition is that of the record, modulo their number"


@pytest.mark.conformance("SH61")
def test_copies_have_the_key_the_value_and_the_headers() -> None:
    wire, client, [a] = world_with(0, copy=True)
    record = NewRecord(b"k", b"v", START_MS, (("who", b"me"), ("__dlq.errors.offset", b"99")))
    other = NewRecord(None, None, START_MS)
    for compression in (0, GZIP, ZSTD):
        data = encode_batch([record, other], compression=compression)
        assert client.produced(produce_request("t", data)).error_code == 0
    assert a.take() == [(0, 5, 1)]
    assert a.ack((0, 5, ACCEPT, REJECT, REJECT, ACCEPT, REJECT, REJECT)) == 0
    found = letters(client)
    assert [(letter.key, letter.value) for letter in found] == [(None, None), (b"k", b"v")] + [
        (b"k", b"v"),
        (None, None),
    ]
    assert offsets(found) == [1, 2, 4, 5]
    assert found[1].headers[0] == ("who", b"me")
    assert [key for key, _ in found[1].headers].count("__dlq.errors.offset") == 1
    wire.broker.validate()


@pytest.mark.conformance("SH61")
def test_a_copy_that_is_too_large_is_left_out_and_so_is_one_that_is_deleted() -> None:
    _, client, [a] = world_with(0, copy=True)
    assert client.alter_configs("dlq.t", TOPIC, ("max.message.bytes", SET, "2000")) == (0, None)
    client.produce("t", b"x" * 3_000)
    client.produce("t", b"small")
    assert a.take() == [(0, 1, 1)]
    assert a.ack((0, 1, REJECT)) == 0
    assert [letter.value for letter in letters(client)] == [None, b"small"]
    assert client.alter_configs("dlq.t", TOPIC, ("max.message.bytes", SET, "100")) == (0, None)
    client.produce("t", b"more")
    assert a.take() == [(2, 2, 1)]
    assert a.ack((2, 2, REJECT)) == 0
    assert "max.message.bytes=100" in stories(client)[-1]


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_the_topic_says_how_dead_letters_are_stored(codec: str) -> None:
    wire, client, [a] = world_with(100)
    for name, value in (("compression.type", codec), ("message.timestamp.type", "LogAppendTime")):
        assert client.alter_configs("dlq.t", TOPIC, (name, SET, value)) == (0, None)
    wire.advance(5_000)
    assert a.take(max_records=100) == [(0, 99, 1)]
    assert a.ack((0, 99, REJECT)) == 0
    found = letters(client)
    assert offsets(found) == list(range(100))
    assert {letter.timestamp for letter in found} == {wire.now}
    [(header, _), *_] = split_batches(
        client.ask(fetch_request("dlq.t"), 11).responses[0].partitions[0].records, strict=False
    )
    assert header.compression == {"gzip": 1, "lz4": 3}[codec]


@pytest.mark.conformance("SH60")
@pytest.mark.parametrize(
    ("name", "allowed", "why"),
    [
        ("dlq.none", None, "there is no topic dlq.none"),
        ("dlq.no", "false", "topic dlq.no has not errors.deadletterqueue.group.enable=true"),
        ("letters", "true", "topic letters does not begin with dlq. (errors.deadletterqueue.topic.name.prefix)"),
        ("__letters", None, "topic __letters begins with __"),
        ("dlq.a b", None, "there is no topic dlq.a b"),
    ],
)
def test_without_a_topic_that_takes_them_records_are_archived_all_the_same(
    name: str, allowed: str | None, why: str
) -> None:
    wire, client, [a] = world_with(5, name=name, create=False)
    if allowed is not None:
        client.create_topic(name, 1, errors_deadletterqueue_group_enable=allowed)
    assert a.take() == [(0, 4, 1)]
    assert a.ack((0, 4, REJECT)) == 0
    assert stored(wire, a.topic_id).start == 5
    assert stories(client)[-1] == (
        f"records archived: 5 records rejected, without dead letters because {why}: t[0] 0-4 (delivered 1 ×)"
    )
    [complaint] = [one for one in wire.complaints if one.kind == "no dead letters"]
    assert dict(complaint.values) == {"group": "g", "why": why}
    assert records(client)["archived"][0][6] == "none"


@pytest.mark.conformance("SH60")
def test_a_missing_topic_is_created_if_that_is_allowed_and_any_name_may_be() -> None:
    wire, client, [a] = world_with(3, create=False, name="letters")
    changes = (
        ("errors.deadletterqueue.auto.create.topics.enable", SET, "true"),
        ("errors.deadletterqueue.topic.name.prefix", SET, ""),
    )
    assert client.alter_configs("", BROKER, *changes) == (0, None)
    assert a.take() == [(0, 2, 1)]
    assert a.ack((0, 2, REJECT)) == 0
    assert offsets(letters(client, "letters")) == [0, 1, 2]
    topic = wire.broker.state.catalog.topics["letters"]
    assert topic.configs == {ALLOWED: "true", "message.timestamp.type": "CreateTime"}


def test_a_compacted_topic_takes_those_with_keys() -> None:
    _, client, [a] = world_with(1, copy=True)
    assert client.alter_configs("dlq.t", TOPIC, ("cleanup.policy", SET, "compact")) == (0, None)
    data = encode_batch([NewRecord(b"k", b"v", START_MS)])
    assert client.produced(produce_request("t", data)).error_code == 0
    assert a.take() == [(0, 1, 1)]
    assert a.ack((0, 1, REJECT)) == 0
    assert offsets(letters(client)) == [1]
    assert any("dlq.t is compacted" in one for one in stories(client))


def test_operators_see_where_dead_letters_are() -> None:
    wire, client, [a] = world_with()
    assert a.take(max_records=4, batch_size=10) == [(0, 3, 1)]
    assert a.ack((1, 2, REJECT)) == 0
    assert stories(client)[-1] == (
        "records archived: 2 records rejected, dead letters in dlq.t: t[0] 1-2 (delivered 1 ×)"
    )
    row = client.ask(DescribeGroupsRequest(groups=("g",), explain_last=50), 6).groups[0]
    assert any(json.loads(story)["cause"].get("member_id") == "a" for story in row.stories)
    found = records(client)
    assert found["archived"] == [[1, 2, 1, "rejected", "a", wire.now, "dlq.t"]]
    assert (found["counts"]["rejected"], found["counts"]["dead letters"]) == (2, 2)
    series = scraped(wire)
    assert series["dead_letters_total"] == ['{group="g",written="yes"} 2']
    assert '{group="g",outcome="dead letters"} 2' not in series["records_total"]
    assert redeliver(client, (1, 1)).redelivered == 1
    assert a.ack((0, 0, ACCEPT), (3, 3, ACCEPT)) == 0
    assert a.take(max_records=1) == [(1, 1, 1)]


@pytest.mark.conformance("SH62")
@pytest.mark.parametrize("copy", [False, True])
def test_a_crash_after_any_turn_writes_each_dead_letter_once(copy: bool) -> None:
    """A rejection of more records than one turn writes letters for, beside the end of a session."""
    count = 2 * LETTERS_A_TURN + 100
    wire, client, [a, b] = world_with(0, members="ab", copy=copy, group_share_partition_max_record_locks=4_000)
    client.produce("t", *(str(at) for at in range(count)))
    assert a.take(max_records=count) == [(0, count - 1, 1)]
    storage = wire.storage
    assert isinstance(storage, MemoryStorage)
    copies = [storage.copy()]
    turn(wire, a.connection.frame(a.request([(0, count - 1, REJECT)], max_records=0), 2))
    copies.append(storage.copy())
    while is_busy(wire):
        turn(wire)
        copies.append(storage.copy())
    assert len(copies) > 3
    assert b.take() == []
    for at, stored_copy in enumerate(copies):
        again = Wire(stored_copy, now=wire.now, seed=99, **SHARES)
        reader = again.connect()
        again.broker.validate()
        found = letters(reader)
        if at == 0:
            assert found == [], "locks are gone, and nothing was rejected"
            continue
        assert offsets(found) == list(range(count))
        assert [letter.value for letter in found] == [str(n).encode() if copy else None for n in range(count)]
        assert {facts(letter)["message"] for letter in found} == {"Offset rejected by client."}
        assert stored(again, a.topic_id).start == count
        assert not again.broker.busy
    assert offsets(letters(client)) == list(range(count))


def test_no_turn_is_long() -> None:
    count = 4_000
    wire, client, [a] = world_with(0, copy=True, group_share_partition_max_record_locks=4_000)
    for first in range(0, count, 1_000):
        data = encode_batch(
            [NewRecord(None, b"%d" % at * 20, START_MS) for at in range(first, first + 1_000)], compression=GZIP
        )
        assert client.produced(produce_request("t", data)).error_code == 0
    assert a.take(max_records=count, batch_size=count) == [(0, count - 1, 1)]
    worst = turn(wire, a.connection.frame(a.request([(0, count - 1, REJECT)], max_records=0), 2))
    assert archiving(stored(wire, a.topic_id).cells), "some are left for later turns"
    while is_busy(wire):
        worst = max(worst, turn(wire))
    assert offsets(letters(client)) == list(range(count))
    assert worst < OPERATIONS


def test_records_that_are_not_in_memory_are_read_beside_the_turns() -> None:
    wire, _, [a] = world_with(3, copy=True, parks_reads=True, log_tail_max_bytes=0)
    got = a.request()
    a.connection.send(got, 2)
    a.epoch += 1
    wire.do_reads()
    assert a.connection.take().responses[0].partitions[0].acquired_records
    assert a.ack((0, 2, REJECT)) == 0
    assert archiving(stored(wire, a.topic_id).cells) == [(0, 2, ARCHIVING, 1)]
    assert not wire.broker.busy, "it waits for the read"
    crashed = Wire(wire.storage.copy(), now=wire.now, seed=99, **SHARES)  # type: ignore[attr-defined]
    assert [letter.value for letter in letters(crashed.connect())] == [b"0", b"1", b"2"]
    wire.do_reads()
    assert stored(wire, a.topic_id).start == 3


def test_a_topic_that_is_named_no_more_gets_nothing() -> None:
    wire, client, [a] = world_with(4)
    assert client.alter_configs("g", GROUP, (NAME, SET, "")) == (0, None)
    assert a.take() == [(0, 3, 1)]
    assert a.ack((0, 3, REJECT)) == 0
    assert letters(client) == []
    assert stories(client)[-1] == "records archived: 4 records rejected: t[0] 0-3 (delivered 1 ×)"
    assert stored(wire, a.topic_id).start == 4


@pytest.mark.conformance("SH1")
def test_strict_kafka_is_of_4_3_which_has_no_dead_letters() -> None:
    wire, client, _ = share_world(1, compatibility="kafka")
    assert client.alter_configs("g", GROUP, (NAME, SET, "dlq.t"))[0] == 40
    assert ALLOWED not in {entry.name for entry in client.describe_configs("t", TOPIC).configs}
    versions = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    assert ("share.version", 1) in [(f.name, f.max_version_level) for f in versions.finalized_features]
    assert not wire.complaints
