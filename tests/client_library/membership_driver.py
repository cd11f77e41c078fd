"""Drives a membership without IO by hand: takes its actions, gives answers, and lets time pass."""

from __future__ import annotations

from typing import Any

from kohort.client.membership.coordinator_requests import Ask, FindCoordinator


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
