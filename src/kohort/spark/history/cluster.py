"""The data that a history reads from a running cluster besides the log: topic ids, and past ends of the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
    try:
        earliest = cluster.offsets(existing, "earliest")
        latest = cluster.offsets(existing, "latest")
        rows = _searched(cluster, existing, latest, times)
    except ServerError as error:
        warn(f"the ends of the topics' logs cannot be read: {error}")
        return Ends({})
    series = {}
    for row, place in zip(rows, existing, strict=True):
        first = int(np.searchsorted(row, earliest[place], side="right")) - 1 if earliest[place] > 0 else 0
        known = slice(max(first, 0), None)
        series[place] = (times[known], np.maximum.accumulate(row[known]))
    return Ends(series)


def _searched(
    cluster: Cluster, places: Sequence[TopicPartition], latest: Mapping[TopicPartition, int], times: Numbers
) -> Numbers:
    """The ends of logs (rows) at instants (columns). Ends ascend, so between two instants with the same end nothing is
    asked: a search by time is expensive for a broker, and most partitions are idle most of the time."""
    rows = np.full((len(places), len(times)), -1)

    def ask(columns: Mapping[int, int]) -> None:
        moments = {places[row]: int(times[column]) for row, column in columns.items()}
        found = cluster.offsets(moments, moments)
        for row, column in columns.items():
            offset = found[places[row]]
            rows[row, column] = offset if offset >= 0 else latest[places[row]]

    last = len(times) - 1
    for column in {0, last}:
        ask(dict.fromkeys(range(len(places)), column))
    spans = {row: [(0, last)] for row in range(len(places))}
    while spans:
        middle: dict[int, int] = {}
        for row in list(spans):
            while row not in middle and spans[row]:
                low, high = spans[row].pop()
                if rows[row, low] == rows[row, high]:
                    rows[row, low:high] = rows[row, low]
                elif high - low > 1:
                    middle[row] = (low + high) // 2
                    spans[row] += [(low, middle[row]), (middle[row], high)]
            if row not in middle:
                del spans[row]
        ask(middle)
    return rows


def _existing(cluster: Cluster, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = sorted(set(wanted))
    topics = cluster.topics({topic for topic, _ in wanted}) if wanted else {}
    return [
        (topic, partition)
        for topic, partition in wanted
        if not topics[topic].error and 0 <= partition < len(topics[topic].partitions)
    ]
