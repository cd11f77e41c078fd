"""Fetches whose records are not in memory: they wait for reads, which end when the test lets them."""

from __future__ import annotations

import gc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from logs import LOG, OneLog
from msgspec.structs import replace as changed
from storage_batches import make_batch
from transaction_driver import Transactional
from wire_driver import (
    START_MS,
    Connection,
    Wire,
    batch,
    delete_topics,
    fetch_request,
    produce_request,
    values_of,
    with_topic,
)

from kohort.broker.handlers.records import MAX_TIMESTAMP
from kohort.broker.logs.time_search import Search, SearchedEnough, first_record
from kohort.broker.ready import OVER, WITHIN
from kohort.broker.turn import Closed, ReadAsked, ReadDone, Shutdown
from kohort.broker.waits.reads import AT_ONCE, MEMORY_SHARE, Read
from kohort.coordinator.events import RequestId
from kohort.storage.protocol import NO_END, LogKey, StoredBatch
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.sqlite_reader import SqliteReader
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.metadata import MetadataRequest

COMMITTED = {"isolation_level": 1}


def parked(partitions: int = 1, tail: int = 0, **config: Any) -> Connection:
    """A connection to a broker with the topic `t`, whose storage answers later. `tail`: bytes of tails."""
    client = Wire(parks_reads=True, log_tail_max_bytes=tail, **config).connect()
    client.create_topic("t", partitions)
    return client


def of(response: Any) -> PartitionData:
    data: PartitionData = response.responses[0].partitions[0]
    return data


def delete_records(offset: int) -> DeleteRecordsRequest:
    deleted = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(deleted,)),), timeout_ms=1)


def test_the_tail_is_answered_in_the_step() -> None:
    client = parked(tail=1 << 20)
    for n in range(3):
        client.produce("t", f"{n}")
    assert [client.values("t", offset) for offset in range(4)] == [[b"0", b"1", b"2"], [b"1", b"2"], [b"2"], []]
    assert client.wire.reads == []


def test_older_records_wait_for_a_read() -> None:
    client = parked()
    wire = client.wire
    client.produce("t", "a")
    client.produce("t", "b")
    client.send(fetch_request("t"), 11)
    assert client.responses == []
    [asked] = wire.reads
    assert (asked.offset, asked.end_offset) == (0, 2)
    wire.advance(100_000)
    assert client.responses == [], "not even after its longest wait: a slow storage would give it nothing for ever"
    wire.do_reads()
    assert values_of(client.take()) == [b"a", b"b"]
    assert (wire.broker.state.reads.size, len(wire.broker.state.reads)) == (0, 0)


def test_a_start_finds_no_tail() -> None:
    client = parked(tail=1 << 20)
    client.produce("t", "before")
    wire = client.wire.restarted(parks_reads=True)
    client = wire.connect()
    client.produce("t", "after")
    assert client.values("t", 1) == [b"after"]
    client.send(fetch_request("t"), 11)
    assert wire.do_reads() == 1
    assert values_of(client.take()) == [b"before", b"after"]


def test_answers_stay_in_order_and_nothing_hurries_a_read() -> None:
    client = parked()
    client.produce("t", "a")
    client.send(fetch_request("t"), 11)
    client.send(MetadataRequest(topics=()), 9)
    client.send(fetch_request("t", 1), 11)
    assert client.responses == []
    client.wire.do_reads()
    assert values_of(client.take()) == [b"a"]
    assert client.take().topics == ()
    assert values_of(client.take()) == []


def test_what_was_appended_meanwhile_is_not_answered() -> None:
    client = parked()
    other = client.wire.connect()
    client.produce("t", "a")
    client.send(fetch_request("t"), 11)
    other.produce("t", "b")
    client.wire.do_reads()
    answer = client.take()
    assert values_of(answer) == [b"a"]
    assert of(answer).high_watermark == 2


def test_records_deleted_meanwhile_are_out_of_range() -> None:
    client = parked()
    wire, other = client.wire, client.wire.connect()
    for n in range(3):
        client.produce("t", f"{n}")
    client.send(fetch_request("t"), 11)
    early = wire.found(wire.reads.pop())
    assert other.ask(delete_records(2), 2).topics[0].partitions[0].error_code == 0
    wire.step(early)
    assert of(client.take()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("read", ["before the deletion", "after it"])
def test_a_successor_of_a_deleted_topic_never_has_its_records(read: str) -> None:
    client = parked()
    wire, other = client.wire, client.wire.connect()
    client.produce("t", "of the first")
    client.send(fetch_request("t"), 11)
    [asked] = wire.reads
    wire.reads.clear()
    found = wire.found(asked)
    other.ask(delete_topics("t"), 5)
    other.create_topic("t")
    other.produce("t", "of the second")
    wire.step(found if read == "before the deletion" else wire.found(asked))
    assert client.responses == []
    wire.do_reads()
    assert values_of(client.take()) == [b"of the second"]


def test_a_deleted_topic_is_unknown_when_its_read_ends() -> None:
    client = parked()
    wire, other = client.wire, client.wire.connect()
    topic_id = other.create_topic("gone")
    other.produce("gone", "a")
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=(FetchTopic(topic_id=topic_id, partitions=(asked,)),)
    )
    client.send(request, 13)
    found = wire.found(wire.reads.pop())
    other.ask(delete_topics("gone"), 5)
    wire.step(found)
    assert of(client.take()).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_closed_connection_drops_its_reads() -> None:
    client = parked()
    wire = client.wire
    client.produce("t", "a")
    readers = [wire.connect() for _ in range(AT_ONCE + 2)]
    for reader in readers:
        reader.send(fetch_request("t"), 11)
    assert len(wire.reads) == AT_ONCE
    readers[0].close()
    readers[-1].close()
    state = wire.broker.state
    assert len(state.reads) == AT_ONCE
    assert wire.do_reads() == AT_ONCE + 1, "the last one was never handed out"
    assert [len(reader.responses) for reader in readers] == [0, *[1] * AT_ONCE, 0]
    assert (state.reads.size, len(state.reads)) == (0, 0)


@pytest.mark.parametrize(
    ("version", "error"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.KAFKA_STORAGE_ERROR)]
)
def test_a_failed_read_is_an_error_that_clients_retry(version: int, error: ErrorCode) -> None:
    client = parked(2)
    wire = client.wire
    for partition in range(2):
        client.produce("t", "a", partition=partition)
    asked = tuple(FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(2))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=asked),))
    client.send(request, version)
    first, second = wire.reads
    wire.reads.clear()
    wire.step(wire.found(second))
    assert client.responses == [], "it waits for both"
    wire.step(ReadDone(first.read_id, failure="the disk is slow"))
    answer = client.take()
    failed, other = answer.responses[0].partitions
    assert (failed.error_code, other.error_code) == (error, 0)
    assert values_of(answer) == [b"a"]
    [complaint] = [one for one in wire.complaints if one.kind == "failed read"]
    assert complaint.values == (("partition", "t-0"), ("at", 0), ("error", "the disk is slow"))
    client.send(request, version)
    wire.do_reads()
    assert values_of(client.take()) == [b"a", b"a"]


def test_damage_that_a_read_finds_is_answered_as_damage() -> None:
    client = parked()
    client.produce("t", "a")
    client.send(fetch_request("t"), 11)
    client.wire.step(ReadDone(client.wire.reads.pop().read_id, damage="its checksum is wrong"))
    assert of(client.take()).error_code == ErrorCode.CORRUPT_MESSAGE
    assert [one.kind for one in client.wire.complaints] == ["damaged data"]


def test_a_shutdown_answers_without_the_reads() -> None:
    client = parked()
    wire = client.wire
    client.produce("t", "a")
    client.send(fetch_request("t", max_wait_ms=10_000), 11)
    found = wire.found(wire.reads.pop())
    wire.step(Shutdown())
    answer = of(client.take())
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 1)
    wire.step(found)
    assert client.responses == []
    assert wire.broker.state.reads.size == 0


def test_an_answer_with_what_was_read_does_not_wait_for_more() -> None:
    client = parked()
    client.produce("t", "a")
    client.send(fetch_request("t", max_wait_ms=10_000, min_bytes=1 << 20), 11)
    client.wire.do_reads()
    assert values_of(client.take()) == [b"a"]


def test_committed_reads_are_one_view_of_the_moment_of_the_answer() -> None:
    """The transaction is open when its records are asked for, and aborted when they are answered."""
    client = parked()
    wire = client.wire
    producer = Transactional(wire.connect())
    producer.init()
    client.produce("t", "plain")
    producer.produce("aborted")
    client.send(fetch_request("t", **COMMITTED), 11)
    early = wire.found(wire.reads.pop())
    producer.abort()
    wire.step()
    wire.step(early)
    data = of(client.take())
    assert (data.last_stable_offset, data.high_watermark) == (3, 3)
    assert [one.first_offset for one in data.aborted_transactions or ()] == [1]


def test_records_of_an_open_transaction_are_read_and_not_answered() -> None:
    client = parked()
    wire = client.wire
    producer = Transactional(wire.connect())
    producer.init()
    client.produce("t", "plain")
    producer.produce("pending")
    client.send(fetch_request("t", **COMMITTED), 11)
    wire.do_reads()
    answer = client.take()
    assert values_of(answer) == [b"plain"]
    assert of(answer).aborted_transactions == ()
    assert values_of(client.ask(fetch_request("t", 1, **COMMITTED), 11)) == []
    assert wire.reads == [], "there is nothing to read for it"


@pytest.mark.parametrize("tail", [0, 1 << 20])
def test_what_compaction_replaces_meanwhile_is_read_again(tail: int) -> None:
    """The aborted records are in what was read, and the list of aborted transactions has forgotten them."""
    client = Wire(
        parks_reads=True, log_tail_max_bytes=tail, log_cleaner_delete_retention_ms=0, producer_id_expiration_ms=1
    ).connect()
    client.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    wire = client.wire
    producer = Transactional(wire.connect())
    producer.init()
    produce_keyed(producer)
    producer.abort()
    for n in range(3):
        client.ask(produce_request("t", keyed(f"{n}")), 9)
    if tail:
        wire.step()
        wire.partitions("t")[0].tail.drop_up_to(3)
    reader = wire.connect()
    reader.send(fetch_request("t", **COMMITTED), 11)
    [asked] = wire.reads
    wire.reads.clear()
    early = wire.found(asked)
    compact(wire)
    assert wire.partitions("t")[0].has_aborted is False, "compaction has dropped the marker"
    wire.step(early)
    assert reader.responses == [], "what it has found is of no use"
    wire.do_reads()
    answer = reader.take()
    assert (of(answer).aborted_transactions, values_of(answer)[-1]) == ((), b"end")
    assert b"aborted" not in values_of(answer)


def test_what_compaction_replaces_leaves_the_tail() -> None:
    client = Wire(parks_reads=True, log_cleaner_delete_retention_ms=0, producer_id_expiration_ms=1).connect()
    client.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    wire = client.wire
    producer = Transactional(wire.connect())
    producer.init()
    produce_keyed(producer)
    producer.abort()
    for n in range(3):
        client.ask(produce_request("t", keyed(f"{n}")), 9)
    compact(wire)
    [partition] = wire.partitions("t")
    assert not partition.has_aborted
    client.send(fetch_request("t", **COMMITTED), 11)
    wire.do_reads()
    answer = client.take()
    assert (of(answer).aborted_transactions, values_of(answer)[-1]) == ((), b"end")
    assert b"aborted" not in values_of(answer)


def compact(wire: Wire) -> None:
    """Several passes, each with something new to compact; their reads are done. The last record has the value "end"."""
    client = wire.connect()
    for value in ("1", "2", "3", "4", "end"):
        client.ask(produce_request("t", keyed(value)), 9)
        wire.advance(60_000)
        wire.do_reads()


def read_of_compaction(wire: Wire) -> ReadAsked:
    """Let time pass until the topic `t` is compacted. Other topics are compacted before."""
    wire.advance(60_000)
    [partition] = wire.partitions("t")
    while wire.reads[0].log != partition.log:
        wire.step(wire.found(wire.reads.pop(0)))
    [asked] = wire.reads
    return asked


def compacted_topic() -> Connection:
    client = Wire(parks_reads=True, log_tail_max_bytes=0, log_cleaner_delete_retention_ms=0).connect()
    client.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for n in range(30):
        client.ask(produce_request("t", keyed("x" * 20_000 + f"{n}")), 9)
    return client


def bases(wire: Wire) -> list[int]:
    [partition] = wire.partitions("t")
    return [batch.base_offset for batch in wire.storage.read(partition.log, 0, 1 << 30)]


def test_compaction_reads_beside_the_steps() -> None:
    client = compacted_topic()
    wire = client.wire
    asked = read_of_compaction(wire)
    assert (asked.offset, asked.end_offset) == (0, 29), "the last batch is not compacted"
    assert client.listed(-1).offset == 30
    wire.do_reads()
    assert bases(wire) == [28, 29]
    assert wire.broker.state.reads.size == 0


def test_a_trim_and_a_deletion_end_the_read_of_a_compaction() -> None:
    client = compacted_topic()
    wire = client.wire
    read_of_compaction(wire)
    early = wire.found(wire.reads.pop())
    wire.broker.state.turn.trim(wire.partitions("t")[0], 10)
    wire.step()
    wire.step(early)
    [asked] = wire.reads
    assert asked.offset == 10, "it is asked for anew"
    early = wire.found(wire.reads.pop())
    client.ask(delete_topics("t"), 5)
    wire.step(early)
    wire.do_reads()
    assert wire.broker.state.reads.size == 0


def test_a_compaction_whose_read_fails_is_tried_again() -> None:
    wire = compacted_topic().wire
    asked = read_of_compaction(wire)
    wire.reads.clear()
    wire.step(ReadDone(asked.read_id, failure="the disk is slow"))
    assert bases(wire) == [*range(30)]
    [complaint] = [one for one in wire.complaints if one.kind == "failed read"]
    assert complaint.what == "t-0 cannot be compacted now: the disk is slow"
    read_of_compaction(wire)
    wire.do_reads()
    assert bases(wire) == [28, 29]


def produce_keyed(producer: Transactional) -> None:
    data = keyed("aborted", producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True)
    request = changed(produce_request("t", data), transactional_id=producer.name)
    assert producer.client.produced(request, 12).error_code == 0


def keyed(value: str, **fields: Any) -> bytes:
    return encode_batch([NewRecord(b"k", value.encode(), START_MS)], base_sequence=0, **fields)


def test_reads_have_a_limit_in_bytes_and_are_served_in_order() -> None:
    client = parked(queued_max_response_bytes=1 << 20)
    wire = client.wire
    reads = wire.broker.state.reads
    assert reads.most_bytes == (1 << 20) // MEMORY_SHARE == 65_536
    for _ in range(8):
        client.produce("t", bytes(10_000))
    readers = [wire.connect() for _ in range(20)]
    for reader in readers:
        reader.send(fetch_request("t", most=30_000), 11)
    answered: list[int] = []
    while wire.reads:
        assert len(wire.reads) <= 2, "two of 30,000 bytes fit"
        assert reads.size <= 65_536
        wire.step(wire.found(wire.reads.pop(0)))
        answered += [n for n, reader in enumerate(readers) if reader.responses and n not in answered]
    assert answered == [*range(20)]
    assert reads.size == 0


def test_one_fetch_with_much_to_read_is_served_although_it_is_above_the_limit() -> None:
    client = parked(4, queued_max_response_bytes=1 << 20)
    wire = client.wire
    for partition in range(4):
        client.produce("t", bytes(50_000), partition=partition)
    asked = tuple(FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=60_000) for n in range(4))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=asked),))
    clients = [client, wire.connect()]
    for each in clients:
        each.send(request, 11)
    wire.do_reads()
    assert [len(values_of(each.take())) for each in clients] == [4, 4]
    assert wire.broker.state.reads.size == 0


def test_of_large_batches_only_the_first_of_an_answer_stays_in_memory() -> None:
    class Marked(bytes):
        """Bytes that the garbage collector lists."""

    def marked(done: ReadDone) -> ReadDone:
        return changed(done, batches=tuple(changed(batch, data=Marked(batch.data)) for batch in done.batches))

    client = parked(10)
    reads = client.wire.broker.state.reads
    for partition in range(10):
        client.produce("t", bytes(10_000), partition=partition)
    asked = tuple(FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1_000) for n in range(10))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=asked),))
    client.send(request, 11)
    largest = 0
    while client.wire.reads:
        client.wire.step(marked(client.wire.found(client.wire.reads.pop(0))))
        largest = max(largest, reads.size)
        assert sum(type(one) is Marked for one in gc.get_objects()) <= 1
    assert largest < 10_200 + AT_ONCE * 1_000
    assert [len(data.records) > 0 for data in client.take().responses[0].partitions] == [True] + [False] * 9
    assert reads.size == 0


def test_a_large_fetch_is_read_and_answered_in_steps() -> None:
    client = parked(150)
    wire = client.wire
    for partition in (3, 120, 149):
        client.produce("t", f"{partition}", partition=partition)
    asked = tuple(FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1_000) for n in range(150))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=asked),))
    client.send(request, 11)
    assert [read.log.partition for read in wire.reads] == [3, 120, 149]
    wire.do_reads()
    assert values_of(client.take()) == [b"3", b"120", b"149"]
    assert wire.broker.state.reads.size == 0
    client.send(request, 11)
    client.close()
    wire.do_reads()
    assert (wire.broker.state.reads.size, len(wire.broker.state.reads)) == (0, 0)


def test_a_large_answer_that_has_not_begun_is_dropped_with_what_was_read() -> None:
    """Others wait, so the first step of the answer comes later; the client goes before."""
    client = parked(150)
    wire, other = client.wire, client.wire.connect()
    client.produce("t", "a")
    asked = tuple(FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1_000) for n in range(150))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="t", partitions=asked),))
    client.send(request, 11)
    [read] = wire.reads
    found = wire.found(read)
    broker = wire.broker
    wire.end(broker.step([other.frame(MetadataRequest(topics=()), 9), found], wire.now, lambda: OVER))
    while not broker.works.size:
        verdicts = iter((WITHIN,))
        wire.end(broker.step([], wire.now, lambda verdicts=verdicts: next(verdicts, OVER)))
    assert (broker.state.reads.size, len(broker.state.reads)) == (0, 1), "the answer counts it now"
    wire.end(broker.step([Closed(client.id)], wire.now))
    assert (broker.works.size, broker.state.reads.size, len(broker.state.reads)) == (0, 0, 0)
    wire.step()
    assert (len(other.responses), client.responses) == (1, [])


def test_the_first_batch_is_whole_and_others_have_to_fit() -> None:
    client = parked(2)
    for partition in range(2):
        for n in range(2):
            client.produce("t", f"{n}" * 100, partition=partition)
    size = len(batch("x" * 100))

    def counts(most: int, *limits: int) -> list[int]:
        asked = tuple(FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=m) for n, m in enumerate(limits))
        topics = (FetchTopic(topic="t", partitions=asked),)
        client.send(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=most, topics=topics), 11)
        client.wire.do_reads()
        return [len(data.records) // size for data in client.take().responses[0].partitions]

    everything = 10**6
    assert counts(everything, everything, everything) == [2, 2]
    assert counts(everything, 1, 1) == [1, 0]
    assert counts(0, 0, 0) == [1, 0]
    assert counts(1, everything, everything) == [1, 0]


@pytest.mark.parametrize("is_done", [True, False])
def test_replaced_batches_are_cut_from_what_was_found(is_done: bool) -> None:
    """The batch that holds the offset begins before it."""

    def left(*ranges: tuple[int, int], offset: int = 12) -> list[int] | None:
        read = Read(ReadAsked(1, LOG, offset, 0, 100), RequestId(1))
        done = ReadDone(1, tuple(make_batch(base, 5) for base in (10, 15, 20)))
        if is_done:
            read.take(done)
        for first, last in ranges:
            read.replace(first, last)
        if not is_done:
            read.take(done)
        assert read.found is not None
        assert read.is_cut is (len(read.found) < 3)
        return [batch.base_offset for batch in read.found]

    assert left() == left((0, 5)) == left((0, 9), (25, 30)) == [10, 15, 20]
    assert left((0, 10)) == left((10, 10)) == left((5, 40)) == []
    assert left((15, 15)) == left((15, 20), (20, 20)) == left((20, 20), (15, 15)) == [10]


# -- searches by time


def times(client: Connection, *timestamps: int) -> None:
    for timestamp in timestamps:
        client.ask(produce_request("t", batch("x", timestamp=timestamp)), 9)


def by_time(*timestamps: int) -> ListOffsetsRequest:
    """A partition for each time."""
    asked = tuple(ListOffsetsPartition(partition_index=n, timestamp=at) for n, at in enumerate(timestamps))
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=asked),))


def found_in(response: Any) -> list[tuple[int, int, int]]:
    return [(each.error_code, each.offset, each.timestamp) for each in response.topics[0].partitions]


def test_a_search_by_time_waits_for_storage_and_finds_the_same() -> None:
    at_once = with_topic()
    later = parked()
    for client in (at_once, later):
        times(client, 100, 300, 200, 300, 50)
    for timestamp in (0, 100, 101, 250, 300, 301, MAX_TIMESTAMP, -1, -2):
        expected = at_once.ask(by_time(timestamp), 7)
        later.send(by_time(timestamp), 7)
        assert bool(later.responses) is (timestamp in (-1, -2))
        later.wire.do_reads()
        assert later.take() == expected


def test_a_search_of_many_partitions_answers_in_order_while_others_go_on() -> None:
    client = parked(3)
    wire, other = client.wire, client.wire.connect()
    for partition in range(3):
        client.produce("t", "a", partition=partition)
    client.send(by_time(0, 0, 0), 7)
    client.send(MetadataRequest(topics=()), 9)
    assert other.listed(-1).offset == 1
    assert len(wire.reads) == 1
    assert wire.do_reads() == 3
    assert found_in(client.take()) == [(0, 0, START_MS)] * 3
    assert client.take().topics == ()


def test_a_failed_search_is_an_error_of_its_partition() -> None:
    client = parked(3)
    wire = client.wire
    for partition in range(3):
        client.produce("t", "a", partition=partition)
    client.send(by_time(0, 0, 0), 7)
    wire.step(ReadDone(wire.reads.pop().read_id, failure="the disk is slow"))
    wire.step(ReadDone(wire.reads.pop().read_id, damage="its checksum is wrong"))
    wire.do_reads()
    errors = [error for error, _, _ in found_in(client.take())]
    assert errors == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, 0]
    assert [one.kind for one in wire.complaints] == ["failed read", "damaged data"]


def test_a_record_that_is_deleted_during_its_search_is_not_found() -> None:
    client = parked()
    wire, other = client.wire, client.wire.connect()
    times(client, 100, 200, 300)
    client.send(by_time(150), 7)
    early = wire.found(wire.reads.pop())
    assert other.ask(delete_records(2), 2).topics[0].partitions[0].error_code == 0
    wire.step(early)
    assert client.responses == []
    wire.do_reads()
    assert found_in(client.take()) == [(0, 2, 300)]


def test_a_successor_of_a_deleted_topic_is_searched_anew() -> None:
    client = parked()
    wire, other = client.wire, client.wire.connect()
    times(client, 100, 200)
    client.send(by_time(150), 7)
    early = wire.found(wire.reads.pop())
    other.ask(delete_topics("t"), 5)
    other.create_topic("t")
    times(other, 170)
    wire.step(early)
    wire.do_reads()
    assert found_in(client.take()) == [(0, 0, 170)]


def test_a_search_ends_with_its_connection() -> None:
    client = parked()
    wire = client.wire
    times(client, 100)
    client.send(by_time(0), 7)
    early = wire.found(wire.reads.pop())
    client.close()
    wire.step(early)
    other = wire.connect()
    other.send(by_time(0), 7)
    wire.step(Shutdown())
    assert wire.do_reads() == 1
    assert (client.responses, other.responses) == ([], [])


def test_a_search_has_a_limit_over_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.logs.time_search.SEARCHED", 4)
    client = parked(3)
    for partition in range(3):
        client.produce("t", "a", "b", "c", partition=partition)
    client.send(by_time(0, 0, 0), 7)
    assert client.wire.do_reads() == 2, "storage is not asked for the third"
    errors = [error for error, _, _ in found_in(client.take())]
    assert errors == [0, 0, ErrorCode.OFFSET_NOT_AVAILABLE]


def test_a_search_reads_the_batches_alone_that_may_have_the_record(tmp_path: Path) -> None:
    """The first record of the first batch is deleted, and later batches end before the time."""

    class Counted(SqliteReader):
        def read(self, log: LogKey, offset: int, max_bytes: int, end_offset: int = NO_END) -> list[StoredBatch]:
            read.append(offset)
            return super().read(log, offset, max_bytes, end_offset)

    read: list[int] = []
    with closing(SqliteStorage(tmp_path)) as storage, closing(Counted(storage._file)) as reader:
        log = OneLog(storage)
        for at in (900, *[200] * 20, 800, 850):
            log.produce(encode_batch([NewRecord(None, b"a", at), NewRecord(None, b"b", 100)]))
        log.trim(1)
        located = first_record(reader, LOG, 700, 1, Search())
        assert located is not None
        assert (located.offset, located.timestamp) == (42, 800)
        assert read == [42]
        with pytest.raises(SearchedEnough):
            first_record(reader, LOG, 700, 1, Search(0))
        assert read == [42]


def test_partitions_that_are_named_twice_are_refused_once() -> None:
    """As in Kafka 4 (ReplicaManager.fetchOffset)."""
    client = parked(2)
    for partition in range(2):
        client.produce("t", "a", partition=partition)
    asked = [
        ListOffsetsTopic(
            name="t", partitions=tuple(ListOffsetsPartition(partition_index=n, timestamp=-1) for n in numbers)
        )
        for numbers in ((0, 0, 1), (0,))
    ]
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=tuple(asked)), 7)
    assert [topic.name for topic in answer.topics] == ["t"]
    found = [(one.partition_index, one.error_code, one.offset) for one in answer.topics[0].partitions]
    assert found == [(0, ErrorCode.INVALID_REQUEST, -1), (1, 0, 1)]
