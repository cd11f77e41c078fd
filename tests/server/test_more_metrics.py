"""/metrics of a running server: times and errors of requests, bytes out, quotas, chosen groups, kminion's series."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_client import OPEN_METRICS, Numbers, numbers, of, value

from kohort.broker.metrics.families import FAMILIES
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.testing import KohortServer, ManualClock
from kohort.wire.batches import NewRecord

LISTENER = "127.0.0.1:0"


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer(http_listener=LISTENER, clock=ManualClock()) as running:
        yield running


def labels_of(found: Numbers, name: str, label: str) -> set[str]:
    return {dict(labels).get(label, "") for labels in of(found, name)}


def test_times_and_errors_of_requests(server: KohortServer) -> None:
    server.create_topic("orders", 1)
    with Cluster(server.bootstrap_servers) as cluster, pytest.raises(ServerError):
        cluster.create_topic("orders", 1)
    for _ in range(3):
        server.produce("orders", "a")
    for accept in ("", OPEN_METRICS):
        found = numbers(server.http_address, accept)
        exists = {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
        assert value(found, "kafka_network_requestmetrics_errors_total", **exists) == 1
        name = "kafka_network_requestmetrics_totaltimems"
        assert value(found, f"{name}_count", request="Produce") == 3
        assert "Produce" in labels_of(found, name, "request")
        assert labels_of(found, name, "quantile") == {"0.5", "0.75", "0.95", "0.98", "0.99", "0.999"}
        for phase in ("requestqueue", "local", "remote", "responsesend"):
            part = value(found, f"kafka_network_requestmetrics_{phase}timems", request="Produce", quantile="0.999")
            total = value(found, name, request="Produce", quantile="0.999")
            assert part is not None
            assert total is not None
            assert 0 <= part <= total
        assert value(found, "kohort_request_seconds_count", api="Produce") == 3
        assert value(found, "kohort_request_seconds_bucket", api="Produce", le="+Inf") == 3


def test_bytes_out_of_topics(server: KohortServer) -> None:
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    for topic in ("orders", "refunds", "unread"):
        server.create_topic(topic, 2)
        server.produce(topic, "a", "b", partition=0)
    with Cluster(server.bootstrap_servers) as cluster:
        for _ in range(2):
            cluster.fetch({("orders", 0): 0, ("orders", 1): 0})
        cluster.fetch({("refunds", 0): 0})
        found = numbers(server.http_address)
        assert value(found, name, topic="orders") == 2 * value(found, "kohort_topic_bytes", topic="orders")
        assert value(found, name, topic="refunds") == value(found, "kohort_topic_bytes", topic="refunds")
        assert value(found, name, topic="unread") is None
        total = value(found, name)
        assert total == sum(number for labels, number in of(found, name).items() if labels)
        cluster.delete_topic("refunds")
    found = numbers(server.http_address)
    assert value(found, name) == total
    assert value(found, name, topic="refunds") is None


def test_quotas_of_clients(server: KohortServer) -> None:
    of_client = {"resource": "Produce", "user": "", "clientId": "kohort"}
    with Cluster(server.bootstrap_servers) as cluster:
        assert of(numbers(server.http_address), "kafka_server_quota_byte_rate") == {}
        cluster.alter_client_quotas({"client-id": "kohort"}, {"producer_byte_rate": 1e6, "request_percentage": 1e4})
        cluster.create_topic("orders")
        cluster.produce("orders", 0, [NewRecord(None, b"x" * 1_000, server.now_ms())])
    found = numbers(server.http_address)
    rate = value(found, "kafka_server_quota_byte_rate", **of_client)
    assert rate is not None
    assert 0 < rate < 1e6
    assert value(found, "kafka_server_quota_throttle_time", **of_client) == 0
    assert value(found, "kafka_server_quota_request_time", **(of_client | {"resource": "Request"})) is not None


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, {"billing", "billing-eu", "nightly"}),
        ({"metrics_groups_include": "billing*"}, {"billing", "billing-eu"}),
        ({"metrics_groups_exclude": "night??, *-eu"}, {"billing"}),
        ({"metrics_groups_include": "billing*,nightly", "metrics_groups_exclude": "*"}, set()),
        ({"metrics_groups_include": ""}, set()),
    ],
)
def test_groups_that_are_chosen(settings: dict[str, Any], shown: set[str]) -> None:
    with KohortServer(http_listener=LISTENER, **settings) as server, Cluster(server.bootstrap_servers) as cluster:
        server.create_topic("orders", 1)
        for group in ("billing", "billing-eu", "nightly"):
            cluster.commit(group, {("orders", 0): 0})
        found = numbers(server.http_address)
    for name, label in (
        ("kafka_consumergroup_members", "consumergroup"),
        ("kafka_consumergroup_lag", "consumergroup"),
        ("kafka_consumergroup_group_max_lag", "group"),
    ):
        assert labels_of(found, name, label) == shown
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 3
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 3
    assert value(found, "kohort_metrics_series_left_out") == 0, "they are chosen, not left out"


def test_the_series_of_kminion() -> None:
    from confluent_kafka import Consumer

    with KohortServer(http_listener=LISTENER, metrics_kminion=True, group_initial_rebalance_delay_ms=0) as server:
        server.create_topic("orders", 3, configs={"cleanup.policy": "compact"})
        server.create_topic("spare", 1)
        server.produce("orders", *["v"] * 5, key="k", partition=0)
        members = [Consumer(server.client_config("billing")) for _ in range(4)]
        try:
            for member in members:
                member.subscribe(["orders"])
            server.wait_stable("billing", 4, poll=lambda: [member.poll(0) for member in members])
            with Cluster(server.bootstrap_servers) as cluster:
                cluster.commit("batch", {("orders", 0): 2, ("orders", 1): 0})
            found = numbers(server.http_address, OPEN_METRICS)
        finally:
            for member in members:
                member.close()
        cluster_id = dict(next(iter(of(found, "kminion_kafka_cluster_info"))))["cluster_id"]
    of_group, topic = {"group_id": "billing"}, {"topic_name": "orders"}
    both = of_group | topic
    kafka = "kminion_kafka_"
    assert len(cluster_id) == 22
    assert value(found, f"{kafka}consumer_group_members", **of_group) == 4
    assert value(found, f"{kafka}consumer_group_empty_members", **of_group) == 1
    assert value(found, f"{kafka}consumer_group_topic_members", **both) == 3
    assert value(found, f"{kafka}consumer_group_topic_assigned_partitions", **both) == 3
    infos = [(dict(labels), number) for labels, number in of(found, f"{kafka}consumer_group_info").items()]
    states = {labels["group_id"]: (labels["state"], number) for labels, number in infos}
    assert states == {"billing": ("Stable", 1), "batch": ("Empty", 0)}
    batch = {"group_id": "batch"} | topic
    assert value(found, f"{kafka}consumer_group_topic_lag", **batch) == 3
    assert value(found, f"{kafka}consumer_group_topic_offset_sum", **batch) == 2
    assert value(found, f"{kafka}consumer_group_topic_partition_lag", **batch, partition_id="0") == 3
    assert value(found, f"{kafka}topic_partition_high_water_mark", **topic, partition_id="0") == 5
    assert value(found, f"{kafka}topic_partition_low_water_mark", **topic, partition_id="0") == 0
    assert value(found, f"{kafka}topic_high_water_mark_sum", **topic) == 5
    info = {"topic_name": "orders", "partition_count": "3", "replication_factor": "1", "cleanup_policy": "compact"}
    assert value(found, f"{kafka}topic_info", **info) == 1
    names = {family.name for family in FAMILIES if family.name.startswith("kminion_")}
    assert names == {name for name, _ in found if name.startswith("kminion_")}


def test_a_consumer_group_of_kminion() -> None:
    from confluent_kafka import Consumer

    with KohortServer(http_listener=LISTENER, metrics_kminion=True, group_consumer_assignment_interval_ms=0) as server:
        server.create_topic("orders", 2)
        settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "billing", "group.protocol": "consumer"}
        member = Consumer(settings)
        try:
            member.subscribe(["orders"])
            server.wait_stable("billing", 1, poll=lambda: member.poll(0))
            found = numbers(server.http_address)
        finally:
            member.close()
    both = {"group_id": "billing", "topic_name": "orders"}
    assert value(found, "kminion_kafka_consumer_group_topic_assigned_partitions", **both) == 2
    assert value(found, "kminion_kafka_consumer_group_empty_members", group_id="billing") == 0


def test_kminion_is_off_by_default(server: KohortServer) -> None:
    assert not any(name.startswith("kminion_") for name, _ in numbers(server.http_address))
