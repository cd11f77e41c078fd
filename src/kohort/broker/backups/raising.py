"""What a restored data directory needs before its first start (docs/decisions/0016).

The cluster went on after the backup, and clients have seen numbers that the backup does not have. If they were given
again, a fenced client could be taken for a present one. So these numbers are raised:

    generations and group epochs  of unknown names too; groups have no members (coordinator/restored.py)
    leader epochs                 clients take metadata with a lower epoch for old, and find by the epoch where the log
                                  that they know ends
    producer ids                  each transactional id gets a new one, and open transactions are aborted

A backup may be restored twice, or an older one after a newer one: then the numbers of the clusters in between are
unknown too. So the clock gives the numbers, two a second since 2026 (producer ids: a million). Groups do not have two
generations a second for long, so the numbers of all clusters before are smaller. The least step, STEP, is for a restore
within a minute of another one; a larger step would lead away from the clock. If the clock is wrong by decades, fixed
steps take its place.
"""

from __future__ import annotations

import msgspec

from kohort.broker.journal.topic import write_journal
from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.broker.turn import Millis, Turn
from kohort.coordinator.events import Restored
from kohort.coordinator.transactions.transaction import State

STEP = 100
"""Of generations and epochs, besides the clock."""
GENERATIONS, LEADER_EPOCHS = 1_000_000, 1_000
"""The steps without a clock."""
PRODUCER_IDS = 1_000_000
_BEGIN_MS = 1_767_225_600_000
"""2026-01-01."""
_EPOCH_MS = 500
"""Generations and epochs have 31 bits: enough for 34 years."""
_LARGEST = 2**31 - 2**28
_IDS_A_MS = 1_000


class Raised(msgspec.Struct, frozen=True):
    """The least numbers from now on, and how many transactions were aborted."""

    generations: int
    leader_epochs: int
    producer_ids: int
    aborted_transactions: int


def raise_numbers(state: BrokerState, now: Millis) -> tuple[Turn, Raised]:
    """The turn to commit. `state` was loaded, and has had no turn."""
    open_ones = sum(each.state is State.ONGOING for shard in state.transactions.shards for each in shard.ids.values())
    since_ms = now - _BEGIN_MS
    has_clock = 0 < since_ms // _EPOCH_MS < _LARGEST
    least, least_id = (since_ms // _EPOCH_MS, since_ms * _IDS_A_MS) if has_clock else (0, 0)
    generations, leader_epochs = (STEP, STEP) if has_clock else (GENERATIONS, LEADER_EPOCHS)
    state.turn.begin(now)
    for topic in list(state.catalog.topics.values()):
        raised = [changed(one, leader_epoch=max(one.leader_epoch + leader_epochs, least)) for one in topic.partitions]
        state.topics.change(topic, assignments=raised)
    if state.catalog.topics:  # otherwise no server has ever started on the data
        state.topics.skip_producer_ids(PRODUCER_IDS, least_id)
        state.machines.ask_all(Restored(generations, least))
    if state.topic(JOURNAL_TOPIC) is not None:
        write_journal(state)
    told = Raised(max(generations, least), max(leader_epochs, least), state.catalog.next_producer_id, open_ones)
    return state.end_turn(()), told
