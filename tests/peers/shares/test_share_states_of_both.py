"""The durable state of share groups: its records, its APIs, and what is left of it after a crash."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from bench import _kafka
from kafka_peer import EVERYWHERE, LIKE_KOHORT
from msgspec.structs import replace as changed_to
from share_driver import ACCEPT, REJECT, RELEASE
from share_peers import SETTINGS, World, filled, make_ready, until
from share_requests import share_requests
from wire_driver import fetch_request

from kohort.coordinator import records
from kohort.coordinator.shares.records import parse
from kohort.coordinator.shares.state import Snapshot, Update
from kohort.testing import KohortServer
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest


def logged(world: World, topic: str, partitions: int) -> Iterator[Any]:
    """The records of an internal topic."""
    for index in range(partitions):
        position = 0
        while True:
            [part] = world.client.ask(fetch_request(topic, position, index), 11).responses[0].partitions
            batches = split_batches(part.records or b"", strict=False)
            if not batches:
                break
            for header, data in batches:
                position = header.base_offset + header.last_offset_delta + 1
                yield from [] if header.is_control else decode_records(data)


def stored(world: World) -> list[Snapshot | Update | None]:
    """The records of the group's share-partitions, in order. None: a tombstone."""
    found = [parse(one) for one in logged(world, "__share_group_state", 2)]
    return [value for key, value in filter(None, found) if key.group == world.group]


@pytest.mark.conformance("SH2")
def test_coordinators_of_share_partitions(world: World) -> None:
    topic_id = urlsafe_b64encode(world.create()).decode().rstrip("=")
    refused = (42, -1)
    keys = {f"g:{topic_id}:0": (0, 1), f"a:b:{topic_id}:0": (0, 1)}
    keys |= dict.fromkeys((f"g:{topic_id}:x", "g:AAAAA:0", "g:0", ""), refused)

    def coordinator(key: str) -> tuple[int, int] | None:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=(key,))
        [one] = world.client.ask(request, 6).coordinators
        return None if one.error_code == 15 else (one.error_code, one.node_id)

    found = {}
    for key in keys:
        found[key] = until(partial(coordinator, key), "the topic of the states is not there")
    assert found == keys


@pytest.mark.conformance("SH49", "SH63", "SH64", "SH65")
def test_records_of_the_state(world: World) -> None:
    [a] = filled(world, 5, "a")
    assert a.take_all(5) == [(0, 4, 1)]
    assert a.ack((1, 1, ACCEPT), (2, 2, REJECT)) == 0
    assert a.ack((3, 3, RELEASE)) == 0
    assert a.ack((0, 0, ACCEPT)) == 0
    assert a.ack((4, 4, ACCEPT)) == 0
    snapshot, *updates = stored(world)
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.snapshot_epoch, snapshot.start, snapshot.cells) == (0, -1, ())
    found = [(one.start, one.complete, one.cells) for one in updates if isinstance(one, Update)]
    assert len(found) == len(updates)
    assert found == world.either(
        kohort=[
            (0, 0, ()),
            (0, 2, ((1, 1, 2, 1), (2, 2, 4, 1))),
            (0, 2, ((3, 3, 0, 1),)),
            (3, 0, ()),
            (3, 1, ((4, 4, 2, 1),)),
        ],
        kafka=[
            (0, 2, ((1, 1, 2, 1), (2, 2, 4, 1))),
            (0, 2, ((3, 3, 0, 1),)),
            (0, 3, ((0, 0, 2, 1),)),
            (3, 1, ((4, 4, 2, 1),)),
        ],
    )


@pytest.mark.conformance("SH15")
def test_records_of_the_group(world: World) -> None:
    filled(world, 0, "a", partitions=2)
    found = {}
    for one in logged(world, "__consumer_offsets", 4):
        if 10 <= (kind := int.from_bytes(one.key[:2], "big")) <= 15:
            key, value = records.parse(one)
            if key.group_id == world.group:
                found[kind] = value
    assert sorted(found) == [10, 11, 12, 13, 14, 15]
    assert found[10].subscribed_topic_names == (world.topic,)
    assert found[11].epoch == found[12].assignment_epoch == found[14].member_epoch
    [target], [owned] = found[13].topic_partitions, found[14].assigned_partitions
    assert target == owned
    assert (target.topic_id, sorted(target.partitions)) == (world.topic_id, [0, 1])
    states = found[15]
    [topic] = states.initialized_topics
    assert (topic.topic_id, topic.topic_name, sorted(topic.partitions)) == (world.topic_id, world.topic, [0, 1])
    assert states.initializing_topics == states.deleting_topics == ()


@pytest.mark.conformance("SH66", "SH67", "SH68")
def test_the_state_is_read_and_written_by_tools(world: World) -> None:
    [a] = filled(world, 4, "a")
    assert a.take_all(4) == [(0, 3, 1)]
    assert a.ack((0, 0, ACCEPT), (2, 2, ACCEPT)) == 0
    asked = share_requests((world.topic,), (a.topic_id,), (0,))

    def to(name: str, version: int = 0, group: str = "", **partition: Any) -> Any:
        [topic] = asked[name].topics
        row = changed_to(topic.partitions[0], **partition)
        topics = (changed_to(topic, partitions=(row,)),)
        [result] = world.client.ask(type(asked[name])(group_id=group or world.group, topics=topics), version).results
        return result.partitions[0]

    none = f"{world.group}-none"
    found = to("ReadShareGroupState")
    ranges = [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in found.state_batches
    ]
    epoch = found.state_epoch
    assert (found.error_code, found.start_offset, ranges) == world.either(
        kohort=(0, 1, [(2, 2, 2, 1)]), kafka=(0, 0, [(0, 0, 2, 1), (2, 2, 2, 1)])
    )
    summary = to("ReadShareGroupStateSummary", 1)
    assert (summary.state_epoch, summary.leader_epoch) == (epoch, 0)
    assert summary.start_offset + summary.delivery_complete_count == 2
    absent = to("ReadShareGroupStateSummary", 1, none)
    assert (absent.error_code, absent.start_offset, absent.delivery_complete_count) == (0, -1, -1)
    assert (absent.state_epoch, absent.leader_epoch) == (0, 0)

    def error(*arguments: Any, **partition: Any) -> int:
        return int(to(*arguments, **partition).error_code)

    write, initialize = ("WriteShareGroupState", 1), ("InitializeShareGroupState",)
    assert error(*write, none) == error("ReadShareGroupState", 0, none) == 42
    assert error(*write, state_epoch=epoch - 1) == 124
    assert error(*write, state_epoch=epoch, leader_epoch=-1) == 0, "it is not compared"
    assert error(*write, state_epoch=epoch + 9, start_offset=1) == 0, "it is not stored"
    assert to("ReadShareGroupState").state_epoch == epoch
    assert error(*initialize, state_epoch=epoch - 1) == 124
    assert error(*initialize, state_epoch=epoch + 9) == 0
    assert error(*initialize, state_epoch=epoch + 8) == error(*write, state_epoch=epoch + 8) == 124
    # An initialization ends all locks. A leader of Apache Kafka learns of it with its next write.
    assert a.ack((1, 1, ACCEPT)) == world.either(kohort=121, kafka=6)
    assert error("ReadShareGroupState", leader_epoch=9) == 0
    assert error(*write, state_epoch=epoch + 9, leader_epoch=9) == 0
    assert error(*write, state_epoch=epoch + 9, leader_epoch=8) == error("ReadShareGroupState", leader_epoch=8) == 74
    assert error("DeleteShareGroupState") == error("DeleteShareGroupState") == 0
    assert error("ReadShareGroupState", leader_epoch=9) == 42
    assert stored(world)[-1] is None, "a tombstone"


@pytest.fixture(params=EVERYWHERE)
def restarting(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of the test's own: it has `kafka`, `servers`, and `kill` and `start`."""
    if request.param == "kohort":
        with KohortServer(group_share_enable=True, **SETTINGS) as running:
            yield running
    else:
        node = _kafka.Node(request.getfixturevalue("class_path"), LIKE_KOHORT, java_options=_kafka.BRIEF)
        node.start()
        yield node
        node.remove()


@pytest.mark.conformance("SH28", "SH32", "SH69")
def test_what_a_crash_leaves(restarting: Any) -> None:
    kafka = isinstance(restarting, _kafka.Node)
    servers = restarting.bootstrap_servers
    make_ready(servers)
    first, latest = (World(servers, name, kafka=kafka) for name in ("first", "latest"))
    [a] = filled(first, 5, "a")
    assert a.take_all(5) == [(0, 4, 1)]
    assert a.ack((0, 0, ACCEPT), (2, 2, REJECT), (3, 3, RELEASE)) == 0
    [b] = filled(latest, 2, "b", auto_offset_reset="latest")
    assert b.take(max_wait_ms=300) == []
    latest.put("after")
    restarting.kill()
    restarting.start()
    make_ready(servers)
    for world in first, latest:
        world.close()
    after = [World(servers, "later", kafka=kafka) for _ in range(2)]
    for world, member in zip(after, (a, b), strict=True):
        member.wire, member.connection = world, world.connect()
    a.epoch = 2
    assert a.ack((1, 1, ACCEPT)) == 122
    a.epoch = b.epoch = 0
    # 1 and 4 were delivered and not ended: that delivery is forgotten. 3 was given back.
    assert a.take_all(3) == [(1, 1, 1), (3, 3, 2), (4, 4, 1)]
    found = b.take(max_wait_ms=1_000)
    assert found == ([] if kafka else [(2, 2, 1)]), "Apache Kafka has not stored where the group began"
    for world in after:
        world.close()
