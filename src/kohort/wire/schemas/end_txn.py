"""EndTxn (API key 26). Without version 5, which gives the producer a new epoch (KIP-890)."""

from kohort.wire.schema import field, message


@message(api_key=26, versions="0-4", flexible="3+")
class EndTxnRequest:
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    committed: bool = field("bool")


@message(api_key=26, versions="0-4", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
