"""A member of a share group that does what a test says: takes records, acknowledges some, and keeps the others."""

from __future__ import annotations

from typing import Any, Self

from group_member import coordinator_connection

from kohort.client.cluster import Cluster
from kohort.client.wire.blocking_connection import Connection
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from kohort.wire.schemas.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

ACCEPT, RELEASE, REJECT = 1, 2, 3
LEAVES = -1
PATIENT: dict[str, Any] = {
    "group_share_enable": True,
    "group_share_assignment_interval_ms": 0,
    "group_share_session_timeout_ms": 600_000,
    "group_share_max_session_timeout_ms": 600_000,
    "group_share_record_lock_duration_ms": 600_000,
    "group_share_max_record_lock_duration_ms": 600_000,
}
"""Settings of a server: a member sends no heartbeats, and a test may take long on a busy machine."""


class ShareMember:
    """It reads one topic, each partition in a share session of its own. Close it, or use it in a `with`."""

    def __init__(self, bootstrap: str, group: str, topic: str, client_id: str) -> None:
        """Its id is its client id with a tail."""
        self.group = group
        self.member_id = f"{client_id}-1f0b"
        with Cluster(bootstrap) as cluster:
            [found] = cluster.topics([topic]).values()
            nodes = cluster.nodes()
        assert found.topic_id is not None
        self._topic_id = found.topic_id
        self._at_coordinator = coordinator_connection(bootstrap, group, client_id)
        self._at_leaders = [
            Connection(nodes[one.leader].host, nodes[one.leader].port, client_id=client_id) for one in found.partitions
        ]
        self._epochs = [0] * len(self._at_leaders)
        self._beat(0, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Without leaving: its share sessions end with their connections."""
        for connection in (self._at_coordinator, *self._at_leaders):
            connection.close()

    def leave(self) -> None:
        self._beat(LEAVES)
        self.close()

    def _beat(self, epoch: int, *topics: str) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics or None
        )
        answer = self._at_coordinator.request(request, ShareGroupHeartbeatResponse)
        assert answer.error_code == 0, answer

    def take(self, partition: int, records: int) -> list[tuple[int, int, int]]:
        """First and last offset, and the count of deliveries, of what it gets. No more than `records`."""
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._epochs[partition],
            max_wait_ms=5_000,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=records,
            batch_size=records,
            share_acquire_mode=1,
            topics=(FetchTopic(topic_id=self._topic_id, partitions=(FetchPartition(partition_index=partition),)),)
            if self._epochs[partition] == 0
            else (),
        )
        answer = self._at_leaders[partition].request(request, ShareFetchResponse)
        assert answer.error_code == 0, answer
        self._epochs[partition] += 1
        return [
            (got.first_offset, got.last_offset, got.delivery_count)
            for topic in answer.responses
            for row in topic.partitions
            for got in row.acquired_records
        ]

    def ack(self, partition: int, *batches: tuple[int, int, int]) -> ErrorCode:
        """First and last offset, and what becomes of them."""
        acked = tuple(
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            for first, last, kind in batches
        )
        row = AcknowledgePartition(partition_index=partition, acknowledgement_batches=acked)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self._epochs[partition],
            topics=(AcknowledgeTopic(topic_id=self._topic_id, partitions=(row,)),),
        )
        answer = self._at_leaders[partition].request(request, ShareAcknowledgeResponse)
        self._epochs[partition] += 1
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def begin_again(self, partition: int) -> None:
        """Its next fetch opens a session."""
        self._epochs[partition] = 0
