"""Why a task or a batch could not be written."""

from __future__ import annotations


class DeliveryFailed(RuntimeError):
    """A row was not delivered; the message and the fields name topic, partition and reason."""

    def __init__(self, topic: str, partition: int | None, reason: str) -> None:
        place = topic if partition is None else f"{topic}-{partition}"
        super().__init__(f"a row for {place} was not delivered: {reason}")
        self.topic = topic
        self.partition = partition
        self.reason = reason


class NotCommitted(RuntimeError):
    """A batch is not written, or not all of it; the message says what to do."""
