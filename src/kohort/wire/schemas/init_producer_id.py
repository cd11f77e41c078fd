"""InitProducerId (API key 22)."""

from kohort.wire.schema import field, message


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = field("string", nullable="0+", default="")
    transaction_timeout_ms: int = field("int32")
    producer_id: int = field("int64", "3+", default=-1)
    producer_epoch: int = field("int16", "3+", default=-1)
    enable2_pc: bool = field("bool", "6+", default=False)
    keep_prepared_txn: bool = field("bool", "6+", default=False)


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    producer_id: int = field("int64", default=-1)
    producer_epoch: int = field("int16")
    ongoing_txn_producer_id: int = field("int64", "6+", default=-1)
    ongoing_txn_producer_epoch: int = field("int16", "6+", default=-1)
