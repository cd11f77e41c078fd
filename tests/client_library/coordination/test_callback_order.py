"""Which callback is due when, without IO: the membership's answers are made up here."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from membership_driver import EventDriver, joined

from kohort.client.coordination.callback_order import (
    NO_GENERATION,
    Active,
    CallbackOrder,
    Complete,
    Divide,
    Failed,
    Generation,
    Join,
    Prepare,
    Wait,
)
from kohort.client.membership.classic import Lost, Membership, Settings
from kohort.client.membership.coordinator_requests import Ended
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

T = TypeVar("T")


class World(EventDriver):
    def __init__(self) -> None:
        membership = Membership(Settings("g", (), heartbeat_interval_ms=3_000, rejoins=False))
        super().__init__(membership, self.pass_on)
        self.order = CallbackOrder(membership)
        self.lost: list[Lost] = []

    def pass_on(self, event: Any) -> None:
        self.order.on_event(event)
        if isinstance(event, Lost):
            self.lost.append(event)

    def heartbeat(self, error: int = 0) -> None:
        self.wake(max(self.now, self.membership.next_deadline() or 0))
        self.answer(HeartbeatResponse(error_code=error))

    def join(self) -> None:
        assert self.order.step() == Join()
        self.order.join({"p": b"metadata"}, self.now)
        self.act()
        assert self.order.step() == Wait()

    def prepare_and_join(self) -> None:
        self.order.prepared()
        self.join()

    def rejoin(self) -> None:
        """The group rebalances."""
        self.heartbeat(27)
        self.prepare_and_join()

    def joined(self, generation: int = 1, leader: str = "b") -> None:
        self.answer(joined(leader, b"m", generation_id=generation, protocol_name="p"))

    def stable(self, generation: int = 1) -> None:
        self.joined(generation)
        self.answer(SyncGroupResponse(assignment=b"mine"))

    def due(self, kind: type[T]) -> T:
        """The step that is due, of this kind."""
        step = self.order.step()
        assert isinstance(step, kind)
        return step

    def complete(self) -> None:
        self.order.completed(self.due(Complete), self.now)
        assert self.order.step() == Active()
        assert self.order.active


def joining() -> World:
    world = World()
    world.prepare_and_join()
    return world


def active() -> World:
    world = World()
    assert world.order.step() == Prepare(NO_GENERATION)
    world.prepare_and_join()
    world.stable()
    world.complete()
    return world


def test_a_callback_is_due_until_it_has_succeeded() -> None:
    world = World()
    assert world.order.step() == world.order.step() == Prepare(NO_GENERATION)
    world.prepare_and_join()
    world.joined(leader="a")
    divide = world.due(Divide)
    assert world.order.step() == divide
    world.order.divided(divide, {"a": b"mine"}, world.now)
    world.act()
    assert world.order.step() == Wait()
    world.answer(SyncGroupResponse(assignment=b"mine"))
    complete = world.due(Complete)
    assert world.order.step() == complete
    assert not world.order.active
    world.order.completed(complete, world.now)
    assert world.order.active
    assert world.order.generation == Generation(1, "a", "p")


def test_a_rebalance_prepares_with_the_generation_that_ends() -> None:
    world = active()
    world.heartbeat(27)
    assert world.order.step() == Prepare(Generation(1, "a", "p"))
    world.prepare_and_join()
    world.stable(2)
    world.complete()


def test_a_lost_assignment_prepares_without_a_generation() -> None:
    for error, member_id in ((22, "a"), (25, "")):
        world = active()
        world.heartbeat(error)
        assert world.order.step() == Prepare(Generation(-1, member_id, None))
        world.prepare_and_join()


def test_an_assignment_lost_during_its_revocation_is_not_prepared_twice() -> None:
    world = active()
    world.heartbeat(27)
    world.order.prepared()
    world.heartbeat(25)
    assert world.order.generation == NO_GENERATION
    world.join()


@pytest.mark.parametrize("joined", [False, True])
def test_lost_while_it_joins_asks_for_metadata_again(joined: bool) -> None:
    world = active()
    world.rejoin()
    assert world.membership.lease_left(world.now) > 0  # it goes on with what it keeps
    if joined:
        world.joined(2)
        world.answer(SyncGroupResponse(error_code=25))
    else:
        world.answer(JoinGroupResponse(error_code=25, member_id="", leader="", members=()))
    assert [(lost.generation_id, lost.assignment) for lost in world.lost] == [(1, b"mine")]
    assert world.order.generation == NO_GENERATION
    assert world.membership.lease_left(world.now) == 0
    world.join()
    world.stable(3)
    world.complete()
    assert len(world.lost) == 1


def test_a_rebalance_during_the_sync_costs_nothing_that_is_kept() -> None:
    world = active()
    world.rejoin()
    world.joined(2)
    world.answer(SyncGroupResponse(error_code=27))
    assert world.membership.lease_left(world.now) > 0
    world.stable(3)
    world.complete()
    assert world.lost == []


def test_an_assignment_that_the_application_never_saw_is_not_prepared() -> None:
    world = joining()
    world.stable()
    world.heartbeat(27)
    assert world.order.step() == Join()


def test_an_assignment_whose_callback_failed_is_prepared() -> None:
    world = joining()
    world.stable()
    world.due(Complete)
    world.heartbeat(27)
    assert world.order.step() == Prepare(Generation(1, "a", "p"))


def test_results_that_come_too_late_are_ignored() -> None:
    world = joining()
    world.joined(leader="a")
    late = world.due(Divide)
    world.heartbeat(25)  # it joins again
    world.order.divided(late, {"a": b"of the past"}, world.now)
    world.act()
    assert world.order.step() == Wait()
    world.stable(2)
    old = world.due(Complete)
    world.heartbeat(27)
    world.order.completed(old, world.now)
    world.prepare_and_join()
    world.stable(3)
    new = world.due(Complete)
    world.order.completed(old, world.now)
    assert world.order.step() == new


def test_a_rejoin_that_is_wanted_while_a_round_runs_comes_after_it() -> None:
    world = joining()  # metadata has been asked already
    world.order.rejoin("metadata has changed", world.now)
    assert world.order.step() == Wait()
    world.stable()
    world.order.completed(world.due(Complete), world.now)
    world.act()
    assert world.order.step() == Prepare(Generation(1, "a", "p"))
    world.prepare_and_join()
    world.stable(2)
    world.complete()  # once


def test_a_rejoin_that_is_wanted_before_metadata_is_asked_takes_no_other_round() -> None:
    world = active()
    world.heartbeat(27)
    world.order.rejoin("metadata has changed", world.now)
    world.prepare_and_join()
    world.stable(2)
    world.complete()


def test_the_end() -> None:
    world = active()
    world.heartbeat(82)
    assert world.order.step() == Failed(82)
    assert not world.order.active
    assert world.order.generation == NO_GENERATION


def test_a_new_membership_prepares_for_what_was_left() -> None:
    world = active()
    world.heartbeat(30)
    anew = world.order.anew(Membership(world.membership.settings))
    assert anew.step() == Prepare(NO_GENERATION)
    world.order.on_event(Ended(0))
    anew.prepared()
    assert anew.anew(Membership(world.membership.settings)).step() == Join()
