"""The member without IO: its phases, and what each error code makes it do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from membership_driver import MembershipDriver, joined

from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Protocol, Settings
from kohort.client.membership.coordinator_requests import Ask, Ended, FindCoordinator
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

SETTINGS = Settings(
    "orders",
    (Protocol("range", b"subscription"),),
    session_timeout_ms=10_000,
    rebalance_timeout_ms=30_000,
    heartbeat_interval_ms=3_000,
    request_timeout_ms=4_000,
)


class Driver(MembershipDriver):
    def __init__(self, **settings: Any) -> None:
        super().__init__(Membership(dataclasses.replace(SETTINGS, **settings)))

    def heartbeat(self, error: int = 0) -> None:
        assert isinstance(self.beat(), HeartbeatRequest)
        self.respond(HeartbeatResponse(error_code=error))


def joining(**settings: Any) -> Driver:
    driver = Driver(**settings)
    assert isinstance(driver.first_request(), JoinGroupRequest)
    return driver


def syncing() -> Driver:
    """A member whose SyncGroup is under way; it does not lead."""
    driver = joining()
    driver.respond(joined(leader="b"))
    driver.asked()
    return driver


def stable(**settings: Any) -> Driver:
    driver = joining(**settings)
    driver.respond(joined(leader="b"))
    request = driver.asked()
    assert isinstance(request, SyncGroupRequest)
    assert request.assignments == ()
    driver.respond(SyncGroupResponse(assignment=b"mine"))
    [assigned] = driver.take(Assigned)
    assert (assigned.generation_id, assigned.assignment, assigned.leads) == (3, b"mine", False)
    driver.heartbeat()
    assert driver.now == 0  # right after the sync, so that the coordinator has one to answer
    return driver


def refused(error: int, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, leader="", members=())


def test_a_member_id_is_asked_for_and_used() -> None:
    driver = Driver()
    assert driver.first_request().member_id == ""
    with pytest.raises(ValueError, match="joining"):
        driver.member.join(driver.now)
    driver.respond(refused(79, "a"))
    assert driver.asked().member_id == "a"


def test_the_leader_assigns() -> None:
    driver = joining()
    driver.respond(joined("a", b"s"))
    [assign] = driver.take(Assign)
    assert (assign.generation_id, assign.protocol) == (3, "range")
    assert assign.members == (JoinGroupResponseMember(member_id="a", metadata=b"s"),)
    driver.member.assign(2, {"a": b"of another generation"}, driver.now)
    driver.take()
    driver.member.assign(3, {"a": b"all"}, driver.now)
    assert [(a.member_id, a.assignment) for a in driver.asked().assignments] == [("a", b"all")]


def test_a_leader_that_returned_skips_the_assignment() -> None:
    driver = joining(instance_id="i")
    driver.respond(joined(leader="a", skip_assignment=True))
    request = driver.asked()
    assert isinstance(request, SyncGroupRequest)
    assert request.assignments == ()


def test_a_rebalance_revokes_first() -> None:
    driver = stable()
    driver.heartbeat(27)
    assert driver.now == 3_000
    [let_go] = driver.take(LetGo)
    assert (let_go.generation_id, let_go.assignment) == (3, b"mine")
    driver.heartbeat(27)  # it goes on to heartbeat while the application finishes
    driver.take()
    driver.member.let_go(driver.now)
    request = driver.asked()
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == "a"


@pytest.mark.parametrize(("error", "member_id"), [(22, "a"), (25, "")])
def test_a_heartbeat_that_is_refused_loses_the_assignment(error: int, member_id: str) -> None:
    driver = stable()
    driver.heartbeat(error)
    lost, request = driver.take(Lost, Ask)
    assert lost.assignment == b"mine"
    assert request.member_id == member_id


@pytest.mark.parametrize("error", [82, 30])
def test_a_fenced_member_is_over(error: int) -> None:
    driver = stable(instance_id="i")
    driver.heartbeat(error)
    _, ended = driver.take(Lost, Ended)
    assert ended.error == error
    assert driver.member.phase is Phase.ENDED
    assert driver.member.next_deadline() is None


@pytest.mark.parametrize("error", [15, 16])
def test_the_coordinator_moved(error: int) -> None:
    driver = stable()
    driver.heartbeat(error)
    driver.find()
    driver.take()  # not before its backoff
    driver.heartbeat()


@pytest.mark.parametrize("error", [14, 27])
def test_a_join_is_asked_again_after_a_growing_backoff(error: int) -> None:
    driver = joining()
    waits = []
    for _ in range(6):
        driver.respond(refused(error))
        driver.take()
        before = driver.now
        driver.beat()
        waits.append(driver.now - before)
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.parametrize("error", [23, 24, 26, 30, 81, 82])
def test_a_join_that_cannot_succeed_ends_it(error: int) -> None:
    driver = joining()
    driver.respond(refused(error))
    assert driver.take(Ended)[0].error == error


@pytest.mark.parametrize("error", [22, 27])
def test_a_sync_of_an_old_generation_joins_again(error: int) -> None:
    driver = syncing()
    driver.respond(SyncGroupResponse(error_code=error, assignment=b""))
    assert driver.asked().member_id == "a"


def test_an_answer_that_does_not_come_costs_the_connection() -> None:
    driver = joining()
    assert driver.member.next_deadline() == 35_000  # a JoinGroup may be parked for the rebalance timeout
    driver.until_due()
    driver.take(FindCoordinator)
    driver.respond(joined(leader="b"))
    driver.take()  # too late


def test_a_session_without_answers_loses_the_assignment() -> None:
    driver = stable()
    for _ in range(2):
        driver.until_due()
        driver.member.take()
    assert driver.now < 10_000
    while driver.member.phase is Phase.STABLE:
        driver.until_due()
    assert sum(isinstance(action, Lost) for action in driver.member.take()) == 1
    assert driver.now == 10_000  # counted from when the last request that was answered had been sent


def test_an_assignment_that_comes_after_a_session_is_confirmed_first() -> None:
    driver = syncing()
    driver.now = 11_000
    driver.respond(SyncGroupResponse(assignment=b"mine"))
    assert isinstance(driver.asked(), HeartbeatRequest)
    driver.respond(HeartbeatResponse())
    assert driver.take(Assigned)[0].assignment == b"mine"


def test_leaving() -> None:
    driver = stable()
    assert driver.member.lease_left(driver.now) > 0
    driver.member.leave(driver.now, "done")
    assert driver.member.lease_left(driver.now) == 0
    _, request = driver.take(Lost, Ask)
    assert isinstance(request, LeaveGroupRequest)
    assert (request.members[0].member_id, request.members[0].reason) == ("a", "done")
    driver.respond(LeaveGroupResponse())
    assert driver.take(Ended)[0].error == 0


def test_a_static_member_sends_no_leave_so_that_it_may_return() -> None:
    driver = stable(instance_id="i")
    driver.member.leave(driver.now)
    driver.take(Lost, Ended)


def test_a_changed_subscription_rebalances() -> None:
    driver = stable()
    driver.member.subscribe((Protocol("range", b"more"),), driver.now)
    driver.take(LetGo)
    driver.member.let_go(driver.now)
    assert driver.asked().protocols[0].metadata == b"more"


@pytest.mark.parametrize(
    ("error", "kinds"),
    [(27, [LetGo]), (22, [Lost, Ask]), (25, [Lost, Ask]), (82, [Lost, Ended]), (16, [FindCoordinator]), (12, [])],
)
def test_the_answers_to_a_commit(error: int, kinds: list[type]) -> None:
    driver = stable()
    driver.member.commit_answered(error, 2, driver.now)
    driver.take()  # of an older generation: it says nothing about this one
    driver.member.commit_answered(error, 3, driver.now)
    driver.take(*kinds)


def test_after_a_held_heartbeat_the_next_one_goes_out_at_once() -> None:
    driver = stable()
    driver.beat()
    driver.now += 2_500
    driver.respond(HeartbeatResponse())
    assert driver.member.owns(12_999)
    assert not driver.member.owns(13_000)  # a session from when it was sent
    assert driver.member.lease_left(12_000) == 1_000
    assert isinstance(driver.beat(), HeartbeatRequest)
    assert driver.now == 5_500


def test_a_lease_ends_with_the_rebalance_timeout() -> None:
    """Heartbeats keep a session alive while the group rebalances, but a member that does not rejoin loses its
    place."""
    driver = stable(session_timeout_ms=10_000, rebalance_timeout_ms=20_000)  # certain of its ownership until 0
    for news in ([LetGo], [], [], [], []):
        driver.heartbeat(27)
        driver.take(*news)
    assert driver.now == 15_000
    assert driver.member.owns(24_999)
    assert driver.member.lease_left(driver.now) == 5_000


@pytest.mark.parametrize(("error", "member_id"), [(22, "a"), (25, "")])
def test_a_member_that_does_not_rejoin_by_itself_waits_outside(error: int, member_id: str) -> None:
    driver = stable(rejoins=False)
    driver.heartbeat(error)
    driver.take(Lost)
    assert driver.member.phase is Phase.OUTSIDE
    assert driver.member.next_deadline() is None
    driver.member.join(driver.now)
    assert driver.asked().member_id == member_id


def test_a_member_outside_looks_for_its_coordinator_when_it_joins_again() -> None:
    driver = stable(rejoins=False)
    while driver.member.phase is Phase.STABLE:
        driver.until_due()
    assert isinstance(driver.member.take()[-1], Lost)
    driver.member.coordinator_found(driver.now)
    driver.take()
    driver.member.join(driver.now)
    assert isinstance(driver.asked(), JoinGroupRequest)


def test_a_member_owns_by_the_clock() -> None:
    assert not Driver().member.owns(0)
    driver = stable()
    assert driver.member.owns(9_999)
    assert not driver.member.owns(10_000)  # nobody has woken it yet
