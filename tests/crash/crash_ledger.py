"""The server's duty to a committing client: for each partition, the least offset that must be there after a crash.

A client numbers its commits of a partition upwards and has many under way. An acknowledged commit must not be lost,
so the least is the offset that was acknowledged last. But librdkafka repeats commits that a broken connection left
without an answer, and may do so after newer commits. So a commit that is under way, or that failed with an unknown
outcome, may replace a newer one. Then the client went back, so the least is the lowest of all these offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Place:
    """The commits of one partition by one member. Its first base is the committed offset that the server returned: a
    value that was served must not be lost either."""

    generation: int
    last: int
    """The offset that was acknowledged last; at first, the fetched offset."""
    sent: int
    """The highest sent."""
    acks: int = 0
    open: set[int] = field(default_factory=set)
    """Sent and not answered."""
    unsure: dict[int, int] = field(default_factory=dict)
    """Failed commits, which may have taken effect, and the highest commit that had been sent by then. An acknowledged
    commit that was sent later has certainly arrived after it."""

    def next(self) -> int:
        self.sent += 1
        self.open.add(self.sent)
        return self.sent

    def acknowledged(self, offset: int) -> None:
        if offset not in self.open:
            return  # of an earlier generation: the offset fetched since then is newer
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
        """The exact offsets that may be committed if no other client commits."""
        return sorted({self.last, *self.open, *self.unsure})


def place_from(offset: int, generation: int, before: Place | None) -> Place:
    """The place of a member that was assigned a partition in `generation` and was served `offset`; `before` is what it
    had there earlier.

    A rebalance fences the commits of earlier generations; their answers may still come. A member that joins again can
    get the same generation, a static one above all. Then librdkafka may still repeat its commits from before.
    """
    if before is None:
        return Place(generation, offset, offset)
    place = Place(generation, offset, max(offset, before.sent), before.acks)
    if generation == before.generation:
        place.open, place.unsure = before.open, before.unsure
    return place
