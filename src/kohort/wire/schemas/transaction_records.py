"""Records of the `__transaction_state` log, in Kafka's schema: a key is its version and fields, so is a value."""

from kohort.wire.schema import OWN_TAGS, field, message


@message(versions="0")
class TransactionLogKey:
    transactional_id: str = field("string")


@message()
class PartitionsSchema:
    topic: str = field("string")
    partition_ids: tuple[int, ...] = field(["int32"])


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int = field("int64")
    previous_producer_id: int = field("int64", "1+", tag=0, default=-1)
    next_producer_id: int = field("int64", "1+", tag=1, default=-1)
    producer_epoch: int = field("int16")
    transaction_timeout_ms: int = field("int32")
    transaction_status: int = field("int8")
    transaction_partitions: tuple[PartitionsSchema, ...] | None = field([PartitionsSchema], nullable="0+")
    transaction_last_update_timestamp_ms: int = field("int64")
    transaction_start_timestamp_ms: int = field("int64")
    client_transaction_version: int = field("int16", "1+", tag=2, default=0)
    last_producer_epoch: int = field("int16", "1+", tag=OWN_TAGS + 1, default=-1)
    """Of kohort's own: without it, InitProducerId cannot be repeated after a restart (KAFKA-20357)."""
