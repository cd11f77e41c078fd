"""`__transaction_state` records to and from bytes, in Apache Kafka's schema (TransactionLog.scala)."""

from __future__ import annotations

from functools import lru_cache

from kohort.coordinator.events import Record
from kohort.coordinator.transactions.transaction import Place, State, Transaction
from kohort.wire.codec import decode, encode
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

VERSION = 1
"""Of values. Version 0, which brokers write without `transaction.version`, is read too."""


def _key(transactional_id: str) -> bytes:
    return b"\0\0" + encode(TransactionLogKey(transactional_id=transactional_id), 0)


_known_key = lru_cache(maxsize=16_384)(_key)
"""Cached, because each transaction writes several records of its id."""
LONGEST_KNOWN = 250
"""Characters of an id whose key is cached: a request can carry ids of a megabyte."""


def transaction_record(transactional_id: str, transaction: Transaction | None) -> Record:
    """None: the id is forgotten."""
    key = (_known_key if len(transactional_id) <= LONGEST_KNOWN else _key)(transactional_id)
    if transaction is None:
        return Record(key, None, (transactional_id, None))
    value = VERSION.to_bytes(2, "big") + encode(_to_value(transaction), VERSION)
    return Record(key, value, (transactional_id, transaction))


def parse(record: Record) -> tuple[str, Transaction | None] | None:
    """The transactional id and its state; None for a key of an unknown version.

    Raises ProtocolError for a value of an unknown version and for broken bytes."""
    if record.key[:2] != b"\0\0":
        return None
    transactional_id = decode(TransactionLogKey, 0, record.key, 2).transactional_id
    if record.value is None:
        return transactional_id, None
    version = int.from_bytes(record.value[:2], "big", signed=True)
    if version not in (0, 1) or len(record.value) < 2:
        raise ProtocolError(f"a TransactionLogValue of the unknown version {version}")  # skipping it would lose state
    return transactional_id, _from_value(decode(TransactionLogValue, version, record.value, 2))


def _to_value(transaction: Transaction) -> TransactionLogValue:
    topics = tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(partitions)) for topic, partitions in transaction.by_topic()
    )
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_id,
        next_producer_id=transaction.next_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else topics,
        transaction_last_update_timestamp_ms=transaction.updated,
        transaction_start_timestamp_ms=transaction.started,
        client_transaction_version=transaction.client_version,
        last_producer_epoch=transaction.last_epoch,
    )


def _from_value(value: TransactionLogValue) -> Transaction:
    try:
        state = State(value.transaction_status)
    except ValueError:
        raise ProtocolError(f"a transaction in the unknown state {value.transaction_status}") from None
    return Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        previous_id=value.previous_producer_id,
        next_id=value.next_producer_id,
        last_epoch=value.last_producer_epoch,
        places=frozenset(
            Place(topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        started=value.transaction_start_timestamp_ms,
        updated=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
