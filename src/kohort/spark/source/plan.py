"""Which offsets a query reads: where it starts, where a micro-batch ends, how a batch is cut into tasks.

Pure functions over positions, so that they are tested without Spark; `Planner` asks the cluster.

Spark keeps the end of each micro-batch in the checkpoint, and so where the next one starts; but not where the first one
started: a query that died in its first batch is asked for its initial offset again, and "latest" or "group" may mean
something else by then. So the end of the first batch carries its start with it, under START, and the batch is repeated
as it was.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, check
from kohort.client.metadata import Topic, TopicPartition
from kohort.spark.options.source import OptionError, Options
from kohort.spark.source import bounds
from kohort.wire.errors import ErrorCode

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, Any]]
"""As Spark keeps offsets in its checkpoint, and as its Kafka source writes them: topic, partition, offset."""

START = "@start"
"""Where the first batch of a query started, in the JSON of its end. No topic can have this name."""

BATCH = (
    "@batch"
    """The number of a batch of a query that shares its group, in the JSON of its end (see
`spark/source/member/sharing.py`)."""
)

MISSING_S = 2.0
"""A topic that was there is believed to be gone when it is still missing after this time."""
MISSING_POLL_S = 0.1


class DataLoss(RuntimeError):
    """Records that the query should have read are gone; the message names topic, partition and offsets."""


def to_json(positions: Mapping[TopicPartition, int]) -> Json:
    offsets: Json = {}
    for (topic, partition), offset in sorted(positions.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        if not topic.startswith("@")
        for partition, offset in partitions.items()
    }


def batch_start(start: Mapping[str, Mapping[str, Any]], end: Mapping[str, Mapping[str, Any]]) -> Positions:
    """Where the batch that ends at `end` starts, if Spark says `start`."""
    return from_json(end.get(START, start))


def admit(start: Positions, end: Positions, limit: int) -> Positions:
    """An end at most `limit` offsets behind `start` in all, each partition by its share of what is waiting.

    None that has something is left out, if the limit allows one offset for each.
    """
    waiting = {place: max(offset - start.get(place, offset), 0) for place, offset in end.items()}
    if sum(waiting.values()) <= limit:
        return end
    some = [place for place in sorted(end) if waiting[place]]
    each = 1 if limit >= len(some) else 0
    rest, total = limit - each * len(some), sum(waiting[place] - each for place in some)
    admitted = {place: each + rest * (waiting[place] - each) // total for place in some}
    left = limit - sum(admitted.values())
    for place in sorted(some, key=lambda p: admitted[p] - waiting[p]):
        # What rounding left over goes where most is waiting.
        more = min(left, waiting[place] - admitted[place])
        admitted[place] += more
        left -= more
    return {place: start.get(place, offset) + admitted.get(place, 0) for place, offset in end.items()}


def cut(
    ranges: Mapping[TopicPartition, tuple[int, int]], pieces: int | None = None, most: int | None = None
) -> list[tuple[TopicPartition, int, int]]:
    """Ranges of offsets for tasks: one a partition, cut where it has more than `most` offsets.

    Large ones are cut further, so that there are about `pieces` tasks in all; rounding makes it a little more or less.
    """
    sizes = {place: end - start for place, (start, end) in sorted(ranges.items()) if end > start}
    parts = {place: -(-size // most) if most else 1 for place, size in sizes.items()}
    if pieces and pieces > sum(parts.values()):
        total = sum(sizes.values())
        large = {place: size for place, size in sizes.items() if round(size / total * pieces) > 1}
        for_large = max(pieces - (len(sizes) - len(large)), 1)
        for place, size in large.items():
            parts[place] = max(parts[place], round(size / sum(large.values()) * for_large))
    tasks = []
    for place, count in parts.items():
        start, size = ranges[place][0], sizes[place]
        edges = [start + size * n // count for n in range(count + 1)]
        tasks += [(place, first, last) for first, last in pairwise(edges) if last > first]
    return tasks


def open_cluster(options: Options) -> Cluster:
    """A client with the options' settings. It opens connections on first use."""
    return Cluster(
        options.bootstrap_servers,
        options.client_id,
        request_timeout_ms=options.request_timeout_ms,
        api_timeout_ms=options.api_timeout_ms,
        connect_timeout_ms=options.connect_timeout_ms,
        retry_backoff_ms=options.retry_backoff_ms,
        retry_backoff_max_ms=options.retry_backoff_max_ms,
        metadata_max_age_ms=options.metadata_max_age_ms,
        security=options.security,
    )


class Planner:
    """Asks the cluster about partitions, their ends, and the group's offsets. One thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._cluster = open_cluster(options)
        self._gone: set[str] = set()
        """Topics that were missing at the last look: it is not waited for them again."""
        self._ids: dict[str, bytes] = {}
        self._recreated: set[str] = set()

    def close(self) -> None:
        self._cluster.close()

    # -- what there is

    @property
    def named(self) -> set[str]:
        """The topics that the options name."""
        return {*self.options.topics, *self.options.assigned}

    def includes(self, topic: str, partition: int) -> bool:
        """Whether the options mean this partition, as far as it exists."""
        if self.options.assigned:
            return partition in self.options.assigned.get(topic, ())
        return self._matches(topic) if self.options.pattern is not None else topic in self.options.topics

    def _matches(self, topic: str) -> bool:
        # Anywhere in the name, as Spark's source does since it asks the admin client.
        return re.search(self.options.pattern or "", topic, re.ASCII) is not None

    def partitions(self, reached: Collection[str] = ()) -> list[TopicPartition]:
        """What the query reads. Raises OptionError where a topic does not exist, unless the query had `reached` it."""
        options = self.options
        if options.assigned:
            found = self._existing(options.assigned, reached)
            for name, topic in found.items():
                for partition in options.assigned[name]:
                    if not 0 <= partition < len(topic.partitions):
                        raise OptionError(
                            f"assign names {name}-{partition}; {name} has {len(topic.partitions)} partitions"
                        )
            return sorted((name, partition) for name in found for partition in options.assigned[name])
        if options.pattern is not None:
            found = {name: topic for name, topic in self._cluster.topics().items() if self._matches(name)}
            self._note_ids(found)
            missed = [name for name in reached if name not in found and self._matches(name)]
            found.update(self._existing(missed, reached))
        else:
            found = self._existing(options.topics, reached)
        return [(name, index) for name in sorted(found) for index in range(len(found[name].partitions))]

    def existing(self, names: Collection[str]) -> set[str]:
        """Those of the topics that exist; whether one was created anew is noted."""
        return set(self._existing(names, names)) if names else set()

    def _existing(self, names: Iterable[str], reached: Collection[str]) -> dict[str, Topic]:
        """The topics that exist. A broker that has just started may not know one yet, so a second look is taken."""
        deadline = time.monotonic() + MISSING_S
        while True:
            found = self._cluster.topics(names)
            missing = {name for name, topic in found.items() if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            if missing <= self._gone or time.monotonic() > deadline:
                break
            time.sleep(MISSING_POLL_S)
        self._gone = missing
        unknown = sorted(missing.difference(reached))
        if unknown:
            raise OptionError(f"no such topic: {', '.join(unknown)} (on {self.options.bootstrap_servers})")
        for name, topic in found.items():
            if name not in missing:
                check(topic.error, f"topic {name}")
        existing = {name: topic for name, topic in found.items() if name not in missing}
        self._note_ids(existing)
        return existing

    def _note_ids(self, topics: Mapping[str, Topic]) -> None:
        for name, topic in topics.items():
            if topic.topic_id is not None and self._ids.setdefault(name, topic.topic_id) != topic.topic_id:
                self._ids[name] = topic.topic_id
                self._recreated.add(name)

    def take_recreated(self) -> set[str]:
        """Topics that were deleted and created again between two looks; each is told once."""
        recreated, self._recreated = self._recreated, set()
        return recreated

    def ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "latest", isolation=self.options.isolation)

    def ends_behind(self, partitions: Iterable[TopicPartition], reached: Positions) -> Positions:
        """The ends of the logs. One before what was `reached` is looked at again: a broker may have old metadata.

        With read_committed the log is meant, and not what of it is decided: behind the last stable offset, and not
        behind the log's end, a partition stands still until open transactions are done.
        """
        wanted = list(partitions)
        ends = self._ends_or_standing(wanted, reached)
        for _ in range(self.options.offset_retries - 1):
            if all(offset >= reached.get(place, offset) for place, offset in ends.items()):
                break
            time.sleep(self.options.offset_retry_ms / 1000)
            ends = self._ends_or_standing(wanted, reached)
        return ends

    def _ends_or_standing(self, partitions: list[TopicPartition], reached: Positions) -> Positions:
        ends = self.ends(partitions)
        behind = [place for place, offset in ends.items() if offset < reached.get(place, offset)]
        if behind and self.options.isolation == "read_committed":
            ends |= {place: reached[place] for place, end in self.log_ends(behind).items() if reached[place] <= end}
        return ends

    def log_ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The high watermarks, whatever the isolation level."""
        return self._cluster.offsets(partitions, "latest")

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "earliest")

    def beginnings_left(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The beginnings of those that exist."""
        wanted = list(partitions)
        if not wanted:
            return {}
        try:
            return self.beginnings(wanted)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        topics = {topic for topic, _ in wanted}
        found = self._existing(topics, topics)
        return self.beginnings(
            (topic, index) for topic, index in wanted if topic in found and index < len(found[topic].partitions)
        )

    def at_times(self, moments: Mapping[TopicPartition, int]) -> Positions:
        """The first records at or after times in milliseconds; -1 where there is none."""
        return self._cluster.offsets(moments, moments, isolation=self.options.isolation)

    def target(self, member_id: str) -> set[TopicPartition] | None:
        """What the group means this member to have; None as long as that is not decided."""
        group = self._cluster.describe_groups([self.options.group_id or ""])[self.options.group_id or ""]
        for member in group.members:
            if member.member_id == member_id and (group.state == "Stable" or member.target is not None):
                meant = member.assigned if member.target is None else member.target
                return {(topic, index) for topic, indexes in meant.items() for index in indexes}
        return None

    # -- where to start and end

    def starting(self, default: Literal["earliest", "latest"]) -> Positions:
        return bounds.starting(self, default, self.partitions())

    def ending(self, start: Positions) -> Positions:
        return bounds.ending(self, start)

    def repeated(self, start: Json, end: Json) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges of a batch that a former process planned.

        An end without START is behind its start, but for that of a first batch with nothing in it, whose start nobody
        knows any more (Spark's own source writes such ends): then there is nothing in it now, either.
        """
        known, until = batch_start(start, end), from_json(end)
        begin = known | self.beginnings_left([place for place in until if place not in known])
        self.note_late(known, begin, until)
        return {place: (begin[place], offset) for place, offset in until.items() if place in begin}

    # -- the group

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group has committed."""
        return self._cluster.committed(self.options.group_id or "", partitions)

    def note_late(self, reached: Positions, begin: Positions, until: Positions) -> bool:
        """Whether something is lost of partitions that the query had not reached. Raises DataLoss where it may not."""
        gone = sorted(until.keys() - begin.keys())
        for topic, index in gone:
            self.lost(f"{topic}-{index} is gone, and with it its offsets up to {until[topic, index]}")
        late = sorted(place for place in begin.keys() - reached.keys() if begin[place])
        for topic, index in late:
            self.lost(
                f"{topic}-{index} is new to the query and begins at offset {begin[topic, index]}: the records before "
                "were deleted unread"
            )
        return bool(gone or late)

    def lost(self, what: str) -> None:
        """Data is gone: an error, or with failOnDataLoss=false a warning."""
        lost(self.options, what)


def lost(options: Options, what: str) -> None:
    """Data is gone. Raises DataLoss, or warns with failOnDataLoss=false."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}. To go on with what there is: failOnDataLoss=false")
    print(f"kohort: data loss: {what}", file=sys.stderr, flush=True)
