"""This process as one of several nodes that serve at once.

A task looks at the tables of nodes and slots again and again (storage/postgres/slot_table.py), reads what follows in
the metadata log, and says so to the broker (`SlotsSeen`). The next look comes after that turn is durable.

Slots that this node has got are loaded beside the turns, because that may take long: first their logs, then the
metadata log up to its end, so that every topic that these logs belong to is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kohort.broker.logs.newest_records import all_records, newest_records
from kohort.broker.nodes import Node
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import METADATA_LOG, OFFSETS_TOPIC
from kohort.broker.turn import Arrived, Release, SlotsSeen
from kohort.config import Config
from kohort.coordinator.events import Record
from kohort.server import log
from kohort.server.database.errands import Errands
from kohort.server.database.log_ends import LogEnds
from kohort.storage.protocol import LogInfo, LogKey, StorageError, StoredBatch
from kohort.storage.slots import CONTROLLER_SLOT

if TYPE_CHECKING:
    from kohort.storage.postgres.engine import PostgresStorage
    from kohort.storage.postgres.reader import PostgresReader
    from kohort.storage.postgres.slot_table import Seen

PRODUCER_IDS = 1_000
"""Producer ids in a block."""
BLOCKS = 2
"""A node with fewer blocks of producer ids asks for one."""

Timed = tuple[Record, int]


def with_all_serving(config: Config) -> Config:
    """The settings of a node that serves beside others: without what is not served yet in this mode."""
    return replace(config, journal_enable=False, group_share_enable=False)


class Sharing:
    """All methods run in the server's event loop."""

    def __init__(
        self,
        storage: PostgresStorage,
        state: BrokerState,
        control: Callable[[SlotsSeen], Awaitable[None]],
        arrive: Callable[[Arrived], None],
        failed: Callable[[Exception], None],
    ) -> None:
        assert state.slots is not None
        self._storage = storage
        self._state = state
        self._slots = state.slots
        self._control = control
        self._ends = LogEnds(storage, state)
        self._errands = Errands(storage, state.slots, arrive)
        self._failed = failed
        self._said: SlotsSeen | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Returns when this node knows the cluster, and serves its slots, if it has some."""
        waits = False
        while not (await self._look() and OFFSETS_TOPIC in self._state.catalog.topics):
            if not waits:
                waits = True
                log.info("waiting for another node, which creates the cluster")
            await asyncio.to_thread(self._storage.wait)
        self._task = asyncio.create_task(self._run())

    def taken(self, releases: Sequence[Release]) -> Sequence[Release]:
        """The releases without those that answer requests of other nodes."""
        return self._errands.taken(releases)

    def stop(self) -> None:
        self._errands.stop()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.to_thread(self._storage.wait)
                await self._look()
                await self._errands.look()
        except ConnectionAbortedError:
            pass  # the server has stopped
        except Exception as error:
            self._failed(error)

    async def _look(self) -> bool:
        """Returns whether the database has answered."""
        seen = await asyncio.to_thread(self._storage.look)
        if seen is None:
            return False
        held, node = frozenset(self._slots.held), self._slots.node
        nodes = tuple(Node(each.id, each.host, each.port, each.rack, each.by_listener) for each in seen.nodes)
        wanted = {slot: to for slot, to in seen.wanted.items() if slot in held and to != node}
        gained = tuple(slot for slot, owner in enumerate(seen.owners) if owner == node and slot not in held)
        if gained and not wanted and OFFSETS_TOPIC in self._state.catalog.topics:
            return await self._gain(nodes, seen, gained)  # first, because clients of these slots wait
        metadata = await self._metadata()
        if metadata is None:
            return False
        said = SlotsSeen(
            nodes,
            seen.owners,
            seen.epochs,
            *metadata,
            wanted=wanted,
            ends=() if wanted else await self._ends.look(),
            producer_ids=range(0) if wanted else await self._producer_ids(),
        )
        if said != self._said:
            await self._control(said)
            self._said = _lasting(said)
        if wanted:
            self._storage.look_again()  # that turn gives the slots away, so this look is out of date
            return True
        return not gained or await self._gain(nodes, seen, gained)

    async def _gain(self, nodes: tuple[Node, ...], seen: Seen, gained: tuple[int, ...]) -> bool:
        offsets = self._state.topic(OFFSETS_TOPIC)
        if offsets is None and CONTROLLER_SLOT not in gained:
            return True  # the cluster is not founded yet
        logs = await asyncio.to_thread(self._storage.load_slots, frozenset(gained))
        metadata = await self._metadata()
        if logs is None or metadata is None:
            return False
        of_shards = [info for info in logs if offsets is not None and info.key.topic_id == offsets.topic_id]
        replays = await asyncio.to_thread(self._read, of_shards)
        await self._control(
            SlotsSeen(nodes, seen.owners, seen.epochs, *metadata, gained=gained, logs=tuple(logs), replays=replays)
        )
        log.debug("serving slots", gained=len(gained), slots=len(self._slots.held))
        self._said = None
        self._storage.look_again()  # this look has skipped what does not concern gained slots
        return True

    async def _metadata(self) -> tuple[tuple[Record, ...], int] | None:
        """What the controller has written since the last look, and where the log ends."""
        end = self._state.topics.metadata.end_offset
        if self._slots.controls:
            return (), 0
        batches = await asyncio.to_thread(self._storage.metadata, end)
        if batches is None:
            return None
        if not batches:
            return (), 0
        records = await asyncio.to_thread(_decoded, batches)
        return records, batches[-1].last_offset + 1

    async def _producer_ids(self) -> range:
        if len(self._state.topics.producer_ids) >= BLOCKS:
            return range(0)
        first = await asyncio.to_thread(self._storage.take_producer_ids, PRODUCER_IDS)
        return range(0) if first is None else range(first, first + PRODUCER_IDS)

    def _read(self, infos: Sequence[LogInfo]) -> Mapping[LogKey, Sequence[Timed]]:
        """The records of these logs. Raises StorageError."""
        reader = _CountingReader(self._storage.reader())
        storage: Any = reader
        found = {}
        try:
            for info in infos:
                reader.count = 0
                found[info.key] = tuple(newest_records(storage, info.key, info.start_offset))
                # A reader beside commits takes missing rows for rows that were just deleted. So they are counted here.
                if reader.count != sum(1 for _ in self._storage.batches(info.key, info.start_offset)):
                    raise StorageError(f"the database lacks rows of the log {info.key}, which this node has to load")
        finally:
            reader.close()
        return found


def _lasting(said: SlotsSeen) -> SlotsSeen:
    """The part of a look that is equal at the next look if nothing has changed."""
    return SlotsSeen(said.nodes, said.owners, said.epochs)


class _CountingReader:
    def __init__(self, reader: PostgresReader) -> None:
        self._reader = reader
        self.close = reader.close
        self.count = 0

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]:
        found = self._reader.read(log, offset, max_bytes)
        self.count += len(found)
        return found


class _Batches:
    """Batches as a storage gives them."""

    def __init__(self, batches: Sequence[StoredBatch]) -> None:
        self._batches = batches

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]:
        return [batch for batch in self._batches if batch.base_offset >= offset]


def _decoded(batches: Sequence[StoredBatch]) -> tuple[Record, ...]:
    storage: Any = _Batches(batches)
    return tuple(record for record, _ in all_records(storage, METADATA_LOG, batches[0].base_offset))
