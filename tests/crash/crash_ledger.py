"""What a committing client may hold the server to: of each partition, the least that must be there after a crash.

A client numbers its commits of a partition upwards and has many under way. An acknowledged commit must not be lost,
so the least is the one that was acknowledged last. But librdkafka sends again what a broken connection left without an
answer, and may do so after newer ones: what is under way, or failed without saying whether it took effect, may come to
stand in the place of a newer one. Then it was the client who went back, so the least is the lowest of all these.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Place:
    """The commits of one partition by one member. Its first base is what the server said was committed: a value that
    was served must not be lost either."""

    generation: int
    last: int
    """Acknowledged last; what was fetched, at first."""
    sent: int
    """The highest sent."""
    acks: int = 0
    open: set[int] = field(default_factory=set)
    """Sent and not answered."""
    unsure: dict[int, int] = field(default_factory=dict)
    """Failed, so perhaps in effect; and the highest that had been sent by then. One that was sent later and is
    acknowledged has certainly come after it."""

    def next(self) -> int:
        self.sent += 1
        self.open.add(self.sent)
        return self.sent

    def acknowledged(self, offset: int) -> None:
        if offset not in self.open:
            return  # of an earlier generation: what was fetched since came after it
        self.acks += 1
        self.last = offset
        self.open.discard(offset)
        if self.unsure:
            self.unsure = {failed: sent for failed, sent in self.unsure.items() if offset <= sent}

    def failed(self, offset: int) -> None:
        if offset not in self.open:
            return
        self.open.discard(offset)
        self.unsure[offset] = self.sent

    def least(self) -> int:
        return min([self.last, *self.open, *self.unsure])

    def possible(self) -> list[int]:
        """What may be committed, exactly, if nobody else commits."""
        return sorted({self.last, *self.open, *self.unsure})
