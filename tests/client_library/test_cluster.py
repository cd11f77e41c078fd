"""Every call of `Cluster` against a server of three brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_member import GroupMember

from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.client.metadata import TopicPartition
from kohort.client.records import next_position, records
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode


def write(cluster: Cluster, topic: str, partition: int, *values: bytes, timestamp: int = 1_000) -> int:
    new = [NewRecord(None, value, timestamp + index) for index, value in enumerate(values)]
    return cluster.produce(topic, partition, new)


def read_all(cluster: Cluster, positions: dict[TopicPartition, int]) -> dict[TopicPartition, list[bytes | None]]:
    """Reads all records up to the present ends, and moves the positions."""
    ends = cluster.offsets(positions, "latest")
    found: dict[TopicPartition, list[bytes | None]] = {partition: [] for partition in positions}
    while any(positions[partition] < ends[partition] for partition in positions):
        for part in cluster.fetch(positions, max_wait_ms=100):
            key = (part.topic, part.partition)
            assert part.error == ErrorCode.NONE
            found[key] += [record.value for record in records(part, positions[key])]
            positions[key] = next_position(part, positions[key])
    return found


def test_brokers(cluster: Cluster, three_brokers: KohortServer) -> None:
    nodes = cluster.nodes()
    assert len(nodes) == 3
    assert {node.address for node in nodes.values()} == set(three_brokers.bootstrap_servers.split(","))
    assert cluster.cluster_id()
    assert cluster.controller_id() in nodes


def test_topics_are_created_described_and_deleted(cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique, partitions=4, replication_factor=3, configs={"retention.ms": "1000"})
    topic = cluster.topics([unique])[unique]
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
    assert topic.replication_factor == 3
    assert topic.topic_id is not None
    assert {partition.leader for partition in topic.partitions} <= set(cluster.nodes())
    assert unique in cluster.topics()
    settings = {entry.name: entry for entry in cluster.describe_configs([unique])[unique]}
    assert settings["retention.ms"].value == "1000"
    assert settings["retention.ms"].set_on_topic
    assert not settings["cleanup.policy"].set_on_topic
    with pytest.raises(ServerError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(unique)
    cluster.delete_topic(unique)
    assert cluster.topics([unique])[unique].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unique not in cluster.topics()


def test_groups_have_settings(cluster: Cluster, unique: str) -> None:
    name, other = "consumer.session.timeout.ms", "consumer.assignor"
    cluster.alter_group_configs(unique, {name: "50000", other: "range"})
    cluster.alter_group_configs(unique, {other: None})
    cluster.alter_group_configs(unique, {})
    found = cluster.group_configs([unique, "another", unique])
    assert list(found) == [unique, "another"]
    assert {entry.name: entry.value for entry in found[unique] if entry.set_on_group} == {name: "50000"}
    assert not any(entry.set_on_group for entry in found["another"])
    assert [entry.name for entry in found[unique]] == sorted(entry.name for entry in found[unique])
    with pytest.raises(ServerError, match="INVALID_CONFIG") as caught:
        cluster.alter_group_configs(unique, {other: "uniform", name: "1"})
    assert f"cannot change the settings of group {unique}" in caught.value.message
    assert not any(entry.set_on_group for entry in cluster.group_configs([unique])[unique] if entry.name == other)
    with pytest.raises(ServerError, match="INVALID_REQUEST"):
        cluster.group_configs([""])


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"), [(0, 1, "INVALID_PARTITIONS"), (1, 4, "INVALID_REPLICATION_FACTOR")]
)
def test_impossible_topics_are_refused(
    cluster: Cluster, unique: str, partitions: int, replicas: int, code: str
) -> None:
    with pytest.raises(ServerError, match=code):
        cluster.create_topic(unique, partitions, replicas)


def test_records_come_back_in_order_from_every_leader(cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique)
    assert len(cluster.topics([unique])[unique].partitions) == 6, "the brokers' default"
    for partition in range(6):
        assert write(cluster, unique, partition, b"a%d" % partition, b"b") == 0
        assert write(cluster, unique, partition, b"c") == 2
    assert len({partition.leader for partition in cluster.topics([unique])[unique].partitions}) == 3
    positions = cluster.offsets([(unique, partition) for partition in range(6)], "earliest")
    found = read_all(cluster, positions)
    assert found == {(unique, partition): [b"a%d" % partition, b"b", b"c"] for partition in range(6)}
    assert set(positions.values()) == {3}


def test_a_fetch_with_nothing_to_read_and_outside_of_the_log(cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique, partitions=6)
    fetched = cluster.fetch({(unique, partition): 0 for partition in range(6)}, max_wait_ms=20)
    assert sorted(part.partition for part in fetched) == list(range(6))
    assert all(part.records == b"" and part.high_watermark == 0 for part in fetched)
    assert cluster.fetch({}) == []
    write(cluster, unique, 0, b"a")
    (part,) = cluster.fetch({(unique, 0): 99}, max_wait_ms=20)
    assert part.error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_in_two_halves(cluster: Cluster, three_brokers: KohortServer, unique: str) -> None:
    cluster.create_topic(unique, 2)
    write(cluster, unique, 0, b"a", b"b")
    write(cluster, unique, 1, b"c")

    def values(positions: dict[TopicPartition, int]) -> list[bytes | None]:
        answer = cluster.fetch_ahead(positions, max_wait_ms=0)
        return [record.value for fetched in answer() for record in records(fetched, positions[unique, 0])]

    assert values({(unique, 0): 0}) == [b"a", b"b"]
    assert values({(unique, 0): 1}) == [b"b"]
    [outside] = cluster.fetch_ahead({(unique, 0): 7}, max_wait_ms=0)()
    assert outside.error == ErrorCode.OFFSET_OUT_OF_RANGE
    # Two leaders: the second half does it all, and may be called when it suits.
    waiting = cluster.fetch_ahead({(unique, 0): 0, (unique, 1): 0}, max_wait_ms=0)
    assert len(waiting()) == 2
    # A leader that has moved since it was asked about, one that goes between the halves, a client that is closed there.
    place, leader = (unique, 0), cluster.topics([unique])[unique].partitions[0].leader
    for broker in (leader % 3 + 1, leader):
        three_brokers.move_partition(unique, 0, broker)
        assert values({place: 1}) == [b"b"]
    for wait_ms in (0, 60_000):
        answer = cluster.fetch_ahead({place: 2 if wait_ms else 0}, max_wait_ms=wait_ms)
        three_brokers.stop_broker(leader)
        three_brokers.start_broker(leader)
        if wait_ms:
            with Cluster(three_brokers.bootstrap_servers) as other:
                write(other, unique, 0, b"late")
        assert answer()[0].records
    answer = cluster.fetch_ahead({place: 0})
    cluster.close()
    assert answer()[0].records


def test_offsets_by_time(cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique, partitions=2, configs={"retention.ms": "-1"})
    write(cluster, unique, 0, b"a", b"b", b"c", timestamp=10_000)
    first, second = (unique, 0), (unique, 1)
    assert cluster.offsets([first], 10_001) == {first: 1}
    assert cluster.offsets([first], 10_003) == {first: -1}
    assert cluster.offsets([first], "max-timestamp") == {first: 2}
    assert cluster.offsets([first, second], {first: 0, second: "latest"}) == {first: 0, second: 0}
    assert cluster.offsets([]) == {}


def test_without_acknowledgement_records_still_arrive(cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique, partitions=1)
    new = [NewRecord(b"k", b"v", 1_000)]
    assert cluster.produce(unique, 0, new, acks=0) == -1
    assert cluster.produce(unique, 0, new, acks=1) == 1


def test_moved_partitions_and_a_broker_that_comes_back(
    cluster: Cluster, three_brokers: KohortServer, unique: str
) -> None:
    cluster.create_topic(unique, partitions=3)
    for partition in range(3):
        write(cluster, unique, partition, b"before")
    for broker in cluster.nodes():
        three_brokers.move_partition(unique, 0, broker)
        write(cluster, unique, 0, b"moved")
    three_brokers.stop_broker(2)
    three_brokers.start_broker(2)
    for partition in range(3):
        write(cluster, unique, partition, b"after")
    found = read_all(cluster, {(unique, partition): 0 for partition in range(3)})
    assert found[unique, 0] == [b"before", b"moved", b"moved", b"moved", b"after"]
    assert found[unique, 1] == found[unique, 2] == [b"before", b"after"]


def test_offsets_are_committed_from_outside_and_follow_the_group(
    cluster: Cluster, three_brokers: KohortServer, unique: str
) -> None:
    cluster.create_topic(unique, partitions=2)
    assert cluster.committed(unique) == {}
    cluster.commit(unique, {(unique, 0): 5, (unique, 1): Committed(7, 3, "note")})
    expected = {(unique, 0): Committed(5, -1, ""), (unique, 1): Committed(7, 3, "note")}
    assert cluster.committed(unique) == expected
    for broker in cluster.nodes():
        three_brokers.move_group(unique, broker)
        assert cluster.committed(unique, [(unique, 1), (unique, 0)]) == expected
    cluster.commit(unique, {})


def test_how_far_groups_are_behind(cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique, partitions=3, configs={"retention.ms": "-1"})
    write(cluster, unique, 0, b"a", b"b", b"c")
    write(cluster, unique, 2, b"d")
    cluster.commit(unique, {(unique, 0): 1, (unique, 1): 0})
    cluster.commit(f"{unique}.b", {(unique, 0): 9})
    first, second, none = cluster.group_lags([unique, f"{unique}.b", f"{unique}.c"], also=[(unique, 2)]).values()
    assert [(index, one.end, one.stable_end, one.lag) for (_, index), one in first.partitions.items()] == [
        (0, 3, 3, 2),
        (1, 0, 0, 0),
        (2, 1, None, None),
    ]
    ages = [one.lag_ms for one in first.partitions.values()]
    assert ages[0] is not None
    assert ages[0] > 0
    assert ages[1:] == [0, None]
    assert (first.total, first.worst_ms) == (2, ages[0])
    assert first.as_of_ms is not None
    assert (second.total, second.worst_ms) == (0, 0), "an offset beyond the end"
    assert (none.total, none.worst_ms, len(none.partitions)) == (None, None, 1)


def test_how_far_groups_are_behind_a_server_that_does_not_tell(unique: str) -> None:
    with KohortServer(compatibility="kafka") as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic(unique, partitions=2)
        cluster.create_topic(f"{unique}.other")
        write(cluster, unique, 0, b"a", b"b")
        cluster.commit(unique, {(unique, 0): 1, (f"{unique}.other", 0): 0})
        cluster.commit(f"{unique}.b", {(unique, 0): 5})
        first, second = cluster.group_lags([unique, f"{unique}.b"], also=[(unique, 1)]).values()
        assert first.as_of_ms is None
        assert {place: (one.end, one.lag, one.stable_end, one.lag_ms) for place, one in first.partitions.items()} == {
            (unique, 0): (2, 1, None, None),
            (unique, 1): (0, None, None, None),
            (f"{unique}.other", 0): (0, 0, None, None),
        }
        assert (first.total, second.total) == (1, 0)


def test_a_group_is_listed_described_and_deleted(cluster: Cluster, three_brokers: KohortServer, unique: str) -> None:
    cluster.create_topic(unique, partitions=3)
    member = GroupMember(three_brokers.bootstrap_servers, unique, {unique: (0, 2)})
    listed = {group.group_id: group for group in cluster.list_groups()}
    assert listed[unique].state == "Stable"
    assert [group.group_id for group in cluster.list_groups(states=["stable"]) if group.group_id == unique] == [unique]
    assert unique not in [group.group_id for group in cluster.list_groups(states=["Empty"])]
    described = cluster.describe_groups([unique])[unique]
    assert (described.state, described.protocol) == ("Stable", "range")
    assert described.coordinator == listed[unique].coordinator
    (seen,) = described.members
    assert (seen.member_id, seen.client_id) == (member.member_id, "by-hand")
    assert seen.assigned == {unique: (0, 2)}
    assert seen.subscribed == (unique,)
    with pytest.raises(ServerError, match="only they may commit"):
        cluster.commit(unique, {(unique, 0): 1})
    with pytest.raises(ServerError, match="NON_EMPTY_GROUP"):
        cluster.delete_group(unique)
    member.leave()
    assert cluster.describe_groups([unique])[unique].state == "Empty"
    cluster.delete_group(unique)
    assert cluster.describe_groups([unique])[unique].state == "Dead"
    with pytest.raises(ServerError, match="GROUP_ID_NOT_FOUND"):
        cluster.delete_group(unique)


def test_stories_of_a_group_survive_a_restart_of_the_server(tmp_path: Path, unique: str) -> None:
    with KohortServer(data_dir=tmp_path, group_initial_rebalance_delay_ms=0) as server:
        member = GroupMember(server.bootstrap_servers, unique, {unique: (0, 1)})
        with Cluster(server.bootstrap_servers) as cluster:
            before = cluster.explain_group(unique)
            assert [story["outcome"] for story in before.stories] == ["Stable"]
            assert before.status is not None
            server.restart()
            after = cluster.explain_group(unique)
            assert after.stories == before.stories
            assert after.loaded_ms is not None
            assert (after.group.state, after.status and after.status["generation"]) == ("Stable", 1)
            assert cluster.explain_group(unique, last=0).stories == ()
        member.connection.close()
