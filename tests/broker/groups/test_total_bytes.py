"""What the members of all groups bring is bounded together (group.max.total.bytes), over all shards."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest
from wire_driver import Connection, Wire

from kohort.broker.messages import changed
from kohort.coordinator.hard_state import former_size
from kohort.coordinator.member_bytes import COUNT_AGAIN_MS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MIB = 1 << 20
WIDE = "\U0001f600" * 7_000
NAMES = tuple(f"{number:x}" for number in range(9_900))
"""Each has a few characters, and its place in two indexes."""


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


def memory_of(root: object) -> int:
    """The bytes of everything that this object leads to."""
    found, seen, left = 0, set[int](), [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | MethodType):
            continue
        seen.add(id(one))
        found += sys.getsizeof(one)
        left += gc.get_referents(one)
        if isinstance(one, dict):
            left += one.keys()  # those that are texts are no referents
    return found


def many_names(client: Connection, number: int) -> None:
    client.ask(beat(f"g{number}", NAMES), 1)


def long_names(client: Connection, number: int) -> None:
    client.client_id = "c" * 30_000
    joined = changed(beat(f"g{number}{WIDE}", ("orders",)), member_id=f"m{number}{WIDE}", rack_id=f"r{number}{WIDE}")
    client.ask(changed(joined, instance_id=f"i{number}{WIDE}"), 1)


def long_pattern(client: Connection, number: int) -> None:
    regex = f"{number}" + "a" * 2_000
    client.ask(changed(beat(f"g{number}", ()), subscribed_topic_names=None, subscribed_topic_regex=regex), 1)


def classic(group: str, **fields: Any) -> JoinGroupRequest:
    return changed(join(group, 0), session_timeout_ms=1_800_000, **fields)


def many_protocols(client: Connection, number: int) -> None:
    protocols = tuple(JoinGroupRequestProtocol(name=f"{at:x}", metadata=b"") for at in range(999))
    client.ask(classic(f"g{number}", protocol_type="x", protocols=protocols, group_instance_id="i"), 9)


def long_names_of_classic(client: Connection, number: int) -> None:
    client.client_id = "c" * 30_000
    long = classic(f"g{number}{WIDE}", protocol_type=f"x{number}{WIDE}", group_instance_id=f"i{number}{WIDE}")
    client.ask(changed(long, protocols=(JoinGroupRequestProtocol(name=f"p{number}{WIDE}", metadata=b""),)), 9)


def ids_given_out(client: Connection, number: int) -> None:
    client.client_id = "c" * 30_000
    assert client.ask(classic("g"), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED


def groups_of_ids(client: Connection, number: int) -> None:
    client.ask(classic(f"g{number}"), 9)


def emptied(client: Connection, number: int) -> None:
    client.ask(beat(f"g{number}", ("orders",)), 1)
    client.ask(changed(beat(f"g{number}", ()), member_epoch=-1), 1)


@pytest.mark.parametrize(
    ("ask", "times"),
    [
        (many_names, 4),
        (long_names, 10),
        (long_pattern, 30),
        (many_protocols, 10),
        (long_names_of_classic, 10),
        (ids_given_out, 100),
        (groups_of_ids, 100),
        (emptied, 100),
    ],
)
def test_what_requests_leave_in_memory_counts(ask: Callable[[Connection, int], None], times: int) -> None:
    wire = Wire()
    client = wire.connect()
    ask(client, 1_000)  # what comes with the first one

    def state() -> int:
        return sum(memory_of(part) for shard in wire.broker.state.shards for part in (shard.hard, shard.running.groups))

    def held() -> int:
        return sum(shard.running.held_bytes for shard in wire.broker.state.shards)

    memory_before, held_before = state(), held()
    for number in range(times):
        ask(client, 1_001 + number)
    took, counted = state() - memory_before, held() - held_before
    assert took > 300 * times, "the requests are served"
    assert took <= 1.25 * counted <= 4 * took, (took // times, counted // times)


def assigned(wire: Wire) -> int:
    return sum(shard.running.assigned_partitions for shard in wire.broker.state.shards)


def test_a_small_join_that_would_be_assigned_many_partitions_is_refused() -> None:
    """Half of 4 MB are 8,192 partitions at 256 bytes; requests that bring more than 64 kB get three quarters of it."""
    wire = Wire(group_max_total_bytes=4 * MIB)
    client = wire.connect()
    client.create_topic("wide", 1_500)
    client.create_topic("small")
    errors = [client.ask(beat(f"g{number}", ("wide",)), 1).error_code for number in range(6)]
    assert errors == [ErrorCode.NONE] * 4 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert assigned(wire) == 4 * 1_500
    assert client.ask(beat("g0", ("wide",)), 1).error_code == ErrorCode.NONE, "it adds nothing"
    joined = client.ask(beat("others", ("small",)), 1)
    assert [topic.partitions for topic in joined.assignment.topic_partitions] == [(0,)]
    client.ask(changed(beat("g1", ()), member_epoch=-1), 1)
    assert assigned(wire) == 3 * 1_500 + 1
    wire.advance(COUNT_AGAIN_MS)
    assert client.ask(beat("g5", ("wide",)), 1).error_code == ErrorCode.NONE


def test_topics_that_grow_beyond_the_room_are_not_assigned_until_there_is_room() -> None:
    wire = Wire(group_max_total_bytes=4 * MIB)
    client = wire.connect()
    for name in "abcde":
        client.ask(beat(name, ("grows",)), 1)
    client.create_topic("grows", 1_500)
    wire.advance(1_000)

    def targets() -> dict[str, int]:
        return {name: len(wire.shard(name).hard.consumers.groups[name].targets.get("m", ())) for name in "abcde"}

    assert sorted(targets().values()) == [0, 1_500, 1_500, 1_500, 1_500]
    [refused] = [name for name, count in targets().items() if not count]
    stories = b"".join(wire.broker.state.groups.journal.stories(refused, 5))
    assert b"1500 partitions are too many for group.max.total.bytes" in stories
    wire = wire.restarted(group_max_total_bytes=4 * MIB)
    assert assigned(wire) == 4 * 1_500, "what the records say counts"
    gone = next(name for name in "abcde" if name != refused)
    wire.connect().ask(changed(beat(gone, ()), member_epoch=-1), 1)
    assert targets()[refused] == 0
    wire.advance(30_000)
    assert targets()[refused] == 1_500


def test_the_assignments_of_classic_groups_count() -> None:
    """A leader may send 16 MB of them in each group."""
    wire = Wire(group_max_total_bytes=4 * MIB)
    errors = []
    for number in range(4):
        client = wire.connect()
        client.send(join(f"g{number}", 10), 3)
        wire.advance(3_000)
        joined = client.take()
        given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(500_000))
        sync = SyncGroupRequest(
            group_id=f"g{number}",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=(given,),
        )
        errors.append(client.ask(sync, 2).error_code)
    assert errors == [ErrorCode.NONE] * 3 + [ErrorCode.UNKNOWN_SERVER_ERROR]
    held = sum(shard.running.held_bytes for shard in wire.broker.state.shards)
    assert held < 2 * MIB


def test_a_small_group_rebalances_on_a_full_server() -> None:
    """A cooperative group's second assignment is larger than its first. Refused, its members would begin again."""
    wire = Wire(group_max_total_bytes=MIB)
    client, hostile = wire.connect(), wire.connect()
    first = client.ask(classic("victim", protocol_type="x", group_instance_id="i"), 7)
    sync = SyncGroupRequest(
        group_id="victim",
        generation_id=first.generation_id,
        member_id=first.member_id,
        group_instance_id="i",
        assignments=(SyncGroupRequestAssignment(member_id=first.member_id, assignment=bytes(50)),),
    )
    assert client.ask(sync, 3).error_code == ErrorCode.NONE
    for number in range(400):
        hostile.ask(beat(f"g{number}", ("orders",)), 1)
        wire.advance(COUNT_AGAIN_MS if number % 50 == 0 else 0)
    assert hostile.ask(beat("one-more", ("orders",)), 1).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = client.ask(classic("victim", protocol_type="x", group_instance_id="i", member_id=first.member_id), 7)
    given = SyncGroupRequestAssignment(member_id=first.member_id, assignment=bytes(500))
    assert client.ask(changed(sync, generation_id=again.generation_id, assignments=(given,)), 3).error_code == 0


def test_requests_that_are_refused_do_not_count_all_groups_each() -> None:
    """With thousands of groups that took milliseconds for every join."""
    wire = Wire(group_max_total_bytes=4 * MIB)
    client = wire.connect()
    for number in range(600):
        client.ask(changed(beat(f"g{number}", ("orders",)), member_id=f"m{number}"), 1)
        if number % 50 == 0:
            wire.advance(COUNT_AGAIN_MS)
    wire.advance(COUNT_AGAIN_MS)

    def cost() -> int:
        return wire.operations(client.frame(changed(beat("g", ("orders",)), member_id="new"), 1))

    counting, *others = (cost() for _ in range(3))
    assert max(others) < counting / 2
    assert client.responses.pop().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_names_of_groups_that_are_gone_do_not_wait_for_the_expiry_of_offsets() -> None:
    wire = Wire(group_max_former_groups=20, offsets_topic_num_partitions=1)
    client = wire.connect()
    for number in range(100):
        name = f"g{number}{'n' * 1_000}"
        client.ask(beat(name, ("orders",)), 1)
        client.ask(changed(beat(name, ()), member_epoch=-1), 1)
        client.ask(DeleteGroupsRequest(groups_names=(name,)), 2)
    hard = wire.shard("g").hard
    assert 0 < len(hard.generations) < 20
    assert f"g99{'n' * 1_000}" in hard.generations
    assert hard.forgotten > 0, "new groups count on from there"
    assert hard.generations_size == sum(map(former_size, hard.generations))
