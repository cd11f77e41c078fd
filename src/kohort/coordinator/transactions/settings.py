"""The settings of the transaction shards."""

from __future__ import annotations

import msgspec

from kohort.coordinator.events import Millis


class TransactionSettings(msgspec.Struct, frozen=True, gc=False):
    version: int = 2
    """`transaction.version`: 2 gives a producer a new epoch when the server aborts its transaction (KIP-890)."""
    expiration_ms: Millis = 604_800_000
    """`transactional.id.expiration.ms`: an id without a transaction is forgotten after this time."""
    max_bytes: int = 67_108_864
    """`transaction.state.max.bytes`: what all ids and the partitions of their transactions may take."""
    first_epoch: int = 0
    """Of a new id. Simulations begin near the last one."""
    lost_to_timeout: bool = True
    """A commit of a transaction that was aborted meanwhile is fenced (90), so that its producer may go on. In Kafka up
    to 4.3 it is 48, which ends the producer."""
    older_connection: bool = True
    """Clients without new epochs are fenced on a connection older than one on which they have added partitions."""
    zombie_init: bool = True
    """An InitProducerId that names an old epoch is fenced, and an open transaction goes on. In Kafka it is aborted."""
