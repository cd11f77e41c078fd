"""A client of the consumer protocol, and the topics by which it names partitions.

Partitions are written `t:0+1,u:2`. A topic id has the name and a number: a topic that is deleted and created again is
another topic, printed `t'`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kohort.conformance.play.requests import request
from kohort.wire.embedded import by_topic
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

TopicPartition = tuple[bytes, int]
Partitions = frozenset[TopicPartition]


class Topic(NamedTuple):
    topic_id: bytes
    name: str
    partitions: int


REJOIN = (25, 110)
"""The errors after which clients begin again, with epoch 0 and no partitions (N22)."""


class TopicNames:
    """The present topics, and the names by which partitions are printed."""

    def __init__(self) -> None:
        self.present: dict[str, Topic] = {}
        self.printed: dict[bytes, str] = {}
        self._created: dict[str, int] = {}

    def put(self, partitions: Mapping[str, int]) -> None:
        """Replace the topics. A topic that was not present gets a new id, whatever its name."""
        specs = {}
        for name, count in partitions.items():
            spec = self.present.get(name)
            topic_id = spec.topic_id if spec is not None else self._new_id(name)
            specs[name] = Topic(topic_id, name, count)
        self.present = specs

    def _new_id(self, name: str) -> bytes:
        number = self._created[name] = self._created.get(name, 0) + 1
        topic_id = f"{name}{number}".encode().ljust(16, b"\0")
        self.printed[topic_id] = name + "'" * (number - 1)
        return topic_id

    def read(self, text: str) -> Partitions:
        """`t:0+1,u:2`, or `none`."""
        found: set[TopicPartition] = set()
        for part in filter(None, text.replace("none", "").split(",")):
            name, _, indexes = part.partition(":")
            spec = self.present.get(name)
            topic_id = spec.topic_id if spec is not None else name.encode().ljust(16, b"\0")
            found.update((topic_id, int(index)) for index in indexes.split("+"))
        return frozenset(found)

    def text(self, partitions: Iterable[TopicPartition]) -> str:
        parts = [
            f"{self.printed[topic_id]}:{'+'.join(map(str, indexes))}"
            for topic_id, indexes in by_topic(sorted(partitions))
        ]
        return ",".join(parts) or "none"

    def with_epochs(self, partitions: Mapping[TopicPartition, int]) -> str:
        """Partitions with the epoch at which the member got them: `t:0+1@3`."""
        epochs = sorted(set(partitions.values()))
        return " ".join(f"{self.text(p for p in partitions if partitions[p] == e)}@{e}" for e in epochs) or "none"


class Consumer:
    """What a client of the consumer protocol knows."""

    def __init__(self) -> None:
        self.member_id = ""
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.told: Partitions | None = None
        """The partitions in its last report."""
        self.topics = "t"
        self.instance: str | None = None

    def request(self, group: str, name: str, topics: TopicNames, options: dict[str, str]) -> Any:
        """A heartbeat as a client would send it; options override. Returns None for a field that it leaves out."""
        version = int(options.get("v", 1))
        epoch = int(options.get("epoch", self.epoch))
        full = epoch == 0
        if "instance" in options:
            self.instance = options["instance"] if options["instance"] not in ("null", "''") else None
        if "topics" in options:
            self.topics = options["topics"]
        self.member_id = options.get("id", self.member_id or (name if version >= 1 else ""))
        owned = None if epoch < 0 or self.owned == self.told else self.owned
        if full:
            self.owned = owned = frozenset()
        if "owned" in options:
            owned = None if options["owned"] == "null" else topics.read(options["owned"])
        self.told = owned if owned is not None else self.told
        names: tuple[str, ...] | None = None
        if (full or "topics" in options) and epoch >= 0 and self.topics != "null":
            names = tuple(topic for topic in self.topics.split("+") if topic != "none")
        timeout = options.get("rebalance", "30000" if full else "-1")
        rows = None if owned is None else [{"topic_id": t, "partitions": of} for t, of in by_topic(sorted(owned))]
        return request(
            "ConsumerGroupHeartbeat",
            group_id=text_of(group),
            member_id=text_of(self.member_id),
            member_epoch=epoch,
            instance_id="" if options.get("instance") == "''" else self.instance,
            rack_id=text_of(options["rack"]) if "rack" in options else None,
            rebalance_timeout_ms=int(timeout.removesuffix("s")) * (1000 if timeout.endswith("s") else 1),
            subscribed_topic_names=names,
            subscribed_topic_regex=text_of(options["regex"]) if "regex" in options else None,
            server_assignor=options.get("assignor"),
            topic_partitions=rows,
        )

    def learn(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code in REJOIN:
            self.epoch, self.owned, self.told = 0, frozenset(), None
        if answer.error_code:
            return
        self.member_id = answer.member_id or self.member_id
        self.epoch = max(answer.member_epoch, 0)
        if answer.member_epoch < 0:
            self.owned, self.told = frozenset(), None
        elif answer.assignment is not None:
            self.owned = partitions_of(answer.assignment.topic_partitions)
            self.told = None


def partitions_of(topics: Iterable[Any]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def text_of(text: str) -> str:
    return "" if text == "''" else text
