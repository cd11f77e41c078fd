"""Which slots this node serves, and which nodes the others, when all nodes of a database serve at once.

A partition's leader is the owner of its slot, and its leader epoch is that of the slot (storage/slots.py). So the
catalog's topics say of partitions what the slots say, whatever their records have. A slot that this node owns and has
not loaded yet has no leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.messages import changed
from kohort.broker.sharing.asks import Asks
from kohort.storage.protocol import LogKey
from kohort.storage.slots import CONTROLLER_SLOT, NO_NODE, SLOTS, slot_of
from kohort.wire.schemas.metadata_records import PartitionAssignment


class Slots:
    def __init__(self, node: int) -> None:
        self.node = node
        self.asks = Asks()
        self.held: set[int] = set()
        """The slots that this node serves."""
        self._owners: tuple[int, ...] = (NO_NODE,) * SLOTS
        self._epochs: tuple[int, ...] = (0,) * SLOTS

    def holds(self, log: LogKey) -> bool:
        return slot_of(log) in self.held

    @property
    def controls(self) -> bool:
        """This node writes the metadata log."""
        return CONTROLLER_SLOT in self.held

    @property
    def controller(self) -> int:
        return self.leader(CONTROLLER_SLOT)

    def leader(self, slot: int) -> int:
        """The node that serves a slot; NO_NODE if none does."""
        owner = self._owners[slot]
        return NO_NODE if owner == self.node and slot not in self.held else owner

    def put(self, owners: Sequence[int], epochs: Sequence[int]) -> bool:
        """What the table of slots says. Returns whether something is new."""
        before = self._owners, self._epochs
        self._owners, self._epochs = tuple(owners), tuple(epochs)
        return before != (self._owners, self._epochs)

    def give(self, slot: int, node: int) -> None:
        """This turn hands a slot over."""
        self.held.discard(slot)
        self._owners = (*self._owners[:slot], node, *self._owners[slot + 1 :])
        self._epochs = (*self._epochs[:slot], self._epochs[slot] + 1, *self._epochs[slot + 1 :])

    def led(
        self, topic_id: bytes, partitions: Sequence[PartitionAssignment], first: int = 0
    ) -> tuple[PartitionAssignment, ...]:
        """The assignments with their leaders and epochs. `first`: the index of the first one."""
        return tuple(
            self._led(slot_of(LogKey(topic_id, index)), assignment)
            for index, assignment in enumerate(partitions, first)
        )

    def _led(self, slot: int, assignment: PartitionAssignment) -> PartitionAssignment:
        leader, epoch = self.leader(slot), self._epochs[slot]
        if (assignment.leader, assignment.leader_epoch) == (leader, epoch):
            return assignment
        replicas = assignment.replicas
        if leader != NO_NODE:
            replicas = (leader, *(replica for replica in replicas if replica != leader))[: max(len(replicas), 1)]
        return changed(assignment, leader=leader, leader_epoch=epoch, replicas=replicas)
