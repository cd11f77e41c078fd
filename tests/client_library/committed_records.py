"""What readers of committed records get, for tests of transactions.

Apache Kafka answers a commit before its markers are in the logs, so a test first waits until nothing is open.
"""

from __future__ import annotations

import time

from kohort.client.cluster import Cluster
from kohort.client.records import next_position, records

PATIENCE_S = 60


def settle(cluster: Cluster, topic: str, partition: int = 0) -> None:
    """Wait until no transaction is open in the partition: the server aborts what is not ended in time."""
    place = [(topic, partition)]
    deadline = time.monotonic() + PATIENCE_S
    while cluster.offsets(place, isolation="read_committed") != cluster.offsets(place):
        assert time.monotonic() < deadline, f"a transaction stays open in {topic}-{partition}"
        time.sleep(0.01)


def committed_so_far(cluster: Cluster, topic: str, partition: int = 0) -> list[str]:
    """The values up to the last stable offset."""
    place = (topic, partition)
    end = cluster.offsets([place], isolation="read_committed")[place]
    position = 0
    found: list[str] = []
    while position < end:
        for fetched in cluster.fetch({place: position}, isolation="read_committed"):
            found += [record.value.decode() for record in records(fetched, position) if record.value is not None]
            position = next_position(fetched, position)
    return found


def committed(cluster: Cluster, topic: str, partition: int = 0) -> list[str]:
    """The values of the partition once nothing is open in it."""
    settle(cluster, topic, partition)
    return committed_so_far(cluster, topic, partition)
