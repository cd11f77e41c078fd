"""What a restored data directory needs before its first start (docs/decisions/0016).

The cluster went on after the backup, and clients have seen numbers that the backup does not have. If they were given
again, a fenced client could be taken for a present one. So these numbers are raised:

    generations and group epochs  of unknown names too; groups have no members (coordinator/restored.py)
    leader epochs                 clients take metadata with a lower epoch for old, and find by the epoch where the log
                                  that they know ends
    producer ids                  each transactional id gets a new one, and open transactions are aborted

The clock gives the numbers: two for each second since 2026, and a million producer ids. Groups do not have two
generations a second for long. So the numbers of all clusters that were restored before, from this or from another
backup, are smaller.
"""

from __future__ import annotations

import msgspec

from kohort.broker.journal.topic import write_journal
from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.broker.turn import Millis, Turn
from kohort.coordinator.events import Restored
from kohort.coordinator.restored import raised
from kohort.coordinator.transactions.transaction import State

PRODUCER_IDS = 1_000_000
"""The least number of ids that are skipped."""
BEGIN_MS = 1_767_225_600_000
"""2026-01-01."""
EPOCH_MS = 500
"""Generations and epochs have 31 bits: enough for 34 years."""
_LARGEST = 2**31 - 2**28
_NONE = -(2**31)
"""Instead of the clock's number, if the clock is wrong by decades. It is smaller than every number in a backup."""
_IDS_A_MS = 1_000


class Raised(msgspec.Struct, frozen=True):
    """The least numbers from now on, and how many transactions were aborted."""

    epochs: int
    """Generations, group epochs and leader epochs."""
    producer_ids: int
    aborted_transactions: int


def raise_numbers(state: BrokerState, now: Millis) -> tuple[Turn, Raised]:
    """The turn to commit. `state` was loaded, and has had no turn."""
    open_ones = sum(each.state is State.ONGOING for shard in state.transactions.shards for each in shard.ids.values())
    since_ms = now - BEGIN_MS
    has_clock = 0 < since_ms // EPOCH_MS < _LARGEST
    by_clock = since_ms // EPOCH_MS if has_clock else _NONE
    state.turn.begin(now)
    for topic in [topic for topic in state.catalog.topics.values() if not topic.is_followed]:
        partitions = [changed(one, leader_epoch=raised(one.leader_epoch, by_clock)) for one in topic.partitions]
        state.topics.change(topic, assignments=partitions)
    if state.catalog.topics:  # otherwise no server has ever started on the data
        state.topics.skip_producer_ids(PRODUCER_IDS, since_ms * _IDS_A_MS if has_clock else 0)
        state.machines.ask_all(Restored(by_clock))
    if state.topic(JOURNAL_TOPIC) is not None:
        write_journal(state)
    told = Raised(raised(0, by_clock), state.catalog.next_producer_id, open_ones)
    return state.end_turn(()), told
