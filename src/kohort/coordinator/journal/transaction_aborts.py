"""The journal's account of transactions that their coordinator aborted: a timeout, or another producer with the id.

What a producer ends by itself is no entry. An entry is a record of `__kohort_journal` beside the stories of groups; its
JSON is a format, as theirs is: names and types stay as they are, fields may be added, empty values are left out.

Limits are those of the stories, counted apart from them: entries of an id, ids, and a share of the bytes. The id whose
last entry is oldest is dropped first. Journal entries decide nothing, so they may be missing or cut.
"""

from __future__ import annotations

import hashlib
from collections import deque
from functools import cache
from typing import Literal

import msgspec

from kohort.config import Config
from kohort.coordinator.events import Ending, Millis, Record
from kohort.coordinator.journal.story import Partitions, cut

MOST_PARTITIONS = 200
"""Partitions that an entry names; `partitions_count` counts all."""
SHARE = 4
"""The entries may take a quarter of `journal.max.bytes`, beside the stories."""
_BEGINS = b'{"transactional_id":'
"""Each entry does, and no story."""

_encode = msgspec.json.Encoder().encode


class TransactionAbort(msgspec.Struct, omit_defaults=True):
    transactional_id: str
    number: int
    """Counts up within the id, as far as the journal remembers it."""
    at_ms: Millis
    what: Literal["fenced", "timed out"]
    """"fenced": another producer asked for the id while the transaction was open."""
    producer_id: int
    producer_epoch: int
    """Of the producer that was fenced by this."""
    open_for_ms: Millis
    """Since the first partition was added."""
    timeout_ms: Millis
    partitions_count: int
    partitions: Partitions = {}
    client_id: str = ""
    """Who asked for the id; empty for a timeout, as `host`."""
    host: str = ""


def name_of(transactional_id: str) -> str:
    """The id in the journal: a long one is cut, and has a hash behind it, because others may begin as it does."""
    short = cut(transactional_id)
    if short == transactional_id:
        return short
    return f"{short}{hashlib.blake2b(transactional_id.encode(), digest_size=8).hexdigest()}"


@cache
def _decoder() -> msgspec.json.Decoder[TransactionAbort]:
    return msgspec.json.Decoder(TransactionAbort)


class _Id:
    __slots__ = ("entries", "next_number")

    def __init__(self) -> None:
        self.next_number = 1
        self.entries: deque[bytes] = deque()
        """The newest last."""


class TransactionAborts:
    def __init__(self, config: Config) -> None:
        self._most_entries = config.journal_max_stories_per_group
        self._most_ids = config.journal_max_groups
        self._most_bytes = config.journal_max_bytes // SHARE
        self._ids: dict[str, _Id] = {}
        """By `name_of`, in the order of their last entries."""
        self._bytes = 0
        self._changed: list[Record] = []

    def tell(self, ending: Ending, now: Millis) -> None:
        """Add an ending that is "fenced" or "timed out"; others are none of the journal's."""
        if ending.cause not in ("fenced", "timed out"):
            return
        name = name_of(ending.transactional_id)
        of_id = self._newest(name)
        partitions: Partitions = {}
        for topic, partition in ending.places[:MOST_PARTITIONS]:
            partitions.setdefault(topic, []).append(partition)
        client = ending.fenced_by
        entry = _encode(
            TransactionAbort(
                transactional_id=name,
                number=of_id.next_number,
                at_ms=now,
                what=ending.cause,
                producer_id=ending.producer_id,
                producer_epoch=ending.epoch - 1,
                open_for_ms=max(now - ending.started, 0),
                timeout_ms=ending.timeout_ms,
                partitions_count=len(ending.places),
                partitions=partitions,
                client_id=cut(client.client_id) if client is not None else "",
                host=cut(client.host) if client is not None else "",
            )
        )
        key = f"transaction {name}#{of_id.next_number % self._most_entries}".encode()
        of_id.next_number += 1
        self._keep(of_id, entry)
        self._changed.append(Record(key, entry))

    def last(self, transactional_id: str, count: int) -> list[bytes]:
        """The newest entries of an id as JSON, the newest last."""
        of_id = self._ids.get(name_of(transactional_id))
        return list(of_id.entries)[-count:] if of_id is not None and count > 0 else []

    def take_changed(self) -> list[Record]:
        """The records of the entries since the last call."""
        changed, self._changed = self._changed, []
        return changed

    @staticmethod
    def is_entry(value: bytes) -> bool:
        """Whether the value of a record of the journal's topic is an entry, not a story."""
        return value.startswith(_BEGINS)

    def restore(self, value: bytes) -> None:
        """Take a record of the topic, in the order of the offsets. Raises ValueError if the bytes are no entry."""
        try:
            entry = _decoder().decode(value)
        except (msgspec.MsgspecError, OverflowError) as error:
            raise ValueError(str(error)) from None
        of_id = self._newest(entry.transactional_id)
        of_id.next_number = max(of_id.next_number, entry.number + 1)
        self._keep(of_id, value)

    def _newest(self, name: str) -> _Id:
        of_id = self._ids.pop(name, None) or _Id()
        self._ids[name] = of_id
        return of_id

    def _keep(self, of_id: _Id, entry: bytes) -> None:
        of_id.entries.append(entry)
        self._bytes += len(entry)
        while len(of_id.entries) > self._most_entries or (self._bytes > self._most_bytes and len(self._ids) == 1):
            self._bytes -= len(of_id.entries.popleft())
        while len(self._ids) > self._most_ids or (self._bytes > self._most_bytes and len(self._ids) > 1):
            oldest = self._ids.pop(next(iter(self._ids)))
            self._bytes -= sum(map(len, oldest.entries))
