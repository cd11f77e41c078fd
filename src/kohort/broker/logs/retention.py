"""Retention: which records are deleted by age and by size (cleanup.policy with `delete`).

Kafka deletes whole segments. Logs here have no segments: the rules are Kafka's, for batches. The oldest batch is
deleted when its newest record is older than retention.ms, or when the log without it still has retention.bytes. Only
batches at the start of the log are deleted, so an old record after a newer one stays. Nothing is deleted that Kafka
with small segments would keep. As in Kafka, the newest batch is deleted too when it is old enough; the end offset
stays. Batches without timestamps have no age and are kept (Kafka uses the file's date).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kohort.broker.topics.topic_configs import TopicSettings
from kohort.storage.protocol import BatchInfo

MAX_BATCHES = 20_000
"""Batches that one call deletes at most: a trim is one transaction, and clients wait for it."""


class Retained(msgspec.Struct, frozen=True):
    start_offset: int
    """The new start of the log; its present start if nothing is deleted."""
    complete: bool
    """False if more is to be deleted: then call again when this trim is done."""


def retained(batches: Iterable[BatchInfo], start_offset: int, size: int, settings: TopicSettings, now: int) -> Retained:
    """`batches` from the start of the log on, read no further than needed; `size` is the bytes of all of them."""
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
