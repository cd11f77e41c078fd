"""The members that the benchmarks join, against a server of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench._consumer_crowd import ConsumerCrowd
from bench._crowd import Crowd
from bench._joined import classic_members, commit, consumer_heartbeat, consumer_members, create_topic, heartbeat
from bench._peers import Server
from bench._process import serving
from bench.heartbeats import ERROR_AT, answer_of

from kohort.wire.codec import decode
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.offset_commit import OffsetCommitResponse

PARTITIONS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("group.consumer.heartbeat.hold.enable=false") as (pid, address, _):
        server = Server("pure", pid, address)
        create_topic(server, "bench", PARTITIONS)
        yield server


def test_members_have_joined_and_their_heartbeats_are_answered(server: Server) -> None:
    frames = [heartbeat(m) for m in classic_members(server.address, "classic", 60)]
    frames += [consumer_heartbeat(m) for m in consumer_members(server.address, "consumer", 3, "bench")]
    for frame in frames:
        answer = answer_of(server, frame)
        assert answer[4 + ERROR_AT : 6 + ERROR_AT] == b"\0\0"
    assert decode(HeartbeatResponse, 4, answer_of(server, frames[0])[4:], 5) == HeartbeatResponse()


def test_commits_are_accepted(server: Server) -> None:
    (member,) = classic_members(server.address, "commits", 1)
    answer = answer_of(server, commit(member, "bench", PARTITIONS, 42))
    errors = [p.error_code for p in decode(OffsetCommitResponse, 8, answer[4:], 5).topics[0].partitions]
    assert errors == [0] * PARTITIONS


def test_a_consumer_group_settles(server: Server) -> None:
    crowd = ConsumerCrowd(server.address, "settles", "bench", PARTITIONS)
    for _ in range(PARTITIONS):
        crowd.join()
    crowd.run(crowd.settled, 30)
    assert sorted(sum(len(t.partitions) for t in m.owned) for m in crowd.members.values()) == [1] * PARTITIONS
    crowd.close()


def test_a_classic_group_settles(server: Server) -> None:
    crowd = Crowd(server.address)
    for _ in range(5):
        crowd.connect("settles-classic").join()
    crowd.run(lambda: crowd.stable == 5, 30)
    assert {m.generation for m in crowd.members.values()} == {crowd.generation}
    crowd.close()
