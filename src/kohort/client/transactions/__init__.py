"""Transactions of Kafka on the library's own connections: for the outbox and for the Spark sink.

Programs that only produce have confluent-kafka. This package exists for what it cannot do: to end a transaction that
another process has prepared (docs/decisions/0014-the-outbox-has-its-own-wire.md).

endings        end a transaction that another process has left open
identity       what a producer is to the brokers: id, epoch, sequences; without IO
reactions      what an error code means: try again, abort, or give up; without IO
requests       the requests of one transaction; without IO
writer         TransactionalWriter: a producer's transactions, blocking
"""

from __future__ import annotations

from kohort.client.transactions.endings import Outcome, end_prepared, renew_connections
from kohort.client.transactions.identity import Prepared
from kohort.client.transactions.reactions import MustAbort, ProducerFailed, ProducerFenced
from kohort.client.transactions.writer import TransactionalWriter

__all__ = [
    "MustAbort",
    "Outcome",
    "Prepared",
    "ProducerFailed",
    "ProducerFenced",
    "TransactionalWriter",
    "end_prepared",
    "renew_connections",
]
