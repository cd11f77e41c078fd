"""A database transaction and Kafka records, atomically: both are committed, or neither, whatever crashes.

    async with outbox.transaction(connection) as kafka:
        await connection.execute("INSERT INTO orders ...")
        kafka.send("orders", value, key=key)

docs/how-to/outbox.md shows its use, docs/decisions/0014-the-outbox-has-its-own-wire.md why it is built this way.

blocking       BlockingOutbox, for psycopg and sqlite3
databases      the connections of asyncpg, psycopg and sqlite3 behind one interface
errors         what can go wrong besides the cluster and the database
kafka_side     the producer of one session: prepares, ends and gives up transactions
outbox         Outbox, for asyncpg and psycopg's async connections
payload        the records of a transaction: collected, as batches, as bytes in the row
recipe         the order of the steps; without IO
table          the table, its row and its statements
"""

from __future__ import annotations

from kohort.client.outbox.blocking import BlockingOutbox
from kohort.client.outbox.errors import CommitUnknown, OutboxTakenOver, OutcomeForgotten
from kohort.client.outbox.outbox import Outbox
from kohort.client.outbox.payload import Records
from kohort.client.outbox.table import create_table_sql

__all__ = [
    "BlockingOutbox",
    "CommitUnknown",
    "Outbox",
    "OutboxTakenOver",
    "OutcomeForgotten",
    "Records",
    "create_table_sql",
]
