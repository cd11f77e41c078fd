"""The thread that reads the snapshot again and again, so that no page waits for it.

It rests for three times as long as it has read, so a large cluster is asked during a quarter of the time. When no page
is open, it reads once a minute.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kohort.client.admin.end_times import EndTimes
from kohort.client.admin.survey import Surveyor
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.metadata import NO_LEADER, Topic
from kohort.console.reading.batches import batches_of, read_batch
from kohort.console.reading.rates import Rates
from kohort.console.reading.snapshot import GroupRow, NodeRow, Snapshot, TopicRow, Totals
from kohort.console.reading.trends import Trends

EVERY_S = 2.0
REST = 3
IDLE_AFTER_S = 60.0
IDLE_EVERY_S = 60.0
SHOWN_EVERY_S = 0.5
"""During the first reading: what is known so far."""
BREATH_S = 0.005
"""Between batches: pages and the broker's other clients come first."""


class Refresher:
    """Has the newest snapshot. `start` begins to read; `stop` lets the thread end, which may take one request."""

    def __init__(self, open_cluster: Callable[[], Cluster], *, every_s: float = EVERY_S) -> None:
        self.snapshot = Snapshot()
        self.times = EndTimes()
        self.trends = Trends()
        self.rates = Rates()
        self._open = open_cluster
        self._every_s = every_s
        self._stopped = threading.Event()
        self._looked = threading.Event()
        self._looked_at = time.monotonic()
        self._started = False

    def start(self) -> None:
        self._started = True
        threading.Thread(target=self._run, name="refresher", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._looked.set()

    def look(self) -> Snapshot:
        """The snapshot, for a page: the thread goes on to read as long as pages are looked at."""
        self._looked_at = time.monotonic()
        self._looked.set()
        return self.snapshot

    @property
    def is_first_due(self) -> bool:
        """Whether the thread has begun to read, and has not read everything once."""
        return self._started and self.snapshot.number == 0 and not self.snapshot.failure

    def _run(self) -> None:
        with self._open() as cluster:
            surveyor = Surveyor(cluster, with_lag=True)
            while not self._stopped.is_set():
                started = time.monotonic()
                try:
                    self.read(cluster, surveyor)
                except Exception as error:
                    self.snapshot = replace(
                        self.snapshot, failure=f"the console no longer reads, by a defect: {error!r}"
                    )
                    raise
                self._rest(time.monotonic() - started)

    def _rest(self, took_s: float) -> None:
        self._stopped.wait(max(self._every_s, REST * took_s))
        if time.monotonic() - self._looked_at > IDLE_AFTER_S and not self._stopped.is_set():
            self._looked.clear()
            self._looked.wait(IDLE_EVERY_S)

    def read(self, cluster: Cluster, surveyor: Surveyor) -> None:
        """Read everything once. A failure leaves the snapshot as it was and is named in it."""
        try:
            before, self.snapshot = self.snapshot, self._read(cluster, surveyor)
            if self.snapshot.number > before.number and self.snapshot.taken_ms is not None:
                self.trends.note(self.snapshot.taken_ms, self.snapshot.groups)
                self.rates.note(self.snapshot.taken_ms, self.snapshot.groups)
        except KafkaError as error:
            self.snapshot = replace(self.snapshot, failure=error.message)

    def _read(self, cluster: Cluster, surveyor: Surveyor) -> Snapshot:
        before = self.snapshot
        nodes, controller = cluster.nodes(), cluster.controller_id()
        listed = cluster.list_groups()
        topics = {name: topic for name, topic in cluster.topics(internal=True).items() if not topic.error}
        rows = {}
        for one in listed:
            row = GroupRow(one.group_id, one.state, one.type.lower(), one.protocol_type, one.coordinator)
            known = before.groups.get(one.group_id)
            if known is not None:  # it limits the batches, and is shown until the group is read
                row = replace(known, state=row.state, type=row.type, coordinator=row.coordinator)
            rows[one.group_id] = row
        done, shown_s = 0, 0.0
        empty = topic_rows(topics, {})
        for batch in list(batches_of(rows.values())):
            for row in read_batch(surveyor, self.times, batch):
                rows[row.group_id] = row
            done += len(batch)
            if before.number == 0 and time.monotonic() - shown_s > SHOWN_EVERY_S:
                shown_s = time.monotonic()
                totals = totals_of(rows.values(), empty.values())
                self.snapshot = Snapshot(cluster.cluster_id(), dict(rows), empty, totals=totals, described=done)
            if self._stopped.wait(BREATH_S):
                return before
        by_node = [row.coordinator for row in rows.values()]
        led_by = [part.leader for topic in topics.values() for part in topic.partitions]
        found = topic_rows(topics, rows)
        return Snapshot(
            cluster.cluster_id(),
            rows,
            found,
            tuple(
                NodeRow(node, node.node_id == controller, led_by.count(node.node_id), by_node.count(node.node_id))
                for node in sorted(nodes.values(), key=lambda node: node.node_id)
            ),
            totals_of(rows.values(), found.values()),
            before.number + 1,
            int(time.time() * 1000),
            done,
        )


def totals_of(groups: Iterable[GroupRow], topics: Iterable[TopicRow]) -> Totals:
    groups, topics = list(groups), list(topics)
    return Totals(
        Counter(group.state for group in groups),
        sum(group.lag or 0 for group in groups),
        sum(topic.partitions for topic in topics),
        sum(topic.leaderless for topic in topics),
        sum(topic.behind for topic in topics),
    )


def topic_rows(topics: Mapping[str, Topic], groups: Mapping[str, GroupRow]) -> dict[str, TopicRow]:
    readers: dict[str, list[tuple[str, int | None]]] = {}
    for group in groups.values():
        for name, lag in group.lags.items():
            readers.setdefault(name, []).append((group.group_id, lag))
    return {
        name: TopicRow(
            name,
            len(topic.partitions),
            topic.replication_factor,
            topic.internal,
            sum(part.leader == NO_LEADER for part in topic.partitions),
            sum(len(part.isr) < len(part.replicas) for part in topic.partitions),
            tuple(readers.get(name, ())),
        )
        for name, topic in sorted(topics.items())
    }
