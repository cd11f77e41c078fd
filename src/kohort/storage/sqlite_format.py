"""The layout of the SQLite engine's file: the schema, the rows with their checksums, and the test that a batch is
intact."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c

from kohort.storage.protocol import BatchInfo, LogKey

APPLICATION_ID = 0x6B6F686F  # "koho"
FORMAT_VERSION = 3
"""2: with the table `gathered`. 3: with transactions."""

PAGE_SIZE = 8192
SCHEMA = """
CREATE TABLE logs (
  id INTEGER PRIMARY KEY,
  topic_id BLOB NOT NULL,
  partition INTEGER NOT NULL,
  start_offset INTEGER NOT NULL,
  end_offset INTEGER NOT NULL,
  size INTEGER NOT NULL,
  first_batch INTEGER NOT NULL, -- base offset of its first batch; the end offset when it has none
  checksum INTEGER NOT NULL,
  open_transactions INTEGER NOT NULL DEFAULT 0, -- how many have begun and have no marker
  aborts INTEGER NOT NULL DEFAULT 0, -- how many of its batches ended a transaction with records by an abort
  UNIQUE (topic_id, partition)
);
CREATE TABLE batches (
  log_id INTEGER NOT NULL,
  base_offset INTEGER NOT NULL,
  last_offset INTEGER NOT NULL,
  next_offset INTEGER NOT NULL, -- base offset of the next batch, or the end of the log
  max_timestamp INTEGER NOT NULL, -- milliseconds since 1970
  newest_timestamp INTEGER NOT NULL, -- no batch up to this one has a larger max_timestamp
  size INTEGER NOT NULL,
  producer_id INTEGER NOT NULL, -- -1 when the producer is not idempotent
  leader_epoch INTEGER NOT NULL,
  data_id INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  kind INTEGER NOT NULL DEFAULT 0, -- 1 records of a transaction, 2 its commit, 3 its abort
  transaction_start INTEGER NOT NULL DEFAULT -1, -- offset of the first record of that transaction
  coordinator_epoch INTEGER NOT NULL DEFAULT -1, -- the newest one of the producer
  PRIMARY KEY (log_id, base_offset)
) WITHOUT ROWID;
CREATE INDEX batches_by_producer ON batches (log_id, producer_id, base_offset) WHERE producer_id >= 0;
CREATE TABLE purges ( -- batches that no log counts any more, and that later commits delete piece by piece
  log_id INTEGER PRIMARY KEY,
  below_offset INTEGER NOT NULL
);
CREATE TABLE batch_data (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
_TRANSACTIONS_SCHEMA = """
CREATE INDEX aborts ON batches (log_id, base_offset) WHERE kind = 3 AND transaction_start >= 0;
CREATE TABLE kept_producers (log_id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- those whose batches were all trimmed
CREATE VIEW log_batches AS
  SELECT lower(hex(topic_id)) AS topic_id, partition, base_offset, last_offset,
         datetime(max_timestamp / 1000, 'unixepoch') AS newest_record, batches.size AS size, producer_id,
         leader_epoch, kind, data
  FROM batches JOIN logs ON logs.id = log_id JOIN batch_data ON batch_data.id = data_id
  WHERE base_offset >= first_batch
  ORDER BY topic_id, partition, base_offset;
"""

GATHERED_LOG = struct.Struct(">q")
GATHERED_CRC = struct.Struct(">I")
GATHERED_RANGE = struct.Struct(">qq")
"""A row of `gathered`: CRC-32C of its id and of the rest | for each batch: number of its log 8, the batch as it is.
Ids are never used again. Row 0 says which rows there are: first 8, last 8, CRC-32C."""


def range_row(first: int, last: int) -> bytes:
    """Row 0: which ids there are."""
    content = GATHERED_RANGE.pack(first, last)
    return content + gathered_checksum(0, content)


def gathered_checksum(row_id: int, content: bytes) -> bytes:
    return GATHERED_CRC.pack(google_crc32c.value(GATHERED_LOG.pack(row_id) + content))


_GATHERED_SCHEMA = f"""
CREATE TABLE gathered (id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- small appends that are not in their logs yet
INSERT INTO gathered VALUES (0, X'{range_row(1, 0).hex()}');
"""
_WITH_TRANSACTIONS = f"""
ALTER TABLE logs ADD COLUMN open_transactions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE logs ADD COLUMN aborts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE batches ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE batches ADD COLUMN transaction_start INTEGER NOT NULL DEFAULT -1;
ALTER TABLE batches ADD COLUMN coordinator_epoch INTEGER NOT NULL DEFAULT -1;
DROP VIEW IF EXISTS log_batches;
{_TRANSACTIONS_SCHEMA}
"""
_NEW_VERSION = f"PRAGMA user_version = {FORMAT_VERSION};"
WHOLE_SCHEMA = f"{SCHEMA} {_GATHERED_SCHEMA} {_TRANSACTIONS_SCHEMA} {_NEW_VERSION}"


def upgrade(version: int) -> str:
    """The statements that make a file of format `version` one of the present format. Rows stay as they are: their
    checksums leave the new columns out while these have their defaults."""
    return f"{_GATHERED_SCHEMA if version < 2 else ''} {_WITH_TRANSACTIONS if version < 3 else ''} {_NEW_VERSION}"


IS_ABORT = "kind = 3 AND transaction_start >= 0"
"""The condition of the index of aborts: the marker of a transaction with records."""
COLUMNS = (
    "log_id, base_offset, last_offset, next_offset, max_timestamp, newest_timestamp, size, producer_id, "
    "leader_epoch, data_id, kind, transaction_start, coordinator_epoch, checksum"
)
INSERT_BATCHES = f"INSERT INTO batches ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_GATHERED = "INSERT OR REPLACE INTO gathered VALUES (?, ?)"
SELECT = f"SELECT {COLUMNS} FROM batches WHERE log_id = ? "
_ROW = struct.Struct(">10q")
_TRANSACTION_ROW = struct.Struct(">13q")
_NO_TRANSACTION = (0, -1, -1)
_LOG_ROW = struct.Struct(">6q")
_TRANSACTIONAL_LOG_ROW = struct.Struct(">8q")


@dataclass(slots=True)
class LogRow:
    """A row of `logs`, kept in memory: the truth between commits."""

    id: int
    key: LogKey
    start_offset: int
    end_offset: int
    size: int
    first_batch: int
    open_transactions: int = 0
    aborts: int = 0
    newest: int | None = None
    """The last batch's newest_timestamp; None until it is looked up. Not stored here."""

    def row(self) -> tuple[Any, ...]:
        numbers = (self.key.partition, self.start_offset, self.end_offset, self.size, self.first_batch)
        transactions = (self.open_transactions, self.aborts)
        if any(transactions):
            packed = _TRANSACTIONAL_LOG_ROW.pack(self.id, *numbers, *transactions)
        else:
            packed = _LOG_ROW.pack(self.id, *numbers)
        checksum = google_crc32c.value(packed + self.key.topic_id)
        return (self.id, self.key.topic_id, *numbers, checksum, *transactions)


def row_checksum(values: tuple[int, ...]) -> int:
    """Of a row of `batches`, from its first 13 values. A row of no transaction has that of format 2."""
    plain = values[10:13] == _NO_TRANSACTION
    checksum: int = google_crc32c.value(_ROW.pack(*values[:10]) if plain else _TRANSACTION_ROW.pack(*values[:13]))
    return checksum


class BatchRow(NamedTuple):
    """A row of `batches`, without its checksum."""

    log_id: int
    base_offset: int
    last_offset: int
    next_offset: int
    max_timestamp: int
    newest_timestamp: int
    size: int
    producer_id: int
    leader_epoch: int
    data_id: int
    kind: int
    transaction_start: int
    coordinator_epoch: int

    def values(self) -> tuple[int, ...]:
        return (*self, row_checksum(self))

    def info(self) -> BatchInfo:
        return BatchInfo(
            self.base_offset,
            self.last_offset,
            self.max_timestamp,
            self.size,
            self.producer_id,
            self.leader_epoch,
            self.kind,
            self.transaction_start,
            self.coordinator_epoch,
        )
