"""The member of a share group without IO: its requests and their times, its partitions, its reaction to each error."""

from __future__ import annotations

import pytest
from membership_driver import TOPIC_ID, MembershipDriver

from kohort.client.membership.coordinator_requests import Ask, Ended, FindCoordinator
from kohort.client.membership.epoch_member import Phase, Waits
from kohort.client.membership.share import Fetches, ShareMembership, ShareSettings
from kohort.wire.schemas.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions


def answer(epoch: int = 1, assigned: tuple[int, ...] | None = None, error: int = 0) -> ShareGroupHeartbeatResponse:
    assignment = None
    if assigned is not None:
        assignment = Assignment(topic_partitions=(TopicPartitions(topic_id=TOPIC_ID, partitions=assigned),))
    return ShareGroupHeartbeatResponse(
        error_code=error, member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment
    )


class Driver(MembershipDriver):
    member: ShareMembership

    def __init__(self) -> None:
        super().__init__(ShareMembership(ShareSettings("mailers", "m", ("jobs",), request_timeout_ms=4_000)))

    def joined(self) -> None:
        self.member.join(self.now)
        self.take(FindCoordinator)
        self.member.coordinator_found(self.now)
        self.take(Ask)
        self.respond(answer(1, (0, 1)))
        self.take(Fetches)

    def due(self) -> None:
        deadline = self.member.next_deadline()
        assert deadline is not None
        self.now = deadline
        self.member.wake(self.now)


def test_a_member_joins_heartbeats_and_leaves() -> None:
    driver = Driver()
    driver.member.join(0)
    driver.take(FindCoordinator)
    driver.member.coordinator_found(0)
    [first] = driver.take(Ask)
    assert (first.member_epoch, first.subscribed_topic_names, first.member_id) == (0, ("jobs",), "m")
    driver.respond(answer(3, (0, 1)))
    assert driver.take(Fetches) == [Fetches(3, frozenset({(TOPIC_ID, 0), (TOPIC_ID, 1)}))]
    driver.due()
    assert driver.now == 5_000
    [second] = driver.take(Ask)
    assert (second.member_epoch, second.subscribed_topic_names) == (3, None)
    driver.respond(answer(4))
    driver.take()
    driver.member.leave(driver.now)
    [last] = driver.take(Ask)
    assert last.member_epoch == -1
    driver.respond(answer(-1))
    assert driver.take(Ended) == [Ended(0)]
    assert driver.member.next_deadline() is None


@pytest.mark.parametrize("error", [25, 110, 69])
def test_a_member_that_is_fenced_joins_again_at_once(error: int) -> None:
    driver = Driver()
    driver.joined()
    driver.due()
    driver.take(Ask)
    driver.respond(answer(error=error))
    [again] = driver.take(Ask)
    assert (again.member_epoch, again.subscribed_topic_names) == (0, ("jobs",))
    driver.respond(answer(7, (1,)))
    assert driver.take(Fetches) == [Fetches(7, frozenset({(TOPIC_ID, 1)}))]


def test_a_broken_connection_and_a_lost_answer() -> None:
    driver = Driver()
    driver.joined()
    driver.member.failed(driver.now)
    driver.take(FindCoordinator)
    driver.member.coordinator_found(driver.now)
    driver.take()  # not before the pause is over
    driver.due()
    [again] = driver.take(Ask)
    assert (again.member_epoch, again.subscribed_topic_names) == (1, ("jobs",))
    driver.due()  # no answer in time
    driver.take(FindCoordinator)


def test_errors_of_a_moment() -> None:
    driver = Driver()
    driver.joined()
    for error, actions in ((14, []), (29, [Waits]), (29, []), (16, [FindCoordinator])):
        driver.due()
        driver.take(Ask)
        driver.respond(answer(error=error))
        driver.take(*actions)
    assert driver.member.phase is Phase.MEMBER


@pytest.mark.parametrize("error", [30, 35, 42, 81])
def test_an_error_that_ends_the_membership(error: int) -> None:
    driver = Driver()
    driver.joined()
    driver.due()
    driver.take(Ask)
    driver.respond(answer(error=error))
    assert driver.take(Ended) == [Ended(error)]
    driver.member.leave(driver.now)
    driver.take()


def test_a_group_of_another_kind_ends_the_membership_at_once() -> None:
    driver = Driver()
    driver.member.join(0)
    driver.take(FindCoordinator)
    driver.member.coordinator_found(0)
    driver.take(Ask)
    driver.respond(answer(error=69))
    assert driver.take(Ended) == [Ended(69)]
