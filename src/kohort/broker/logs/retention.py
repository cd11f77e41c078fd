"""Which records a log may let go of, by age and by size (cleanup.policy with `delete`).

Kafka deletes whole segments. A log here has none, so the unit is the batch, and the rules are Kafka's with a batch in
a segment's place: the oldest batch goes when its newest record is older than retention.ms, or when the log without it
still has retention.bytes. Only batches at the start of the log go, so an old record behind a newer one stays. Thus
nothing goes that Kafka with small segments would keep. The newest batch goes as well when it is old enough, as in
Kafka; the end offset stays. Batches without timestamps have no age here and are kept (Kafka takes the file's date).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kohort.broker.topics.topic_configs import TopicSettings
from kohort.storage.protocol import BatchInfo

MAX_BATCHES = 20_000
"""Batches that one call lets go of: a trim deletes them in one transaction, which clients wait for."""


class Retained(msgspec.Struct, frozen=True):
    start_offset: int
    """Where the log may begin; its present start when nothing goes."""
    complete: bool
    """Whether all that may go is below `start_offset`. If not, ask again when that trim is done."""


def retained(batches: Iterable[BatchInfo], start_offset: int, size: int, settings: TopicSettings, now: int) -> Retained:
    """`batches` from the start of the log on (an iterator, read no further than needed); `size` bytes of them all."""
    if not settings.delete:
        return Retained(start_offset, True)
    for count, batch in enumerate(batches):
        too_old = settings.retention_ms >= 0 and 0 <= batch.max_timestamp < now - settings.retention_ms
        too_much = settings.retention_bytes >= 0 and size - batch.size >= settings.retention_bytes
        if not (too_old or too_much):
            break
        if count == MAX_BATCHES:
            return Retained(start_offset, False)
        start_offset = batch.last_offset + 1
        size -= batch.size
    return Retained(start_offset, True)
