"""compatibility="kafka": what a strict server shows on the wire, and what it refuses to be started with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from kohort.client.admin.explanations import NoJournal
from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.config import ConfigError
from kohort.testing import KohortServer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import LASTING_GENERATIONS, ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.fetch import FetchingMember, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

pytest_plugins = ["pytester"]

GROUP = 32
"""The code of the resource type in DescribeConfigs."""


@contextmanager
def connected(server: KohortServer) -> Iterator[Connection]:
    host, _, port = server.bootstrap_servers.rpartition(":")
    with closing(Connection(host, int(port))) as connection:
        yield connection


@pytest.fixture
def strict(kohort_server_factory: Callable[..., KohortServer]) -> KohortServer:
    return kohort_server_factory(compatibility="kafka")


def coordinator_error(connection: Connection) -> int:
    found = connection.request(FindCoordinatorRequest(coordinator_keys=("g",)), FindCoordinatorResponse)
    return found.coordinators[0].error_code


def test_a_topic_is_there_one_request_after_the_one_that_creates_it(strict: KohortServer) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="new"),))
    with connected(strict) as connection:
        first, second = (connection.request(request, MetadataResponse).topics[0] for _ in range(2))
    assert (first.error_code, second.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
    assert len(second.partitions) == 1


def test_the_first_look_for_a_coordinator_creates_the_offsets_topic(strict: KohortServer) -> None:
    everything = MetadataRequest(topics=None)
    with connected(strict) as connection:
        assert connection.request(everything, MetadataResponse).topics == ()
        errors = [coordinator_error(connection) for _ in range(2)]
        listed = [topic.name for topic in connection.request(everything, MetadataResponse).topics]
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    assert listed == ["__consumer_offsets"], "and no journal"


def test_kohorts_extensions_are_not_served(strict: KohortServer) -> None:
    strict.produce("t", "a record")
    configs = DescribeConfigsRequest(resources=(DescribeConfigsResource(resource_type=GROUP, resource_name="g"),))
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        as_member=FetchingMember(group_id="g", member_id="m", member_epoch=1),
        topics=(FetchTopic(topic="t", partitions=(FetchPartition(partition=0, fetch_offset=0),)),),
    )
    with connected(strict) as connection:
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        features = connection.request(asked, ApiVersionsResponse).supported_features
        assert LASTING_GENERATIONS not in {feature.name for feature in features}
        coordinator_error(connection)
        explained = DescribeGroupsRequest(groups=("g",), explain_last=5)
        assert connection.request(explained, DescribeGroupsResponse).groups[0].explanation == b""
        described = connection.request(configs, DescribeConfigsResponse).results[0].configs
        fetched = connection.request(fetch, FetchResponse, version=12)
    assert {entry.name for entry in described} == {
        "consumer.assignment.interval.ms",
        "consumer.assignor.offload.enable",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
    }
    assert not fetched.fenced
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_explain_says_why_it_cannot(strict: KohortServer) -> None:
    why = "a kohort with compatibility=kafka"
    with Cluster(strict.bootstrap_servers) as cluster, pytest.raises(NoJournal, match=why):
        cluster.explain_group("g")


@pytest.mark.parametrize("asked", [{}, {"group_consumer_heartbeat_interval_ms": 6_000}])
def test_groups_have_kafkas_intervals_and_first_epoch(
    kohort_server_factory: Callable[..., KohortServer], asked: dict[str, int]
) -> None:
    server = kohort_server_factory(compatibility="kafka", **asked)
    server.create_topic("t")
    join = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    with connected(server) as connection:
        coordinator_error(connection)
        answer = connection.request(join, ConsumerGroupHeartbeatResponse)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert answer.heartbeat_interval_ms == asked.get("group_consumer_heartbeat_interval_ms", 5_000)


@pytest.mark.parametrize(
    "own", [{"group_heartbeat_hold_enable": True}, {"journal.enable": True}, {"group_storm_rebalance_delay_ms": 1_000}]
)
def test_settings_of_kohorts_own_do_not_go_with_it(own: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="compatibility=kafka needs"):
        KohortServer(compatibility="kafka", **own)


def test_records_and_offsets_survive_a_crash(strict: KohortServer) -> None:
    strict.produce("t", "one", "two")
    with Cluster(strict.bootstrap_servers) as cluster:
        cluster.commit("g", {("t", 0): 1})
    strict.kill()
    strict.start()
    assert strict.lag("g") == 1


@pytest.mark.parametrize(
    ("arguments", "configuration"), [(["--kohort-compatibility=kafka"], ""), ([], "kohort_compatibility = kafka")]
)
def test_pytest_makes_its_servers_strict(pytester: pytest.Pytester, arguments: list[str], configuration: str) -> None:
    pytester.makeini(f"[pytest]\n{configuration}")
    pytester.makepyfile(
        """
        from kohort.client.cluster import Cluster
        from kohort.client.errors import KafkaError
        import pytest

        def is_strict(server):
            with Cluster(server.bootstrap_servers) as cluster, pytest.raises(KafkaError) as caught:
                cluster.explain_group("g")
            return "shows no journal" in str(caught.value)

        def test_one(kohort_server):
            assert is_strict(kohort_server)

        def test_any(kohort_server_factory):
            assert is_strict(kohort_server_factory())
            with Cluster(kohort_server_factory(compatibility="kohort").bootstrap_servers) as cluster:
                assert cluster.explain_group("g").group.state == "Dead"
        """
    )
    pytester.runpytest_subprocess("-q", *arguments, timeout=60).assert_outcomes(passed=2)
