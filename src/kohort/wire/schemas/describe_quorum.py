"""DescribeQuorum (API key 55)."""

from kohort.wire.schema import NO_UUID, field, message


@message()
class DescribeQuorumRequestPartition:
    partition_index: int = field("int32")


@message()
class DescribeQuorumRequestTopic:
    topic_name: str = field("string")
    partitions: tuple[DescribeQuorumRequestPartition, ...] = field([DescribeQuorumRequestPartition])


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: tuple[DescribeQuorumRequestTopic, ...] = field([DescribeQuorumRequestTopic])


@message()
class ReplicaState:
    replica_id: int = field("int32")
    replica_directory_id: bytes = field("uuid", "2+", default=NO_UUID)
    log_end_offset: int = field("int64")
    last_fetch_timestamp: int = field("int64", "1+", default=-1)
    last_caught_up_timestamp: int = field("int64", "1+", default=-1)


@message()
class DescribeQuorumResponsePartition:
    partition_index: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", "2+", nullable="2+", default=None)
    leader_id: int = field("int32")
    leader_epoch: int = field("int32")
    high_watermark: int = field("int64")
    current_voters: tuple[ReplicaState, ...] = field([ReplicaState])
    observers: tuple[ReplicaState, ...] = field([ReplicaState])


@message()
class DescribeQuorumResponseTopic:
    topic_name: str = field("string")
    partitions: tuple[DescribeQuorumResponsePartition, ...] = field([DescribeQuorumResponsePartition])


@message()
class QuorumListener:
    name: str = field("string")
    host: str = field("string")
    port: int = field("uint16")


@message()
class QuorumNode:
    node_id: int = field("int32")
    listeners: tuple[QuorumListener, ...] = field([QuorumListener])


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = field("int16")
    error_message: str | None = field("string", "2+", nullable="2+", default=None)
    topics: tuple[DescribeQuorumResponseTopic, ...] = field([DescribeQuorumResponseTopic])
    nodes: tuple[QuorumNode, ...] = field([QuorumNode], "2+", default=())
