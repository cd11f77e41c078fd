"""ListTransactions (API key 66)."""

from kohort.wire.schema import field, message


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: tuple[str, ...] = field(["string"])
    producer_id_filters: tuple[int, ...] = field(["int64"])
    duration_filter: int = field("int64", "1+", default=-1)
    transactional_id_pattern: str | None = field("string", "2+", nullable="2+", default=None)


@message()
class TransactionState:
    transactional_id: str = field("string")
    producer_id: int = field("int64")
    transaction_state: str = field("string")


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    unknown_state_filters: tuple[str, ...] = field(["string"])
    transaction_states: tuple[TransactionState, ...] = field([TransactionState])
