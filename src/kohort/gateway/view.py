"""What is known of the upstream cluster, and the events by which the broker learns what has changed. Without IO.

Metadata comes from the gateway's own requests for all topics, and from every Metadata answer that passes to a client.
The latter only adds topics and partitions, so that a client that has just learned of a topic can commit its offsets.

A topic counts as deleted when MISSES answers about all topics lack it, one after the other, over at least
`gone_after_s`: its committed offsets are deleted, and a broker that has just started may know less than there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from kohort.broker.turn import FollowedTopic, UpstreamSeen
from kohort.broker.upstream.following import id_of_name
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import NO_UUID
from kohort.wire.schemas.metadata import MetadataResponseBroker, MetadataResponseTopic
from kohort.wire.schemas.metadata_records import UpstreamApi, UpstreamBroker, UpstreamValue

LAST_PORT = 65_535
MISSES = 3
GONE_AFTER_S = 60.0
FORGOTTEN_AFTER_S = 86_400.0
"""After this time without a broker, the next new broker gets its slot, and with it its port."""
PARTITIONS_AN_EVENT = 1_000
"""Of topics that are taken over in one turn."""
HAS_TOPIC = frozenset((ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE))


class AnotherCluster(Exception):
    """The upstream cluster is not the one whose groups the data directory has."""


class View:
    def __init__(
        self, upstream: UpstreamValue | None, topics: Iterable[FollowedTopic], *, gone_after_s: float = GONE_AFTER_S
    ) -> None:
        """What an earlier process has left."""
        self.cluster = upstream
        self.brokers: dict[int, UpstreamBroker] = {}
        if upstream is not None:
            self.brokers = {broker.id: broker for broker in upstream.brokers}
        self.present = frozenset(self.brokers)
        """The brokers of the last answer about the whole cluster."""
        self._absent: dict[int, float] = {}
        """Brokers that the last answer lacks, and since when."""
        self.leaders: dict[str, list[int]] = {}
        """Of each topic's partitions, by the last answer."""
        self.topics = {topic.name: topic for topic in topics}
        self._missing: dict[str, tuple[int, float]] = {}
        """Topics that answers lack: in how many, and since when."""
        self._gone_after_s = gone_after_s

    @property
    def coordinator(self) -> int:
        """The broker behind whose listener clients find their groups: the first one. -1 if there is none."""
        return min(self.present, default=-1)

    # -- the whole cluster

    def see_cluster(
        self,
        cluster_id: str,
        brokers: Iterable[MetadataResponseBroker],
        apis: Sequence[UpstreamApi],
        now_s: float,
    ) -> list[UpstreamSeen]:
        """An answer about all topics begins; `see_topics` gets its topics, and `see_end` all names. The events of the
        three must reach the broker in this order. Raises AnotherCluster."""
        self._check_cluster(cluster_id)
        self._see_brokers(brokers, now_s)
        cluster = UpstreamValue(
            cluster_id=cluster_id,
            brokers=tuple(self.brokers[broker] for broker in sorted(self.brokers)),
            apis=tuple(apis),
        )
        if cluster == self.cluster:
            return []
        self.cluster = cluster
        return [UpstreamSeen(cluster=cluster)]

    def see_topics(self, topics: Iterable[MetadataResponseTopic]) -> list[UpstreamSeen]:
        """Some topics of the answer about all topics."""
        return list(
            _in_pieces([found for topic in topics if (found := self._changed(topic, trusted=True)) is not None])
        )

    def see_end(self, names: Set[str], now_s: float) -> list[UpstreamSeen]:
        """The answer about all topics has ended. `names`: the names of all its topics."""
        gone = self._gone(names, now_s)
        return [UpstreamSeen(gone=tuple(gone))] if gone else []

    def _check_cluster(self, cluster_id: str) -> None:
        if self.cluster is not None and self.cluster.cluster_id != cluster_id:
            raise AnotherCluster(
                f"the upstream cluster is {cluster_id!r}, and the data directory has the groups of the cluster "
                f"{self.cluster.cluster_id!r}; use another --upstream or another --data-dir"
            )

    def has_left(self, broker: int, now_s: float) -> bool:
        """The broker has been away for so long that it needs no listener. It keeps its slot for FORGOTTEN_AFTER_S."""
        return now_s - self._absent.get(broker, now_s) >= self._gone_after_s

    def _see_brokers(self, brokers: Iterable[MetadataResponseBroker], now_s: float) -> None:
        listed = [broker for broker in brokers if has_address(broker)]
        self.present = frozenset(broker.node_id for broker in listed)
        self._absent = {broker: self._absent.get(broker, now_s) for broker in self.brokers.keys() - self.present}
        for left, since in list(self._absent.items()):
            if now_s - since >= FORGOTTEN_AFTER_S:
                del self.brokers[left], self._absent[left]
        for broker in sorted(listed, key=lambda broker: broker.node_id):
            known = self.brokers.get(broker.node_id)
            slot = self._free_slot() if known is None else known.slot
            self.brokers[broker.node_id] = UpstreamBroker(
                id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack, slot=slot
            )

    def _free_slot(self) -> int:
        taken = {broker.slot for broker in self.brokers.values()}
        return next(slot for slot in range(len(taken) + 1) if slot not in taken)

    def _gone(self, names: Set[str], now_s: float) -> list[str]:
        gone = []
        for name in list(self.topics):
            if name in names:
                self._missing.pop(name, None)
                continue
            count, since = self._missing.get(name, (0, now_s))
            self._missing[name] = count + 1, since
            if count + 1 >= MISSES and now_s - since >= self._gone_after_s:
                del self.topics[name], self._missing[name]
                self.leaders.pop(name, None)
                gone.append(name)
        return gone

    # -- what passes

    def learn(self, cluster_id: str | None, topics: Iterable[MetadataResponseTopic]) -> Iterator[UpstreamSeen]:
        """Topics of an answer to a client. Raises AnotherCluster."""
        if cluster_id is not None:  # the first versions of Metadata do not have it
            self._check_cluster(cluster_id)
        changed = [found for topic in topics if (found := self._changed(topic, trusted=False)) is not None]
        yield from _in_pieces(changed)

    def has_new_brokers(self, brokers: Iterable[MetadataResponseBroker]) -> bool:
        """An answer to a client names brokers that are not known yet, or that have moved."""
        known = self.brokers
        return any(
            (found := known.get(broker.node_id)) is None or (found.host, found.port) != (broker.host, broker.port)
            for broker in brokers
            if has_address(broker)
        )

    def _changed(self, topic: MetadataResponseTopic, *, trusted: bool) -> FollowedTopic | None:
        if not topic.name or topic.is_internal or topic.error_code not in HAS_TOPIC or not topic.partitions:
            return None
        known = self.topics.get(topic.name)
        count = len(topic.partitions)
        if not trusted and known is not None and count <= len(known.replicas):
            return None
        partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
        if trusted:
            self.leaders[topic.name] = [partition.leader_id for partition in partitions]
        has_racks = any(broker.rack for broker in self.brokers.values())
        replicas = tuple(partition.replica_nodes if has_racks else () for partition in partitions)
        topic_id = topic.topic_id
        if topic_id == NO_UUID:
            topic_id = known.topic_id if known is not None else id_of_name(topic.name)
        elif not trusted and known is not None:
            topic_id = known.topic_id  # another id is a new topic, which the gateway's own request will find
        found = FollowedTopic(topic.name, topic_id, replicas)
        if found == known:
            return None
        self.topics[topic.name] = found
        return found

    def leaders_of(self, names: Iterable[str]) -> Iterator[tuple[int, str, int]]:
        """The partitions of these topics: leader, topic, partition."""
        for name in names:
            for index, leader in enumerate(self.leaders.get(name, ())):
                yield leader, name, index


def has_address(broker: MetadataResponseBroker) -> bool:
    """False if nobody can connect to it."""
    return bool(broker.host) and 0 < broker.port <= LAST_PORT


def _in_pieces(topics: list[FollowedTopic]) -> Iterator[UpstreamSeen]:
    part: list[FollowedTopic] = []
    size = 0
    for topic in topics:
        part.append(topic)
        size += len(topic.replicas)
        if size >= PARTITIONS_AN_EVENT:
            yield UpstreamSeen(topics=tuple(part))
            part, size = [], 0
    if part:
        yield UpstreamSeen(topics=tuple(part))
