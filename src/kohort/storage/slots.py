"""Slots: the parts of the data that nodes on one database own and hand over, when several of them serve at once.

A log belongs to one slot for ever. The partitions of a topic lie in slots that follow each other, so that a topic's
partitions are on different nodes where slots are dealt in turn. The metadata log is in a slot of its own: the owner of
that slot is the controller.

`next_moves` and `dealt` say which node should own a slot. They are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

import msgspec

from kohort.storage.protocol import LogKey

SLOTS = 128
CONTROLLER_SLOT = 0
METADATA_TOPIC_ID = bytes(15) + b"\x01"
NO_NODE = -1


class Numbers(msgspec.Struct, frozen=True):
    """What must never go back, and what nodes that serve at once have in tables, and others in the metadata log."""

    epochs: tuple[int, ...]
    """Of each slot: the leader epoch of its partitions, or the largest of these."""
    next_producer_id: int
    """No id from this one on was given."""


def slot_of(log: LogKey) -> int:
    if log.topic_id == METADATA_TOPIC_ID:
        return CONTROLLER_SLOT
    return 1 + (crc32(log.topic_id) + log.partition) % (SLOTS - 1)


def _counts(owners: Sequence[int], nodes: Collection[int]) -> dict[int, int]:
    counts = dict.fromkeys(sorted(nodes), 0)
    for owner in owners:
        if owner in counts:
            counts[owner] += 1
    return counts


def dealt(slots: Collection[int], owners: Sequence[int], nodes: Collection[int]) -> dict[int, int]:
    """Deal the slots of a node that is gone: the next one always to the node with the fewest.

    `owners`: of all slots, by the slot's number. `nodes` are those that may get slots; there is at least one."""
    counts = _counts(owners, nodes)
    found = {}
    for slot in sorted(slots):
        node = min(counts, key=lambda node: (counts[node], node))
        counts[node] += 1
        found[slot] = node
    return found


def next_moves(
    owners: Sequence[int], wanted: Mapping[int, int], living: Collection[int], drained: Collection[int] = ()
) -> dict[int, int]:
    """The moves that should begin now, as slot: node. At most one a giving node and one a taking node, counting those
    under way (`wanted`), so that few clients wait at a time.

    A drained node gives everything away. Otherwise slots move only from nodes with two more than another one. A node
    gives its last slots first, and the controller's slot only if it is drained. Without a node that may take slots,
    nothing moves."""
    takers = set(living) - set(drained)
    busy = {owners[slot] for slot in wanted}
    after = [wanted.get(slot, owner) for slot, owner in enumerate(owners)]
    counts = _counts(after, takers)
    moves: dict[int, int] = {}
    taking = set(wanted.values())
    for giver in sorted(set(owners) & set(living), key=lambda node: (node not in drained, -counts.get(node, 0), node)):
        free = [node for node in counts if node not in taking and node != giver]
        if giver in busy or not free:
            continue
        taker = min(free, key=lambda node: (counts[node], node))
        if giver not in drained and counts[giver] - counts[taker] < 2:
            continue
        mine = [slot for slot, owner in enumerate(owners) if owner == giver and slot not in wanted]
        slot = _given(mine, giver in drained, counts[taker])
        if slot is None:
            continue
        moves[slot] = taker
        taking.add(taker)
        counts[taker] += 1
        if giver in counts:
            counts[giver] -= 1
    return moves


def _given(mine: Sequence[int], is_drained: bool, taken: int) -> int | None:
    """Every other slot at first: partitions of a topic, which lie in slots that follow each other, are spread."""
    if is_drained:
        return mine[-1] if mine else None
    others = [slot for slot in mine if slot != CONTROLLER_SLOT]
    if not others:
        return None
    odd = [slot for slot in others if slot % 2]
    return (odd or others)[-1]
