"""CreateTopics (API key 19)."""

from kohort.wire.schema import NO_UUID, Uuid, field, message


@message()
class CreatableReplicaAssignment:
    partition_index: int = field("int32")
    broker_ids: tuple[int, ...] = field(["int32"])


@message()
class CreatableTopicConfig:
    name: str = field("string")
    value: str | None = field("string", nullable="0+", default="")


@message()
class CreatableTopic:
    name: str = field("string")
    num_partitions: int = field("int32")
    replication_factor: int = field("int16")
    assignments: tuple[CreatableReplicaAssignment, ...] = field([CreatableReplicaAssignment])
    configs: tuple[CreatableTopicConfig, ...] = field([CreatableTopicConfig])


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...] = field([CreatableTopic])
    timeout_ms: int = field("int32", default=60000)
    validate_only: bool = field("bool", default=False)


@message()
class CreatableTopicConfigs:
    name: str = field("string", "5+", default="")
    value: str | None = field("string", "5+", nullable="5+", default="")
    read_only: bool = field("bool", "5+", default=False)
    config_source: int = field("int8", "5+", default=-1)
    is_sensitive: bool = field("bool", "5+", default=False)


@message()
class CreatableTopicResult:
    name: str = field("string")
    topic_id: Uuid = field("uuid", "7+", default=NO_UUID)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default="")
    topic_config_error_code: int = field("int16", "5+", tag=0, default=0)
    num_partitions: int = field("int32", "5+", default=-1)
    replication_factor: int = field("int16", "5+", default=-1)
    configs: tuple[CreatableTopicConfigs, ...] | None = field(
        [CreatableTopicConfigs], "5+", nullable="5+", default=None
    )


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = field("int32", default=0)
    topics: tuple[CreatableTopicResult, ...] = field([CreatableTopicResult])
