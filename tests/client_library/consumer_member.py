"""A member of a consumer group (KIP-848), driven by the test: the test sends each heartbeat and sets its partitions."""

from __future__ import annotations

from typing import Any

from group_member import coordinator_connection

from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)


class ConsumerMember:
    """Joins when it is made. It owns its last assignment, until `heartbeat` reports other partitions."""

    def __init__(self, bootstrap: str, group_id: str, member_id: str, *topics: str, **fields: Any) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[bytes, tuple[int, ...]] = {}
        self.connection = coordinator_connection(bootstrap, group_id, member_id)
        self._fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": topics, **fields}
        self._send(topic_partitions=(), **self._fields)

    def heartbeat(self, *, acknowledges: bool = True) -> None:
        """Send all fields, including the owned partitions; the coordinator answers at once. Or say nothing, which may
        be held."""
        owned = tuple(HeartbeatTopicPartitions(topic_id=topic, partitions=p) for topic, p in self.owned.items())
        if acknowledges:
            self._send(topic_partitions=owned, **self._fields)
        else:
            self._send()

    def leave(self) -> None:
        self.epoch = -1
        self._send()
        self.connection.close()

    def count(self) -> int:
        return sum(map(len, self.owned.values()))

    def _send(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        answer = self.connection.request(request, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}
