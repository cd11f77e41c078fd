"""Artificial logs of a cluster: the answers that planning needs, without a broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from kohort.client.errors import server_error
from kohort.client.metadata import Partition, Topic, TopicPartition
from kohort.spark.source import planner
from kohort.wire.errors import ErrorCode


@dataclass
class Logs:
    """The calls of a Cluster that planning makes."""

    ends: dict[TopicPartition, int]
    begin: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        there = {topic for topic, _ in self.ends}
        return {name: self._topic(name, name in there) for name in (sorted(there) if names is None else names)}

    def _topic(self, name: str, there: bool) -> Topic:
        if not there:
            return Topic(name, (), error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        count = sum(topic == name for topic, _ in self.ends)
        return Topic(name, tuple(Partition(name, n, 0, 0, (), ()) for n in range(count)), topic_id=self.ids.get(name))

    def offsets(
        self, places: Iterable[TopicPartition], at: Any = "latest", isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        wanted = list(places)
        for place in wanted:
            if place not in self.ends:
                raise server_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "ListOffsets")
        self.asked.append(at)
        if at == "earliest":
            return {place: self.begin.get(place, 0) for place in wanted}
        decided = self.stable if isolation == "read_committed" else {}
        return {place: decided.get(place, self.ends[place]) for place in wanted}

    def committed(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        return {}

    def close(self) -> None: ...


def over(logs: Logs, reader: Any) -> Any:
    """A source's reader that plans over these logs."""
    with mock.patch.object(planner, "open_cluster", return_value=logs):
        assert reader.planner
    return reader
