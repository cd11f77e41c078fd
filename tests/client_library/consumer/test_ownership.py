"""The partitions of a consumer, in either protocol, without IO: the steps, the hand-over and the loss."""

from __future__ import annotations

from typing import Any

from membership_driver import TOPIC_ID, EventDriver, answer, joined

from kohort.client.assignors import ASSIGNORS, subscription_bytes
from kohort.client.consumer.classic_ownership import ClassicOwnership
from kohort.client.consumer.consumer_ownership import ConsumerOwnership
from kohort.client.consumer.ownership import CountPartitions, GiveUp, NameTopics, Over, Take, Wait, Wanted
from kohort.client.membership.classic import Settings
from kohort.client.membership.consumer import ConsumerSettings
from kohort.wire.embedded import assignment_bytes, subscription_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
SESSION = 10_000


class World(EventDriver):
    """The test gives the coordinator's answers."""

    def __init__(self, ownership: Any, assignor: str = "") -> None:
        super().__init__(ownership.membership, self.pass_on, now=1_000)
        self.ownership = ownership
        self.assignor = assignor
        self.lost: list[set[Any]] = []
        ownership.subscribe(Wanted(("t",)), ("t",), self.now)
        self.step()

    def pass_on(self, event: Any) -> None:
        lost = self.ownership.on_event(event, self.now)
        if lost:
            self.lost.append(set(lost))

    def step(self) -> Any:
        step = self.ownership.step(self.now)
        self.act()
        return step

    def given_up(self, step: GiveUp) -> None:
        self.ownership.given_up(step, self.now)

    # -- the classic protocol

    def joined(self, generation: int, *, leader: str = "other") -> None:
        metadata = subscription_bytes(ASSIGNORS[self.assignor], ["t"])
        fields = {"generation_id": generation, "protocol_type": "consumer", "protocol_name": self.assignor}
        self.answer(joined(leader, metadata, **fields))

    def leads(self, generation: int, counts: dict[str, int]) -> None:
        """It joins as the leader, and divides topics of these sizes."""
        self.joined(generation, leader="a")
        step = self.step()
        assert isinstance(step, CountPartitions)
        assert step.topics == ("t",)
        self.ownership.partitions_counted(step, counts, self.now)
        self.act()

    def synced(self, *partitions: int, error: int = 0) -> None:
        self.answer(SyncGroupResponse(error_code=error, assignment=assignment_bytes([("t", partitions)])))

    def rebalances(self) -> None:
        self.answer(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def claimed(self) -> list[int]:
        """The partitions that the JoinGroup under way says are read on."""
        assert self.asked is not None
        assert isinstance(self.asked.request, JoinGroupRequest)
        said = subscription_of(self.asked.request.protocols[0].metadata)
        assert said is not None
        return [index for row in said.owned_partitions for index in row.partitions]


def classic(assignor: str = "range") -> World:
    return World(ClassicOwnership(Settings("g", (), session_timeout_ms=SESSION), [assignor]), assignor)


def owning(assignor: str = "cooperative-sticky") -> World:
    """A member that owns t-0 and t-1 and has sent the heartbeat after the sync."""
    world = classic(assignor)
    world.joined(1)
    world.synced(0, 1)
    assert world.step() == Take(frozenset({T0, T1}))
    assert world.ownership.owned == {T0: 1, T1: 1}
    assert world.step() == Wait()
    world.wake()
    return world


def test_an_eager_member_gives_up_everything_before_it_rejoins() -> None:
    world = owning("range")
    world.rebalances()
    step = world.step()
    assert step == GiveUp(frozenset({T0, T1}))
    assert world.ownership.owned == {T0: 1, T1: 1}  # until that is done
    world.given_up(step)
    assert (world.step(), world.claimed()) == (Wait(), [])
    world.joined(2)
    world.synced(1, 2)
    assert world.step() == Take(frozenset({T1, T2}))
    assert world.ownership.owned == {T1: 2, T2: 2}


def test_a_cooperative_member_keeps_what_stays_and_rejoins_when_it_has_given_up() -> None:
    world = owning()
    world.rebalances()
    assert (world.step(), world.claimed()) == (Wait(), [0, 1])
    assert world.ownership.owned == {T0: 1, T1: 1}
    world.joined(2)
    world.synced(0)
    step = world.step()
    assert step == GiveUp(frozenset({T1}))
    world.given_up(step)
    assert (world.step(), world.claimed()) == (Wait(), [0])  # so that another member gets t-1
    world.joined(3)
    world.synced(0, 2)
    assert world.step() == Take(frozenset({T2}))
    assert world.ownership.owned == {T0: 1, T2: 3}
    assert world.lost == []


def test_a_cooperative_member_that_is_forgotten_while_it_joins_has_lost_all() -> None:
    world = owning()
    world.rebalances()
    world.step()
    world.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, generation_id=-1, leader="", member_id=""))
    assert (world.lost, dict(world.ownership.owned)) == ([{T0, T1}], {})
    assert (world.step(), world.claimed()) == (Wait(), [])


def test_a_rebalance_over_a_rebalance_costs_a_cooperative_member_nothing() -> None:
    world = owning()
    world.rebalances()
    world.step()
    world.joined(2)
    world.synced(error=ErrorCode.REBALANCE_IN_PROGRESS)
    assert (world.step(), world.claimed(), world.lost) == (Wait(), [0, 1], [])


def test_a_cooperative_member_out_of_reach_loses_all_with_its_session() -> None:
    world = owning()
    world.rebalances()
    world.step()
    world.reachable = False
    world.membership.failed(world.now)  # its JoinGroup may not have come through
    world.act()
    world.wake(world.now + SESSION - 1)
    assert world.lost == []
    world.wake(world.now + 1)
    assert (world.lost, dict(world.ownership.owned)) == ([{T0, T1}], {})


def test_a_leader_divides_and_looks_after_the_sizes() -> None:
    world = classic()
    world.leads(1, {"t": 2})
    assert [row.member_id for row in world.asked.request.assignments] == ["a"]  # type: ignore[union-attr]
    world.synced(0, 1)
    assert world.step() == Take(frozenset({T0, T1}))
    assert (world.ownership.watched_topics(), world.ownership.topics_missing()) == (("t",), False)
    world.ownership.counts_refreshed({"t": 2}, world.now)
    assert world.step() == Wait()
    world.ownership.counts_refreshed({"t": 3}, world.now)
    assert world.step() == GiveUp(frozenset({T0, T1}))


def test_a_leader_rejoins_once_for_a_topic_that_was_missing() -> None:
    world = classic()
    world.leads(1, {})
    world.synced()
    assert (world.ownership.watched_topics(), world.ownership.topics_missing()) == (("t",), True)
    world.ownership.counts_refreshed({}, world.now)
    assert (world.step(), world.ownership.topics_missing()) == (Wait(), True)
    world.ownership.counts_refreshed({"t": 2}, world.now)
    assert not world.ownership.topics_missing()
    world.ownership.counts_refreshed({"t": 2}, world.now)
    assert world.step() == Wait()  # it is asked for once more
    world.leads(2, {"t": 2})
    world.synced(0, 1)
    assert world.step() == Take(frozenset({T0, T1}))
    assert world.step() == Wait()


# -- KIP-848


def kip848() -> World:
    """It has been assigned t-0 and t-1, and does not know the topic's name."""
    world = World(ConsumerOwnership(ConsumerSettings("g", "m", session_timeout_ms=SESSION)))
    world.answer(answer(1, (0, 1)))
    assert world.step() == NameTopics(("t",))
    assert world.ownership.owned == {}
    return world


def taking() -> World:
    world = kip848()
    world.ownership.topics_named({TOPIC_ID: "t"})
    assert world.step() == Take(frozenset({T0, T1}))
    assert world.ownership.owned == {T0: 1, T1: 1}
    assert world.step() == Wait()
    return world


def test_a_revocation_is_acknowledged_when_partitions_are_given_up() -> None:
    world = taking()
    world.answer(answer(1, (0,)))
    step = world.step()
    assert step == GiveUp(frozenset({T1}))
    assert T1 in world.ownership.owned
    asked = world.asked
    world.given_up(step)
    assert world.step() == Wait()
    assert world.asked is not asked
    [row] = world.asked.request.topic_partitions  # type: ignore[union-attr]
    assert row.partitions == (0,)


def test_partitions_that_were_never_taken_are_given_up_in_silence() -> None:
    world = kip848()
    world.answer(answer(1, ()))
    assert world.step() == Wait()
    assert world.lost == []


def test_a_fenced_member_loses_all_and_comes_back_with_later_epochs() -> None:
    world = taking()
    world.answer(answer(0, error=ErrorCode.FENCED_MEMBER_EPOCH))
    assert (world.lost, dict(world.ownership.owned)) == ([{T0, T1}], {})
    world.answer(answer(5, (0,)))
    assert world.step() == Take(frozenset({T0}))
    assert world.ownership.owned == {T0: 5}
    world.answer(answer(0, error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert world.step() == Over(ErrorCode.GROUP_AUTHORIZATION_FAILED)
