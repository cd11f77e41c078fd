"""What the console shows of any Kafka cluster: of kohort, and with `make test-peers` of Apache Kafka."""

from __future__ import annotations

import pytest
from console_pages import Pages
from group_member import GroupMember

from kohort.client.cluster import Cluster
from kohort.wire.records import NewRecord


def test_groups_and_one_of_them(servers: str, unique: str) -> None:
    with Cluster(servers) as cluster, Pages(servers) as pages:
        cluster.create_topic(unique, 2)
        cluster.produce(unique, 0, [NewRecord(None, b"a record", 0)] * 5)
        cluster.commit(unique, {(unique, 0): 2})
        cluster.commit(f"{unique}-idle", {(unique, 0): 1})
        member = GroupMember(servers, unique, {unique: (0, 1)})
        pages.read()
        idle, stable = pages.get("/", q=unique).body()
        assert [*idle[:4], *idle[5:]] == [f"{unique}-idle", "Empty", "4", "", "0", "1", "classic"]
        assert [*stable[:4], *stable[5:]] == [unique, "Stable", "3", "", "1", "1", "classic · range"]
        first, second = pages.get("/group", id=unique).body()
        assert [*first[:2], *first[3:]] == [f"{unique} 0", "3", "2", "5", "by-hand on 127.0.0.1"]
        assert second == [f"{unique} 1", "–", "–", "–", "0", "by-hand on 127.0.0.1"]
        assert len({idle[4], stable[4], first[2]} & {"–"}) == (idle[4] == "–"), "all are told, or none is"
        page = pages.get("/messages", topic=unique)
        assert [row[0] for row in page.body()] == ["4", "3", "2", "1", "0"]
        assert "no authorizer" in pages.get("/access", tab="acls").text
        assert "users with a SCRAM credential" in pages.get("/access", tab="users").text
        assert "No quotas" in pages.get("/access", tab="quotas").text
        [row] = pages.get("/group", id=unique, tab="members").body()
        assert row[1:] == ["127.0.0.1", "–", "2", f"{unique}[0-1]"]
        assert "consumer.session.timeout.ms" in pages.get("/group", id=unique, tab="settings").text
        assert pages.get("/topics", q=unique).body() == [[unique, "2", "2", "4", "in sync, 1 replica"]]
        assert "controller" in pages.get("/nodes").text
        member.leave()


@pytest.mark.peers
@pytest.mark.timeout(300)
def test_apache_kafka_tells_no_rebalances(servers_of_kafka: str, unique: str) -> None:
    with Pages(servers_of_kafka) as pages:
        member = GroupMember(pages.bootstrap, unique, {unique: (0,)})
        assert "it is not kohort" in pages.get("/group", id=unique, tab="rebalances").text
        assert "it is not kohort" in pages.get("/rebalance", group=unique, number=1, status=404).text
        member.leave()
