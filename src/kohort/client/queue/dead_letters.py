"""Dead letters: the record of a job that failed for good, with headers that say where it was and why.

The headers are those of Apache Kafka's dead-letter topics (KIP-1191), as texts.
"""

from __future__ import annotations

import time

from kohort.client.queue.job import Job
from kohort.wire.batches import NewRecord

PREFIX = "__dlq.errors."
LONGEST_REASON = 1_000


def dead_letter(job: Job, group_id: str, reason: str) -> NewRecord:
    """The job's key, value and headers, and why it failed."""
    facts = {
        "topic": job.topic,
        "partition": str(job.partition),
        "offset": str(job.offset),
        "group": group_id,
        "delivery.count": str(job.deliveries),
        "message": reason[:LONGEST_REASON],
    }
    kept = tuple(header for header in job.headers if not header[0].startswith(PREFIX))
    added = tuple((PREFIX + name, text.encode()) for name, text in facts.items())
    return NewRecord(job.key, job.value, time.time_ns() // 1_000_000, kept + added)
