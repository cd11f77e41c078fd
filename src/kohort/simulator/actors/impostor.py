"""The liar of consumer groups: strangers that heartbeat once, future epochs, senseless requests.

It sends no heartbeat with a real member's id and current epoch, since the server must take its sender for the member.
It does commit with real ids, also at past epochs.
"""

from __future__ import annotations

from typing import Any

from kohort.simulator.actors.consumer import HEARTBEAT_VERSION, PATTERNS, SUBSCRIPTIONS
from kohort.simulator.actors.offsets import commit_request
from kohort.simulator.actors.workload import Garbler
from kohort.simulator.world.network import Link
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions

NOWHERE = (HeartbeatTopicPartitions(topic_id=b"nowhere at all..", partitions=(0, 1)),)


class Impostor(Garbler):
    _strangers = 0

    def act(self, link: Link) -> None:
        if self.random.random() < 0.15:
            self.garbage()
            return
        victims = [consumer.membership for consumer in self.consumers() if consumer.lives]
        victim = self.random.choice(victims) if victims else None
        member_id = victim.settings.member_id if victim is not None else "nobody-at-all"
        epoch = (victim.epoch if victim is not None else 0) + 1_000
        act = self.random.choice((self._heartbeat, self._heartbeat, self._nonsense, self._join, self._commit))
        act(link, member_id, epoch)

    def _heartbeat(self, link: Link, member_id: str, epoch: int) -> None:
        """Heartbeat with a future epoch, or an unknown member id."""
        if self.random.random() < 0.5:
            member_id, epoch = "nobody-at-all", epoch - 1_000
        owned = self.random.choice((None, (), NOWHERE))
        self._ask(link, member_id, max(epoch, 1), topic_partitions=owned)

    def _nonsense(self, link: Link, member_id: str, epoch: int) -> None:
        """Requests that the server refuses from any sender, without a change."""
        topics = SUBSCRIPTIONS[0]
        whole = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": topics, "topic_partitions": ()}
        choices: list[tuple[int, dict[str, Any]]] = [
            (-3, {}),
            (-2, {}),
            (0, {**whole, "topic_partitions": NOWHERE}),
            (0, {**whole, "topic_partitions": None}),
            (0, {**whole, "rebalance_timeout_ms": -1}),
            (0, {**whole, "server_assignor": "astrology"}),
            (0, {**whole, "subscribed_topic_regex": "("}),
            (0, {**whole, "instance_id": ""}),
            (0, {**whole, "member_id": ""}),
        ]
        said, fields = self.random.choice(choices)
        self._ask(link, fields.pop("member_id", member_id), said, **fields)

    def _join(self, link: Link, member_id: str, epoch: int) -> None:
        """It joins, gets partitions, and never heartbeats again."""
        self._strangers += 1
        self._ask(
            link,
            f"{self.name}-{self._strangers}",
            0,
            rebalance_timeout_ms=self.random.choice((1, 5_000)),
            subscribed_topic_names=self.random.choice(SUBSCRIPTIONS),
            subscribed_topic_regex=self.random.choice(PATTERNS),
            topic_partitions=(),
        )

    def _commit(self, link: Link, member_id: str, epoch: int) -> None:
        offsets = {("orders", self.random.randrange(3)): 7}
        past = max(epoch - 1_000 - self.random.randrange(4), 1)
        epoch = self.random.choice((epoch, past, past, -1))
        member_id = self.random.choice((member_id, "nobody-at-all"))
        link.ask(commit_request(self.options["group"], epoch, member_id, None, offsets), 9, "lied")

    def _ask(self, link: Link, member_id: str, epoch: int, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.options["group"], member_id=member_id, member_epoch=epoch, **fields
        )
        link.ask(request, HEARTBEAT_VERSION, "lied")
