"""The layout of the SQLite engine's file: the schema, the rows with their checksums, and the test that a batch is
intact."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c

from kohort.storage.protocol import BatchInfo, LogKey, StoredBatch

APPLICATION_ID = 0x6B6F686F  # "koho"
FORMAT_VERSION = 2
"""2: with the table `gathered`."""

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
  PRIMARY KEY (log_id, base_offset)
) WITHOUT ROWID;
CREATE INDEX batches_by_producer ON batches (log_id, producer_id, base_offset) WHERE producer_id >= 0;
CREATE TABLE purges ( -- batches that no log counts any more, and that later commits delete piece by piece
  log_id INTEGER PRIMARY KEY,
  below_offset INTEGER NOT NULL
);
CREATE TABLE batch_data (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE VIEW log_batches AS
  SELECT lower(hex(topic_id)) AS topic_id, partition, base_offset, last_offset,
         datetime(max_timestamp / 1000, 'unixepoch') AS newest_record, batches.size AS size, producer_id,
         leader_epoch, data
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


GATHERED_SCHEMA = f"""
CREATE TABLE gathered (id INTEGER PRIMARY KEY, data BLOB NOT NULL); -- small appends that are not in their logs yet
INSERT INTO gathered VALUES (0, X'{range_row(1, 0).hex()}');
PRAGMA user_version = {FORMAT_VERSION};
"""

COLUMNS = (
    "log_id, base_offset, last_offset, next_offset, max_timestamp, newest_timestamp, size, producer_id, "
    "leader_epoch, data_id, checksum"
)
INSERT_BATCHES = f"INSERT INTO batches ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_GATHERED = "INSERT OR REPLACE INTO gathered VALUES (?, ?)"
SELECT = f"SELECT {COLUMNS} FROM batches WHERE log_id = ? "
ROW = struct.Struct(">10q")
LOG_ROW = struct.Struct(">6q")
_HEADER = struct.Struct(">qiibIhiqqqhii")
"""A record batch's header: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base
timestamp, max timestamp, producer id, producer epoch, base sequence, count."""
_CRC_START = 21


@dataclass(slots=True)
class LogRow:
    """A row of `logs`, kept in memory: the truth between commits."""

    id: int
    key: LogKey
    start_offset: int
    end_offset: int
    size: int
    first_batch: int
    newest: int | None = None
    """The last batch's newest_timestamp; None until it is looked up. Not stored here."""

    def row(self) -> tuple[Any, ...]:
        numbers = (self.key.partition, self.start_offset, self.end_offset, self.size, self.first_batch)
        checksum = google_crc32c.value(LOG_ROW.pack(self.id, *numbers) + self.key.topic_id)
        return (self.id, self.key.topic_id, *numbers, checksum)


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

    def values(self) -> tuple[int, ...]:
        return (*self, google_crc32c.value(ROW.pack(*self)))

    def info(self) -> BatchInfo:
        return BatchInfo(
            self.base_offset, self.last_offset, self.max_timestamp, self.size, self.producer_id, self.leader_epoch
        )


def is_intact(batch: StoredBatch, size: int) -> bool:
    """Whether the bytes are the record batch that the columns describe, and carry the right CRC."""
    data = batch.data
    if not isinstance(data, bytes) or len(data) != size or size < _HEADER.size:
        return False
    base, length, epoch, magic, crc, _, delta, _, max_timestamp, producer_id, *_ = _HEADER.unpack_from(data)
    return bool(
        base == batch.base_offset
        and length + 12 == size
        and epoch == batch.leader_epoch
        and magic == 2
        and base + delta == batch.last_offset
        and max_timestamp == batch.max_timestamp
        and producer_id == batch.producer_id
        and google_crc32c.value(data[_CRC_START:]) == crc
    )
