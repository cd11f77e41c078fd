"""The cost of a held heartbeat: bytes, entries in the heaps of deadlines, and one deadline for all of them."""

from __future__ import annotations

import gc
import tracemalloc

from wire_driver import Wire

from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

GROUPS, MEMBERS = 5, 100
BYTES = 1_500
"""Of one held heartbeat, at most: it is some 900."""


def beat(group: str, name: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    joins = epoch == 0
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=name,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000 if joins else -1,
        subscribed_topic_names=("nowhere",) if joins else None,
        topic_partitions=() if joins else None,
    )


def test_held_heartbeats_are_small_and_leave_nothing_behind() -> None:
    wire = Wire(group_consumer_assignment_interval_ms=0)
    people = [(wire.connect(), f"g{n // MEMBERS}", f"member-{n:013}") for n in range(GROUPS * MEMBERS)]
    epochs = {name: client.ask(beat(group, name, 0), 1).member_epoch for client, group, name in people}
    shards = wire.broker.state.shards

    def hold() -> None:
        for client, group, name in people:
            client.send(beat(group, name, epochs[name]), 1)
        assert not any(client.responses for client, _, _ in people)
        assert sum(shard.consumers.holds.count for shard in shards) == len(people)

    def end() -> None:
        wire.advance(4_500)
        for client, _, name in people:
            epochs[name] = client.take().member_epoch
        assert not any(shard.consumers.holds.count or shard.running.parked for shard in shards)

    hold()
    end()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        hold()
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / len(people)
    finally:
        tracemalloc.stop()
    assert each < BYTES
    end()
    hold()
    end()
    places = sum(shard.running.deadlines.places for shard in shards)
    assert places <= 2 * len(people), "a session and a hold of each, however often it was held"
    assert len(wire.broker.state.machines.deadlines._heap) <= 2 * len(shards) + 64, (
        "the server waits for the next one only"
    )
