"""`kohort groups watch` and `doctor` against Apache Kafka and against kohort."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from command_runner import Run, runner
from consumer_member import ConsumerMember
from group import until
from group_member import GroupMember
from kafka_peer import EVERYWHERE

from kohort.client.admin.groups import Committer
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

QUICK = ("--interval", "200ms", "--once")
BRIEF = ("--for", "200ms")


@pytest.fixture(scope="module")
def kohort_servers() -> Iterator[str]:
    with KohortServer(brokers=2, group_initial_rebalance_delay_ms=0) as running:
        yield running.bootstrap_servers


@pytest.fixture(params=EVERYWHERE)
def servers(request: pytest.FixtureRequest) -> str:
    place = "servers_of_kafka" if request.param == "kafka" else "kohort_servers"
    return str(request.getfixturevalue(place))


@pytest.fixture
def kohort(servers: str) -> Run:
    return runner(servers)


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


@pytest.fixture
def name(cluster: Cluster) -> str:
    """A topic of two partitions with 5 old records in partition 0, and a group that has read three."""
    name = f"watching-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2, configs={"retention.ms": "-1"})
    cluster.produce(name, 0, [NewRecord(b"k", b"%d" % n, 1_700_000_000_000 + n) for n in range(5)])
    cluster.commit(name, {(name, 0): 3, (name, 1): 0})
    return name


def test_watch(kohort: Run, cluster: Cluster, servers: str, name: str) -> None:
    member = GroupMember(servers, name, {name: (0, 1)})
    try:
        document = kohort("groups", "watch", name, *QUICK, "-o", "json")
        [row] = document["groups"]
        assert (row["state"], row["members"], row["lag"], row["rate_out"]) == ("Stable", 1, 2, 0.0)
        assert row["lag_ms_is_estimated"] in ((False,) if document["has_journal"] else (True, None))
        assert [part["owner"].split(" on ")[0] for part in row["offsets"]] == ["by-hand", "by-hand"]
        cluster.commit(f"{name}-b", {(name, 0): 5})
        table = kohort("groups", "watch", f"{name}*", *QUICK).splitlines()
        assert [line.split()[:2] for line in table[2:4]] == [[name, "2"], [f"{name}-b", "0"]]
    finally:
        member.leave()


def test_watch_a_consumer_group(kohort: Run, cluster: Cluster, servers: str, name: str) -> None:
    member = ConsumerMember(servers, f"{name}-c", str(uuid.uuid4()), name)
    try:

        def has_all() -> bool:
            member.heartbeat()
            return member.count() == 2

        until(has_all, "both partitions")
        member.heartbeat()
        cluster.commit_as(f"{name}-c", {(name, 0): 4}, Committer(member.member_id, member.epoch))
        [row] = kohort("groups", "watch", f"{name}-c", *QUICK, "-o", "json")["groups"]
        assert (row["type"], row["state"], row["members"], row["assignor"]) == ("consumer", "Stable", 1, "uniform")
        assert (row["lag"], row["partitions"]) == (1, 2)
    finally:
        member.leave()


def test_doctor(kohort: Run, servers: str, name: str) -> None:
    document = kohort("groups", "doctor", name, *BRIEF, "-o", "json", code=1)
    [finding] = document["findings"]
    assert (finding["kind"], finding["severity"]) == ("deserted", "warning")
    assert finding["text"].startswith("has no members: 2 records wait, the oldest for ")
    member = GroupMember(servers, name, {name: (0, 1), f"{name}-gone": ()})
    try:
        document = kohort("groups", "doctor", name, *BRIEF, "--severity", "info", "-o", "json", code=1)
        assert {one["kind"] for one in document["findings"]} == {"no commits", "missing topic"}
        assert bool(document["not_seen"]) == (not _has_journal(kohort, name))
    finally:
        member.leave()


def _has_journal(kohort: Run, name: str) -> bool:
    return bool(kohort("groups", "watch", name, *QUICK, "-o", "json")["has_journal"])
