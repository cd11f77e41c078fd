"""A hostile client: valid requests that cost much, on connections that it fills and leaves.

It asks for thousands of names, sends many requests at once, reads no answer, stops in the middle of a request, and lets
members join by the dozen that never come back. Nobody else may notice: the checks of every run hold, and the memory of
answers that are being made stays below its limit and is given back (`check`).
"""

from __future__ import annotations

from typing import Any

from kohort.simulator.actors.workload import Paced, fetch_all
from kohort.simulator.world.network import Link
from kohort.simulator.world.world import Violation
from kohort.wire.codec import encode_request
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

MANY = 1_000
"""Names in a large request."""
MEMORY = "answers to clients that have gone take no memory"
Asked = tuple[Any, int]
"""A request and its version."""


class Hostile(Paced):
    _strangers = 0

    def act(self, link: Link) -> None:
        self.check_limit()
        victim = self.connect(self.any_broker())
        self.random.choice((self._ask_much, self._ask_much, self._flood, self._stop_in_the_middle, self._crowd))(victim)
        self.world.after(self.random.choice((1, 30, 400, 3_000)), victim.close)

    def check_limit(self) -> None:
        """Raises Violation."""
        broker, limit = self.process.broker, self.process.config.queued_max_response_bytes
        if broker is not None and broker.works.size > limit:
            raise Violation("answers that are being made are bounded", f"{broker.works.size} bytes of {limit}")

    def check_end(self) -> None:
        """All hostile clients have gone. Raises Violation."""
        broker = self.process.broker
        if broker is not None and broker.works.size:
            raise Violation(MEMORY, f"{broker.works.size} bytes")

    def _ask_much(self, link: Link) -> None:
        request, version = self.random.choice((self._offsets, self._groups, self._topics, self._times, self._repeats))()
        for _ in range(self.random.choice((1, 1, 4))):
            link.ask(request, version, "asked much")

    def _flood(self, link: Link) -> None:
        small: tuple[Asked, ...] = (
            (ListGroupsRequest(states_filter=()), 5),
            (fetch_all(self.options["group"]), 8),
            (MetadataRequest(topics=None), 12),
        )
        for _ in range(self.random.choice((10, 60))):
            request, version = self.random.choice(small)
            link.ask(request, version, "flooded")

    def _stop_in_the_middle(self, link: Link) -> None:
        request, version = self._groups()
        data = encode_request(request, version, 1, self.name)
        link.send_bytes(data[: self.random.randrange(1, len(data))])

    def _crowd(self, link: Link) -> None:
        """New members that are never heard of again."""
        is_classic = self.random.random() < 0.5
        for _ in range(self.random.choice((3, 25))):
            self._strangers += 1
            link.ask(*(self._join() if is_classic else self._heartbeat()), "crowded")

    def _join(self) -> Asked:
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(5_000))
        request = JoinGroupRequest(
            group_id="ghosts",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=4_000,
            member_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        return request, self.random.choice((3, 9))

    def _heartbeat(self) -> Asked:
        request = ConsumerGroupHeartbeatRequest(
            group_id="crowd",
            member_id=f"{self.name}-{self._strangers}",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=tuple(f"t{n}" for n in range(self.random.choice((1, 300)))),
            topic_partitions=(),
        )
        return request, 1

    # -- large requests

    def _names(self) -> tuple[str, ...]:
        return tuple(f"nothing-{n}" for n in range(self.random.choice((100, MANY))))

    def _offsets(self) -> Asked:
        groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in self._names())
        return OffsetFetchRequest(groups=groups), 8

    def _groups(self) -> Asked:
        return DescribeGroupsRequest(groups=self._names()), 5

    def _topics(self) -> Asked:
        topics = tuple(MetadataRequestTopic(name=name) for name in self._names())
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9

    def _times(self) -> Asked:
        partitions = tuple(ListOffsetsPartition(partition_index=n, timestamp=1) for n in range(MANY))
        topic = ListOffsetsTopic(name="orders", partitions=partitions)
        return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,)), 6

    def _repeats(self) -> Asked:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)
        topics = (FetchTopic(topic="events", partitions=(asked,) * self.random.choice((20, MANY))),)
        return FetchRequest(max_wait_ms=1_000, min_bytes=1 << 20, max_bytes=10_000, replica_id=-1, topics=topics), 11
