"""The requests of planning to the cluster: a query's partitions, the beginnings and ends of their logs, the group."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping

from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, check
from kohort.client.metadata import Topic, TopicPartition
from kohort.spark.options.source import Options
from kohort.spark.options.values import OptionError
from kohort.spark.runtime.failures import warn
from kohort.spark.source.positions import START, Json, Positions, from_json, ids_in
from kohort.wire.errors import ErrorCode

MISSING_S = 2.0
"""A topic that existed counts as deleted once it has been missing for this time."""
MISSING_POLL_S = 0.1


class DataLoss(RuntimeError):
    """Records that the query should have read are gone; the message names topic, partition and offsets."""


def report_loss(options: Options, what: str) -> None:
    """Raise DataLoss, or print a warning if failOnDataLoss is false."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}. To continue with the remaining records: failOnDataLoss=false")
    warn(f"data loss: {what}")


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
    """Asks the cluster about partitions, their logs and the group. For one thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._cluster = open_cluster(options)
        self._gone: set[str] = set()
        """Topics that were missing at the last look; the next look does not wait for them."""
        self.ids: dict[str, bytes] = {}
        """The topics' ids at the last look."""
        self._recreated: set[str] = set()

    def close(self) -> None:
        self._cluster.close()

    # -- topics and partitions

    @property
    def named(self) -> set[str]:
        """The topics that the options name."""
        return {*self.options.topics, *self.options.assigned}

    def includes(self, topic: str, partition: int) -> bool:
        """True if the options select this partition, whether or not it exists."""
        if self.options.assigned:
            return partition in self.options.assigned.get(topic, ())
        return self._matches(topic) if self.options.pattern is not None else topic in self.options.topics

    def _matches(self, topic: str) -> bool:
        # Anywhere in the name, as in Spark's source since it uses the admin client.
        return re.search(self.options.pattern or "", topic, re.ASCII) is not None

    def partitions(self, reached: Collection[str] = ()) -> list[TopicPartition]:
        """The query's partitions. Raises OptionError if a topic does not exist, unless the query had `reached` it."""
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
        """Those of `names` that are existing topics. Also notes which of them were deleted and created again."""
        return set(self._existing(names, names)) if names else set()

    def _existing(self, names: Iterable[str], reached: Collection[str]) -> dict[str, Topic]:
        """The topics that exist. Asks again for a while, since a broker that has just started may not know a topic."""
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
            if topic.topic_id is not None and self.ids.setdefault(name, topic.topic_id) != topic.topic_id:
                self.ids[name] = topic.topic_id
                self._recreated.add(name)

    def expect(self, end: Json) -> None:
        """Expect the topics to have the ids that are in this end of a batch."""
        self.ids |= ids_in(end)

    def recreated_since(self, *ends: Json) -> set[str]:
        """Topics that were deleted and created again since these ends of batches were planned. Asks the cluster."""
        names = {topic for end in ends for topic in ids_in(end)}
        for end in ends:
            self.expect(end)
        self.existing(names)
        recreated = self._recreated & names
        self._recreated -= recreated
        return recreated

    def take_recreated(self) -> set[str]:
        """Topics that were deleted and created again since the last call."""
        recreated, self._recreated = self._recreated, set()
        return recreated

    # -- logs

    def all_ends(self) -> Positions:
        """The ends of everything that the options select; topics that the options name may be missing."""
        return self.ends(self.partitions(self.named))

    def ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "latest", isolation=self.options.isolation)

    def ends_from(self, partitions: Iterable[TopicPartition], reached: Positions) -> Positions:
        """The ends of the logs. Asks again for an end before what was `reached`: a broker may have old metadata.

        With read_committed, a position between last stable offset and log end stays until the open transactions end.
        """
        wanted = list(partitions)
        ends = self._ends_or_reached(wanted, reached)
        for _ in range(self.options.offset_retries - 1):
            if all(offset >= reached.get(place, offset) for place, offset in ends.items()):
                break
            time.sleep(self.options.offset_retry_ms / 1000)
            ends = self._ends_or_reached(wanted, reached)
        return ends

    def _ends_or_reached(self, partitions: list[TopicPartition], reached: Positions) -> Positions:
        ends = self.ends(partitions)
        before = [place for place, offset in ends.items() if offset < reached.get(place, offset)]
        if before and self.options.isolation == "read_committed":
            ends |= {place: reached[place] for place, end in self.log_ends(before).items() if reached[place] <= end}
        return ends

    def log_ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The high watermarks, whatever the isolation level."""
        return self._cluster.offsets(partitions, "latest")

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "earliest")

    def existing_beginnings(self, partitions: Iterable[TopicPartition]) -> Positions:
        """The beginnings of those partitions that exist."""
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
        """The first records at or after times in milliseconds; -1 if there is none."""
        return self._cluster.offsets(moments, moments, isolation=self.options.isolation)

    # -- batches

    def repeated(self, start: Json, end: Json) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges of a batch that an earlier process planned.

        An end without START lies after Spark's `start`. The exception is the end of an empty first batch (Spark's own
        source writes such ends): its start is unknown, and the batch is empty now, too. Nothing is read from a topic
        that was deleted and created again since.
        """
        known, until = from_json(end.get(START, start)), from_json(end)
        recreated = self.recreated_since(start, end)
        self.lost_unread(recreated)
        known |= {place: offset for place, offset in until.items() if place[0] in recreated}
        begin = known | self.existing_beginnings([place for place in until if place not in known])
        self.report_unread(known, begin, until)
        return {place: (begin[place], offset) for place, offset in until.items() if place in begin}

    def report_unread(self, reached: Positions, begin: Positions, until: Positions) -> bool:
        """True if records are lost in partitions that the query had not reached. Raises DataLoss."""
        gone = sorted(until.keys() - begin.keys())
        for topic, index in gone:
            self.lost(f"{topic}-{index} is gone, and with it its offsets up to {until[topic, index]}")
        late = sorted(place for place in begin.keys() - reached.keys() if begin[place])
        for topic, index in late:
            self.lost(
                f"{topic}-{index} is new to the query and begins at offset {begin[topic, index]}: earlier records were "
                "deleted before the query read them"
            )
        return bool(gone or late)

    def lost_unread(self, recreated: Iterable[str]) -> None:
        for topic in sorted(recreated):
            self.lost(f"{topic} was deleted and created again before the query had read what it had planned")

    def lost(self, what: str) -> None:
        report_loss(self.options, what)

    # -- the group

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        return self._cluster.committed(self.options.group_id or "", partitions)

    def target(self, member_id: str) -> set[TopicPartition] | None:
        """The partitions that the group intends for this member; None if it has not decided yet."""
        group = self._cluster.describe_groups([self.options.group_id or ""])[self.options.group_id or ""]
        for member in group.members:
            if member.member_id == member_id and (group.state == "Stable" or member.target is not None):
                target = member.assigned if member.target is None else member.target
                return {(topic, index) for topic, indexes in target.items() for index in indexes}
        return None
