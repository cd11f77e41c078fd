"""This process as a node of a database: its storage, and the other nodes as the broker gets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kohort.broker.nodes import Endpoint, Node
from kohort.broker.turn import StandbysChanged
from kohort.config import ALL, Config, ConfigError
from kohort.server import log
from kohort.storage.protocol import Storage

if TYPE_CHECKING:
    from kohort.storage.postgres.engine import PostgresStorage
    from kohort.storage.postgres.leases import NodeAddress


def storage_of(config: Config, place: Endpoint, failed: Callable[[Exception], None]) -> PostgresStorage:
    """It is not open. `failed` is called in a thread when another process has taken over. Raises ConfigError."""
    try:
        from kohort.storage.postgres.engine import PostgresStorage
        from kohort.storage.postgres.leases import NodeAddress, Timing
    except ImportError as error:
        raise ConfigError(f"storage needs {error.name}: pip install 'kohort[postgres]'") from None
    address = NodeAddress(config.broker_id, place.host, place.port, place.rack, place.by_listener or {})
    timing = Timing(config.broker_session_timeout_ms / 1000, config.broker_heartbeat_interval_ms / 1000)
    move_s = config.cluster_move_interval_ms / 1000 if config.cluster_serving == ALL else None
    return PostgresStorage(config.storage, address, log, failed, timing, move_s)


def watch_others(storage: Storage, arrive: Callable[[StandbysChanged], None]) -> None:
    """Clients learn of the other nodes: one of them takes over if this one dies. Call this in the event loop."""
    watch = getattr(storage, "watch_others", None)  # not that of a test's own storage
    if watch is None:
        return
    loop = asyncio.get_running_loop()

    def changed(others: Sequence[NodeAddress]) -> None:
        nodes = tuple(Node(other.id, other.host, other.port, other.rack, other.by_listener) for other in others)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(arrive, StandbysChanged(nodes))

    watch(changed)
