"""The content of the metadata log: topics with their ids, leaders and configs, the configs of groups and
brokers, ACLs, quotas, producer ids.

`Catalog` is the fold of that log. Only `apply` writes it, live and in the replay. The functions below make the records.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kohort.broker.quotas.entities import Entity, Quotas
from kohort.broker.security.acls import Acl, Acls
from kohort.broker.security.credentials import Credentials
from kohort.broker.sharing.slots import Slots
from kohort.broker.topics.topic_configs import TopicSettings, resolve
from kohort.config import Config, with_dynamic
from kohort.coordinator.events import Record
from kohort.security.scram import Credential
from kohort.storage.protocol import LogKey
from kohort.storage.slots import METADATA_TOPIC_ID
from kohort.wire.codec import decode, encode
from kohort.wire.schemas.metadata_records import (
    AclValue,
    BrokerValue,
    ClusterValue,
    ConfigEntry,
    GroupValue,
    MetadataKey,
    PartitionAssignment,
    ProducerIdsValue,
    QuotaEntity,
    QuotaSetting,
    QuotaValue,
    ScramValue,
    SecretValue,
    SpareLogsValue,
    TopicValue,
    UpstreamValue,
)


@dataclass(frozen=True, slots=True)
class OwnTopic:
    holds: str
    cleanup: frozenset[str]
    """Its cleanup.policy, which cannot be changed."""


OFFSETS_TOPIC = "__consumer_offsets"
JOURNAL_TOPIC = "__kohort_journal"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARES_TOPIC = "__share_group_state"
OWN_TOPICS: dict[str, OwnTopic] = {
    OFFSETS_TOPIC: OwnTopic("the groups", frozenset(("compact",))),
    JOURNAL_TOPIC: OwnTopic("the groups' journal", frozenset(("compact", "delete"))),
    TRANSACTIONS_TOPIC: OwnTopic("the transactions", frozenset(("compact",))),
    SHARES_TOPIC: OwnTopic("the state of share groups", frozenset(("delete",))),
}
"""Topics that only the broker writes. Clients may read them and change their settings."""
INTERNAL_TOPICS = frozenset(OWN_TOPICS)
METADATA_LOG = LogKey(METADATA_TOPIC_ID, 0)
"""No topic gets this id: random ids (RFC 4122, version 4) have bits set that this one lacks."""

VALUES: dict[str, type] = {
    "cluster": ClusterValue,
    "topic": TopicValue,
    "group": GroupValue,
    "broker": BrokerValue,
    "producer ids": ProducerIdsValue,
    "acl": AclValue,
    "quota": QuotaValue,
    "scram": ScramValue,
    "secret": SecretValue,
    "spare logs": SpareLogsValue,
    "upstream": UpstreamValue,
}
_VERSION = struct.Struct(">h")
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class UnknownRecord(Exception):
    """A metadata record that this version of kohort does not know."""


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionAssignment, ...]
    configs: dict[str, str]
    """Set on the topic itself."""
    settings: TopicSettings
    """In force, but for the configs of single brokers (`Catalog.settings_of`)."""
    is_internal: bool
    is_followed: bool
    """Of the cluster before which a gateway stands: its partitions have no logs here, and leaders of that cluster."""

    def log_key(self, partition: int) -> LogKey:
        return LogKey(self.topic_id, partition)


class Catalog:
    """The state that results from the metadata log."""

    def __init__(self, config: Config, slots: Slots | None = None) -> None:
        """`slots`: of nodes that serve at once."""
        self._slots = slots
        self._static = config
        self._of_broker: dict[int, Config] = {}
        self.config = config
        """The settings of brokers that have none of their own."""
        self.tells_details = config.log_level == "debug"
        """The server's log has lines at debug."""
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        """What is set on BROKER resources: by the broker's id, or "" for all brokers."""
        self.cluster_id = ""
        self.offsets_partitions = 0
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        """Group id: what is set on its GROUP resource. As in Kafka, the group need not exist."""
        self.next_producer_id = 0
        self.acls = Acls()
        self.credentials = Credentials()
        self.quotas = Quotas()
        self.partition_count = 0
        self.spare_logs: dict[bytes, int] = {}
        """Topic id: the first partition whose log, if it is there, is not part of the topic (topics/topic_store.py)."""
        self.upstream: UpstreamValue | None = None
        """The cluster before which this gateway stands; None if it is none, or has not seen it."""
        self._alike: dict[str, set[str]] = {}

    def apply(self, record: Record) -> None:
        key, value = parsed(record)
        match value:
            case ClusterValue():
                self.cluster_id = value.cluster_id
                self.offsets_partitions = value.offsets_partitions
            case TopicValue():
                self._forget_topic(key.name)
                self._put_topic(key.name, value)
            case ProducerIdsValue():
                self.next_producer_id = value.next_id
            case GroupValue():
                self.group_configs[key.name] = {entry.name: entry.value for entry in value.configs}
            case BrokerValue():
                self._configure(key.name, {entry.name: entry.value for entry in value.configs})
            case ScramValue():
                code, _, user = key.name.partition(" ")
                found = Credential(value.salt, value.iterations, value.stored_key, value.server_key)
                self.credentials.put(user, int(code), found)
            case SecretValue():
                self.credentials.secret = value.secret
            case None if key.kind == "scram":
                code, _, user = key.name.partition(" ")
                self.credentials.remove(user, int(code))
            case AclValue():
                self.acls.put(key.name, _acl(value))
            case None if key.kind == "acl":
                self.acls.remove(key.name)
            case QuotaValue():
                entity = Entity(tuple((part.type, part.name) for part in value.entity))
                self.quotas.put(entity, {setting.key: setting.value for setting in value.settings})
            case None if key.kind == "quota":
                self.quotas.remove(key.name)
            case None if key.kind == "broker":
                self._configure(key.name, {})
            case UpstreamValue():
                self.upstream = value
            case SpareLogsValue():
                self.spare_logs[bytes.fromhex(key.name)] = value.first
            case None if key.kind == "spare logs":
                self.spare_logs.pop(bytes.fromhex(key.name), None)
            case None if key.kind == "group":
                self.group_configs.pop(key.name, None)
            case None:
                assert key.kind == "topic", f"a metadata record of kind {key.kind} cannot be deleted"
                self._forget_topic(key.name)

    def config_of(self, broker_id: int) -> Config:
        """The settings of a broker in force."""
        return self._of_broker.get(broker_id, self.config)

    def settings_of(self, topic: Topic, broker_id: int) -> TopicSettings:
        """The settings of the topic's partitions that a broker leads."""
        own = self._of_broker.get(broker_id)
        return topic.settings if own is None else resolve(topic.configs, own)

    def follow_slots(self) -> list[tuple[Topic, list[int]]]:
        """Slots have other owners. Returns the topics with the indexes of the partitions that have other leaders."""
        assert self._slots is not None
        found = []
        for topic in self.topics.values():
            before, topic.partitions = topic.partitions, self._slots.led(topic.topic_id, topic.partitions)
            moved = [index for index, each in enumerate(topic.partitions) if each is not before[index]]
            if moved:
                found.append((topic, moved))
        return found

    def _configure(self, broker: str, configs: dict[str, str]) -> None:
        self.broker_configs.pop(broker, None)
        if configs:
            self.broker_configs[broker] = configs
        self.config = with_dynamic(self._static, self.broker_configs.get("", {}))
        self._of_broker = {
            int(name): with_dynamic(self.config, own) for name, own in self.broker_configs.items() if name
        }
        self.tells_details = any(config.log_level == "debug" for config in (self.config, *self._of_broker.values()))
        if not broker:
            resolved: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
            for topic in self.topics.values():
                texts = tuple(topic.configs.items())
                if texts not in resolved:
                    resolved[texts] = resolve(topic.configs, self.config)
                topic.settings = resolved[texts]

    def colliding(self, name: str) -> str | None:
        """A topic whose name differs from `name` only in periods and underscores: metric names confuse them."""
        others = self._alike.get(name.replace(".", "_"), set()) - {name}
        return min(others) if others else None

    def _put_topic(self, name: str, value: TopicValue) -> None:
        configs = {entry.name: entry.value for entry in value.configs}
        topic = Topic(
            name,
            value.topic_id,
            value.partitions if self._slots is None else self._slots.led(value.topic_id, value.partitions),
            configs,
            resolve(configs, self.config),
            name in INTERNAL_TOPICS,
            value.is_followed,
        )
        self.topics[name] = self.by_id[value.topic_id] = topic
        self._alike.setdefault(name.replace(".", "_"), set()).add(name)
        self.partition_count += len(value.partitions)

    def _forget_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        del self.by_id[topic.topic_id]
        self.partition_count -= len(topic.partitions)
        alike = self._alike[name.replace(".", "_")]
        alike.discard(name)
        if not alike:
            del self._alike[name.replace(".", "_")]


def parsed(record: Record) -> tuple[MetadataKey, Any]:
    """Key and value. Raises UnknownRecord."""
    return record.parsed or _decoded(record)


def _decoded(record: Record) -> tuple[MetadataKey, Any]:
    key = decode(MetadataKey, 0, record.key)
    if record.value is None:
        return key, None
    version = _VERSION.unpack_from(record.value)[0]
    if key.kind not in VALUES or version != 0:
        raise UnknownRecord(f"a metadata record of kind {key.kind!r} and version {version}")
    return key, decode(VALUES[key.kind], version, record.value, 2)


def _acl(value: AclValue) -> Acl:
    return Acl(
        value.resource_type,
        value.resource_name,
        value.pattern_type,
        value.principal,
        value.host,
        value.operation,
        value.permission_type,
    )


def _record(kind: str, name: str, value: Any) -> Record:
    """No value deletes."""
    key = MetadataKey(kind=kind, name=name)
    encoded = None if value is None else _VERSION.pack(0) + encode(value, 0)
    return Record(encode(key, 0), encoded, parsed=(key, value))


def cluster_record(cluster_id: str, offsets_partitions: int) -> Record:
    return _record("cluster", "", ClusterValue(cluster_id=cluster_id, offsets_partitions=offsets_partitions))


def topic_record(
    name: str,
    topic_id: bytes,
    partitions: Sequence[PartitionAssignment],
    configs: Mapping[str, str],
    *,
    is_followed: bool = False,
) -> Record:
    value = TopicValue(
        topic_id=topic_id, partitions=tuple(partitions), configs=_entries(configs), is_followed=is_followed
    )
    return _record("topic", name, value)


def upstream_record(upstream: UpstreamValue) -> Record:
    return _record("upstream", "", upstream)


def topic_deleted_record(name: str) -> Record:
    return _record("topic", name, None)


def spare_logs_record(topic_id: bytes, first: int | None) -> Record:
    """None: there are none any more."""
    return _record("spare logs", topic_id.hex(), None if first is None else SpareLogsValue(first=first))


def group_record(group_id: str, configs: Mapping[str, str]) -> Record:
    return _record("group", group_id, GroupValue(configs=_entries(configs)) if configs else None)


def broker_record(broker: str, configs: Mapping[str, str]) -> Record:
    return _record("broker", broker, BrokerValue(configs=_entries(configs)) if configs else None)


def _entries(configs: Mapping[str, str]) -> tuple[ConfigEntry, ...]:
    return tuple(ConfigEntry(name=key, value=configs[key]) for key in sorted(configs))


def producer_ids_record(next_id: int) -> Record:
    return _record("producer ids", "", ProducerIdsValue(next_id=next_id))


def scram_record(user: str, mechanism: int, credential: Credential | None) -> Record:
    """None: the credential is deleted."""
    value = None
    if credential is not None:
        value = ScramValue(
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    return _record("scram", f"{mechanism} {user}", value)


def secret_record(secret: bytes) -> Record:
    return _record("secret", "", SecretValue(secret=secret))


def acl_record(acl_id: str, acl: Acl | None) -> Record:
    """None: the ACL is deleted."""
    if acl is None:
        return _record("acl", acl_id, None)
    value = AclValue(
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    return _record("acl", acl_id, value)


def quota_record(entity: Entity, values: Mapping[str, float]) -> Record:
    """No values: the entity has no quotas any more."""
    if not values:
        return _record("quota", entity.record_name, None)
    value = QuotaValue(
        entity=tuple(QuotaEntity(type=kind, name=name) for kind, name in entity.parts),
        settings=tuple(QuotaSetting(key=key, value=values[key]) for key in sorted(values)),
    )
    return _record("quota", entity.record_name, value)


def check_topic_name(name: str) -> str | None:
    """The error in a topic's name; None if it is legal. Rules and messages are Kafka's (Topic.java)."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > 249:
        return f"Topic name is invalid: the length of '{name[:249]}…' is longer than the max allowed length 249"
    if not _LEGAL_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    return None
