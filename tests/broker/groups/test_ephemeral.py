"""Members and groups that come and go by the thousand. The tests count operations, records and rebalances, not time.

A Worker does what a client does: it joins with two requests, syncs, and rejoins when it is told to. The world's clock
moves in steps, and at each step the workers look at what they were answered.
"""

from __future__ import annotations

from typing import Any

from group_driver import commit, join_request, leave
from wire_driver import Wire

from kohort.broker.messages import changed
from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.classic.group import Group
from kohort.wire.batches import read_header
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

STEP_MS = 100


class Worker:
    def __init__(self, wire: Wire, group: str = "g", instance: str | None = None) -> None:
        self.client = wire.connect(client_id="job")
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.stable = False
        self.join()

    def join(self) -> None:
        self.stable = False
        self.client.send(self.joins(), 9)
        self.look()

    def joins(self) -> JoinGroupRequest:
        metadata = bytes(1 if self.instance is None else 2_000)
        return join_request(
            self.group,
            self.member_id,
            rebalance_timeout_ms=60_000,
            group_instance_id=self.instance,
            protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
        )

    def look(self) -> None:
        while self.client.responses:
            self.answered(self.client.take())

    def answered(self, response: Any) -> None:
        match response:
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = response.member_id
                self.join()
            case JoinGroupResponse(error_code=0):
                self.member_id = response.member_id
                self.generation = response.generation_id
                self.client.send(self.sync(response), 5)
                self.look()
            case SyncGroupResponse(error_code=0):
                self.stable = True
            case HeartbeatResponse(error_code=0):
                pass
            case _:
                assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS, response
                self.join()

    def sync(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        members = joined.members if joined.leader == self.member_id else ()
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=tuple(SyncGroupRequestAssignment(member_id=m.member_id, assignment=b"part") for m in members),
        )

    def heartbeat(self) -> None:
        if self.stable:
            request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
            self.client.send(request, 4)
            self.look()

    def commit(self) -> None:
        fields = {"generation_id_or_member_epoch": self.generation, "member_id": self.member_id}
        assert commit(self.client, 1, 8, group=self.group, **fields) == 0

    def leave(self) -> None:
        leave(self.client, self.member_id, self.group)
        self.client.close()


def storm(wire: Wire, *, stay: int, come_and_go: int, seconds: int, heartbeat_ms: int) -> list[Worker]:
    """Some stay, others come evenly over the time, and leave as soon as they have their assignment."""
    staying = [Worker(wire) for _ in range(stay)]
    while not all(worker.stable for worker in staying):
        wire.advance(STEP_MS)
        for worker in staying:
            worker.look()
    passing: list[Worker] = []
    steps = seconds * 1000 // STEP_MS
    began = step = 0
    while step < steps or passing:
        step += 1
        while step < steps and began < come_and_go * step // steps:
            began += 1
            passing.append(Worker(wire))
        wire.advance(STEP_MS)
        for worker in (*staying, *passing):
            worker.look()
        if step % (heartbeat_ms // STEP_MS) == 0:
            for worker in (*staying, *passing):
                worker.heartbeat()
        for worker in passing:
            if worker.stable:
                worker.leave()
        passing = [worker for worker in passing if not worker.stable]
    return staying


def group_of(wire: Wire, name: str = "g") -> Group:
    return wire.shard(name).running.groups[name]


def stored_records(wire: Wire) -> int:
    """Records in `__consumer_offsets`."""
    return sum(
        read_header(batch.data).record_count
        for partition in wire.partitions(OFFSETS_TOPIC)
        for batch in wire.storage.read(partition.log, 0, 1 << 30)
    )


def operations(wire: Wire, worker: Worker) -> int:
    """How many bytecode instructions the server runs to take one JoinGroup of a member that is known to it."""
    return wire.operations(worker.client.frame(worker.joins(), 9))


class Asked(Worker):
    """It got a member id, and does not use it yet."""

    def answered(self, response: Any) -> None:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.member_id = response.member_id


def test_a_storm_makes_few_rebalances() -> None:
    """However fast the members that stay come back: those that come and go share the rebalances."""
    generations = {}
    for delay_ms in (3000, 0):
        wire = Wire(group_storm_rebalance_delay_ms=delay_ms)
        staying = storm(wire, stay=40, come_and_go=60, seconds=15, heartbeat_ms=200)
        generations[delay_ms] = max(worker.generation for worker in staying)
    assert 5 < generations[3000] <= 5 + 15 // 2 + 5
    assert generations[0] > 2 * generations[3000], "without the rule there would have been many"


def test_a_handful_of_members_never_waits_long() -> None:
    """However long members come and go, one after the other: each rebalance is over 250 ms after all have joined."""
    wire = Wire()
    client = wire.connect()
    first = Worker(wire)
    wire.advance(3000)
    first.look()
    assert first.stable
    waits = []
    for _ in range(12):
        newcomer = Worker(wire)
        newcomer.look()
        first.heartbeat()
        began = wire.now
        while not (newcomer.stable and first.stable):
            wire.advance(STEP_MS)
            for worker in (first, newcomer):
                worker.look()
        waits.append(wire.now - began)
        newcomer.leave()
        first.heartbeat()
        while not first.stable:
            wire.advance(STEP_MS)
            first.look()
    client.close()
    assert max(waits[:2]) <= STEP_MS, "the first rebalances in a row are no storm"
    assert 0 < max(waits) <= 250 + STEP_MS


def test_members_that_stay_keep_their_places_in_a_storm() -> None:
    wire = Wire()
    staying = storm(wire, stay=5, come_and_go=300, seconds=15, heartbeat_ms=1000)
    for _ in range(100):
        wire.advance(STEP_MS)
        for worker in staying:
            worker.look()
            worker.heartbeat()
    assert all(worker.stable for worker in staying)
    assert {worker.member_id for worker in staying} == set(group_of(wire).members)


def test_the_log_of_a_storm_stays_small() -> None:
    wire = Wire(
        log_retention_check_interval_ms=1000, log_cleaner_delete_retention_ms=5000, offsets_topic_history_bytes=0
    )
    staying = storm(wire, stay=5, come_and_go=2_000, seconds=60, heartbeat_ms=1000)
    generation = max(worker.generation for worker in staying)
    appended = sum(partition.end_offset for partition in wire.partitions(OFFSETS_TOPIC))
    assert appended <= 2 * generation + 2, "a generation and a group a rebalance, and the group's founding"
    assert appended < 100
    assert stored_records(wire) <= 2 + 2 * 15, "what came since the last compaction is not compacted yet"
    wire.advance(30_000)
    for worker in staying:
        worker.look()
    assert stored_records(wire) <= 5


def test_a_join_costs_the_same_in_a_large_group_and_after_many() -> None:
    wire = Wire(group_initial_rebalance_delay_ms=60_000)
    few = [Worker(wire) for _ in range(10)]
    first = [operations(wire, Asked(wire)) for _ in range(3)]
    many = [Worker(wire) for _ in range(1_000)]
    last = [operations(wire, Asked(wire)) for _ in range(3)]
    assert len(group_of(wire).members) == len(few) + len(many) + len(first) + len(last)
    assert min(first) > 500, "the count counts"
    assert max(last) < 1.1 * max(first)

    wire = Wire()
    storm(wire, stay=5, come_and_go=100, seconds=10, heartbeat_ms=500)
    first = [operations(wire, Asked(wire)) for _ in range(3)]
    wire = Wire()
    storm(wire, stay=5, come_and_go=3_000, seconds=60, heartbeat_ms=500)
    last = [operations(wire, Asked(wire)) for _ in range(3)]
    assert max(last) < 1.1 * max(first)


def test_clients_that_never_return_leave_nothing() -> None:
    wire = Wire(group_max_pending_members=100, offsets_retention_check_interval_ms=1000)
    client = wire.connect()
    for _ in range(3_000):
        assert client.ask(join_request(), 9).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(group_of(wire).pending) == 100
    shard = wire.shard()
    assert shard.running.deadlines.places <= 2 * 100 + 1_010
    wire.advance(15_000)
    assert not shard.running.groups
    assert wire.broker.next_deadline() is not None
    assert shard.next_deadline() is None


def test_groups_that_are_used_once_disappear_with_their_records() -> None:
    wire = Wire(
        log_retention_check_interval_ms=1000,
        log_cleaner_delete_retention_ms=5000,
        offsets_topic_history_bytes=0,
        group_initial_rebalance_delay_ms=0,
        group_max_former_groups=10,
        offsets_retention_minutes=60,
    )
    client = wire.connect()
    client.create_topic("t")
    for number in range(300):
        worker = Worker(wire, f"once-{number}")
        assert worker.stable
        worker.commit()
        worker.leave()
        wire.advance(STEP_MS)
    shards = wire.broker.state.shards
    assert sum(len(shard.running.groups) for shard in shards) == 300
    wire.advance(2 * 3_600_000)
    assert sum(len(shard.running.groups) + len(shard.hard.groups) + len(shard.hard.offsets) for shard in shards) == 0
    assert all(len(shard.hard.generations) <= 10 for shard in shards)
    for _ in range(2):  # the last batch of a log is never compacted
        for number in range(50):
            commit(client, 1, 8, group=f"other-{number}")
        wire.advance(60_000)
    assert stored_records(wire) <= 50 + len(shards) * (10 + 1) + 50
    again = Worker(wire.restarted(group_initial_rebalance_delay_ms=0), "once-7")
    assert again.generation > 2, "no generation of that name is given out again"


def test_members_of_a_large_group_that_return_together_write_it_once() -> None:
    wire = Wire()
    workers = [Worker(wire, instance=f"pod-{n}") for n in range(50)]
    wire.advance(6_000)
    for _ in range(2):  # the leader's assignment comes after some have asked for theirs
        for worker in workers:
            worker.look()
    assert all(worker.stable for worker in workers)
    before = stored_records(wire)
    wire.step(*(worker.client.frame(changed(worker.joins(), member_id=""), 9) for worker in workers))
    ids = {worker.client.take().member_id for worker in workers}
    assert stored_records(wire) == before + 1
    wire = wire.restarted()
    assert set(group_of(wire).members) == ids
    assert not ids & {worker.member_id for worker in workers}
