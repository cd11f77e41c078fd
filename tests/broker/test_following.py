"""Topics of another cluster in the catalog, as a gateway hands them over."""

from __future__ import annotations

import pytest
from wire_driver import Wire

from kohort.broker.backups.numbers import write_numbers
from kohort.broker.backups.raising import raise_numbers
from kohort.broker.turn import FollowedTopic, UpstreamSeen
from kohort.broker.upstream.following import id_of_name
from kohort.storage.slots import SLOTS, Numbers
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.metadata_records import UpstreamApi, UpstreamBroker, UpstreamValue
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

ID, OTHER_ID = b"1" * 16, b"2" * 16


def upstream(*racks: str) -> UpstreamValue:
    brokers = tuple(
        UpstreamBroker(id=7 + n, host="h", port=9000 + n, rack=rack, slot=n) for n, rack in enumerate(racks)
    )
    return UpstreamValue(cluster_id="c", brokers=brokers, apis=(UpstreamApi(key=18, first=0, last=4),))


def followed(partitions: int, topic_id: bytes = ID, *, name: str = "t") -> FollowedTopic:
    return FollowedTopic(name, topic_id, tuple((7 + index % 2, 8) for index in range(partitions)))


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.step(UpstreamSeen(cluster=upstream("a", "b"), topics=(followed(3),)))
    return wire


def commit(wire: Wire, partition: int, offset: int = 5, topic: str = "t") -> int:
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    asked = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=(OffsetCommitRequestTopic(name=topic, partitions=(row,)),),
    )  # fmt: skip
    error: int = wire.connect().ask(asked, 8).topics[0].partitions[0].error_code
    return error


def committed(wire: Wire) -> dict[tuple[str, int], int]:
    return {place: value.offset for place, value in wire.shard("g").hard.offsets.get("g", {}).items()}


def test_commits_find_the_topic_also_after_a_restart(wire: Wire) -> None:
    assert (commit(wire, 2), commit(wire, 3)) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    again = wire.restarted()
    assert again.broker.state.catalog.topics == wire.broker.state.catalog.topics
    assert again.broker.state.catalog.upstream == upstream("a", "b")
    assert commit(again, 1) == ErrorCode.NONE
    assert committed(again) == {("t", 1): 5, ("t", 2): 5}
    answer = again.connect().ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    assert [api.api_key for api in answer.api_keys] == [18], "clients are told what they were told before"


@pytest.mark.parametrize("is_restore", [True, False])
def test_it_stays_what_it_is_when_numbers_are_raised(wire: Wire, is_restore: bool) -> None:
    """By a restore, or by a migration from nodes that serve at once. Another cluster gives its epochs."""
    state = wire.restarted().broker.state
    if is_restore:
        turn, _ = raise_numbers(state, state.now)
    else:
        turn = write_numbers(state, Numbers((9,) * SLOTS, 5_000), state.now)
    wire.storage.commit(turn.operations, wire.storage.acquire())
    again = wire.restarted().broker.state.catalog
    assert again.topics["t"] == wire.broker.state.catalog.topics["t"]
    assert min(each.leader_epoch for each in again.topics["__consumer_offsets"].partitions) >= 10
    assert again.next_producer_id >= 5_000


def test_it_has_no_logs_and_no_leader_here(wire: Wire) -> None:
    logs = {info.key.topic_id for info in wire.storage.logs()}
    assert ID not in logs
    wire.advance(600_000)  # retention and compaction have looked
    again = wire.restarted()
    assert [part.leader for part in again.broker.state.catalog.topics["t"].partitions] == [7, 8, 7]


def test_a_topic_grows_and_shrinks_never(wire: Wire) -> None:
    wire.step(UpstreamSeen(topics=(followed(5),)))
    wire.step(UpstreamSeen(topics=(followed(4),)))
    assert commit(wire, 4) == ErrorCode.NONE


@pytest.mark.parametrize("event", [UpstreamSeen(gone=("t",)), UpstreamSeen(topics=(followed(3, OTHER_ID),))])
def test_offsets_go_with_their_topic(wire: Wire, event: UpstreamSeen) -> None:
    commit(wire, 0)
    wire.step(event)
    assert committed(wire) == committed(wire.restarted()) == {}
    assert commit(wire, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if event.gone else ErrorCode.NONE)


def test_offsets_stay_when_a_topic_gets_its_id(wire: Wire) -> None:
    """A client's Metadata without ids may name a topic first, and a cluster without ids may be upgraded."""
    wire.step(UpstreamSeen(topics=(followed(3, id_of_name("u"), name="u"),)))
    assert commit(wire, 2, topic="u") == ErrorCode.NONE
    wire.step(UpstreamSeen(topics=(followed(3, OTHER_ID, name="u"),)))
    assert committed(wire) == {("u", 2): 5}
    again = wire.restarted()
    assert committed(again) == {("u", 2): 5}
    assert again.broker.state.catalog.topics["u"].topic_id == OTHER_ID
    assert commit(again, 1, topic="u") == ErrorCode.NONE
    again.step(UpstreamSeen(topics=(followed(3, b"3" * 16, name="u"),)))
    assert committed(again) == {}, "another id is another topic"


def test_racks_are_those_of_the_cluster(wire: Wire) -> None:
    def racks() -> frozenset[str]:
        return wire.broker.state.shards[0].consumers.topics.by_name["t"].racks[0]

    assert racks() == {"a", "b"}
    wire.step(UpstreamSeen(cluster=upstream("a", "c")))
    assert racks() == {"a", "c"}


def test_the_brokers_own_topics_stay(wire: Wire) -> None:
    before = wire.broker.state.catalog.topics["__consumer_offsets"]
    wire.step(UpstreamSeen(topics=(followed(3, name="__consumer_offsets"),), gone=("__consumer_offsets",)))
    assert wire.broker.state.catalog.topics["__consumer_offsets"] is before


def test_ends_are_those_of_the_last_look(wire: Wire) -> None:
    wire.step(UpstreamSeen(ends=((ID, 1, 40), (ID, 9, 1), (OTHER_ID, 0, 1))))
    assert [partition.end_offset for partition in wire.partitions("t")] == [0, 40, 0]
