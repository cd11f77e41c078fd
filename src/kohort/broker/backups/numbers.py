"""Leader epochs and producer ids, which a migration takes from the metadata log to tables, and back.

Nodes that serve at once have them in tables, by slot, and what the metadata log says of them does not count
(docs/decisions/0021). Elsewhere the log counts.
"""

from __future__ import annotations

from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis, Turn
from kohort.storage.slots import SLOTS, Numbers, slot_of


def numbers_of(state: BrokerState) -> Numbers:
    """What the metadata log says."""
    epochs = [0] * SLOTS
    for topic in state.catalog.topics.values():
        for index, assignment in enumerate(topic.partitions):
            slot = slot_of(topic.log_key(index))
            epochs[slot] = max(epochs[slot], assignment.leader_epoch)
    return Numbers(tuple(epochs), state.catalog.next_producer_id)


def write_numbers(state: BrokerState, numbers: Numbers, now: Millis) -> Turn:
    """The turn that makes the metadata log say more than `numbers`. `state` was loaded, and has had no turn."""
    state.turn.begin(now)
    for topic in [topic for topic in state.catalog.topics.values() if not topic.is_followed]:
        partitions = [
            changed(each, leader_epoch=max(each.leader_epoch, numbers.epochs[slot_of(topic.log_key(index))]) + 1)
            for index, each in enumerate(topic.partitions)
        ]
        state.topics.change(topic, assignments=partitions)
    state.topics.skip_producer_ids(0, numbers.next_producer_id)
    return state.end_turn(())
