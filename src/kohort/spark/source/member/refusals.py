"""Partitions that the group refused to the tasks of a batch.

With kohort as the cluster and KIP-848's protocol, a fetch names the member that reads. The broker refuses it once the
group has given the partition to another member, and the task leaves the rest of its range to that member. Tasks cannot
tell the driver. But a partition that was refused to a member at an epoch stays refused at that epoch, even if it moves
again. So at the end of a batch the driver fetches once more in the batch's name. Commits are not fenced by partition:
the coordinator would accept a commit for a partition that it has given to another member.
"""

from __future__ import annotations

import math
import time

from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.spark.source.member.sharing import BatchReader
from kohort.spark.source.positions import Positions
from kohort.wire.errors import ErrorCode

REFUSED_S = 1.0
"""For this long after a refusal, no batch reads the partition: the group is about to tell this member."""

TAKEN_AWAY = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH})
"""Another member has the partition, or had it since. (UNKNOWN_MEMBER_ID does not mean that: a process that is no member
any more is refused every partition, and its commits are refused, too.)"""


class Refusals:
    """The partitions that the broker refused to the tasks of one query."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.cluster_fences = True
        """True if the cluster refuses fetches of members that do not own a partition. Only kohort does."""
        self._refused_at: dict[TopicPartition, float] = {}

    def find(self, cluster: Cluster, reader: BatchReader, ends: Positions) -> set[TopicPartition]:
        """The partitions of a batch that its tasks may not have read to the end. Raises KafkaError."""
        refused: set[TopicPartition] = set()
        rest = dict(ends) if reader.protocol == "consumer" else {}
        as_member = GroupMember(self._group_id, reader.member, reader.epoch)
        try:
            while rest:
                for fetched in cluster.fetch(rest, max_wait_ms=0, partition_max_bytes=1, as_member=as_member):
                    self.cluster_fences = fetched.fenced
                    if not fetched.fenced:
                        return set()
                    del rest[fetched.topic, fetched.partition]
                    if fetched.error in TAKEN_AWAY:
                        refused.add((fetched.topic, fetched.partition))
        except ServerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return refused

    def note(self, partitions: set[TopicPartition]) -> None:
        self._refused_at |= dict.fromkeys(partitions, time.monotonic())

    def without(self, positions: Positions) -> Positions:
        """The positions without partitions that were refused a moment ago."""
        now = time.monotonic()
        return {p: offset for p, offset in positions.items() if now - self._refused_at.get(p, -math.inf) > REFUSED_S}
