"""kafka-share-groups.sh of Apache Kafka 4.1: list, describe, delete offsets. It cannot reset offsets yet."""

from __future__ import annotations

import java_libraries
import pytest
from run_java import java
from share_member import ACCEPT, PATIENT, ShareMember

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


def test_kafka_share_groups() -> None:
    with (
        KohortServer(**PATIENT) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        cluster.create_topic("jobs", 2)
        cluster.alter_group_configs("mailers", {"share.auto.offset.reset": "earliest"})
        for _ in range(5):
            cluster.produce("jobs", 0, [NewRecord(None, b"v", 1)])

        def run(*arguments: str) -> list[list[str]]:
            """Each line's words."""
            out = java(java_libraries.clients(), TOOL, "--bootstrap-server", server.bootstrap_servers, *arguments)
            return [line.split() for line in out.splitlines() if line.strip()]

        with ShareMember(server.bootstrap_servers, "mailers", "jobs", "worker") as member:
            assert member.take(0, 3) == [(0, 2, 1)]
            assert member.ack(0, (0, 1, ACCEPT)) == 0
            assert ["mailers"] in run("--list")
            described = run("--describe", "--group", "mailers")
            assert ["mailers", "jobs", "0", "2"] in [line[:4] for line in described], described
            members = run("--describe", "--group", "mailers", "--members")
            assert [line[:2] for line in members if line[0] == "mailers"] == [["mailers", member.member_id]]
            state = run("--describe", "--group", "mailers", "--state")
            assert any(line[0] == "mailers" and "Stable" in line for line in state), state
            member.leave()
        run("--delete-offsets", "--group", "mailers", "--topic", "jobs")
        assert cluster.share_groups.offsets(["mailers"])["mailers"].partitions == {}
