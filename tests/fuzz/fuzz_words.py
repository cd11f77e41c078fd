"""Values that a broker knows: its topics and groups, and values from its own answers.

Drawn at random, a request is refused at its first field. So names come from small pools, members and epochs from the
answers that came before, and records, subscriptions and assignments are such; each now and then is not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from fuzz_batches import drawn_batch
from fuzz_grammar import BITS, Words, draw
from fuzz_mutations import Mutations

from kohort.broker.topics.topic_configs import TOPIC_CONFIGS
from kohort.config import GROUP_PROTOCOLS
from kohort.coordinator.settings.group_settings import GROUP_CONFIGS
from kohort.wire.layout import fields_of, is_flexible, smallest_size
from kohort.wire.schema import NO_UUID, Field
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kohort.wire.schemas.create_topics import CreateTopicsResponse
from kohort.wire.schemas.init_producer_id import InitProducerIdResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.metadata import MetadataResponse

TOPICS = ("orders", "clicks", "keyed", "wide", "fresh", "fresh.er", "fresh_er", "", "__consumer_offsets", "no/good")
GROUPS = ("classic", "modern", "mixed", "other", "idle", "")
PATTERNS = (
    "o.*", ".*", "(orders|clicks)", "", "(", "[a-z]{1000}", "(a+)+$", "((a{100}){100}){100}", "\\pL" * 9, "a" * 3000,
    "(?i)ORDERS", "\\C", "x{0,1000}y{0,1000}", "(.*){50}", "\xff", "[^x]", "(?P<n>o)rders", "a||b", "$^",
)  # fmt: skip
CONFIG_NAMES = (*TOPIC_CONFIGS, *GROUP_CONFIGS, "no.such.config", "")
CONFIG_VALUES = (
    "", "0", "1", "-1", "-2", "1000", "9223372036854775807", "9223372036854775808", "compact", "delete",
    "compact,delete", "gzip", "zstd", "LogAppendTime", "CreateTime", "true", "0.5", "nan", "1e400", "uniform",
    "x" * 300,
)  # fmt: skip
LONG = (4_000, 4_000, 9_000, 40_000)
PARTITIONS = (0, 0, 0, 1, 2, 3, -1, 99, 2**31 - 1, -(2**31))
SMALL = {
    "num_partitions": (1, 1, 2, 3, 0, -1, 7, 40, 2**31 - 1),
    "count": (1, 2, 4, 8, 0, -1, 2**31 - 1),
    "replication_factor": (1, 1, -1, 0, 2, 3, 32767),
    "acks": (-1, 1, 0, 0, 2),
    "session_timeout_ms": (10_000, 10_000, 6_000, 45_000, 0, -1, 2**31 - 1),
    "rebalance_timeout_ms": (30_000, 1_000, 60_000, 0, -1, 2**31 - 1),
    "max_wait_ms": (0, 0, 10, 500, -1, 2**31 - 1),
    "min_bytes": (0, 1, 1, 1000, -1, 2**31 - 1),
    "max_bytes": (2**31 - 1, 1000, 100_000, 0, -1),
    "partition_max_bytes": (2**31 - 1, 1000, 100_000, 0, -1),
    "session_epoch": (-1, -1, 0, 1, 2**31 - 1),
    "resource_type": (2, 4, 32, 8, 0, 16, -1),
    "config_operation": (0, 1, 2, 3, 4),
    "key_type": (0, 0, 1, 2, -1),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, 1_760_000_000_000, 2**63 - 1, -(2**63)),
    "explain_last": (-1, 0, 1, 5, 2**31 - 1),
    "response_partition_limit": (1, 5, 2000, 0, -1, 2**31 - 1),
    "current_leader_epoch": (-1, -1, -1, 0, 1),
    "last_fetched_epoch": (-1, -1, -1, 0, 1),
    "leader_epoch": (-1, -1, 0, 1),
    "committed_leader_epoch": (-1, -1, 0, 1),
    "replica_id": (-1, -1, -1, 0, 1),
    "broker_ids": (1, 1, 2, 3, 9),
    "retention_time_ms": (-1, 0, 1000),
    "transaction_timeout_ms": (1000, 60_000, 0, -1, 2**31 - 1),
    "endpoint_type": (1, 1, 2, 0),
}
TEXTS: dict[str, tuple[str, ...]] = {
    "protocol_type": ("consumer", "consumer", "consumer", "connect", ""),
    "resource_name": (*TOPICS[:4], *GROUPS[:3], "1", "", "9" * 30),
    "subscribed_topic_regex": PATTERNS,
    "server_assignor": ("uniform", "range", "lag", "rack", "none", ""),
    "client_software_name": ("librdkafka", "apache-kafka-java", "kgo", "kafkajs", "", "a b"),
    "types_filter": ("classic", "consumer", "Consumer", "share", *GROUP_PROTOCOLS),
    "states_filter": ("Stable", "empty", "Dead", ""),
}
OFFSETS = (0, 0, 1, 2, 10, -1, 2**63 - 1, -(2**63))


class BrokerWords(Words):
    """Draws requests that the broker of one story can make something of; `learn` takes its answers."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.members: list[str] = ["", "ghost"]
        self.epochs: list[int] = [-1, 0, 1, 2]
        self.topic_ids: list[bytes] = [NO_UUID]
        self.producers: list[int] = [-1, 0]
        self._subscriptions = _versioned(chance, ConsumerProtocolSubscription)
        self._assignments = _versioned(chance, ConsumerProtocolAssignment)

    def learn(self, response: Any) -> None:
        match response:
            case JoinGroupResponse() if response.member_id:
                _add(self.members, response.member_id)
                _add(self.epochs, response.generation_id)
            case ConsumerGroupHeartbeatResponse() if response.member_id:
                _add(self.members, response.member_id)
                _add(self.epochs, response.member_epoch)
            case MetadataResponse() | CreateTopicsResponse():
                for topic in response.topics[:20]:
                    _add(self.topic_ids, topic.topic_id)
            case InitProducerIdResponse():
                _add(self.producers, response.producer_id)

    def number(self, field: Field, wire_type: str) -> int:
        chance, name = self.chance, field.name
        pick = chance.random()
        if pick < 0.04:
            return super().number(field, wire_type)
        if name in SMALL:
            return _fitting(chance.choice(SMALL[name]), wire_type)
        if "epoch" in name or "generation" in name:
            return _fitting(chance.choice(self.epochs), wire_type)
        if "partition" in name or name == "index":
            return _fitting(chance.choice(PARTITIONS), wire_type)
        if name == "producer_id":
            return chance.choice(self.producers)
        if "offset" in name:
            return _fitting(chance.choice(OFFSETS), wire_type)
        return super().number(field, wire_type)

    def text(self, field: Field) -> str:
        chance, name = self.chance, field.name
        pick = chance.random()
        if pick < 0.03:
            return super().text(field)
        if pick < 0.035:
            return chance.choice("xé") * chance.choice(LONG)
        owner = self.owner.__name__
        if name in TEXTS:
            return chance.choice(TEXTS[name])
        if "member_id" in name:
            return chance.choice(self.members)
        if "instance" in name:
            return chance.choice(("static-1", "static-2", "static-1", ""))
        if "group" in name or name == "coordinator_keys" or (name == "key" and "Coordinator" in owner):
            return chance.choice(GROUPS)
        if "Protocol" in owner or name == "protocol_name":
            return chance.choice(("range", "range", "cooperative-sticky", "sticky", ""))
        if "onfig" in owner and name in ("name", "configuration_keys"):
            return chance.choice(CONFIG_NAMES)
        if "onfig" in owner and name == "value":
            return chance.choice(CONFIG_VALUES)
        if "topic" in name or name == "name":
            return chance.choice(TOPICS)
        return super().text(field)

    def blob(self, field: Field) -> bytes:
        chance, name = self.chance, field.name
        if chance.random() < 0.05:
            return super().blob(field)
        if name == "metadata":
            return self._subscriptions(self)
        if name == "assignment":
            return self._assignments(self)
        if name == "records":
            return drawn_batch(chance)
        return super().blob(field)

    def uuid(self, field: Field) -> bytes:
        return self.chance.choice(self.topic_ids)

    def is_null(self, field: Field) -> bool:
        chance = 0.75 if "instance" in field.name else 0.02 if field.name == "records" else 0.3
        return self.chance.random() < chance


def _fitting(value: int, wire_type: str) -> int:
    bits = BITS[wire_type]
    if wire_type.startswith("u"):
        return value & (1 << bits) - 1
    return max(-(1 << bits - 1), min(value, (1 << bits - 1) - 1))


def _add(values: list[Any], value: Any) -> None:
    """Keep the initial values and the newest few added ones."""
    if value not in values:
        values.append(value)
        if len(values) > 14:
            del values[4]


def _versioned(chance: random.Random, cls: type) -> Any:
    """Draws the bytes of an embedded message after its version; a third of them are damaged."""

    def drawn(words: Words) -> bytes:
        version = chance.choice((0, 1, 2, 3, 3))
        owner = words.owner
        message = draw(cls, version, words)
        words.owner = owner
        data = Mutations(message.data, message.marks, chance).one() if chance.random() < 0.3 else message.data
        told = version if chance.random() < 0.95 else chance.choice((-1, 4, 100, 32767))
        return told.to_bytes(2, "big", signed=True) + data

    return drawn


class DenseWords(Words):
    """Requests with as many elements as fit into one of their arrays: small elements, equal or all different.

    These requests cost most for each of their bytes.
    """

    MOST = 24_000
    """Bytes, or so."""

    def __init__(self, words: BrokerWords) -> None:
        super().__init__(words.chance)
        self._words = words
        self._path: tuple[Field, ...] = ()
        self._numbered = False
        self._empty = False
        self._elements = 1
        self._last = 0

    def begin(self, cls: type, version: int) -> None:
        """Choose the array of which the next message of this class has many elements."""
        paths = list(_arrays(cls, version))
        self._path = self.chance.choice(paths) if paths else ()
        self._numbered = self.chance.random() < 0.5
        self._empty = self.chance.random() < 0.3
        self._elements = 1
        if self._path:
            element = self._path[-1].type[0]
            names = 6 if self._numbered else 2
            flexible = is_flexible(cls, version)
            smallest = smallest_size(element, version, flexible)
            strings = 1 if isinstance(element, str) else str(_kinds(element, version)).count("string")
            self._elements = max(1, int(self.MOST / (smallest + strings * names)))

    def count(self, field: Field, depth: int) -> int:
        if field not in self._path:
            return 0
        return self._elements if field is self._path[-1] else 1

    def is_null(self, field: Field) -> bool:
        return field not in self._path

    def has_tag(self, field: Field) -> bool:
        return False

    def number(self, field: Field, wire_type: str) -> int:
        return self._words.number(field, wire_type)

    def text(self, field: Field) -> str:
        if self._empty:
            return ""
        if self._numbered:
            self._last += 1
            return f"n{self._last:x}"
        self._words.owner = self.owner
        return self._words.text(field)[:20]

    def blob(self, field: Field) -> bytes:
        return b""

    def uuid(self, field: Field) -> bytes:
        return self._words.uuid(field)


def _arrays(cls: type, version: int, above: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """The arrays of a message, each with the arrays that contain it."""
    for field in fields_of(cls, version):
        if isinstance(field.type, list):
            path = (*above, field)
            yield path
            if not isinstance(field.type[0], str):
                yield from _arrays(field.type[0], version, path)


def _kinds(cls: type, version: int) -> list[Any]:
    return [field.type for field in fields_of(cls, version)]
