"""What a transactional producer does after an error code. Without IO.

The same code means different things to different calls. Where the codes of a call are retriable, the router retries
it; this module says what is left: `MustAbort`, after which the producer can go on with a new transaction, and
`ProducerFailed`, after which it cannot. The tables are those of Kafka's Java producer: TransactionManager.java and
Sender.java of Apache Kafka 4.x.
"""

from __future__ import annotations

from collections.abc import Set

from kohort.client.errors import KafkaError, ServerError
from kohort.wire.errors import ErrorCode


class MustAbort(KafkaError):
    """The transaction cannot be committed. After an abort, the same producer can begin another one."""


class ProducerFailed(KafkaError):
    """The producer cannot go on. Its open transaction is not committed, and the server aborts it after its timeout."""


class ProducerFenced(ProducerFailed):
    """Another producer has taken over the transactional id, or the transaction has timed out."""


FENCED: Set[ErrorCode] = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}

ENDED_BY_OTHERS: Set[ErrorCode] = FENCED | {ErrorCode.INVALID_TXN_STATE}
"""The codes of EndTxn after another InitProducerId or a timeout has aborted the transaction. It is INVALID_TXN_STATE as
long as the next producer does not have its epoch: the abort's own epoch is taken for that of a repeated EndTxn."""

PRODUCE_FAILS: Set[ErrorCode] = {
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""After any other error of Produce, the transaction is aborted; also after INVALID_PRODUCER_EPOCH, since the abort says
whether the producer is fenced."""

COORDINATOR_ABORTS: Set[ErrorCode] = {
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
"""After any other error of AddPartitionsToTxn and AddOffsetsToTxn, the producer has failed."""

OFFSETS_ABORT: Set[ErrorCode] = COORDINATOR_ABORTS | {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
}


def after_produce(error: KafkaError) -> KafkaError:
    """The exception for a Produce that failed for good; also if its retries ran out."""
    if error.code in PRODUCE_FAILS:
        return _failed(error)
    return MustAbort(error.code, error.message)


def after_adding(error: KafkaError) -> KafkaError:
    """The exception for AddPartitionsToTxn or AddOffsetsToTxn."""
    return _after(error, COORDINATOR_ABORTS)


def after_offsets(error: KafkaError) -> KafkaError:
    """The exception for TxnOffsetCommit."""
    return _after(error, OFFSETS_ABORT)


def after_ending(error: ServerError) -> KafkaError:
    """The exception for EndTxn that the server has refused."""
    return MustAbort(error.code, error.message) if error.code == ErrorCode.TRANSACTION_ABORTABLE else _failed(error)


def _after(error: KafkaError, abortable: Set[ErrorCode]) -> KafkaError:
    if error.retriable or error.code in abortable:  # retriable: the attempts have run out
        return MustAbort(error.code, error.message)
    return _failed(error)


def _failed(error: KafkaError) -> KafkaError:
    if error.code in FENCED:
        return ProducerFenced(error.code, error.message)
    return ProducerFailed(error.code, error.message) if isinstance(error, ServerError) else error
