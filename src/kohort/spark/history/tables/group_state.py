"""The state of groups over time: their members, and the times without any, on which the fate of offsets depends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.tables.groups import GroupEvent
from kohort.spark.history.tables.ownership import CLASSIC, CONSUMER


@dataclass(slots=True)
class GroupState:
    """A group at the end of the log, and its times without members. Milliseconds; NOTHING if unknown, or not yet."""

    protocol: int
    members: set[str] = field(default_factory=set)
    state_at: int = NOTHING
    """Since when a classic group is in its state."""
    deserted: list[tuple[int, int]] = field(default_factory=list)
    """Times without members, after times with members. Compaction may have deleted the records of members; then a
    generation above 0 shows that there were some."""
    deleted: bool = False

    @property
    def deserted_since(self) -> int:
        """NOTHING while the group has members, and if it never had any."""
        return self.deserted[-1][0] if self.deserted and self.deserted[-1][1] == NOTHING else NOTHING


def group_states(events: Iterable[GroupEvent]) -> dict[int, GroupState]:
    """The state of each group, by its number."""
    found: dict[int, GroupState] = {}
    epochs: dict[int, int] = {}
    """When the epoch of a group last rose above 0."""
    for event in events:
        is_first = event.group not in found
        state = found.setdefault(event.group, GroupState(CLASSIC if event.kind == 2 else CONSUMER))
        had_members = bool(state.members)
        if is_first and event.kind == 2 and not event.deleted and event.epoch > 0:
            had_members = True
        match event.kind:
            case 2:
                # The upgrade of a group to the other protocol deletes this record; its members have other records then.
                state.protocol = CLASSIC
                state.members = set(event.members)
                state.state_at = event.state_at if event.state_at >= 0 else event.at
                state.deleted = event.deleted
            case 3:
                state.protocol = CONSUMER
                state.deleted = event.deleted
            case 5 if event.deleted:
                state.members.discard(event.member)
            case 5:
                state.protocol = CONSUMER
                state.members.add(event.member)
        if had_members and not state.members:
            state.deserted.append((event.at, NOTHING))
        elif not had_members and state.members and state.deserted:
            state.deserted[-1] = (state.deserted[-1][0], event.at)
        if event.kind == 3 and not event.deleted and event.epoch > 0:
            epochs[event.group] = event.at
    for group, at in epochs.items():
        state = found[group]
        if state.protocol == CONSUMER and not (state.members or state.deserted or state.deleted):
            state.deserted.append((at, NOTHING))  # the epoch rose when the last member left
    return found
