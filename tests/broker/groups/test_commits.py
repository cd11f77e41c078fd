"""Repeated commits: the cache, its lifetime and its limits. Compared with handlers in test_heartbeats.py."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit_request, committed, join_request, stable
from wire_driver import Connection, Wire, delete_topics, with_topic

from kohort.broker.messages import changed
from kohort.broker.shortcuts import commits
from kohort.broker.turn import Frame
from kohort.storage.protocol import Append
from kohort.wire.batches import decode_records, encode_batch, split_batches
from kohort.wire.codec import encode_request
from kohort.wire.records import NewRecord
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSION = 7


def started(commits: int = 0) -> tuple[Wire, Connection, dict[str, Any]]:
    """A member of a stable group; it has committed the offsets 1 to `commits`, each in a turn."""
    client = with_topic(3)
    joined = stable(client)
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    for offset in range(1, commits + 1):
        tell(client.wire, client, request(offset, member))
    return client.wire, client, member


def request(offset: int, member: dict[str, Any], partitions: int = 1) -> OffsetCommitRequest:
    asked = tuple(
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset + index, committed_leader_epoch=3, committed_metadata="note"
        )
        for index in range(partitions)
    )
    return commit_request(offset, topics=(OffsetCommitRequestTopic(name="t", partitions=asked),), **member)


def kept(wire: Wire, client: Connection) -> Any:
    return wire.broker.repeats.commits.kept(client.id)


def tell(wire: Wire, client: Connection, *requests: OffsetCommitRequest) -> list[Any]:
    """Send all of them in one turn. Returns the appends."""
    client.responses.clear()
    turn = wire.broker.step(
        [Frame(client.id, encode_request(one, VERSION, n, "client")[4:]) for n, one in enumerate(requests)], wire.now
    )
    wire.storage.commit(turn.operations, wire.storage.acquire())
    return [operation for operation in turn.operations if isinstance(operation, Append)]


def test_the_third_commit_is_repeated_and_writes_the_same_bytes() -> None:
    wire, client, member = started()
    appended = []
    for offset in (10, 20, 30):
        wire.now += 7
        assert (kept(wire, client) is not None) == (offset == 30)
        appended += tell(wire, client, request(offset, member, 3))
        assert [committed(client, partition=index) for index in range(3)] == [offset, offset + 1, offset + 2]
    assert wire.broker.repeats.commits.in_vain(client.id) == 0
    batches = [batch.data for append in appended for batch in append.batches]
    for data in batches:
        [(header, _)] = split_batches(data)
        records = [NewRecord(r.key, r.value, r.timestamp) for r in decode_records(data)]
        again = encode_batch(records, base_offset=header.base_offset, leader_epoch=header.partition_leader_epoch)
        assert again == data
    known, plain = batches[2], batches[1]
    assert len(known) == len(plain)
    assert [r.key for r in decode_records(known)] == [r.key for r in decode_records(plain)]


def test_several_repeated_commits_in_a_turn() -> None:
    wire, client, member = started(2)
    appended = tell(wire, client, *(request(offset, member) for offset in range(3, 8)))
    assert len(appended) == 5, "each has a batch of its own"
    assert committed(client) == 7
    other = changed(request(8, member), member_id="stranger")
    appended = tell(wire, client, request(8, member), other, request(9, member))
    assert len(appended) == 2
    assert committed(client) == 9


def test_records_decided_earlier_in_the_turn_are_written_first() -> None:
    wire, client, member = started(2)
    appended = tell(wire, client, request(20, member, 2), request(3, member))
    assert [len(decode_records(batch.data)) for append in appended for batch in append.batches] == [3]
    assert committed(client) == 3
    wire, client, member = started(2)
    appended = tell(wire, client, request(3, member), request(20, member, 2))
    assert [len(decode_records(batch.data)) for append in appended for batch in append.batches] == [1, 2]
    assert committed(client) == 20


def test_a_refused_commit_changes_nothing() -> None:
    wire, client, member = started(3)
    assert not tell(wire, client, request(4, member | {"generation_id_or_member_epoch": 9}))
    assert committed(client) == 3
    wire.advance(10_001)  # the session is over
    assert kept(wire, client) is not None
    assert not tell(wire, client, request(5, member))
    assert committed(client) == 3


def test_a_new_generation_refuses_the_kept_commit() -> None:
    wire, client, member = started(3)
    assert client.ask(join_request("g", member["member_id"]), 3).generation_id == 2
    assert kept(wire, client) is not None
    assert not tell(wire, client, request(4, member))
    assert committed(client) == 3


def test_repeated_commits_keep_the_member_alive() -> None:
    wire, client, member = started()
    for offset in range(8):
        wire.advance(9_000)
        tell(wire, client, request(offset, member))
    assert committed(client) == 7


def test_a_kept_commit_is_dropped_when_topics_change() -> None:
    wire, client, member = started(3)
    client.ask(delete_topics("t"), 5)
    [answer] = client.ask(request(4, member), VERSION).topics[0].partitions
    assert answer.error_code == 3
    assert kept(wire, client) is None
    client.create_topic("t", 1)
    for offset in (5, 6, 7):
        client.ask(request(offset, member), VERSION)
    assert kept(wire, client) is not None
    assert committed(client) == 7


def test_commits_that_never_repeat_are_no_longer_kept() -> None:
    wire, client, member = started()
    for n in range(3 * commits.IN_VAIN):
        one = request(n, member)
        asked = changed(one.topics[0].partitions[0], committed_metadata=f"{n:03}")
        tell(wire, client, changed(one, topics=(changed(one.topics[0], partitions=(asked,)),)))
    known = kept(wire, client)
    assert wire.broker.repeats.commits.in_vain(client.id) == commits.IN_VAIN
    for offset in (1, 2, 3):
        tell(wire, client, request(offset, member))
    assert kept(wire, client) is known, "no more is kept"
    assert committed(client) == 3


@pytest.mark.parametrize("size", [1, 3])
def test_the_number_of_kept_commits_is_limited(size: int) -> None:
    wire, _, member = started()
    others = [wire.connect() for _ in range(5)]
    wire.broker.repeats.commits.most_places = 3
    for other in others:
        for offset in (1, 2):
            tell(wire, other, request(offset, member, size))
    assert [kept(wire, other) is not None for other in others] == [n >= 5 - 3 // size for n in range(5)]
    others[-1].close()
    assert wire.broker.repeats.commits.places == (3 // size - 1) * size


def test_a_long_commit_is_not_kept() -> None:
    wire, client, _ = started()
    client.create_topic("u", 600)
    asked = tuple(OffsetCommitRequestPartition(partition_index=n, committed_offset=n) for n in range(600))
    one = commit_request(0, "simple", topics=(OffsetCommitRequestTopic(name="u", partitions=asked),))
    for _ in range(3):
        assert tell(wire, client, one)
    assert kept(wire, client) is None


def test_an_empty_commit_writes_nothing() -> None:
    wire, client, member = started()
    for topics in ((), (OffsetCommitRequestTopic(name="t", partitions=()),)):
        for _ in range(4):
            assert not tell(wire, client, changed(request(1, member), topics=topics))
    assert kept(wire, client) is None


def test_a_commit_with_another_client_id_is_not_repeated() -> None:
    wire, client, member = started(3)
    frame = encode_request(request(4, member), VERSION, 1, "somebody")[4:]
    turn = wire.broker.step([Frame(client.id, frame)], wire.now)
    wire.storage.commit(turn.operations, wire.storage.acquire())
    assert wire.broker._connections[client.id].client.client_id == "somebody"
    assert committed(client) == 4
