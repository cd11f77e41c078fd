"""/metrics of a running server: names, values, limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_client import OPEN_METRICS, Numbers, ask, connected, numbers, of, said, value

from kohort.broker.metrics.families import COUNTER, FAMILIES, HISTOGRAM
from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed, ServerError
from kohort.config import AUTHORIZER
from kohort.testing import KohortServer, ManualClock


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer(http_listener="127.0.0.1:0", clock=ManualClock()) as running:
        yield running


def commit(server: KohortServer, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.commit(group, offsets)


def place(partition: int, topic: str = "orders", group: str = "billing") -> dict[str, str]:
    return {"consumergroup": group, "topic": topic, "partition": str(partition)}


def test_offsets_and_lag_of_a_group(server: KohortServer) -> None:
    server.create_topic("orders", 3)
    server.produce("orders", *range_of(10), partition=0)
    server.produce("orders", *range_of(4), partition=1)
    commit(server, "billing", {("orders", 0): 7, ("orders", 1): 4})
    found = numbers(server.http_address)
    offset, lag = "kafka_consumergroup_current_offset", "kafka_consumergroup_lag"
    assert [value(found, offset, **place(n)) for n in range(3)] == [7, 4, -1]
    assert [value(found, lag, **place(n)) for n in range(3)] == [3, 0, -1]
    of_topic = {"consumergroup": "billing", "topic": "orders"}
    assert value(found, f"{offset}_sum", **of_topic) == 11
    assert value(found, f"{lag}_sum", **of_topic) == 3
    assert value(found, "kafka_consumergroup_members", consumergroup="billing") == 0
    [of_cluster] = of(found, "kafka_consumergroup_group_sum_lag")
    assert dict(of_cluster)["group"] == "billing"
    assert found["kafka_consumergroup_group_max_lag", of_cluster] == 3


def range_of(count: int) -> list[str]:
    return [f"record {n}" for n in range(count)]


def test_an_offset_beyond_the_end_is_no_negative_lag(server: KohortServer) -> None:
    server.create_topic("orders", 1)
    commit(server, "billing", {("orders", 0): 100})
    found = numbers(server.http_address)
    assert value(found, "kafka_consumergroup_lag", **place(0)) == 0
    assert value(found, "kafka_consumergroup_current_offset", **place(0)) == 100


def test_topics(server: KohortServer) -> None:
    server.create_topic("orders", 2)
    server.produce("orders", *range_of(5), partition=1)
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.fetch({("orders", 1): 0})
    found = numbers(server.http_address)
    one = {"topic": "orders", "partition": "1"}
    assert value(found, "kafka_topic_partitions", topic="orders") == 2
    for name, expected in {
        "current_offset": 5,
        "oldest_offset": 0,
        "leader": 1,
        "replicas": 1,
        "in_sync_replica": 1,
        "leader_is_preferred": 1,
        "under_replicated_partition": 0,
    }.items():
        assert value(found, f"kafka_topic_partition_{name}", **one) == expected, name
    assert value(found, "kafka_brokers") == 1
    assert value(found, "kafka_broker_info", id="1", address=server.bootstrap_servers) == 1
    assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 5
    bytes_in = value(found, "kafka_server_brokertopicmetrics_bytesin_total", topic="orders")
    assert bytes_in == value(found, "kohort_topic_bytes", topic="orders")
    assert value(found, "kafka_server_brokertopicmetrics_bytesout_total") == bytes_in
    assert value(found, "kafka_server_brokertopicmetrics_totalproducerequests_total") == 1
    assert value(found, "kafka_server_brokertopicmetrics_totalfetchrequests_total") == 1


def test_what_was_appended_to_a_deleted_topic_stays_in_the_total(server: KohortServer) -> None:
    server.create_topic("orders", 1)
    server.produce("orders", *range_of(5))
    before = value(numbers(server.http_address), "kafka_server_brokertopicmetrics_messagesin_total")
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.delete_topic("orders")
    found = numbers(server.http_address)
    assert value(found, "kafka_server_brokertopicmetrics_messagesin_total") == before
    assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") is None
    assert value(found, "kafka_topic_partitions", topic="orders") is None


def test_brokers_that_are_away() -> None:
    with KohortServer(http_listener="127.0.0.1:0", brokers=3) as server:
        server.create_topic("orders", 3, replication_factor=3)
        server.stop_broker(3, failover=True)
        found = numbers(server.http_address)
    assert value(found, "kafka_brokers") == 2
    assert set(of(found, "kafka_topic_partition_leader").values()) == {1, 2}
    preferred = of(found, "kafka_topic_partition_leader_is_preferred")
    assert 0 in [number for labels, number in preferred.items() if ("topic", "orders") in labels]
    assert value(found, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0


def test_lag_in_seconds(server: KohortServer) -> None:
    """The first record that is not committed came in 10 s ago, then 15 s ago; the next one when it was appended."""
    clock: ManualClock = server._clock  # type: ignore[assignment]
    server.create_topic("orders", 1)
    server.produce("orders", "a", "b")
    commit(server, "billing", {("orders", 0): 1})
    clock.advance(10_000)

    def lag_seconds() -> float:
        found = numbers(server.http_address)
        [seconds] = of(found, "kafka_consumergroup_group_lag_seconds").values()
        [largest] = of(found, "kafka_consumergroup_group_max_lag_seconds").values()
        assert seconds == largest
        return seconds

    assert lag_seconds() == 10.0
    clock.advance(5_000)
    assert lag_seconds() == 15.0
    clock.advance(1_000)
    server.produce("orders", "c")
    clock.advance(3_000)
    lag_seconds()
    commit(server, "billing", {("orders", 0): 2})
    assert 0 < lag_seconds() <= 4.0
    commit(server, "billing", {("orders", 0): 3})
    assert lag_seconds() == 0.0


def test_members_rebalances_and_requests(server: KohortServer) -> None:
    from confluent_kafka import Consumer

    server.create_topic("orders", 1)
    with_group: dict[str, Any] = server.client_config("billing")
    consumer = Consumer(with_group)
    consumer.subscribe(["orders"])
    server.wait_stable("billing", 1, poll=lambda: consumer.poll(0.02))
    while not value(found := numbers(server.http_address), "kafka_network_requestmetrics_requests_total",
                    request="Heartbeat", version="3"):  # fmt: skip
        consumer.poll(0.02)
    assert value(found, "kafka_consumergroup_members", consumergroup="billing") == 1
    assert value(found, "kohort_group_rebalancing", consumergroup="billing") == 0
    assert value(found, "kohort_rebalances_total", consumergroup="billing", cause="member joined") == 1
    assert value(found, "kohort_rebalance_seconds_count", protocol="classic") == 1
    waited = value(found, "kohort_rebalance_waited_seconds_total", consumergroup="billing")
    assert waited == value(found, "kohort_rebalance_seconds_sum", protocol="classic")
    assert value(found, "kohort_group_events_total", event="member joined") == 1
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    assert sum(of(found, "kohort_connections").values()) >= 1
    consumer.close()


def test_an_open_transaction_holds_readers_back(server: KohortServer) -> None:
    from confluent_kafka import Producer

    server.create_topic("orders", 1)
    server.produce("orders", "before")
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", "in it", partition=0)
    producer.flush(10)
    one = {"topic": "orders", "partition": "0"}
    found = numbers(server.http_address)
    assert value(found, "kohort_topic_partition_last_stable_offset", **one) == 1
    assert value(found, "kafka_topic_partition_current_offset", **one) == 2
    assert value(found, "kohort_transactions", state="Ongoing") == 1
    producer.commit_transaction(10)
    found = numbers(server.http_address)
    assert of(found, "kohort_topic_partition_last_stable_offset") == {}
    assert value(found, "kohort_transactions", state="CompleteCommit") == 1


def security_of(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
    }


def test_what_is_refused_is_counted() -> None:
    settings: dict[str, Any] = {"authorizer_class_name": AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with KohortServer(
        http_listener="127.0.0.1:0", security="SASL_PLAINTEXT", users={"alice": "secret"}, **settings
    ) as server:
        before = numbers(server.http_address)
        with (
            pytest.raises(AuthenticationFailed),
            Cluster(server.bootstrap_servers, security=security_of("alice", "wrong")) as cluster,
        ):
            cluster.nodes()
        with (
            pytest.raises(ServerError),
            Cluster(server.bootstrap_servers, security=security_of("alice", "secret"), api_timeout_ms=2_000) as cluster,
        ):
            cluster.create_topic("orders", 1)
        found = numbers(server.http_address)
    assert of(before, "kohort_authentication_failures_total") == {}
    assert value(found, "kohort_authentication_failures_total", listener="SECURED") == 1
    denied = of(found, "kohort_refused_total")
    assert sum(denied.values()) >= 1
    assert {dict(labels)["operation"] for labels in denied} == {"CREATE"}


def test_names_are_hostile_input(server: KohortServer) -> None:
    """Names of groups are any text: quotes, line breaks, a line of metrics."""
    names = ['a"b', "line\nbreak", "back\\slash", '"} 1\nkafka_brokers 77\n#', "\u2028ü", "x" * 400, "<script>", "{}"]
    server.create_topic("orders", 1)
    for name in names:
        commit(server, name, {("orders", 0): 0})
    for accept in ("", OPEN_METRICS):
        found = numbers(server.http_address, accept)
        shown = {dict(labels)["consumergroup"] for labels in of(found, "kafka_consumergroup_members")}
        assert shown == {name if len(name) <= 250 else "x" * 249 + "…" for name in names}
        assert value(found, "kafka_brokers") == 1


def rich(server: KohortServer) -> Numbers:
    """The numbers of a server with everything that has series."""
    server.create_topic("orders", 2)
    server.produce("orders", *range_of(3))
    commit(server, "billing", {("orders", 0): 1})
    return numbers(server.http_address, OPEN_METRICS)


def test_the_series_are_those_of_the_table(server: KohortServer) -> None:
    """Each sample has the name, the kind and the labels of a family; both formats have the same samples."""
    found = rich(server)
    known = {family.name: family for family in FAMILIES}
    for name, labels in found:
        base = name
        if base not in known:
            base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            assert known[base].kind == HISTOGRAM, name
        given = {label for label, _ in labels} - {"le"}
        assert given in (set(known[base].labels), set()), name
    for family in FAMILIES:
        assert (family.kind == COUNTER) == family.name.endswith("_total"), family.name
    plain = numbers(server.http_address)
    moving = (
        "kohort_metrics",
        "process_",
        "kohort_loop",
        "kohort_turn",
        "kohort_step",
        "kohort_request",
        "kafka_network",
        "kafka_server",
    )
    for key, number in found.items():
        assert key[0].startswith(moving) or plain[key] == number, key


def test_a_family_is_one_block(server: KohortServer) -> None:
    """As both formats want it: HELP, TYPE, then all samples of the family, and no sample twice."""
    rich(server)
    for accept in ("", OPEN_METRICS):
        _, head, text = ask(server.http_address, accept=accept)
        assert ("openmetrics" in head) == bool(accept)
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names))
        samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
        assert len(samples) == len(set(samples))
    assert text.endswith("# EOF\n")


def test_the_number_of_series_is_limited() -> None:
    """What does not fit is counted. Sums of groups stay, and no group has some of its partitions alone."""
    with KohortServer(http_listener="127.0.0.1:0", metrics_max_series=1_000, offsets_topic_num_partitions=1) as server:
        server.create_topic("orders", 200)
        for group in range(4):
            commit(server, f"group-{group}", {("orders", n): 0 for n in range(200)})
        found = numbers(server.http_address)
    assert len(found) <= 1_000 + 2
    assert value(found, "kohort_metrics_series") == len(found) - 2
    left_out = value(found, "kohort_metrics_series_left_out")
    assert left_out is not None
    assert left_out >= 3 * 400
    assert len(of(found, "kafka_consumergroup_lag_sum")) == 4
    assert len(of(found, "kafka_consumergroup_lag")) % 200 == 0
    assert value(found, "kafka_topic_partitions", topic="orders") == 200
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 4


@pytest.mark.parametrize(("granularity", "lags", "sums"), [("partition", 2, 1), ("topic", 0, 1), ("group", 0, 0)])
def test_granularity(granularity: str, lags: int, sums: int) -> None:
    with KohortServer(http_listener="127.0.0.1:0", metrics_groups_granularity=granularity) as server:
        server.create_topic("orders", 2)
        server.produce("orders", *range_of(4))
        commit(server, "billing", {("orders", 0): 0, ("orders", 1): 1})
        found = numbers(server.http_address)
    assert len(of(found, "kafka_consumergroup_lag")) == lags
    assert len(of(found, "kafka_consumergroup_lag_sum")) == sums
    assert list(of(found, "kafka_consumergroup_group_sum_lag").values()) == [3]


def test_data_on_disk_has_sizes(tmp_path: Any) -> None:
    with KohortServer(http_listener="127.0.0.1:0", data_dir=tmp_path) as server:
        found = numbers(server.http_address)
        assert (value(found, "kohort_storage_bytes") or 0) > 0
        assert value(found, "kohort_wal_bytes") is not None
        assert (value(found, "kohort_disk_free_bytes") or 0) > 0
        address = server.http_address
        server.restart()
        assert server.http_address == address


def test_one_scrape_serves_all_that_ask_meanwhile(server: KohortServer) -> None:
    """Their texts are equal to the last digit of the times in them."""
    connections = [connected(server.http_address) for _ in range(6)]
    for connection in connections:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    texts = {said(connection) for connection in connections}
    assert len(texts) < 6
    [scrapes] = of(numbers(server.http_address), "kohort_metrics_scrapes_total").values()
    assert scrapes == len(texts)


def test_scrapes_leave_time_for_others(server: KohortServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits after the last one has taken its time."""
    scraper = server._running._http._scraper  # type: ignore[union-attr]
    ask(server.http_address)
    scraper.last_s = 0.1
    monkeypatch.setattr("kohort.server.http.scraper.LONGEST_REST_S", 0.2)
    began = time.perf_counter()
    ask(server.http_address)
    assert time.perf_counter() - began > 0.15
