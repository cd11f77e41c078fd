"""What is destroyed of committed offsets is in the journal: from, to, and who did it; steady commits do not fill it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from group_driver import commit, commit_request, consumer_beat, consumer_join, join, leave, stable
from wire_driver import Connection, Wire, with_topic

from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.coordinator.journal import journal, story
from kohort.coordinator.offsets import changes, offsets
from kohort.wire.batches import decode_records
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

PARTITIONS = 30
HOUR = 3_600_000


def stories(client: Connection, group: str = "g") -> list[dict[str, Any]]:
    [described] = client.ask(DescribeGroupsRequest(groups=(group,), explain_last=100), 6).groups
    return [json.loads(one) for one in described.stories]


def records_of(wire: Wire) -> list[bytes]:
    """All records of the journal's topic."""
    storage, partition = wire.broker.state.storage, wire.partitions(JOURNAL_TOPIC)[0]
    batches = storage.read(partition.log, 0, 1 << 30)
    return [record.value or b"" for batch in batches for record in decode_records(batch.data)]


def changed(client: Connection, group: str = "g") -> list[tuple[str, str, list[Any], bool]]:
    """Of each story of changed offsets: what, by which client, the rows of topic `t`, and whether it goes on."""
    return [
        (one["cause"]["what"], one["cause"].get("client_id", ""), one["changed"]["t"], one.get("goes_on", False))
        for one in stories(client, group)
        if one.get("changed")
    ]


def commit_all(client: Connection, offset: int, indexes: range = range(PARTITIONS)) -> None:
    rows = tuple(OffsetCommitRequestPartition(partition_index=index, committed_offset=offset) for index in indexes)
    topics = (OffsetCommitRequestTopic(name="t", partitions=rows),)
    response = client.ask(commit_request(0, topics=topics), 7)
    assert {row.error_code for topic in response.topics for row in topic.partitions} == {0}


def delete_request(indexes: range) -> OffsetDeleteRequest:
    rows = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in indexes)
    return OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name="t", partitions=rows),))


# -- commits


def test_a_commit_from_outside_is_kept_with_its_client(client: Connection, wire: Wire) -> None:
    commit(client, 500)
    operator = wire.connect(client_id="operator")
    commit(operator, 0)
    commit(operator, 3, partition=1)
    assert changed(client) == [
        ("offsets changed", "client", [[0, -1, 500]], False),
        ("offsets changed", "operator", [[0, 500, 0], [1, -1, 3]], False),
    ]
    assert changed(wire.restarted().connect()) == changed(client), "over a restart"


def test_commits_of_members_are_not_kept(client: Connection) -> None:
    joined = stable(client)
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    for offset in (1, 2, 3):
        assert commit(client, offset, **member) == 0
    assert changed(client) == []
    assert commit(client, 9) == 25, "from outside, into a live group"
    assert changed(client) == []
    leave(client, joined.member_id)
    commit(client, 1)
    assert changed(client) == [("offsets changed", "client", [[0, 3, 1]], False)]


def test_steady_commits_of_a_simple_consumer_are_one_story(client: Connection, wire: Wire) -> None:
    commit(client, 100)
    for offset in range(101, 200):
        wire.advance(1_000)
        commit(client, offset)
    assert changed(client) == [("offsets changed", "client", [[0, -1, 100]], True)]
    assert len(records_of(wire)) == 2, "one when it begins, one when it goes on"
    commit(wire.connect(client_id="operator"), 5)
    wire.advance(1_000)
    commit(client, 6)
    assert [(who, rows) for _, who, rows, _ in changed(client)][1:] == [("operator", [[0, 199, 5]])], (
        "what the steady consumer commits over the reset goes on"
    )


def test_a_steady_consumer_that_connects_anew_each_time(wire: Wire, client: Connection) -> None:
    """Two stories, as of an operator; the third goes on."""
    for offset in range(1, 20):
        wire.advance(600_000)
        commit(wire.connect(client_id="spark"), offset)
    found = changed(client)
    assert [rows for _, _, rows, _ in found] == [[[0, -1, 1]], [[0, 1, 2]], [[0, 2, 3]]]
    assert found[-1][-1]


def test_an_operator_that_resets_twice_has_two_stories(client: Connection, wire: Wire) -> None:
    commit(client, 500)
    commit(wire.connect(client_id="operator"), 0)
    commit(wire.connect(client_id="operator"), 400)
    assert [rows for _, _, rows, _ in changed(client)] == [[[0, -1, 500]], [[0, 500, 0]], [[0, 0, 400]]]


def test_going_back_and_a_long_silence_begin_a_new_story(client: Connection, wire: Wire) -> None:
    commit(client, 100)
    commit(client, 90)
    assert [rows for _, _, rows, _ in changed(client)] == [[[0, -1, 100]]], "a reset may be several requests"
    wire.advance(changes.YOUNG_MS)
    commit(client, 50)
    commit(client, 51)
    assert changed(client)[1:] == [("offsets changed", "client", [[0, 90, 50]], True)]
    wire.advance(changes.YOUNG_MS)
    commit(client, 20)
    for offset in (52, 53):
        commit(wire.connect(), offset)
    assert changed(client)[2:] == [
        ("offsets changed", "client", [[0, 51, 20]], False),
        ("offsets changed", "client", [[0, 20, 52]], False),
        ("offsets changed", "client", [[0, 52, 53]], False),
    ], "each connection may be an operator's"
    wire.advance(HOUR + 1)
    commit(wire.connect(), 54)
    commit(wire.connect(), 55)
    assert [rows for _, _, rows, _ in changed(client)][5:] == [[[0, 53, 54]], [[0, 54, 55]]]


def test_two_simple_consumers_that_share_a_group(wire: Wire, client: Connection) -> None:
    """Each has its partition, and they commit in turn. Two that fight for one are bounded."""
    others = [wire.connect(client_id=name) for name in ("a", "b")]
    for offset in range(1, 30):
        wire.advance(1_000)
        for partition, other in enumerate(others):
            commit(other, offset, partition=partition)
    assert changed(client) == [
        ("offsets changed", "a", [[0, -1, 1]], True),
        ("offsets changed", "b", [[1, -1, 1]], True),
    ]
    for offset in range(30, 30 + 4 * changes.MOST_RETURNS):
        wire.advance(changes.YOUNG_MS)
        commit(others[0], offset, partition=0)
        commit(others[1], 0, partition=0)
    assert len(changed(client)) < 2 * changes.MOST_RETURNS + 10


def test_limits_of_what_is_remembered(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them, only what goes back is kept: never a story for each commit."""
    monkeypatch.setattr(changes, "MOST_IN_ALL", 5)
    monkeypatch.setattr(changes, "MOST_CLIENTS", 2)
    wire = client.wire
    commit_all(client, 1, range(5))
    for offset in range(1, 6):
        commit(wire.connect(client_id="late"), offset, partition=9)
    assert len(changed(client)) == 1
    commit(wire.connect(client_id="late"), 2, partition=9)
    assert changed(client)[1:] == [("offsets changed", "late", [[9, 5, 2]], False)]
    wire.advance(HOUR + 1)
    commit(wire.connect(client_id="late"), 3, partition=9)
    assert changed(client)[2:] == [("offsets changed", "late", [[9, 2, 3]], False)], "ended runs make room"
    for offset, name in enumerate("abc"):
        commit(wire.connect(client_id=name), offset, partition=8)
    assert [who for _, who, _, _ in changed(client)][3:] == ["a"]


def test_members_in_between_begin_a_new_story(client: Connection) -> None:
    commit(client, 100)
    joined = join(client)
    leave(client, joined.member_id)
    commit(client, 101)
    assert [rows for _, _, rows, _ in changed(client)] == [[[0, -1, 100]], [[0, 100, 101]]]


def test_an_empty_consumer_group(client: Connection) -> None:
    client.ask(consumer_join("m"), 0)
    client.ask(consumer_beat("m", -1), 0)
    commit(client, 5, 9)
    assert changed(client) == [("offsets changed", "client", [[0, -1, 5]], False)]


def test_a_commit_that_changes_nothing_is_none(client: Connection) -> None:
    commit(client, 100)
    for _ in range(3):
        commit(client, 100)
    assert changed(client) == [("offsets changed", "client", [[0, -1, 100]], False)]


def test_a_large_commit_is_several_stories(client: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_CHANGES", 20)
    commit_all(client, 1, range(20))
    commit_all(client, 1, range(20, 30))
    assert [len(rows) for _, _, rows, _ in changed(client)] == [20, 10]
    assert story.MOST_CHANGES == 1_000


# -- deletions and expiry


def test_deleted_offsets_are_kept(client: Connection) -> None:
    commit_all(client, 7)
    response = client.ask(delete_request(range(2)), 0)
    assert response.error_code == 0
    assert changed(client)[1:] == [("offsets deleted", "client", [[0, 7, -1], [1, 7, -1]], False)]
    client.ask(delete_request(range(2)), 0)
    assert len(changed(client)) == 2, "there was nothing to delete"


def test_a_group_that_is_deleted_in_pieces_leaves_all_its_offsets(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "DELETED", 8)
    monkeypatch.setattr("kohort.broker.handlers.groups.DELETED", 8)
    commit_all(client, 7)
    response = client.ask(DeleteGroupsRequest(groups_names=("g",)), 2)
    assert response.results[0].error_code == 0
    assert changed(client)[1:] == [
        ("offsets deleted", "client", [[index, 7, -1] for index in range(PARTITIONS)], False)
    ]


def test_expired_offsets_are_kept() -> None:
    client = with_topic(3, offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    commit_all(client, 7, range(3))
    client.wire.advance(62_000)
    assert changed(client)[1:] == [("offsets deleted", "", [[0, 7, -1], [1, 7, -1], [2, 7, -1]], False)]


def test_strict_servers_keep_nothing() -> None:
    wire = Wire(compatibility="kafka")
    client = wire.connect()
    client.create_topic("t", 1)
    commit(client, 7)
    commit(client, 3)
    assert all(b"changed" not in one for one in wire.broker.state.journal.stories("g", 100))
