"""`kohort groups doctor` against a server: findings, exit codes, JSON."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from group_member import GroupMember
from run_command import Kohort

from kohort.cli.groups.doctor.case import AGES_MS
from kohort.cli.groups.doctor.collection import collect
from kohort.cli.groups.lookup import selected
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

BRIEF = ("--for", "10ms")


@pytest.fixture
def group(cluster: Cluster, written: str) -> str:
    """A group at the end of both partitions of its topic."""
    cluster.commit(written, {(written, 0): 5, (written, 1): 5})
    return written


def findings(kohort: Kohort, group: str, *arguments: str, code: int = 1) -> dict[str, Any]:
    document = json.loads(kohort("groups", "doctor", group, *BRIEF, "-o", "json", *arguments, code=code).out)
    return {one["kind"]: one for one in document["findings"]}


def test_nothing_is_wrong(kohort: Kohort, group: str, bootstrap: str) -> None:
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    ran = kohort("groups", "doctor", group, *BRIEF)
    assert ran.out.startswith("nothing found in 1 group, within 0.")
    assert ran.err == ""
    member.leave()


def test_a_deserted_group_and_the_reason_from_the_journal(
    kohort: Kohort, group: str, bootstrap: str, cluster: Cluster
) -> None:
    GroupMember(bootstrap, group, {group: (0, 1)}).leave()
    cluster.produce(group, 0, [NewRecord(None, b"v", 1)] * 3)
    ran = kohort("groups", "doctor", group, *BRIEF, code=1)
    head, advice, command, summary = ran.out.splitlines()
    assert re.match(rf"WARNING {group}: has no members: 3 records wait, the oldest for \d+ days( \d+ h)?; ", head)
    assert "by-hand on 127.0.0.1 left, " in head
    assert advice == "    Start a consumer; if nobody needs the group, delete it:"
    assert command == f"      kohort groups delete {group}"
    assert summary.startswith("1 finding (1 warning) in 1 group, within ")
    assert findings(kohort, group).keys() == {"deserted"}
    assert findings(kohort, group, "--severity", "critical", code=0) == {}


def test_a_member_that_does_not_commit(kohort: Kohort, group: str, bootstrap: str, cluster: Cluster) -> None:
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    cluster.produce(group, 1, [NewRecord(None, b"v", 1)])
    found = findings(kohort, group, "--severity", "info")
    assert found["no commits"]["text"].startswith("by-hand on 127.0.0.1 does not commit: nothing moved in ")
    assert found["no commits"]["severity"] == "info"  # it has joined a moment ago
    cluster.produce(group, 0, [NewRecord(None, b"v", time.time_ns() // 1_000_000)])
    cluster.delete_records({(group, 1): 6})
    kinds = findings(kohort, group, "--severity", "info")
    assert "out of range" in kinds
    assert f"in {group}[1]: 1 offset that it has not read" in kinds["out of range"]["text"]
    member.leave()


def test_subscriptions_and_offsets_of_topics_that_do_not_exist(
    kohort: Kohort, group: str, bootstrap: str, cluster: Cluster
) -> None:
    cluster.create_topic(f"{group}.gone", 1)
    cluster.produce(f"{group}.gone", 0, [NewRecord(None, b"v", 1)])
    member = GroupMember(bootstrap, group, {group: (0,), f"{group}.gon": (0,)})
    found = findings(kohort, group)
    assert found.keys() == {"missing topic", "without owner"}
    assert f"topic {group}.gon, which does not exist" in found["missing topic"]["text"]
    assert found["missing topic"]["advice"].startswith(f"Did you mean {group}.gone?")
    member.leave()


def test_a_reader_that_waits_for_an_open_transaction(
    kohort: Kohort, group: str, bootstrap: str, cluster: Cluster
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}.tx"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(group, b"v", partition=0, timestamp=1)
    producer.flush()
    found = findings(kohort, group)
    assert found.keys() == {"deserted", "open transaction"}
    waits = found["open transaction"]
    assert waits["severity"] == "critical"
    assert f"{group}-0: readers of committed records wait at offset 5, 1 offset before the end" in waits["text"]
    assert f"transaction {group}.tx (producer " in waits["text"]
    producer.abort_transaction()


def test_members_that_come_and_go(kohort: Kohort, group: str, bootstrap: str) -> None:
    for _ in range(7):
        GroupMember(bootstrap, group, {group: (0, 1)}).leave()
    found = findings(kohort, group)
    assert found.keys() == {"removed again and again"}
    assert found["removed again and again"]["text"].startswith("by-hand on 127.0.0.1 dropped out 7 times in ")


def test_what_it_refuses(kohort: Kohort, group: str) -> None:
    ran = kohort("groups", "doctor", f"{group}x", code=1)
    assert ran.err == f"kohort: group {group}x does not exist; did you mean {group}?\n"
    assert "did you mean warning?" in kohort("groups", "doctor", "--severity", "warnin", code=2).err
    assert "is not a duration" in kohort("groups", "doctor", "--for", "2", code=2).err
    kohort("groups", "doctor", "-b", "127.0.0.1:1", code=3)


def test_help_tells_the_exit_codes(kohort: Kohort) -> None:
    told = " ".join(kohort("groups", "doctor", "--help").out.split())
    assert "Exit codes: 0 nothing found, 1 findings, or failed or not found, 2 wrong usage, 3 cannot" in told


def test_a_server_that_does_not_tell_the_lag() -> None:
    with KohortServer(compatibility="kafka") as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("orders", 2)
        cluster.produce("orders", 0, [NewRecord(None, b"v", 1)] * 3)
        cluster.commit("billing", {("orders", 0): 1, ("orders", 1): 0})
        [case] = collect(cluster, ("billing",), selected(cluster, ("billing",)), 0.0).cases
        assert (case.ages_ms, case.lags(), case.starts) == (
            {},
            {("orders", 0): 2},
            {("orders", 0): 0, ("orders", 1): 0},
        )
        assert case.age_words(case.lags()) == ", the oldest for more than 10 min by its timestamp"


def test_a_server_that_tells_the_lag_is_asked_for_no_ages(cluster: Cluster, group: str) -> None:
    cluster.produce(group, 1, [NewRecord(None, b"v", 1)])
    [case] = collect(cluster, (group,), selected(cluster, (group,)), 0.0).cases
    assert (case.lags(), case.younger[AGES_MS[0]]) == ({(group, 1): 1}, {})
    assert case.ages_ms[group, 0] == 0
    assert case.waits_longer_than(AGES_MS[-1], (group, 1))
