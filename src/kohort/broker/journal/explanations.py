"""Adds to a group's description why it is in its state: its stories, and the status of its rebalance."""

from __future__ import annotations

import msgspec

from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.classic.status import RebalanceStatus
from kohort.coordinator.journal.story import Story
from kohort.wire.schemas.describe_groups import DescribedGroup

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of all explanations in one answer. Beyond it, older stories and the groups named last are left out."""


class Explanation(msgspec.Struct, omit_defaults=True):
    now_ms: Millis
    """In the server's time, like all other instants."""
    loaded_ms: Millis | None = None
    """When the coordinator loaded the group; None if it was created since the server's start, or unknown."""
    rebalance: Story | None = None
    """The story of the running rebalance."""
    status: RebalanceStatus | None = None
    """None for a group that does not exist."""
    keeps_offsets: bool = False
    """Whether the journal keeps committed offsets that are changed from outside; an older version does not."""


class Explaining:
    """The explanations of one answer. A request can name any number of groups, so one limit holds for all of them."""

    def __init__(self, state: BrokerState, last: int) -> None:
        self._state = state
        self._last = last
        self._room = MAX_BYTES

    def explained(self, shard: int, group: DescribedGroup) -> DescribedGroup:
        """The group with its explanation, or without one when there is no room left."""
        if self._room <= 0:
            return group
        state, journal = self._state, self._state.journal
        state.shares.archive_notes.tell(group.group_id, state.now)
        explanation = msgspec.json.encode(
            Explanation(
                now_ms=state.now,
                loaded_ms=journal.loaded_ms(group.group_id),
                rebalance=journal.running(group.group_id),
                status=state.shards[shard].rebalance_status(group.group_id, state.now),
                keeps_offsets=True,
            )
        )
        self._room -= len(explanation)
        stories: list[bytes] = []
        for story in reversed(journal.stories(group.group_id, self._last)):
            if len(story) > self._room:
                break
            self._room -= len(story)
            stories.append(story)
        return changed(group, explanation=explanation, stories=tuple(reversed(stories)))
