"""How much of a queue is left: records that its group has not finished, and jobs in its delay topic. Blocking calls."""

from __future__ import annotations

from kohort.client.cluster import Cluster
from kohort.client.records.fetched_records import next_position, records
from kohort.wire.errors import ErrorCode


def is_empty(cluster: Cluster, group_id: str, topic: str, delay_topic: str) -> bool:
    """Whether no job is left in either topic. Raises KafkaError.

    A job that moves from one topic to the other while they are looked at adds a record, so the answer is False.
    """
    before = _ends(cluster, topic, delay_topic)
    if unfinished(cluster, group_id, topic) or waiting_keys(cluster, delay_topic):
        return False
    return _ends(cluster, topic, delay_topic) == before


def unfinished(cluster: Cluster, group_id: str, topic: str) -> int:
    """How many records of a topic the group has not finished; all records of a partition that it has not begun. Raises
    KafkaError."""
    found = cluster.topics([topic])[topic]
    if found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return 0
    places = [(topic, partition.index) for partition in found.partitions]
    begins, ends = cluster.offsets(places, "earliest"), cluster.offsets(places)
    left = {place: ends[place] - begins[place] for place in places}
    offsets = cluster.share_groups.offsets([group_id])[group_id].partitions
    left |= {place: one.lag for place, one in offsets.items() if place[0] == topic and one.lag is not None}
    return sum(left.values())


def waiting_keys(cluster: Cluster, delay_topic: str) -> list[bytes]:
    """The keys of the jobs that wait in a delay topic; reads all of it. Raises KafkaError."""
    place = delay_topic, 0
    if cluster.topics([delay_topic])[delay_topic].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    position = cluster.offsets([place], "earliest")[place]
    end = cluster.offsets([place], isolation="read_committed")[place]
    waiting: dict[bytes, None] = {}
    while position < end:
        for part in cluster.fetch({place: position}, max_wait_ms=100, isolation="read_committed"):
            for record in records(part, position):
                if record.key is not None and record.value is not None:
                    waiting[record.key] = None
                elif record.key is not None:
                    waiting.pop(record.key, None)
            position = next_position(part, position)
    return list(waiting)


def _ends(cluster: Cluster, *topics: str) -> dict[tuple[str, int], int]:
    """Where the partitions of those topics that exist end."""
    found = cluster.topics(topics).values()
    return cluster.offsets([(topic.name, partition.index) for topic in found for partition in topic.partitions])
