"""The members that the benchmarks join, against a server of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from bench._crowd import ClassicCrowd, ConsumerCrowd
from bench._joined import classic_members, commit, consumer_heartbeat, consumer_members, create_topic, heartbeat
from bench._load import answer_of
from bench._peers import Server
from bench._process import serving
from bench.heartbeats import ERROR_AT

from kohort.wire.codec import decode
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.offset_commit import OffsetCommitResponse

PARTITIONS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("group.consumer.heartbeat.hold.enable=false") as (pid, address):
        server = Server("pure", pid, address)
        create_topic(server, "bench", PARTITIONS)
        yield server


def test_members_have_joined_and_their_heartbeats_are_answered(server: Server) -> None:
    frames = [heartbeat(m) for m in classic_members(server, "classic", 60)]
    frames += [consumer_heartbeat(m) for m in consumer_members(server, "consumer", 3, "bench", PARTITIONS)]
    for frame in frames:
        answer = answer_of(server, frame)
        assert answer[4 + ERROR_AT : 6 + ERROR_AT] == b"\0\0"
    assert decode(HeartbeatResponse, 4, answer_of(server, frames[0])[4:], 5) == HeartbeatResponse()


def test_commits_are_accepted(server: Server) -> None:
    (member,) = classic_members(server, "commits", 1)
    answer = answer_of(server, commit(member, "bench", PARTITIONS, 42))
    errors = [p.error_code for p in decode(OffsetCommitResponse, 8, answer[4:], 5).topics[0].partitions]
    assert errors == [0] * PARTITIONS


def test_a_consumer_group_settles(server: Server) -> None:
    with closing(ConsumerCrowd(server.address, "bench", PARTITIONS)) as crowd:
        crowd.join_all(["settles"] * PARTITIONS)
        crowd.settle(30)
        assert sorted(len(member.owned) for member in crowd.members.values()) == [1] * PARTITIONS


def test_classic_groups_settle(server: Server) -> None:
    with closing(ClassicCrowd(server.address)) as crowd:
        crowd.join_all(["settles-classic", "settles-alone", *["settles-classic"] * 4])
        crowd.settle(30)
        generations = {(member.group, member.generation) for member in crowd.members.values()}
        assert {group for group, _ in generations} == {"settles-classic", "settles-alone"}
        assert len(generations) == 2
