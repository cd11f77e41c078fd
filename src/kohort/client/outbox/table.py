"""The outbox's table: one row for each outbox, and the statements on it. Without IO.

    name | session | transactional_id, producer_id, epoch, protocol, records | changed_at

- `session` counts the recoveries of the outbox. Only the process that began the present session can change the row:
  each statement names its session, and changes nothing if the row has another one.
- `transactional_id` and the rest are those of a transaction that the database has committed, and Kafka must commit.
  They are NULL once it has.

One row is enough, because a producer has one transaction at a time. An insert for each transaction, with a unique key,
would fence as well, but its rows could never be removed: a process that was suspended might insert an old number again.

PostgreSQL 9.5 or later; SQLite 3.35 or later. With `synchronous_commit=off`, PostgreSQL may lose a commit that it has
acknowledged, so the statements turn it on for their transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kohort.client.transactions.identity import Prepared

Dialect = Literal["postgresql", "sqlite"]

DEFAULT_TABLE = "kohort_outbox"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")

_TYPES: dict[Dialect, tuple[str, str, str, str]] = {
    "postgresql": ("text", "bigint", "bytea", "timestamptz"),
    "sqlite": ("TEXT", "INTEGER", "BLOB", "TEXT"),
}
_DURABLE = (
    ", CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END"
)
_COLUMNS = "session, transactional_id, producer_id, epoch, protocol, records"


@dataclass(frozen=True, slots=True)
class Row:
    """An outbox's row. `prepared` and `records` are None if Kafka's outcome of the last transaction is noted."""

    session: int
    prepared: Prepared | None
    records: bytes | None


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for one table, in one dialect and with one style of parameters. All but the first return rows."""

    create: str
    claim: str
    """(name): begin a new session, whoever has the present one."""
    claim_again: str
    """(name, session): begin a new session; no row if the present one is another."""
    note: str
    """(transactional id, producer id, epoch, protocol, records, name, session): the transaction that Kafka must commit;
    no row if the present session is another."""
    settle: str
    """(name, session): Kafka has committed it; no row if the present session is another."""


def create_table_sql(dialect: Dialect, table: str = DEFAULT_TABLE) -> str:
    """The statement that creates the table, unless it exists. Raises ValueError for a table name that would need
    quotes."""
    text, number, data, time = _TYPES[dialect]
    return (
        f"CREATE TABLE IF NOT EXISTS {_checked(table)} (\n"
        f"  name {text} PRIMARY KEY,\n"
        f"  session {number} NOT NULL,\n"
        f"  transactional_id {text},\n"
        f"  producer_id {number},\n"
        f"  epoch {number},\n"
        f"  protocol {number},\n"
        f"  records {data},\n"
        f"  changed_at {time} NOT NULL DEFAULT CURRENT_TIMESTAMP\n"
        ")"
    )


def statements(dialect: Dialect, placeholder: Callable[[int], str], table: str = DEFAULT_TABLE) -> Statements:
    """`placeholder(n)` is the n-th parameter, from 1 on. Raises ValueError for a bad table name."""
    name = _checked(table)
    durable = _DURABLE if dialect == "postgresql" else ""
    p = placeholder
    where = "WHERE name = {} AND session = {}"
    return Statements(
        create=create_table_sql(dialect, table),
        claim=f"INSERT INTO {name} AS present (name, session) VALUES ({p(1)}, 1) ON CONFLICT (name) DO UPDATE SET "
        f"session = present.session + 1, changed_at = CURRENT_TIMESTAMP RETURNING {_COLUMNS}{durable}",
        claim_again=f"UPDATE {name} SET session = session + 1, changed_at = CURRENT_TIMESTAMP "
        f"{where.format(p(1), p(2))} RETURNING {_COLUMNS}{durable}",
        note=f"UPDATE {name} SET transactional_id = {p(1)}, producer_id = {p(2)}, epoch = {p(3)}, protocol = {p(4)}, "
        f"records = {p(5)}, changed_at = CURRENT_TIMESTAMP {where.format(p(6), p(7))} RETURNING session{durable}",
        settle=f"UPDATE {name} SET transactional_id = NULL, producer_id = NULL, epoch = NULL, protocol = NULL, "
        f"records = NULL, changed_at = CURRENT_TIMESTAMP {where.format(p(1), p(2))} RETURNING session{durable}",
    )


def read_row(found: Sequence[Any]) -> Row:
    """The row that `claim` or `claim_again` has returned."""
    session, transactional_id, producer_id, epoch, protocol, records = found[:6]
    if transactional_id is None:
        return Row(session, None, None)
    return Row(session, Prepared(transactional_id, producer_id, epoch, protocol), bytes(records))


def _checked(table: str) -> str:
    if not _IDENTIFIER.fullmatch(table):
        raise ValueError(f"table {table!r}: expected NAME or SCHEMA.NAME of letters, digits and underscores")
    return table
