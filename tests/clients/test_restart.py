"""The server is stopped and started again beside live consumers: its release costs them no rebalance.

SIGTERM, two seconds away, and back on the same port and data, well within the consumers' sessions. They report each
assignment and revocation of their client; the group's record has its generation. Parked requests are tested on
connections of our own, because no client shows their answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crash_probes import Identity, connect, join_request, sync, sync_request
from crash_server import CrashServer
from group import CLIENTS, Group, until
from produce import create_topic, produce

from kohort.broker.messages import changed
from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.coordinator.events import Record
from kohort.coordinator.records import parse
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import GroupMetadataKey
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

PARTITIONS = 4
SESSION = {"session_timeout_ms": 12_000, "heartbeat_interval_ms": 1_000}
AWAY_S = 2.0
LONG_MS = 600_000

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CrashServer]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "1500",
        "group.heartbeat.hold.max.ms": "60000",
    }
    running = CrashServer(tmp_path / "data", tmp_path / "server.log", settings)
    running.spawn()
    running.wait_ready()
    yield running
    running.stop()


def generation(bootstrap: str, group: str) -> int:
    """The value in the group's newest record."""
    found = -1
    place = ("__consumer_offsets", 0)
    with Cluster(bootstrap) as cluster:
        offset = 0
        while offset < cluster.offsets([place])[place]:
            [fetched] = cluster.fetch({place: offset})
            for header, batch in split_batches(fetched.records, strict=False):
                offset = header.last_offset + 1
                for record in decode_records(batch):
                    key, value = parse(Record(record.key, record.value)) or (None, None)
                    if isinstance(key, GroupMetadataKey) and key.group == group and value is not None:
                        found = value.generation
    return found


def members(bootstrap: str, group: str) -> tuple[str, list[tuple[Any, ...]]]:
    with Cluster(bootstrap) as cluster:
        described = cluster.describe_groups([group])[group]
        return described.state, sorted((m.member_id, m.assigned["t"]) for m in described.members if m.assigned)


def committed(bootstrap: str, group: str) -> int:
    with Cluster(bootstrap) as cluster:
        return sum(entry.offset for entry in cluster.committed(group).values())


@pytest.mark.conformance("R3")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_release_of_the_server_moves_no_partition(client: str, server: CrashServer) -> None:
    bootstrap = server.address
    create_topic(bootstrap, "t", PARTITIONS)
    with Group(client, bootstrap, "g", "t", **SESSION) as group:
        a, b = group.share([2, 2], "a", "b")
        produce("confluent", bootstrap, "t", [f"before {n}" for n in range(40)], PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 40, "40 values")
        had = [(list(w.assigned), list(w.rebalances)) for w in (a, b)]
        described, at = members(bootstrap, "g"), generation(bootstrap, "g")
        assert described[0] == "Stable"
        assert at > 0
        assert all("assign" in rebalances for _, rebalances in had)

        assert server.terminate() == 0
        time.sleep(AWAY_S)  # how long it is away, not a wait for anything
        server.spawn()
        server.wait_ready()

        produce("confluent", bootstrap, "t", [f"after {n}" for n in range(40)], PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 80, "40 values more")
        produce("confluent", bootstrap, "t", [f"at last {n}" for n in range(40)], PARTITIONS)
        group.wait(lambda: committed(bootstrap, "g") == 120, "120 values, committed by those that had them")
        assert [(w.assigned, w.rebalances) for w in (a, b)] == had
        assert (members(bootstrap, "g"), generation(bootstrap, "g")) == (described, at)
        group.close()


def joined(connection: Connection, group: str) -> Identity:
    answer = connection.request(join_request(group, None, LONG_MS), JoinGroupResponse, version=3)
    assert answer.error_code == 0, answer
    return Identity(group, answer.member_id, answer.generation_id)


def wait_for_state(bootstrap: str, group: str, state: str) -> None:
    until(lambda: members(bootstrap, group)[0] == state, f"{group} is {state}")


@pytest.mark.conformance("R1", "R3")
def test_parked_requests_are_answered_that_the_coordinator_is_elsewhere(server: CrashServer) -> None:
    """A join that waits for a member, a sync that waits for the leader, a heartbeat that is held."""
    bootstrap = server.address
    waited_for, joining, leader, follower = (connect(bootstrap) for _ in range(4))
    stable = joined(waited_for, "stable")
    assert sync(waited_for, stable, b"all").assignment == b"all"
    absent = joined(waited_for, "joining")
    assert sync(waited_for, absent, b"all").error_code == 0
    joining.send(join_request("joining", None, LONG_MS), version=3)
    wait_for_state(bootstrap, "joining", "PreparingRebalance")
    for connection in (leader, follower):
        # Of consumers: a group of another type would begin with the first of the two.
        connection.send(changed(join_request("syncing", None, LONG_MS), protocol_type="consumer"), version=3)
    answers = [connection.receive(JoinGroupResponse) for connection in (leader, follower)]
    [behind] = [
        (connection, Identity("syncing", answer.member_id, answer.generation_id))
        for connection, answer in zip((leader, follower), answers, strict=True)
        if answer.member_id != answer.leader
    ]
    behind[0].send(sync_request(behind[1], None), version=3)
    beat = HeartbeatRequest(group_id="stable", generation_id=stable.generation, member_id=stable.member_id)
    waited_for.send(beat, version=4)
    wait_for_state(bootstrap, "syncing", "CompletingRebalance")  # a turn after the last two have come

    assert server.terminate() == 0
    assert joining.receive(JoinGroupResponse).error_code == ErrorCode.NOT_COORDINATOR
    assert behind[0].receive(SyncGroupResponse).error_code == ErrorCode.NOT_COORDINATOR
    assert waited_for.receive(HeartbeatResponse).error_code == ErrorCode.NOT_COORDINATOR

    server.spawn()
    server.wait_ready()
    again = connect(bootstrap)
    answer = sync(again, stable, b"another")
    assert (answer.error_code, answer.assignment) == (0, b"all"), "its member is there, and has what it had"
    for connection in (waited_for, joining, leader, follower, again):
        connection.close()
