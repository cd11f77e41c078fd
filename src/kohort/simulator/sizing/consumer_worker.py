"""A member of the consumer protocol (KIP-848): partition by partition, by the client library's own membership."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kohort.client.membership.consumer import Added, ConsumerMembership, ConsumerSettings, Lost, Revoke, Subscription
from kohort.client.membership.coordinator_requests import Ask
from kohort.client.membership.epoch_member import Partitions, Phase
from kohort.simulator.sizing.worker import Worker

HEARTBEAT_VERSION = 1


class ConsumerWorker(Worker):
    membership: ConsumerMembership

    def join(self) -> None:
        point = self.point
        settings = ConsumerSettings(
            self.group,
            str(UUID(int=self.random.getrandbits(128), version=4)),
            instance_id=self.instance,
            server_assignor=point.assignor,
            rebalance_timeout_ms=point.rebalance_ms,
            session_timeout_ms=point.session_ms,
        )
        self.membership = ConsumerMembership(settings, Subscription(tuple(self.topics.sizes)))
        self.membership.join(self.world.now)
        self.act()

    def epoch(self) -> int:
        return self.membership.epoch

    def member_id(self) -> str:
        return self.membership.settings.member_id

    @property
    def content(self) -> bool:
        return self.running and self.membership.phase is Phase.MEMBER

    def act(self) -> None:
        self._taken: Partitions = frozenset()
        """New partitions that no heartbeat has acknowledged."""
        super().act()

    def version_of(self, request: Any) -> int:
        return HEARTBEAT_VERSION

    def on_action(self, action: Any) -> None:
        match action:
            case Added():
                self._taken |= action.partitions
            case Revoke():
                self.at_poll(self._give_up, self.membership, action.partitions)
            case Lost():
                self.forget()

    def ask(self, action: Ask) -> None:
        if self._taken:
            self.at_poll(self._take, self.membership, self._taken, action)
            self._taken = frozenset()
        else:
            super().ask(action)

    def plan_wake(self) -> None:
        if self._taken:
            self.at_poll(self._take, self.membership, self._taken, None)
        super().plan_wake()

    def _take(self, membership: ConsumerMembership, partitions: Partitions, acknowledges: Ask | None) -> None:
        """The application gets the partitions between two polls; only then the member acknowledges them."""
        if membership is not self.membership:
            return
        if acknowledges is not None and not self.client.positions_first:
            super().ask(acknowledges)
        self.take_on(self._places(partitions & membership.owned))
        if acknowledges is not None and self.client.positions_first:
            super().ask(acknowledges)

    def _give_up(self, membership: ConsumerMembership, partitions: Partitions) -> None:
        if membership is not self.membership or not partitions <= membership.owned:
            return
        places = self._places(partitions)
        stopped = self.stop_work(places)
        self.given.difference_update(places)
        self.commit_then(stopped, lambda: self._gave_up(membership, partitions))

    def _gave_up(self, membership: ConsumerMembership, partitions: Partitions) -> None:
        if membership is self.membership and partitions <= membership.owned:
            membership.revoked(self.world.now)
            self.act()

    def _places(self, partitions: Partitions) -> list[int]:
        return sorted(self.topics.place_by_id(topic_id, index) for topic_id, index in partitions)
