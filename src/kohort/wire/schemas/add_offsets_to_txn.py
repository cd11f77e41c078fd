"""AddOffsetsToTxn (API key 25)."""

from kohort.wire.schema import field, message


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    group_id: str = field("string")


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
