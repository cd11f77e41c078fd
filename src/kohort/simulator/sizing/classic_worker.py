"""A member of a classic group, eager or cooperative, with Kafka's assignors.

eager         at a rebalance it stops all work, commits and joins; then it starts work on its new assignment
cooperative   at a rebalance it joins and continues its work; partitions that are missing in its new assignment it
              revokes then, and joins again, so that others get them
"""

from __future__ import annotations

from typing import Any

from kohort.client.assignors import ASSIGNORS, Assignor, assignments, subscription_bytes
from kohort.client.assignors.spec import NO_GENERATION_ID, Claim
from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Protocol, Settings
from kohort.simulator.actors.member import NEWEST
from kohort.simulator.sizing.clients import PacedMembership
from kohort.simulator.sizing.point import COOPERATIVE
from kohort.simulator.sizing.worker import Worker
from kohort.simulator.world.world import Millis
from kohort.wire.embedded import assignment_in


class ClassicWorker(Worker):
    membership: PacedMembership

    def join(self) -> None:
        self._assignor: Assignor = ASSIGNORS[self.point.assignor]
        self._joined_at: Millis = -self.client.join_every_ms
        self._claim: Claim | None = None
        """Its last assignment."""
        self.membership = PacedMembership(self._settings(), self.client, self.random)
        self.membership.join(self.world.now)
        self.act()

    def _settings(self) -> Settings:
        point = self.point
        return Settings(
            self.group,
            self._protocols(),
            instance_id=self.instance,
            session_timeout_ms=point.session_ms,
            rebalance_timeout_ms=point.rebalance_ms,
            heartbeat_interval_ms=point.interval_ms,
        )

    def _protocols(self) -> tuple[Protocol, ...]:
        """Its owned partitions, which only cooperative members keep."""
        owned = self.topics.at(sorted(self.given)) if self.point.protocol == COOPERATIVE else []
        generation = self.membership.generation_id if owned else NO_GENERATION_ID
        data = subscription_bytes(self._assignor, self.topics.sizes, owned, generation, remembered=self._claim)
        return (Protocol(self._assignor.name, data),)

    def epoch(self) -> int:
        return self.membership.generation_id

    def member_id(self) -> str:
        return self.membership.member_id

    @property
    def content(self) -> bool:
        return self.running and self.membership.phase is Phase.STABLE

    def scatter(self) -> None:
        self.membership.scatter()

    def version_of(self, request: Any) -> int:
        return NEWEST[type(request)]

    def on_action(self, action: Any) -> None:
        match action:
            case LetGo():
                self.at_poll(self._let_go, self.membership, action.generation_id)
            case Assign():
                self._assign(action)
            case Assigned():
                self.at_poll(self._assigned, self.membership, action)
            case Lost():
                self.forget()

    def _assign(self, action: Assign) -> None:
        members = ((member.member_id, member.group_instance_id, member.metadata) for member in action.members)
        found = assignments(self._assignor, self.topics.sizes, members)
        self.membership.assign(action.generation_id, found, self.world.now)
        self.act()

    # -- a rebalance

    def _let_go(self, membership: Membership, generation: int) -> None:
        if not self._is_letting_go(membership, generation):
            return
        if self.point.protocol == COOPERATIVE:
            self._join_again(membership, generation)
        else:
            stopped = self.stop_work(self.works_on)
            self.given.clear()
            self.commit_then(stopped, lambda: self._join_again(membership, generation))

    def _join_again(self, membership: Membership, generation: int) -> None:
        wait = self._joined_at + self.client.join_every_ms - self.world.now
        self.later(max(0, wait), self._rejoin, membership, generation)

    def _rejoin(self, membership: Membership, generation: int) -> None:
        if self._is_letting_go(membership, generation):
            self._joined_at = self.world.now
            membership.subscribe(self._protocols(), self.world.now)
            membership.let_go(self.world.now)
            self.act()

    def _is_letting_go(self, membership: Membership, generation: int) -> bool:
        letting_go = membership is self.membership and membership.phase is Phase.LETTING_GO
        return letting_go and generation == membership.generation_id

    def _assigned(self, membership: Membership, action: Assigned) -> None:
        if membership is not self.membership or action.generation_id != membership.generation_id:
            return
        assigned = assignment_in(action.assignment) or {}
        places = {self.topics.place(topic, index) for topic, indexes in assigned.items() for index in indexes}
        self._claim = Claim(tuple(self.topics.at(sorted(places))), action.generation_id)
        gone = self.given - places
        if gone:  # cooperative
            stopped = self.stop_work(gone)
            self.given -= gone
            self.commit_then(stopped, lambda: self._gave_up(membership))
        self.take_on(places)

    def _gave_up(self, membership: Membership) -> None:
        """Release the partitions: another rebalance assigns them."""
        if membership is self.membership and membership.phase is Phase.STABLE:
            membership.subscribe(self._protocols(), self.world.now, "it gave partitions up")
            self.act()
