"""The member of a consumer group without IO: its requests and their times, its partitions, its reaction to each
error."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from membership_driver import TOPIC_ID, MembershipDriver, answer

from kohort.client.membership.consumer import (
    Added,
    Assured,
    ConsumerMembership,
    ConsumerSettings,
    Doubtful,
    Lost,
    Revoke,
    Subscription,
)
from kohort.client.membership.coordinator_requests import Ask, Ended, FindCoordinator
from kohort.client.membership.epoch_member import Phase, Waits
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

SETTINGS = ConsumerSettings(
    "orders", "m", rebalance_timeout_ms=30_000, session_timeout_ms=10_000, request_timeout_ms=4_000
)


def partitions(*numbers: int) -> frozenset[tuple[bytes, int]]:
    return frozenset((TOPIC_ID, number) for number in numbers)


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    """The partitions that the request says are owned."""
    if request.topic_partitions is None:
        return None
    return [number for topic in request.topic_partitions for number in topic.partitions]


class Driver(MembershipDriver):
    def __init__(self, topics: tuple[str, ...] = ("t",), regex: str | None = None, **settings: Any) -> None:
        super().__init__(ConsumerMembership(dataclasses.replace(SETTINGS, **settings), Subscription(topics, regex)))

    def answer(self, *arguments: Any, **named: Any) -> None:
        self.respond(answer(*arguments, **named))

    def failed(self) -> None:
        self.member.failed(self.now)
        self.take(FindCoordinator)


def owning(*numbers: int, **settings: Any) -> Driver:
    """A member of epoch 1 that has said what it owns; no request is under way."""
    driver = Driver(**settings)
    driver.first_request()
    driver.answer(1, numbers)
    added, request = driver.take(Added, Ask)
    assert added == Added(1, partitions(*numbers))
    assert owned(request) == list(numbers)
    driver.answer(1)
    driver.take()
    return driver


def giving_up() -> Driver:
    """It owns 0 and 1, and has been asked to give 1 up."""
    driver = owning(0, 1)
    driver.beat()
    driver.answer(1, (0,))
    assert driver.take(Revoke) == [Revoke(1, partitions(1))]
    return driver


def test_it_joins_with_all_that_it_wants_and_owns_nothing() -> None:
    driver = Driver(rack_id="r", server_assignor="range")
    request = driver.first_request()
    assert (request.member_id, request.member_epoch, request.rebalance_timeout_ms) == ("m", 0, 30_000)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (("t",), None)
    assert (request.rack_id, request.server_assignor, owned(request)) == ("r", "range", [])
    with pytest.raises(ValueError, match="joining"):
        driver.member.join(0)


def test_an_unchanged_heartbeat_is_empty_and_follows_the_brokers_interval() -> None:
    driver = owning(0, 1)
    request = driver.beat()
    assert driver.now == 3_000
    assert (request.member_epoch, request.rebalance_timeout_ms) == (1, -1)
    assert (request.subscribed_topic_names, request.topic_partitions, request.server_assignor) == (None, None, None)
    driver.now += 500
    driver.answer(1, interval=250)
    assert driver.member.next_deadline() == 3_250
    driver.beat()
    driver.answer(2, interval=3_000)
    assert driver.member.epoch == 2
    assert driver.member.next_deadline() == driver.now + 3_000


def test_it_acknowledges_a_revocation_at_once_and_then_gets_more() -> None:
    driver = giving_up()
    assert driver.member.owned == partitions(0, 1)
    assert owned(driver.beat()) is None, "it has not given up yet, and says nothing"
    driver.answer(1)
    driver.member.revoked(driver.now)
    assert owned(driver.asked()) == [0]
    driver.answer(2, (0, 2))
    added, request = driver.take(Added, Ask)
    assert added == Added(2, partitions(2))
    assert owned(request) == [0, 2]
    driver.member.revoked(driver.now)
    driver.take()


def test_a_revocation_is_acknowledged_after_the_pending_answer() -> None:
    driver = giving_up()
    driver.beat()
    driver.member.revoked(driver.now)
    driver.take()
    driver.answer(1)
    assert owned(driver.asked()) == [0]


def test_after_a_missing_answer_the_heartbeat_is_full_again() -> None:
    driver = owning(0, 1)
    driver.beat()
    lost = driver.number
    driver.until_due()
    assert driver.now == 7_000
    driver.find()
    request = driver.beat()
    assert 7_080 <= driver.now <= 7_120
    assert (request.member_epoch, request.rebalance_timeout_ms) == (1, 30_000)
    assert (request.subscribed_topic_names, owned(request)) == (("t",), [0, 1])
    driver.member.received(lost, answer(5, ()), driver.now)
    driver.take()
    assert driver.member.epoch == 1


def test_a_full_report_while_it_gives_up_still_has_what_it_gives_up() -> None:
    driver = giving_up()
    driver.member.failed(driver.now)
    driver.find()
    assert owned(driver.beat()) == [0, 1]


def test_another_subscription_does_not_wait_for_an_answer_that_may_be_held() -> None:
    driver = owning(0)
    driver.member.subscribe(Subscription(("t", "u")), driver.now)
    request = driver.asked()
    assert (request.subscribed_topic_names, owned(request)) == (("t", "u"), None)
    held = driver.number
    driver.member.subscribe(Subscription((), "t.*"), driver.now)
    request = driver.asked()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ((), "t.*")
    assert owned(request) == [0], "the answer under way is ignored, so everything is said"
    driver.member.received(held, answer(7, ()), driver.now)
    driver.take()
    driver.answer(2)
    driver.member.subscribe(Subscription(("u",)), driver.now)
    request = driver.asked()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (("u",), ""), "the regex is taken back"


@pytest.mark.parametrize("error", [25, 110, 69])
def test_fenced_it_loses_everything_and_joins_again(error: int) -> None:
    driver = owning(0, 1)
    driver.beat()
    driver.answer(0, error=error)
    lost, request = driver.take(Lost, Ask)
    assert lost.partitions == partitions(0, 1)
    assert (driver.member.owned, driver.member.phase) == (frozenset(), Phase.JOINING)
    assert (request.member_id, request.member_epoch, owned(request)) == ("m", 0, [])
    assert request.subscribed_topic_names == ("t",)


def test_fenced_while_it_gives_up() -> None:
    driver = giving_up()
    driver.beat()
    driver.answer(0, error=25)
    assert driver.take(Lost, Ask)[0].partitions == partitions(0, 1)
    driver.member.revoked(driver.now)
    driver.take()
    driver.answer(3, (0,))
    assert driver.take(Added, Ask)[0] == Added(3, partitions(0))


def test_an_answer_with_error_14_is_asked_again_and_with_15_or_16_elsewhere() -> None:
    driver = owning(0)
    driver.beat()
    driver.answer(0, error=14)
    driver.take()
    assert owned(driver.beat()) == [0], "the coordinator may not have read the last report"
    for error in (15, 16):
        driver.answer(0, error=error)
        driver.find()
        driver.beat()
    assert driver.member.owned == partitions(0)


def test_an_instance_id_in_use_is_waited_for_and_told_once() -> None:
    driver = Driver(instance_id="i")
    assert driver.first_request().instance_id == "i"
    driver.answer(0, error=111)
    assert driver.take(Waits) == [Waits(111)]
    driver.beat()
    driver.answer(0, error=111)
    driver.take()
    driver.beat()
    driver.answer(4, (0,))
    driver.take(Added, Ask)


@pytest.mark.parametrize("error", [24, 30, 35, 42, 69, 81, 82, 112, 128])
def test_any_other_error_ends_the_membership(error: int) -> None:
    driver = Driver()
    driver.first_request()
    driver.answer(0, error=error)
    assert driver.take(Ended) == [Ended(error)]
    assert driver.member.next_deadline() is None
    driver.member.leave(0)
    driver.take()


@pytest.mark.parametrize(("settings", "static_too", "epoch"), [({}, False, -1), ({"instance_id": "i"}, False, -2),
                                                             ({"instance_id": "i"}, True, -1)])  # fmt: skip
def test_it_leaves_with_an_answer_under_way(settings: dict[str, Any], static_too: bool, epoch: int) -> None:
    driver = owning(0, **settings)
    driver.beat()
    held = driver.number
    driver.member.leave(driver.now, static_too=static_too)
    lost, request = driver.take(Lost, Ask)
    assert (lost.partitions, request.member_epoch, request.topic_partitions) == (partitions(0), epoch, None)
    driver.member.received(held, answer(1), driver.now)
    driver.take()
    driver.answer(epoch)
    assert driver.take(Ended) == [Ended(0)]


def test_a_member_that_cannot_send_its_leave_ends_nevertheless() -> None:
    driver = owning(0)
    driver.beat()
    driver.failed()
    driver.member.leave(driver.now)
    driver.take(Lost, Ended)
    driver = owning(0)
    driver.member.leave(driver.now)
    driver.take(Lost, Ask)
    driver.member.failed(driver.now)
    driver.take(Ended)


def test_after_a_session_without_contact_its_ownership_is_doubtful_until_an_answer() -> None:
    driver = owning(0)
    driver.beat()
    driver.now += 500
    driver.answer(1)
    assert driver.member.trusted_until() == 13_000, "the session may have begun when the request was sent"
    driver.failed()
    while not (actions := driver.member.take()):
        driver.until_due()
    assert (driver.now, actions) == (13_000, [Doubtful(partitions(0))])
    driver.member.coordinator_found(driver.now)
    driver.asked()
    driver.answer(1)
    driver.take(Assured)
    assert driver.member.trusted_until() == 23_000
    assert driver.member.owned == partitions(0)


def test_a_partition_not_given_up_in_the_rebalance_timeout_is_doubtful() -> None:
    """The coordinator may have decided right after the first heartbeat whose answer did not come."""
    driver = owning(0, 1, rebalance_timeout_ms=2_000, session_timeout_ms=60_000)
    driver.beat()
    assert driver.member.trusted_until() == 5_000
    driver.member.failed(driver.now)
    driver.find()
    driver.beat()
    driver.answer(1, (0,))
    driver.take(Revoke)
    assert driver.member.trusted_until() == 5_000
    driver.until_due()
    driver.take(Doubtful)
    driver.beat()
    driver.member.revoked(driver.now)
    driver.answer(1)
    driver.asked()
    assert driver.member.trusted_until() == 5_000, "the coordinator does not know yet that it has given up"
    driver.answer(2)
    driver.take(Assured)
    assert driver.member.trusted_until() == driver.now + 60_000


def test_a_commit_that_is_refused_asks_at_once_whether_it_is_a_member() -> None:
    driver = owning(0)
    driver.member.commit_answered(113, 1, driver.now)
    driver.member.commit_answered(25, 0, driver.now)
    driver.take()
    driver.member.commit_answered(25, 1, driver.now)
    driver.asked()
    driver.member.commit_answered(25, 1, driver.now)
    driver.take()
