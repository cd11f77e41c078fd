"""Drives a membership without IO: takes its actions, gives answers, and advances time.

`MembershipDriver` leaves all actions to the test. `EventDriver` finds the coordinator and passes events on at once, as
an AsyncMember does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kohort.client.membership.coordinator_requests import Ask, FindCoordinator
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember

TOPIC_ID = b"t" * 16


def answer(
    epoch: int = 1, assigned: Iterable[int] | None = None, *, interval: int = 3_000, error: int = 0
) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat's answer, which assigns these partitions of the topic TOPIC_ID."""
    assignment = None
    if assigned is not None:
        only = HeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=tuple(assigned))
        assignment = HeartbeatAssignment(topic_partitions=(only,) if only.partitions else ())
    return ConsumerGroupHeartbeatResponse(
        error_code=error, member_id="m", member_epoch=epoch, heartbeat_interval_ms=interval, assignment=assignment
    )


def joined(leader: str, metadata: bytes = b"", *, member_id: str = "a", **fields: Any) -> JoinGroupResponse:
    """A member's JoinGroup is answered; a leader is the only member."""
    only = JoinGroupResponseMember(member_id=member_id, metadata=metadata)
    defaults = {"generation_id": 3, "protocol_name": "range", "members": (only,) if leader == member_id else ()}
    return JoinGroupResponse(member_id=member_id, leader=leader, **(defaults | fields))


class MembershipDriver:
    def __init__(self, member: Any) -> None:
        self.member = member
        self.now = 0
        self.number = 0

    def take(self, *kinds: type) -> list[Any]:
        """The actions, which must be of these kinds; the request of an Ask."""
        actions = self.member.take()
        assert [type(action) for action in actions] == list(kinds), actions
        for action in actions:
            if isinstance(action, Ask):
                self.number = action.number
        return [action.request if isinstance(action, Ask) else action for action in actions]

    def respond(self, response: Any) -> None:
        self.member.received(self.number, response, self.now)

    def until_due(self) -> None:
        deadline = self.member.next_deadline()
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.member.wake(self.now)

    def first_request(self) -> Any:
        self.member.join(self.now)
        self.find()
        return self.asked()

    def find(self) -> None:
        """The member looks for its coordinator, and finds it."""
        self.take(FindCoordinator)
        self.member.coordinator_found(self.now)

    def asked(self) -> Any:
        """The request, which must be the only action."""
        [request] = self.take(Ask)
        return request

    def beat(self) -> Any:
        """The request that is due next."""
        self.until_due()
        return self.asked()


class EventDriver:
    def __init__(self, membership: Any, on_event: Callable[[Any], None], now: int = 0) -> None:
        self.membership = membership
        self.on_event = on_event
        self.now = now
        self.reachable = True
        self.asked: Ask | None = None
        """The last request."""

    def act(self) -> None:
        while actions := self.membership.take():
            for action in actions:
                match action:
                    case Ask():
                        self.asked = action
                    case FindCoordinator():
                        if self.reachable:
                            self.membership.coordinator_found(self.now)
                    case _:
                        self.on_event(action)

    def answer(self, response: Any) -> None:
        assert self.asked is not None
        self.membership.received(self.asked.number, response, self.now)
        self.act()

    def wake(self, now: int | None = None) -> None:
        self.now = self.now if now is None else now
        self.membership.wake(self.now)
        self.act()
