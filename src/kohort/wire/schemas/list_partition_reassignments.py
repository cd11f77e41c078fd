"""ListPartitionReassignments (API key 46)."""

from kohort.wire.schema import field, message


@message()
class ListPartitionReassignmentsTopics:
    name: str = field("string")
    partition_indexes: tuple[int, ...] = field(["int32"])


@message(api_key=46, versions="0-0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = field("int32", default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = field(
        [ListPartitionReassignmentsTopics], nullable="0+", default=None
    )


@message()
class OngoingPartitionReassignment:
    partition_index: int = field("int32")
    replicas: tuple[int, ...] = field(["int32"])
    adding_replicas: tuple[int, ...] = field(["int32"])
    removing_replicas: tuple[int, ...] = field(["int32"])


@message()
class OngoingTopicReassignment:
    name: str = field("string")
    partitions: tuple[OngoingPartitionReassignment, ...] = field([OngoingPartitionReassignment])


@message(api_key=46, versions="0-0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+")
    topics: tuple[OngoingTopicReassignment, ...] = field([OngoingTopicReassignment])
