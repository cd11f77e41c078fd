"""A simulated member of a consumer group (KIP-848): our sans-IO member, a connection to its coordinator, and work.

For each new partition it fetches the committed offset and commits progress from there. Before it revokes a partition
it commits again. It uses a partition until it revokes it or learns that it is fenced. Commits name topics by id, so a
topic that is deleted and created again is another topic.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

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
from kohort.client.membership.epoch_member import Partitions, Phase, TopicIdPartition, Waits
from kohort.simulator.actors.offsets import commit_request, fetch_request
from kohort.simulator.actors.participant import Participant
from kohort.simulator.plan import Faults
from kohort.simulator.world.process import Process
from kohort.simulator.world.world import World
from kohort.wire.schemas.offset_commit import OffsetCommitResponse
from kohort.wire.schemas.offset_fetch import OffsetFetchResponse

HEARTBEAT_VERSION = 1
OFFSETS_VERSION = 10
"""OffsetCommit and OffsetFetch with topic ids."""

SUBSCRIPTIONS = (("flights", "orders"), ("flights",), ("orders",), ("flights", "unheard-of"), ())
PATTERNS = (None, None, "flights|ord.*", "f.+s", "unheard-.*")


class Consumer(Participant):
    kind = "consumer"
    membership: ConsumerMembership

    def __init__(self, world: World, process: Process, faults: Faults, name: str, options: dict[str, Any]) -> None:
        super().__init__(world, process, faults, name, options)
        self.membership = ConsumerMembership(ConsumerSettings(self.group, ""), Subscription())
        self._uses: Partitions = frozenset()
        """The partitions that it works on: its own, without those that it is revoking."""
        self._positions: dict[TopicIdPartition, int] = {}

    # -- its life

    def begin(self) -> None:
        options = self.options
        settings = ConsumerSettings(
            self.group,
            f"{self.name}-{self.lives}",
            instance_id=self.instance,
            server_assignor=options.get("assignor"),
            rebalance_timeout_ms=options["rebalance_ms"],
            session_timeout_ms=self.process.config.group_consumer_session_timeout_ms,
            request_timeout_ms=options.get("patience_ms", 6_000),
        )
        self.membership = ConsumerMembership(settings, self._subscription())
        self.membership.join(self.world.now)
        self.act()
        self.soon(self.pace(), self._work, self.lives)
        if options.get("fickle"):
            self.soon(self.random.randrange(1_000, 15_000), self._change_its_mind, self.lives)

    def _subscription(self) -> Subscription:
        if self.options.get("fickle"):
            return Subscription(self.random.choice(SUBSCRIPTIONS), self.random.choice(PATTERNS))
        return Subscription(SUBSCRIPTIONS[0])

    def wants(self, topic: str) -> bool:
        subscription = self.membership.subscription
        return topic in subscription.topics or re.fullmatch(subscription.regex or "", topic) is not None

    def _change_its_mind(self, life: int) -> None:
        """Once more after the healing too: no member joins then, so only this change makes a new target."""
        if life == self.lives:
            subscription = self._subscription()
            self.tell(f"subscribes to {subscription.topics} and {subscription.regex}")
            self.membership.subscribe(subscription, self.world.now)
            self.act()
            if self.running and not self.world.healed:
                self.soon(self.random.randrange(1_000, 15_000), self._change_its_mind, life)

    def forget(self) -> None:
        self._uses = frozenset()
        self._positions.clear()

    @property
    def content(self) -> bool:
        """The consumer is a member and has no partition to revoke."""
        return self.running and not self.paused and self.membership.phase is Phase.MEMBER

    # -- the membership's actions

    def version_of(self, request: Any) -> int:
        return HEARTBEAT_VERSION

    def on_action(self, action: Any) -> None:
        match action:
            case Added():
                self.tell(f"may use {named(action.partitions)} at {action.epoch}")
                self.process.observer.took(self)
                self._uses |= action.partitions
                self._read_positions(self.membership, action.partitions)
            case Revoke():
                self._give_up(action)
            case Lost():
                self.tell(f"has lost {named(action.partitions)}: {action.reason}")
                self.forget()
            case Doubtful():
                self.tell(f"does not know whether it owns {named(action.partitions)} any more")
            case Assured() | Waits():
                self.tell(f"is told {action}")

    def _give_up(self, action: Revoke) -> None:
        self.tell(f"is to give up {named(action.partitions)}")
        delay = self.random.randrange(2_000, 12_000) if self.is_late(0.3) else self.random.choice((0, 0, 20, 400))
        places = [place for place in sorted(action.partitions) if place in self._positions]
        if places and self.random.random() < 0.7:
            self._commit(places)
        for place in places:
            del self._positions[place]
        self._uses -= action.partitions
        self.soon(delay, self._gave_up, self.membership, action.partitions)

    def _gave_up(self, membership: ConsumerMembership, partitions: Partitions) -> None:
        if membership is self.membership and partitions <= membership.owned:
            self.tell(f"gives up {named(partitions)}")
            membership.revoked(self.world.now)
            self.act()

    # -- work

    def _read_positions(self, membership: ConsumerMembership, partitions: Partitions) -> None:
        """Repeats until the positions are known or the partitions are lost."""
        missing = [p for p in sorted(partitions) if p in self._uses and p not in self._positions]
        if membership is not self.membership or not missing:
            return
        member_id, epoch = membership.settings.member_id, membership.epoch
        request = fetch_request(self.group, missing, member_id=member_id, member_epoch=epoch)
        self.send(request, OFFSETS_VERSION, partial(self._positions_read, membership, partitions))
        self.soon(2_500, self._read_positions, membership, partitions)

    def _positions_read(
        self, membership: ConsumerMembership, partitions: Partitions, response: OffsetFetchResponse
    ) -> None:
        if membership is not self.membership or response.groups[0].error_code:
            return
        for topic in response.groups[0].topics:
            for found in topic.partitions:
                place = (topic.topic_id, found.partition_index)
                wanted = place in partitions and place in self._uses and place not in self._positions
                if not found.error_code and wanted:
                    self._positions[place] = max(found.committed_offset, 0)

    def _work(self, life: int) -> None:
        if life != self.lives:
            return
        for place in self._positions:
            self._positions[place] += self.random.randrange(3)
        self._commit(sorted(self._positions))
        self.soon(self.pace(), self._work, life)

    def _commit(self, places: list[TopicIdPartition]) -> None:
        if not places:
            return
        membership, positions = self.membership, {place: self._positions[place] for place in places}
        member_id = membership.settings.member_id
        request = commit_request(self.group, membership.epoch, member_id, self.instance, positions)
        self.send(request, OFFSETS_VERSION, partial(self._commit_answered, membership, membership.epoch))

    def _commit_answered(self, membership: ConsumerMembership, epoch: int, response: OffsetCommitResponse) -> None:
        errors = {result.error_code for topic in response.topics for result in topic.partitions} - {0}
        if errors and membership is self.membership:
            self.tell(f"its commit at {epoch} is answered {sorted(errors)}")
            membership.commit_answered(max(errors), epoch, self.world.now)
            self.act()


def named(partitions: Partitions) -> str:
    return " ".join(f"{topic_id.hex()[:4]}-{index}" for topic_id, index in sorted(partitions)) or "nothing"
