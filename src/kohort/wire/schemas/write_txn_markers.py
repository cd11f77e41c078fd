"""WriteTxnMarkers (API key 27): for brokers among themselves, and for tools that abort a hanging transaction."""

from kohort.wire.schema import field, message


@message()
class WritableTxnMarkerTopic:
    name: str = field("string")
    partition_indexes: tuple[int, ...] = field(["int32"])


@message()
class WritableTxnMarker:
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    transaction_result: bool = field("bool")
    topics: tuple[WritableTxnMarkerTopic, ...] = field([WritableTxnMarkerTopic])
    coordinator_epoch: int = field("int32")
    transaction_version: int = field("int8", "2+", default=0)


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...] = field([WritableTxnMarker])


@message()
class WritableTxnMarkerPartitionResult:
    partition_index: int = field("int32")
    error_code: int = field("int16")


@message()
class WritableTxnMarkerTopicResult:
    name: str = field("string")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = field([WritableTxnMarkerPartitionResult])


@message()
class WritableTxnMarkerResult:
    producer_id: int = field("int64")
    topics: tuple[WritableTxnMarkerTopicResult, ...] = field([WritableTxnMarkerTopicResult])


@message(api_key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...] = field([WritableTxnMarkerResult])
