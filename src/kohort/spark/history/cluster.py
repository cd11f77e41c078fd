"""The data that a history reads from a running cluster besides the log: topic ids, and past ends of the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.ends import Ends, TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"


class NoOffsetsTopic(RuntimeError):
    """The cluster has no `__consumer_offsets`, or does not show it."""


def check_topic(cluster: Cluster) -> None:
    """Raises NoOffsetsTopic."""
    found = cluster.topics([OFFSETS_TOPIC])[OFFSETS_TOPIC]
    if found.error:
        raise NoOffsetsTopic(
            f"the cluster has no topic {OFFSETS_TOPIC} ({found.error.name}): no group has ever been in it, or this "
            "principal may not describe it"
        )


def topic_names(cluster: Cluster) -> dict[bytes, str]:
    """Names by topic id."""
    return {topic.topic_id: name for name, topic in cluster.topics().items() if topic.topic_id is not None}


def ends_over_time(
    cluster: Cluster, wanted: Iterable[TopicPartition], times: Numbers, warn: Callable[[str], None] = lambda _: None
) -> Ends:
    """Where the logs ended at instants (ms, ascending) up to now.

    The offset of the first record at or after an instant is where the log ended then. Without such a record it is the
    current end, which is requested first: the last instant is the start of the run, and the logs have grown since.
    Left out are deleted partitions, and instants before the oldest record that a log still has.
    """
    existing = _existing(cluster, wanted)
    rows = np.full((len(existing), len(times)), -1)
    try:
        earliest = cluster.offsets(existing, "earliest")
        latest = cluster.offsets(existing, "latest")
        for column, at in enumerate(times.tolist()):
            found = cluster.offsets(existing, int(at))
            rows[:, column] = [found[place] if found[place] >= 0 else latest[place] for place in existing]
    except ServerError as error:
        warn(f"the ends of the topics' logs cannot be read: {error}")
        return Ends({})
    series = {}
    for row, place in zip(rows, existing, strict=True):
        first = int(np.searchsorted(row, earliest[place], side="right")) - 1 if earliest[place] > 0 else 0
        known = slice(max(first, 0), None)
        series[place] = (times[known], np.maximum.accumulate(row[known]))
    return Ends(series)


def _existing(cluster: Cluster, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = sorted(set(wanted))
    topics = cluster.topics({topic for topic, _ in wanted}) if wanted else {}
    return [
        (topic, partition)
        for topic, partition in wanted
        if not topics[topic].error and 0 <= partition < len(topics[topic].partitions)
    ]
