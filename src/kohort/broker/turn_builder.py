"""The turn under construction: the operations to commit, and the releases after the commit.

Operations are collected in order: appends, trims, created and deleted logs. Replies to requests that were parked
earlier are collected too. The broker releases them when the handler has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from kohort.broker.logs.partition import Appended, Partition
from kohort.broker.logs.validation import Room
from kohort.broker.turn import Complaint, HandedOut, LateRequest, Millis, Mute, Notice, ReadAsked, Release, Turn
from kohort.broker.waits.fetch_waits import FetchWaits
from kohort.coordinator.events import Record, Reply
from kohort.storage.protocol import Operation
from kohort.wire.markers import Marker

SHARED_BYTES = 4_194_304
"""What the fetches of all connections that wait may read: some ten milliseconds."""
LEAST_SHARE_BYTES = 262_144
"""The least share of a fetch."""


class TurnBuilder:
    def __init__(self, now: Millis, fetch_waits: FetchWaits, fetch_max_bytes: int) -> None:
        self.now = now
        self.operations: list[Operation] = []
        self.appended_bytes = 0
        """Of the turn's batches."""
        self.replies: list[Reply] = []
        self.tasks: list[HandedOut] = []
        """Work of the shards for other threads."""
        self.fetch_left_bytes = fetch_max_bytes
        """The bytes that the answers to this turn's fetches may still use."""
        self.fetched_bytes = 0
        """Of the answers to fetches, since the start."""
        self.others: Callable[[], int] = lambda: 0
        """How many connections wait for a request of theirs to be handled."""
        self._fetch_max_bytes = fetch_max_bytes
        self._fetch_waits = fetch_waits
        self._appended: list[Partition] = []
        self._complaints: dict[Complaint, None] = {}
        self._notices: list[Notice] = []
        self.log_level: str | None = None
        """See `Turn.log_level`."""
        self.mutes: list[Mute] = []
        self.late: list[LateRequest] = []
        self.reads: tuple[ReadAsked, ...] = ()

    def begin(self, now: Millis) -> None:
        """The last turn's operations are durable by now."""
        self.now = now
        self.appended_bytes = 0
        self.fetch_left_bytes = self._fetch_max_bytes
        for partition in self._appended:
            partition.committed()
        self._appended.clear()

    @property
    def fetch_share_bytes(self) -> int:
        """The bytes that the answer to one fetch may use. Where others wait, it gets a share: fifty large fetches, one
        after the other, would keep everybody else waiting for a second."""
        others = self.others()
        if not others:
            return self.fetch_left_bytes
        return min(self.fetch_left_bytes, max(LEAST_SHARE_BYTES, SHARED_BYTES // (1 + others)))

    def append(self, partition: Partition, data: bytes, room: Room, *, new_epochs: bool = False) -> Appended:
        """Append a producer's batch. A refused batch changes only the remaining limits of its request."""
        return self.write(partition, partition.append(data, self.now, room, new_epochs=new_epochs))

    def append_records(
        self, partition: Partition, records: Sequence[Record], producer: tuple[int, int] | None = None
    ) -> Appended:
        """Append records of the broker's own as one batch; with a `producer` (id and epoch), in its transaction."""
        return self.write(partition, partition.append_records(records, self.now, producer=producer))

    def append_marker(self, partition: Partition, marker: Marker, version: int = 0) -> Appended:
        """End a producer's transaction on a partition. `version` is the transaction version."""
        appended = self.write(partition, partition.append_marker(marker, self.now, version=version))
        if appended.operations:
            self._fetch_waits.wake((partition.log,))  # the records before it may be readable now
        return appended

    def write(self, partition: Partition, appended: Appended) -> Appended:
        if appended.operations:
            self.operations.extend(appended.operations)
            self._appended.append(partition)
            self._fetch_waits.appended(partition, appended.size)
            self.appended_bytes += appended.size
        return appended

    def trim(self, partition: Partition, offset: int) -> None:
        """Drop the records below `offset`."""
        operations = partition.trim(offset, self.now)
        if operations:
            self.operations.extend(operations)
            self._fetch_waits.wake((partition.log,))

    def complain(self, complaint: Complaint) -> None:
        """Report the complaint to the operator, at most once a turn."""
        self._complaints[complaint] = None

    def tell(self, what: str, **values: str | int) -> None:
        """Add a line to the server's log, at info, when the turn is durable. Empty values are left out."""
        self._notices.append(Notice(what, tuple((name, value) for name, value in values.items() if value != "")))

    def tell_of_decision(self, level: Literal["debug", "info"], what: str, **values: str | int) -> None:
        """As `tell`, for the audit, which limits its lines itself."""
        self._notices.append(Notice(what, tuple(values.items()), level, is_limited=False))

    def take(self, releases: tuple[Release, ...]) -> Turn:
        told = self._complaints or self._notices or self.log_level or self.late
        if not (self.tasks or self.reads or self.mutes or told):
            turn = Turn(tuple(self.operations), releases)
            self.operations.clear()
            return turn
        turn = Turn(
            tuple(self.operations),
            releases,
            tuple(self._complaints),
            tuple(self.tasks),
            tuple(self._notices),
            self.log_level,
            tuple(self.mutes),
            tuple(self.late),
            self.reads,
        )
        self.reads = ()
        self.late.clear()
        self.log_level = None
        self.mutes.clear()
        self.operations.clear()
        self.tasks.clear()
        self._complaints.clear()
        self._notices.clear()
        return turn
