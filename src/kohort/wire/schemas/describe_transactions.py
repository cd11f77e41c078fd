"""DescribeTransactions (API key 65), with tagged fields of our own for the journal: see docs/wire-extensions.md.

The server sends its tag only to a request with `aborts_last`.
"""

from kohort.wire.schema import OWN_TAGS, field, message


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...] = field(["string"])
    aborts_last: int = field("int32", tag=OWN_TAGS + 1, default=0)
    """Number of journal entries of each id."""


@message()
class TopicData:
    topic: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message()
class TransactionState:
    error_code: int = field("int16")
    transactional_id: str = field("string")
    transaction_state: str = field("string")
    transaction_timeout_ms: int = field("int32")
    transaction_start_time_ms: int = field("int64")
    producer_id: int = field("int64")
    producer_epoch: int = field("int16")
    topics: tuple[TopicData, ...] = field([TopicData])
    aborts: tuple[bytes, ...] = field(["bytes"], tag=OWN_TAGS + 1, default=())
    """One JSON document for each journal entry, the newest last."""


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = field("int32", default=0)
    transaction_states: tuple[TransactionState, ...] = field([TransactionState])
