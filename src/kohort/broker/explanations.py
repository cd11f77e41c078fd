"""Why a group is as it is, for those who ask: its stories and the state of its rebalance, added to its description."""

from __future__ import annotations

import msgspec

from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.rebalance_status import RebalanceStatus
from kohort.coordinator.stories import Story
from kohort.wire.schemas.describe_groups import DescribedGroup

MAX_BYTES = 8 * 1024 * 1024
"""Of the stories in one answer; older ones are left out."""


class Explanation(msgspec.Struct, omit_defaults=True):
    now_ms: Millis
    """By the server's clock, as all other instants."""
    loaded_ms: Millis | None = None
    """When the group's coordinator loaded it; None when it was founded since the server's start, or unknown."""
    rebalance: Story | None = None
    """The story of the running rebalance."""
    status: RebalanceStatus | None = None
    """None for a group that is not there."""


def explained(state: BrokerState, shard: int, group: DescribedGroup, last: int) -> DescribedGroup:
    journal = state.journal
    explanation = Explanation(
        now_ms=state.now,
        loaded_ms=journal.loaded_ms(group.group_id),
        rebalance=journal.running(group.group_id),
        status=state.shards[shard].rebalance_status(group.group_id, state.now),
    )
    stories: list[bytes] = []
    room = MAX_BYTES
    for story in reversed(journal.stories(group.group_id, last)):
        room -= len(story)
        if room < 0:
            break
        stories.append(story)
    return changed(group, explanation=msgspec.json.encode(explanation), stories=tuple(reversed(stories)))
