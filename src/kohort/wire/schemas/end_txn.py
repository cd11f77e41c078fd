"""EndTxn (API key 26). From version 5 on, the answer has the producer's id and epoch from now on (KIP-890)."""

from kohort.wire.schema import field, message


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    committed: bool = field("bool")


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    producer_id: int = field("int64", "5+", default=-1)
    producer_epoch: int = field("int16", "5+", default=-1)
