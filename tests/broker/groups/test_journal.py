"""The journal through the broker: kept in its topic, over restarts and damage; asked for with DescribeGroups."""

from __future__ import annotations

import json
from typing import Any

import pytest
from group_driver import heartbeat, join, join_request, leave, stable
from wire_driver import Connection, Wire, batch, fetch_request, produce_request

from kohort.broker.journal import explanations
from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.broker.turn import Complaint, MoveGroup
from kohort.coordinator.events import Record
from kohort.storage.protocol import Append, DamagedBatch, StorageError, StoredBatch
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest

MINUTE = 60_000


def describe(client: Connection, group: str = "g", last: int = 100, version: int = 6) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=(group,), explain_last=last)
    described: DescribedGroup = client.ask(request, version).groups[0]
    return described


def stories(client: Connection, group: str = "g", last: int = 100) -> list[dict[str, Any]]:
    return [json.loads(story) for story in describe(client, group, last).stories]


def come_and_go(client: Connection, times: int = 1, group: str = "g") -> None:
    """Two stories each: a member joins, a member leaves."""
    for _ in range(times):
        leave(client, stable(client, group).member_id, group)


def in_topic(wire: Wire, client: Connection) -> dict[str, dict[str, Any]]:
    """The topic's newest record of each key, as a consumer reads it."""
    found: dict[str, dict[str, Any]] = {}
    offset = journal_partition(wire).start_offset
    while offset < journal_partition(wire).high_watermark:
        answer = client.ask(fetch_request(JOURNAL_TOPIC, offset), 11)
        for header, data in split_batches(answer.responses[0].partitions[0].records, strict=False):
            found |= {(record.key or b"").decode(): json.loads(record.value or b"") for record in decode_records(data)}
            offset = header.base_offset + header.last_offset_delta + 1
    return found


def journal_partition(wire: Wire) -> Any:
    return wire.partitions(JOURNAL_TOPIC)[0]


# -- told


def test_a_group_explains_itself(client: Connection, wire: Wire) -> None:
    joined = stable(client)
    wire.advance(20_000)
    came, went = stories(client)
    cause = came["cause"]
    assert (cause["what"], cause["client_id"], cause["host"]) == ("member joined", "client", "/127.0.0.1")
    assert (came["outcome"], came["took_ms"], came["generation_after"]) == ("Stable", 3000, 1)
    assert (went["cause"]["what"], went["cause"]["waited_ms"], went["outcome"]) == ("session expired", 10_000, "Empty")
    assert went["cause"]["member_id"] == joined.member_id
    assert [gone["member_id"] for gone in went["gone"]] == [joined.member_id]


def test_only_a_client_that_asks_gets_the_explanation(client: Connection) -> None:
    stable(client)
    plain = describe(client, last=-1)
    assert (plain.explanation, plain.stories) == (b"", ())
    for version in range(5):
        old = client.ask(DescribeGroupsRequest(groups=("g",)), version).groups[0]
        assert (old.explanation, old.stories) == (b"", ())
    told = describe(client, version=5)
    assert json.loads(told.explanation)["status"]["phase"] == "Stable"
    assert len(told.stories) == 1
    assert describe(client, last=0).stories == ()
    assert len(describe(client, last=2**31 - 1).stories) == 1
    assert describe(client, last=-(2**31)).explanation == b""
    nobody = describe(client, "nobody")
    assert (nobody.error_code, nobody.stories) == (ErrorCode.GROUP_ID_NOT_FOUND, ())
    assert json.loads(nobody.explanation).keys() == {"now_ms", "keeps_offsets"}, (
        "a group that does not exist may have stories"
    )


def test_a_client_can_ask_which_members_are_awaited(wire: Wire) -> None:
    awaited, joining = wire.connect(client_id="slow"), wire.connect(client_id="new")
    stable(awaited)
    wire.advance(1_000)
    joining.send(join_request(), 3)
    wire.advance(2_500)
    explanation = json.loads(describe(wire.connect()).explanation)
    status = explanation["status"]
    assert explanation["rebalance"]["cause"]["client_id"] == "new"
    assert (status["phase"], status["counts"]) == ("PreparingRebalance", {"awaited to join": 1, "joined": 1})
    assert status["ends_ms"] - status["now_ms"] == 30_000 - 2_500
    first = status["members"][0]
    assert (first["client_id"], first["state"], first["waited_ms"]) == ("slow", "awaited to join", 2_500)
    assert first["remaining_ms"] == first["session_remaining_ms"] == 10_000 - 3_500


def test_the_member_at_fault_is_named_to_the_operator(wire: Wire) -> None:
    awaited, joining = wire.connect(client_id="slow"), wire.connect(client_id="new")
    joined = stable(awaited)
    joining.send(join_request(), 3)
    for _ in range(4):
        wire.advance(7_000)
        heartbeat(awaited, joined)
    assert wire.complaints == []
    wire.advance(2_000)
    (complaint,) = wire.complaints
    assert complaint.kind == "rebalance held up"
    assert dict(complaint.values) == {
        "group": "g",
        "how": "it did not rejoin in time",
        "waited_ms": 30_000,
        "member_id": joined.member_id,
        "client_id": "slow",
        "host": "/127.0.0.1",
    }


def test_explanations_of_one_answer_are_bounded_together(
    client: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_and_go(client, 5)
    monkeypatch.setattr(explanations, "MAX_BYTES", 4_000)
    groups = client.ask(DescribeGroupsRequest(groups=("g",) * 20, explain_last=100), 6).groups
    assert len(groups[0].stories) > 1
    assert json.loads(groups[0].stories[-1])["number"] == 10, "the newest ones"
    assert sum(len(data) for group in groups for data in (group.explanation, *group.stories)) < 5_000
    assert (groups[-1].group_state, groups[-1].stories) == ("Empty", ())


def test_another_coordinator_is_asked() -> None:
    cluster = Wire(brokers=2)
    clients = {node: cluster.connect(node) for node in (1, 2)}
    here = cluster.coordinator("g")
    stable(clients[here])
    other = describe(clients[3 - here])
    assert (other.error_code, other.explanation, other.stories) == (ErrorCode.NOT_COORDINATOR, b"", ())
    clients[here].send(join_request(), 3)
    cluster.step(MoveGroup("g", 3 - here))
    assert [story["outcome"] for story in stories(clients[3 - here])] == ["Stable", "interrupted"]
    assert json.loads(describe(clients[3 - here]).explanation)["loaded_ms"] == cluster.now


# -- kept


def test_stories_survive_a_restart(client: Connection, wire: Wire) -> None:
    come_and_go(client, 3)
    before = stories(client)
    assert [story["number"] for story in before] == [1, 2, 3, 4, 5, 6]
    again = wire.restarted()
    assert stories(again.connect()) == before
    come_and_go(again.connect())
    assert [story["number"] for story in stories(again.connect())][-2:] == [7, 8]


def test_a_rebalance_that_a_crash_cut_off_is_interrupted(client: Connection, wire: Wire) -> None:
    join(client)
    assert in_topic(wire, client)["g#1"].get("outcome") is None
    again = wire.restarted()
    (story,) = stories(again.connect())
    assert story["outcome"] == "interrupted"
    assert in_topic(again, again.connect())["g#1"]["outcome"] == "interrupted"


def test_clients_read_the_topic_as_json_bounded_by_slots_and_do_not_write_it() -> None:
    wire = Wire(journal_max_stories_per_group=4)
    client = wire.connect()
    come_and_go(client, 5)
    refused = client.produced(produce_request(JOURNAL_TOPIC, batch("x")))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    found = in_topic(wire, client)
    assert sorted(found) == ["g#0", "g#1", "g#2", "g#3"]
    assert sorted(story["number"] for story in found.values()) == [7, 8, 9, 10]
    assert stories(client) == sorted(found.values(), key=lambda story: story["number"])
    assert stories(wire.restarted(journal_max_stories_per_group=4).connect()) == stories(client)


def test_the_topic_is_compacted_and_ages() -> None:
    wire = Wire(journal_retention_ms=30 * MINUTE, journal_max_stories_per_group=2, group_initial_rebalance_delay_ms=0)
    client = wire.connect()
    come_and_go(client, 40)
    before = stories(client)
    wire.advance(MINUTE)
    assert journal_partition(wire).size < 8_000, "some records of 200 that were written"
    assert stories(wire.restarted(journal_max_stories_per_group=2).connect()) == before
    wire.advance(60 * MINUTE)
    assert journal_partition(wire).size == 0
    assert stories(wire.restarted().connect()) == []


def test_a_restart_reads_no_more_than_the_journal_may_hold() -> None:
    wire = Wire(journal_max_bytes=65_536, group_initial_rebalance_delay_ms=0)
    client = wire.connect()
    for index in range(120):
        come_and_go(client, group=f"g{index}")
    again = wire.restarted(journal_max_bytes=65_536)
    assert again.broker.state.journal._bytes <= 65_536
    assert stories(again.connect(), "g119") != []
    assert stories(again.connect(), "g0") == []


def test_without_the_topic_there_is_memory() -> None:
    bare = Wire(journal_enable=False)
    client = bare.connect()
    come_and_go(client)
    assert JOURNAL_TOPIC not in bare.broker.state.catalog.topics
    topic = CreatableTopic(name=JOURNAL_TOPIC, num_partitions=1, replication_factor=1)
    assert client.ask(CreateTopicsRequest(topics=(topic,)), 7).topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert len(stories(client)) == 2
    later = bare.restarted(journal_enable=True)
    assert JOURNAL_TOPIC not in later.broker.state.catalog.topics, "created when there is something to write"
    come_and_go(later.connect())
    assert len(stories(later.restarted().connect())) == 2


# -- damaged


def test_records_that_are_no_stories_are_skipped(client: Connection, wire: Wire) -> None:
    come_and_go(client)
    before = stories(client)
    junk = [b"", b"{}", b"[1]", b"\xff\xfe", b'{"group": 7, "number": 1}', b'{"group": "g"']
    records = [Record(f"junk{index}".encode(), value) for index, value in enumerate(junk)]
    wire.broker.state.turn.append_records(journal_partition(wire), records)
    wire.step()
    again = wire.restarted()
    assert stories(again.connect()) == before
    (complaint,) = again.complaints
    assert complaint == Complaint("damaged data", f"{JOURNAL_TOPIC}: 6 records that are not stories were skipped")


def test_a_batch_that_is_no_batch_is_skipped(client: Connection, wire: Wire) -> None:
    come_and_go(client)
    partition = journal_partition(wire)
    bad = StoredBatch(partition.end_offset, partition.end_offset, wire.now, b"\x00" * 80, -1, 0)
    wire.storage.commit([Append(partition.log, (bad,))], wire.storage.acquire())
    broken = Wire(wire.storage, now=wire.now)
    assert len(stories(broken.connect())) == 2
    come_and_go(broken.connect())
    assert len(stories(broken.connect())) == 4
    assert [complaint.kind for complaint in broken.complaints] == ["damaged data"]


def test_a_batch_that_storage_does_not_hand_out_is_skipped(
    client: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_and_go(client, 2)
    log, read = journal_partition(wire).log, wire.storage.read
    before = stories(client)
    for bad in list(wire.storage.batches(log)):

        def damaged(asked: Any, offset: int, max_bytes: int, bad: int = bad.base_offset) -> Any:
            found = read(asked, offset, max_bytes)
            if asked == log and any(each.base_offset == bad for each in found):
                raise DamagedBatch("it fails its checksum")
            return found

        monkeypatch.setattr(wire.storage, "read", damaged)
        again = Wire(wire.storage, now=wire.now)
        assert [complaint.what for complaint in again.complaints] == [
            f"{JOURNAL_TOPIC}-0: the batch at offset {bad.base_offset} is skipped: it fails its checksum"
        ]
        found = stories(again.connect())
        assert len(found) >= 3
        assert [story for story in found if story in before] == [story for story in before if story in found]


def test_a_log_that_cannot_be_read_at_all_stops_no_start(
    client: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    come_and_go(client)
    log, batches = journal_partition(wire).log, wire.storage.batches

    def damaged(asked: Any, offset: int = 0) -> Any:
        if asked == log:
            raise StorageError("a row does not match its checksum")
        return batches(asked, offset)

    monkeypatch.setattr(wire.storage, "batches", damaged)
    again = wire.restarted()
    assert [complaint.kind for complaint in again.complaints] == ["damaged data"]
    assert stories(again.connect()) == []
    come_and_go(again.connect())
    assert len(stories(again.connect())) == 2


def test_a_journal_that_lost_its_stories_goes_on(client: Connection, wire: Wire) -> None:
    """If the topic is lost, the earlier stories are lost. The group's own record has the owners."""
    client.create_topic("t")
    joined = stable(client)
    wire.broker.state.journal.__init__(wire.config)  # type: ignore[misc]
    leave(client, joined.member_id, reason="closing")
    (story,) = stories(client)
    assert (story["cause"]["cause"], story["outcome"]) == ("closing", "Empty")
