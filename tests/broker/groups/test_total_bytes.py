"""What the members of all groups bring is bounded together (group.max.total.bytes), over all shards."""

from __future__ import annotations

from wire_driver import Wire

from kohort.broker.messages import changed
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol

MIB = 1 << 20


def join(group: str, size: int) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )


def beat(group: str, names: tuple[str, ...]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=names,
        topic_partitions=(),
    )


def test_large_members_of_many_groups_are_refused_before_small_ones() -> None:
    wire = Wire(group_max_total_bytes=8 * MIB)
    for i in range(5):
        wire.connect().send(join(f"large-{i}", 900_000), 3)
    held = sum(shard.running.held_bytes for shard in wire.broker.state.shards)
    assert 2 * MIB < held <= 3 * MIB
    client = wire.connect()
    assert client.ask(join("later", 900_000), 4).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.ask(join("later", 200), 4).error_code == ErrorCode.MEMBER_ID_REQUIRED
    names = tuple(f"{i}-{'n' * 200}" for i in range(4_000))
    assert client.ask(beat("consumers", names), 1).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.ask(beat("consumers", ("orders",)), 1).error_code == ErrorCode.NONE


def test_members_count_however_small_they_are() -> None:
    """One connection can register any number of members of consumer groups."""
    wire = Wire(group_max_total_bytes=MIB)
    client = wire.connect()
    errors = []
    for number in range(300):
        joined = beat(f"g{number % 7}", ("orders",))
        errors.append(client.ask(changed(joined, member_id=f"m{number}"), 1).error_code)
    accepted = errors.count(ErrorCode.NONE)
    assert errors == [ErrorCode.NONE] * accepted + [ErrorCode.GROUP_MAX_SIZE_REACHED] * (300 - accepted)
    assert 200 < accepted < 256
    known = changed(beat("g0", ("orders",)), member_id="m0")
    assert client.ask(known, 1).error_code == ErrorCode.NONE, "it adds nothing"
    wire.advance(3_000)
    client.ask(changed(beat("g1", ()), member_id="m1", member_epoch=-1), 1)
    assert client.ask(changed(beat("g2", ("orders",)), member_id="new"), 1).error_code == ErrorCode.NONE
