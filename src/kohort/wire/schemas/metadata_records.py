"""Records of kohort's own metadata log: the broker's state besides the contents of partitions and groups.

The log is hidden from clients. A record's key is an encoded `MetadataKey`, its value one message chosen by the key's
kind, written after its version (two bytes). A record replaces the earlier one of the same key and no value deletes,
so the log can be compacted like any other.
"""

from kohort.wire.schema import Uuid, field, message


@message(versions="0", flexible="0+")
class MetadataKey:
    kind: str = field("string")
    name: str = field("string")


@message(versions="0", flexible="0+")
class ClusterValue:
    """Kind "cluster": written by the first start, never changed."""

    cluster_id: str = field("string")
    offsets_partitions: int = field("int32")


@message()
class PartitionAssignment:
    leader: int = field("int32")
    leader_epoch: int = field("int32")
    replicas: tuple[int, ...] = field(["int32"])


@message()
class ConfigEntry:
    name: str = field("string")
    value: str = field("string")


@message(versions="0", flexible="0+")
class TopicValue:
    """Kind "topic", named by the topic: the whole topic, rewritten at every change."""

    topic_id: Uuid = field("uuid")
    partitions: tuple[PartitionAssignment, ...] = field([PartitionAssignment])
    configs: tuple[ConfigEntry, ...] = field([ConfigEntry])
    is_followed: bool = field("bool", tag=0, default=False)
    """A topic of the cluster before which a gateway stands. It has no logs here."""


@message()
class UpstreamBroker:
    id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", nullable="0+")
    slot: int = field("int32")
    """Which of the gateway's listeners stands for the broker, counted from 0."""


@message()
class UpstreamApi:
    key: int = field("int16")
    first: int = field("int16")
    last: int = field("int16")


@message(versions="0", flexible="0+")
class UpstreamValue:
    """Kind "upstream": the cluster before which a gateway stands, as it was last seen."""

    cluster_id: str = field("string")
    brokers: tuple[UpstreamBroker, ...] = field([UpstreamBroker])
    apis: tuple[UpstreamApi, ...] = field([UpstreamApi])
    """What clients of the gateway are told: its own APIs, and those that it forwards."""


@message(versions="0", flexible="0+")
class SpareLogsValue:
    """Kind "spare logs", named by the id of a topic in hex: its logs from this partition on are not part of the topic.
    They are being created for it, or deleted after it."""

    first: int = field("int32")


@message(versions="0", flexible="0+")
class GroupValue:
    """Kind "group", named by the group: all configs of its GROUP resource. The group need not exist."""

    configs: tuple[ConfigEntry, ...] = field([ConfigEntry])


@message(versions="0", flexible="0+")
class BrokerValue:
    """Kind "broker", named by the broker's id, or "" for all brokers: what is set on its BROKER resource."""

    configs: tuple[ConfigEntry, ...] = field([ConfigEntry])


@message(versions="0", flexible="0+")
class ScramValue:
    """Kind "scram", named by the mechanism's code, a space and the user: Kafka's UserScramCredentialRecord."""

    salt: bytes = field("bytes")
    stored_key: bytes = field("bytes")
    server_key: bytes = field("bytes")
    iterations: int = field("int32")


@message(versions="0", flexible="0+")
class SecretValue:
    """Kind "secret": random bytes, from which the server makes challenges for users that do not exist."""

    secret: bytes = field("bytes")


@message(versions="0", flexible="0+")
class AclValue:
    """Kind "acl", named by the ACL's id: the fields of Kafka's AccessControlEntryRecord, without the id."""

    resource_type: int = field("int8")
    resource_name: str = field("string")
    pattern_type: int = field("int8")
    principal: str = field("string")
    host: str = field("string")
    operation: int = field("int8")
    permission_type: int = field("int8")


@message()
class QuotaEntity:
    type: str = field("string")
    name: str = field("string")


@message()
class QuotaSetting:
    key: str = field("string")
    value: float = field("float64")


@message(versions="0", flexible="0+")
class QuotaValue:
    """Kind "quota", named by the entity: all quotas of the entity. An empty name is the default of its type."""

    entity: tuple[QuotaEntity, ...] = field([QuotaEntity])
    settings: tuple[QuotaSetting, ...] = field([QuotaSetting])


@message(versions="0", flexible="0+")
class ProducerIdsValue:
    """Kind "producer ids": ids below `next_id` may have been handed out."""

    next_id: int = field("int64")
