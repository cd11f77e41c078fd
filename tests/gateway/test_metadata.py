"""Metadata answers of any size: brokers of a large one are moved while the rest passes, topics are read in steps."""

from __future__ import annotations

import asyncio
import random
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.broker.turn import UpstreamSeen
from kohort.client.security.security import Security
from kohort.config import Address
from kohort.gateway.answers import Answers
from kohort.gateway.follower import Follower
from kohort.gateway.link import Link
from kohort.gateway.metadata import LARGE_BYTES, PARTITIONS_A_STEP, beginning_of, topics_of
from kohort.gateway.requests import METADATA, Request, Route
from kohort.gateway.rewriting import decoded_answer, encoded_answer, moved_metadata
from kohort.gateway.view import View
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

MOST = 1 << 20
BROKERS = tuple(
    MetadataResponseBroker(node_id=node, host="kafka" * node, port=9000 + node, rack=rack)
    for node, rack in ((1, "a"), (2, None), (30, "c"))
)
NAMES = {1: Address("gateway.example", 19093), 30: Address("g", 2)}


def partition(index: int, chance: random.Random) -> MetadataResponsePartition:
    nodes = tuple(chance.sample(range(40), chance.choice((0, 1, 3, 9))))
    return MetadataResponsePartition(
        error_code=0,
        partition_index=index,
        leader_id=7,
        replica_nodes=nodes,
        isr_nodes=nodes[:2],
        offline_replicas=nodes[2:],
    )


@cache
def answered(
    partitions: int, *, topics: int = 3, brokers: tuple[MetadataResponseBroker, ...] = BROKERS
) -> MetadataResponse:
    chance = random.Random(1)
    rows = tuple(
        MetadataResponseTopic(
            error_code=0,
            name=f"topic-{number}",
            topic_id=number.to_bytes(16, "big"),
            is_internal=not number,
            partitions=tuple(partition(index, chance) for index in range(partitions)),
        )
        for number in range(1, topics + 1)
    )
    return MetadataResponse(brokers=brokers, cluster_id="c" * 200, controller_id=2, topics=rows)


def request(version: int) -> Request:
    return Request(METADATA, version, 5, Route.UPSTREAM)


def a_link(addresses: dict[int, Address], told: list[object]) -> Link:
    owner: Any = SimpleNamespace(
        max_bytes=MOST,
        clients_authenticate=False,
        beat_s=1.0,
        address_of=lambda broker, _: addresses.get(broker),
        learn=told.append,
        learn_beginning=told.append,
    )
    return Link(owner, SimpleNamespace(listener="PLAINTEXT"), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "partitions"), [*((n, 20) for n in range(14)), (0, 6_000), (8, 6_000), (12, 6_000)]
)
def test_addresses_are_moved_in_any_cut(version: int, partitions: int) -> None:
    chance, told = random.Random(version), []  # type: ignore[var-annotated]
    link = a_link(NAMES, told)
    link._expect(request(version))
    answers = link._answers
    frame = encoded_answer(request(version), answered(partitions))
    out, at, most_held = b"", 0, 0
    while at < len(frame):
        size = chance.choice((1, 7, 100)) if at < 700 else chance.choice((5_000, 60_000))
        out += b"".join(answers.feed(Route.UPSTREAM, frame[at : at + size]))
        most_held = max(most_held, answers.held_bytes)
        at += size
    plain = decoded_answer(request(version), frame, MetadataResponse)
    assert decoded_answer(request(version), out, MetadataResponse) == moved_metadata(plain, NAMES.get)
    assert int.from_bytes(out[:4], "big") == len(out) - 4
    assert len(told) == 1
    assert answers.held_bytes == len(answers) == 0
    if len(frame) > LARGE_BYTES:
        assert most_held < 2_000, "the rest leaves as it comes"


def test_a_large_answer_waits_for_its_turn() -> None:
    answers = Answers(MOST)
    answers.expect(Request(12, 4, 4, Route.OWN), Route.OWN)
    answers.expect(request(12), Route.UPSTREAM, lambda whole: whole, lambda part: b"new" + part[3:])
    frame = (LARGE_BYTES + 104).to_bytes(4, "big") + (5).to_bytes(4, "big") + bytes(LARGE_BYTES + 100)
    assert answers.feed(Route.UPSTREAM, frame[:50_000]) == []
    own = b"\0\0\0\4\0\0\0\4"
    assert b"".join(answers.feed(Route.OWN, own)) == own + b"new" + frame[3:50_000]
    assert b"".join(answers.feed(Route.UPSTREAM, frame[50_000:])) == frame[50_000:]
    assert len(answers) == answers.held_bytes == 0


def test_a_beginning_without_an_end_is_refused() -> None:
    link = a_link(NAMES, [])
    link._expect(request(12))
    frame = (100 * MOST).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"\0\0\0\0\0" + b"\xff\xff\xff\x7f"
    assert link._answers.feed(Route.UPSTREAM, frame) == []
    for _ in range(MOST // 65_536 - 1):
        assert link._answers.feed(Route.UPSTREAM, b"\2" * 65_536) == []
    with pytest.raises(ProtocolError, match="beginning"):
        link._answers.feed(Route.UPSTREAM, b"\2" * 65_536)


@pytest.mark.parametrize("partitions", [1, 6_000])
def test_an_answer_whose_brokers_have_no_listener_is_not_passed_on(partitions: int) -> None:
    link = a_link({}, [])
    link._expect(request(12))
    with pytest.raises(ProtocolError, match="no listener"):
        link._answers.feed(Route.UPSTREAM, encoded_answer(request(12), answered(partitions)))
    link = a_link({}, [])
    link._expect(request(12))
    nobody = encoded_answer(request(12), answered(partitions, brokers=()))
    assert b"".join(link._answers.feed(Route.UPSTREAM, nobody)) == nobody


@pytest.mark.parametrize("version", range(14))
def test_topics_are_read_in_steps(version: int) -> None:
    frame = encoded_answer(request(version), answered(1_700))
    steps = list(topics_of(frame, version, beginning_of(frame, version).topics))
    assert len(steps) >= 5_100 // PARTITIONS_A_STEP
    wanted = decoded_answer(request(version), frame, MetadataResponse).topics
    for found, topic in zip((topic for step in steps for topic in step), wanted, strict=True):
        assert (found.name, found.topic_id, found.is_internal) == (topic.name, topic.topic_id, topic.is_internal)
        assert [(row.partition_index, row.leader_id, row.replica_nodes) for row in found.partitions] == [
            (row.partition_index, row.leader_id, row.replica_nodes) for row in topic.partitions
        ]


@pytest.mark.parametrize("version", [0, 8, 12])
def test_damaged_answers_are_refused(version: int) -> None:
    """With a ProtocolError, wherever they end and whatever a byte is."""
    frame = encoded_answer(request(version), answered(2))
    chance = random.Random(version)
    for _ in range(3_000):
        damaged = bytearray(frame[: chance.randrange(8, len(frame) + 1)])
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            found = list(topics_of(bytes(damaged), version, beginning_of(bytes(damaged), version).topics))
        except ProtocolError:
            continue
        assert sum(len(step) for step in found) <= len(frame)
    with pytest.raises(ProtocolError):
        list(topics_of(frame[:-9], version, beginning_of(frame, version).topics))


async def test_an_answer_that_equals_the_last_one_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[UpstreamSeen] = []

    async def tell(event: UpstreamSeen) -> None:
        told.append(event)

    state: Any = SimpleNamespace(shards=(), acl_authorizer=None, serves_consumer_groups=True)
    view = View(None, (), gone_after_s=0)
    follower = Follower([("h", 1)], Security(), view, state, tell, lambda: None)
    metadata, steps = answered(1_500), 0
    follower._versions["h", 1] = {3: (0, 12)}

    async def ask_frame(*_: object) -> tuple[int, bytes]:
        return 12, encoded_answer(request(12), metadata)[4:]

    async def connect(*_: object) -> Any:
        return SimpleNamespace(ask_frame=ask_frame, address="h:1", closed=False)

    async def others() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(follower, "_any", connect)
    monkeypatch.setattr(follower, "_to", connect)
    counting = asyncio.get_running_loop().create_task(others())
    await follower._round()
    first, read = steps, len(told)
    assert first >= 4_500 // PARTITIONS_A_STEP, "others run between the steps"
    assert {topic.name for event in told for topic in event.topics} == {"topic-1", "topic-2", "topic-3"}
    await follower._round()
    assert (len(told), steps - first < first) == (read, True)
    metadata = answered(1_500, topics=2)
    for _ in range(3):
        await follower._round()
    counting.cancel()
    assert [event.gone for event in told[read:]] == [("topic-3",)]
