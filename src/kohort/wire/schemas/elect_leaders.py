"""ElectLeaders (API key 43)."""

from kohort.wire.schema import field, message


@message()
class TopicPartitions:
    topic: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = field("int8", "1+", default=0)
    topic_partitions: tuple[TopicPartitions, ...] | None = field([TopicPartitions], nullable="0+")
    timeout_ms: int = field("int32", default=60000)


@message()
class PartitionResult:
    partition_id: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")


@message()
class ReplicaElectionResult:
    topic: str = field("string")
    partition_result: tuple[PartitionResult, ...] = field([PartitionResult])


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", "1+")
    replica_election_results: tuple[ReplicaElectionResult, ...] = field([ReplicaElectionResult])
