"""Metadata (API key 3)."""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message()
class MetadataRequestTopic:
    topic_id: Uuid = field("uuid", "10+", default=NO_UUID)
    name: str | None = field("string", nullable="10+", default="")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None = field([MetadataRequestTopic], nullable="1+", default=None)
    allow_auto_topic_creation: bool = field("bool", "4+", default=True)
    include_cluster_authorized_operations: bool = field("bool", "8-10", default=False)
    include_topic_authorized_operations: bool = field("bool", "8+", default=False)


@message()
class MetadataResponseBroker:
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", "1+", nullable="1+", default=None)


@message()
class MetadataResponsePartition:
    error_code: int = field("int16")
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32", "7+", default=-1)
    replica_nodes: tuple[int, ...] = field(["int32"])
    isr_nodes: tuple[int, ...] = field(["int32"])
    offline_replicas: tuple[int, ...] = field(["int32"], "5+", default=())


@message()
class MetadataResponseTopic:
    error_code: int = field("int16")
    name: str | None = field("string", nullable="12+", default="")
    topic_id: Uuid = field("uuid", "10+", default=NO_UUID)
    is_internal: bool = field("bool", "1+", default=False)
    partitions: tuple[MetadataResponsePartition, ...] = field([MetadataResponsePartition])
    topic_authorized_operations: int = field("int32", "8+", default=-2147483648)


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = field("int32", "3+", default=0)
    brokers: tuple[MetadataResponseBroker, ...] = field([MetadataResponseBroker])
    cluster_id: str | None = field("string", "2+", nullable="2+", default=None)
    controller_id: int = field("int32", "1+", default=-1)
    topics: tuple[MetadataResponseTopic, ...] = field([MetadataResponseTopic])
    cluster_authorized_operations: int = field("int32", "8-10", default=-2147483648)
    error_code: int = field("int16", "13+", default=0)
