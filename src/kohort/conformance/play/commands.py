"""The commands of scenario files as requests: those that a client of that name would send after its earlier answers.

Members have short names. A name's first JoinGroup carries no member id. The answer is remembered, so that the next
request of that name carries the id and the generation that a client would send. Two worlds run the same files:
`ShardWorld` asks a shard in this process, and `tests/behaviour` asks servers over sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kohort.conformance.play.consumer_client import Consumer, TopicNames, text_of
from kohort.conformance.play.requests import request, subscription
from kohort.wire.embedded import assignment_bytes, by_topic
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

LONG = "long" * 10_000


def duration(text: str) -> int:
    number = text.rstrip("msdh")
    return round(float(number) * UNITS[text[len(number) :]])


def by_name(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """`t:0+1/u:2` by topic."""
    parts = [part.partition(":") for part in text.split("/") if ":" in part]
    return [(topic, tuple(int(index) for index in indexes.split("+"))) for topic, _, indexes in parts]


def assignment(text: str) -> bytes:
    """`@t:0+1/u:2` is an assignment of the consumer protocol; with `!` at its end it has data of its assignor, too."""
    if not text.startswith("@"):
        return text.encode()
    data = assignment_bytes(by_name(text[1:].rstrip("!")))
    return data[:-4] + b"\0\0\0\1x" if text.endswith("!") else data


def place_of(text: str) -> tuple[str, int]:
    """`t-0` as a topic and an index."""
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def null_of(text: str | None) -> str | None:
    return None if text == "null" else text


class Name:
    """The state of a client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.instance: str | None = None
        self.generation = -1
        self.protocol: str | None = None
        self.protocol_type: str | None = None
        self.next_join: dict[str, str] = {}
        self.last_join: dict[str, str] = {}
        """Options of its last JoinGroup that was accepted; the next one has them too."""
        self.parked: Any = None
        """Its request that waits for an answer."""
        self.consumer = Consumer()
        self.loses_answer = False


class Commands(ABC):
    """The requests of the commands; `_ask`, `_fetch` and `_await_joins` belong to the world."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], Name] = {}
        self.topics = TopicNames()

    @abstractmethod
    def _ask(self, who: Name, version: int, body: Any, hold_ms: int = 0, software: str = "") -> None: ...

    @abstractmethod
    def _fetch(self, request: OffsetFetchRequestGroup, version: int) -> None: ...

    @abstractmethod
    def _await_joins(self, group: str, names: tuple[str, ...]) -> None: ...

    def client(self, group: str, name: str) -> Name:
        return self.names.setdefault((group, name), Name(name))

    def run(self, line: str) -> None:
        command, *arguments = line.replace("LONG", LONG).split()
        positional = [argument for argument in arguments if "=" not in argument or "-" in argument.split("=")[0]]
        options = dict(argument.split("=", 1) for argument in arguments if argument not in positional)
        getattr(self, "do_" + command.replace("-", "_"))(*positional, **options)

    def do_join(self, group: str, name: str, **options: str) -> None:
        who = self.client(group, name)
        given = {"session": "10s", "rebalance": "30s", "type": "consumer", "protocols": "range:t"} | who.last_join
        given |= options
        who.next_join = {key: given[key] for key in ("session", "rebalance", "type", "protocols")}
        if "instance" in options:
            who.instance = options["instance"]
        version = int(options.get("v", 9))
        protocols = []
        for protocol in filter(None, given["protocols"].split(",")):
            protocol_name, _, topics = protocol.partition(":")
            owned, since = by_name(options.get("owned", "")), int(options.get("since", -1))
            metadata = topics[1:].encode() if topics[:1] == "!" else subscription(topics.split("+"), owned, since)
            protocols.append({"name": protocol_name, "metadata": metadata})
        body = request(
            "JoinGroup",
            group_id=text_of(group),
            session_timeout_ms=duration(given["session"]),
            rebalance_timeout_ms=duration(given["rebalance"]) if version >= 1 else -1,
            member_id=text_of(options.get("id", who.member_id)),
            group_instance_id=who.instance if version >= 5 else None,
            protocol_type=text_of(given["type"]),
            protocols=protocols,
            reason=options.get("reason"),
        )
        self._ask(who, version, body)

    def do_group(self, group: str, *names: str, **options: str) -> None:
        """A stable group; each member is assigned its name's `!`, or what `assign` says."""
        assign = options.pop("assign", ",".join(f"{member}:{member}!" for member in names))
        for name in names:
            self.do_join(group, name, **options)
            if not self.client(group, name).parked:
                self.do_join(group, name, **options)
        self._await_joins(group, names)
        for name in names:
            self.do_sync(group, name, assign=assign)

    def do_sync(self, group: str, name: str, **options: str) -> None:
        who = self.client(group, name)
        version = int(options.get("v", 5))
        assignments = []
        for item in filter(None, options.get("assign", "").split(",")):
            member, _, assigned = item.partition(":")
            member_id = self.names[group, member].member_id if (group, member) in self.names else member
            assignments.append({"member_id": member_id, "assignment": assignment(assigned)})
        body = request(
            "SyncGroup",
            group_id=text_of(group),
            generation_id=int(options.get("gen", who.generation)),
            member_id=text_of(options.get("id", who.member_id)),
            group_instance_id=options.get("instance", who.instance) if version >= 3 else None,
            protocol_type=null_of(options.get("type", who.protocol_type)) if version >= 5 else None,
            protocol_name=null_of(options.get("protocol", who.protocol)) if version >= 5 else None,
            assignments=assignments,
        )
        self._ask(who, version, body)

    def do_heartbeat(self, group: str, name: str, **options: str) -> None:
        who = self.client(group, name)
        version = int(options.get("v", 4))
        body = request(
            "Heartbeat",
            group_id=text_of(group),
            generation_id=int(options.get("gen", who.generation)),
            member_id=text_of(options.get("id", who.member_id)),
            group_instance_id=options.get("instance", who.instance) if version >= 3 else None,
        )
        self._ask(who, version, body, hold_ms=duration(options.get("hold", "0s")))

    def do_leave(self, group: str, *names: str, **options: str) -> None:
        version = int(options.get("v", 5))
        members = [
            {"member_id": who.member_id, "group_instance_id": options.get("instance", who.instance)}
            for who in (self.client(group, name) for name in names)
        ]
        if not names:
            members = [{"member_id": "", "group_instance_id": null_of(options.get("instance"))}]
        leaving: dict[str, Any] = {"members": members} if version >= 3 else {"member_id": members[0]["member_id"]}
        who = self.client(group, names[0] if names else "operator")
        self._ask(who, version, request("LeaveGroup", group_id=text_of(group), **leaving))

    def do_beat(self, group: str, name: str, **options: str) -> None:
        who = self.client(group, name)
        who.loses_answer = "lost" in options
        body = who.consumer.request(group, name, self.topics, options)
        hold_ms = duration(options.get("hold", "0s"))
        self._ask(who, int(options.get("v", 1)), body, hold_ms, options.get("software", ""))

    def do_commit(self, group: str, name: str, *offsets: str, **options: str) -> None:
        who = Name("-") if name == "-" else self.client(group, name)
        version = int(options.get("v", 9))
        partitions: dict[str, list[dict[str, Any]]] = {}
        for item in offsets:
            place, _, value = item.partition("=")
            offset, _, metadata = value.partition(":")
            topic, index = place_of(place)
            if metadata.startswith("*"):
                metadata = "x" * int(metadata[1:])
            partition = {
                "partition_index": index,
                "committed_offset": int(offset),
                "committed_leader_epoch": int(options.get("epoch", -1)),
                "committed_metadata": null_of(metadata),
            }
            partitions.setdefault(topic, []).append(partition)
        body = request(
            "OffsetCommit",
            group_id=text_of(group),
            generation_id_or_member_epoch=int(options.get("gen", who.generation)),
            member_id=text_of(options.get("id", who.member_id)),
            group_instance_id=options.get("instance", who.instance) if version >= 7 else None,
            retention_time_ms=duration(options["retention"]) if "retention" in options else -1,
            topics=[{"name": topic, "partitions": rows} for topic, rows in partitions.items()],
        )
        self._ask(who, version, body)

    def do_fetch(self, group: str, *places: str, **options: str) -> None:
        topics = None
        if "all" not in places:
            named = by_topic(place_of(place) for place in places if place != "none")
            topics = tuple(OffsetFetchRequestTopics(name=topic, partition_indexes=of) for topic, of in named)
        member: dict[str, Any] = {}
        if "as" in options or "id" in options:
            consumer = self.client(group, options.get("as", "-")).consumer
            member["member_id"] = options.get("id", consumer.member_id)
            member["member_epoch"] = int(options.get("epoch", consumer.epoch))
        body = OffsetFetchRequestGroup(group_id=text_of(group), topics=topics, **member)
        self._fetch(body, int(options.get("v", 9 if "as" in options else 8)))

    def do_delete_offsets(self, group: str, *places: str) -> None:
        topics = [
            {"name": topic, "partitions": [{"partition_index": index} for index in of]}
            for topic, of in by_topic(map(place_of, places))
        ]
        self._ask(Name("operator"), 0, request("OffsetDelete", group_id=text_of(group), topics=topics))

    def do_delete(self, *groups: str) -> None:
        self._ask(Name("operator"), 2, request("DeleteGroups", groups_names=list(map(text_of, groups))))

    def _learn(self, who: Name, body: Any) -> None:
        """The parts of an answer that a client remembers."""
        if isinstance(body, JoinGroupResponse):
            if body.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                who.member_id = body.member_id
                who.last_join = who.next_join
            if not body.error_code:
                who.generation = body.generation_id
                who.protocol = body.protocol_name
                who.protocol_type = body.protocol_type or who.last_join["type"]
        if isinstance(body, ConsumerGroupHeartbeatResponse) and not who.loses_answer:
            who.consumer.learn(body)
            who.generation, who.member_id = who.consumer.epoch, who.consumer.member_id
