"""What a restored data directory needs before its first start (docs/decisions/0016).

The cluster went on after the backup, and clients have seen numbers that the backup does not have. If they were given
again, a fenced client could be taken for a present one. So each is raised by more than a cluster uses in the meantime:

    generations and group epochs  by 1,000,000, of unknown names too; groups have no members (coordinator/restored.py)
    leader epochs                 by 1,000: clients take metadata with a lower epoch for old, and find by the epoch
                                  where the log that they know ends
    producer ids                  by 1,000,000; each transactional id gets a new one; open transactions are aborted
"""

from __future__ import annotations

import msgspec

from kohort.broker.journal.topic import write_journal
from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.broker.turn import Millis, Turn
from kohort.coordinator.events import Restored
from kohort.coordinator.restored import RAISED_BY
from kohort.coordinator.transactions.transaction import State

LEADER_EPOCHS = 1_000
PRODUCER_IDS = 1_000_000


class Raised(msgspec.Struct, frozen=True):
    """By how much, and how many transactions were aborted."""

    generations: int
    leader_epochs: int
    producer_ids: int
    aborted_transactions: int


def raise_numbers(state: BrokerState, now: Millis) -> tuple[Turn, Raised]:
    """The turn to commit. `state` was loaded, and has had no turn."""
    open_ones = sum(each.state is State.ONGOING for shard in state.transactions.shards for each in shard.ids.values())
    state.turn.begin(now)
    for topic in list(state.catalog.topics.values()):
        raised = [changed(one, leader_epoch=one.leader_epoch + LEADER_EPOCHS) for one in topic.partitions]
        state.topics.change(topic, assignments=raised)
    if state.catalog.topics:  # otherwise no server has ever started on the data
        state.topics.skip_producer_ids(PRODUCER_IDS)
        state.machines.ask_all(Restored())
    if state.topic(JOURNAL_TOPIC) is not None:
        write_journal(state)
    return state.end_turn(()), Raised(RAISED_BY, LEADER_EPOCHS, PRODUCER_IDS, open_ones)
