"""What the groups were in from when until when, as far as their offsets' fate depends on it: members, or nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.tables.groups import CLASSIC, CONSUMER, GroupEvent


@dataclass(slots=True)
class Standing:
    """A group at the end of the log, and the times when nobody was in it. Milliseconds; NOTHING: not known, not yet."""

    protocol: int
    members: set[str] = field(default_factory=set)
    state_at: int = NOTHING
    """Since when a classic group is in its state."""
    deserted: list[tuple[int, int]] = field(default_factory=list)
    """From when until when it had no members, after it had had some: those that are in the log, or those without whom
    its generation would not be what it is."""
    deleted: bool = False

    @property
    def deserted_since(self) -> int:
        """NOTHING while it has members, or never had any."""
        return self.deserted[-1][0] if self.deserted and self.deserted[-1][1] == NOTHING else NOTHING


def standings(events: Iterable[GroupEvent]) -> dict[int, Standing]:
    """The groups by number."""
    found: dict[int, Standing] = {}
    for event in events:
        is_first = event.group not in found
        one = found.setdefault(event.group, Standing(CLASSIC if event.kind == 2 else CONSUMER))
        had = bool(one.members)
        if is_first and event.kind == 2 and not event.deleted and event.epoch > 0:
            had = True  # a compacted log has forgotten them
        match event.kind:
            case 2:
                # A group that changes its protocol deletes this record: its members go on by other records.
                one.protocol = CLASSIC
                one.members = set(event.members)
                one.state_at = event.state_at if event.state_at >= 0 else event.at
                one.deleted = event.deleted
            case 3:
                one.protocol = CONSUMER
                one.deleted = event.deleted
            case 5 if event.deleted:
                one.members.discard(event.member)
            case 5:
                one.protocol = CONSUMER
                one.members.add(event.member)
        _note(one, had, event.at)
    return found


def _note(one: Standing, had: bool, at: int) -> None:
    if had and not one.members:
        one.deserted.append((at, NOTHING))
    elif not had and one.members and one.deserted:
        one.deserted[-1] = (one.deserted[-1][0], at)
