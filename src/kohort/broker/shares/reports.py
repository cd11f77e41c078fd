"""What is in flight in a share-partition, by whom, how often it was delivered, and what was archived, as JSON.

It is the tagged field `records` of DescribeShareGroupOffsets (docs/wire-extensions.md).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import msgspec

from kohort.broker.logs.partition import Partition
from kohort.broker.request import ROW_BYTES
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.shares.cells import AVAILABLE, archiving
from kohort.coordinator.shares.events import RESET, ShareKey
from kohort.coordinator.shares.share_partition import Run, SharePartition
from kohort.coordinator.shares.state import ShareState

STEP = 2_000
"""Ranges that are read in one step."""
MOST = 1_000
"""Ranges of a partition in an answer."""


MOST_HOLDERS = 200
"""Members that are named; the number of records counts all."""


class InFlight(msgspec.Struct, array_like=True):
    """A range of locked records."""

    first: int
    last: int
    member: str
    deliveries: int
    """Including the present one."""
    left_ms: Millis
    """Until the lock ends."""


class GivenBack(msgspec.Struct, array_like=True):
    """A range of records that were delivered, and wait for their next delivery."""

    first: int
    last: int
    deliveries: int


class ArchivedRange(msgspec.Struct, array_like=True):
    first: int
    last: int
    deliveries: int
    why: str
    member: str
    at_ms: Millis
    dead_letter: str = ""
    """The topic that has its dead letters, or what became of them; empty if the group has no dead-letter topic."""


class Holding(msgspec.Struct):
    """What a member holds of the partition."""

    records: int = 0
    deliveries: dict[int, int] = {}
    """How many records by how often they were delivered."""
    next_end_ms: Millis = 0
    """Until the first of its locks ends."""


class ShareReport(msgspec.Struct, omit_defaults=True):
    log_start: int
    log_end: int
    """The high watermark."""
    next_offset: int
    """Behind the last record that was ever delivered: what follows is new."""
    window: int
    """How many offsets may be open from the start offset on."""
    delivery_limit: int
    lock_ms: Millis
    now_ms: Millis
    is_loaded: bool = False
    """True if a member has fetched from the share-partition since the server started. Else nothing is in flight or
    counted."""
    stands_ms: Millis = 0
    """For how long the start offset has not moved; at most the time since the share-partition was loaded."""
    first_deliveries: int = 0
    """How often the record at the start offset was delivered."""
    first_member: str = ""
    """The member that holds the record at the start offset; empty if no member does."""
    in_flight_records: int = 0
    holders: dict[str, Holding] = {}
    """At most MOST_HOLDERS."""
    given_back_records: int = 0
    awaiting_dead_letters: int = 0
    """Records whose dead letters are not written yet."""
    most_deliveries: int = 0
    """Of the records that are in flight or given back."""
    counts: dict[str, int] = {}
    """Since it was loaded, by outcome (coordinator/shares/tally.py)."""
    in_flight: list[InFlight] = []
    """In order; cut to what the request asks for."""
    given_back: list[GivenBack] = []
    archived: list[ArchivedRange] = []
    """The newest last."""


def report(
    state: BrokerState, key: ShareKey, stored: ShareState, partition: Partition, last: int
) -> Generator[int, None, bytes]:
    """`last`: the largest number of ranges of each kind."""
    shard = state.shares.find(key)
    assert shard is not None
    settings = state.shares.settings_of(key.group)
    served = shard.served.get(key)
    most = min(max(last, 0), MOST)
    end = served.end if served is not None else stored.end
    found = ShareReport(
        log_start=partition.start_offset,
        log_end=partition.high_watermark,
        next_offset=end if stored.start != RESET else RESET,
        window=settings.max_locks,
        delivery_limit=settings.delivery_limit,
        lock_ms=settings.lock_ms,
        now_ms=state.now,
        is_loaded=served is not None,
    )
    free: Iterable[Run]
    if served is not None:
        free = list(served.free_runs(stored.start, end - 1))
    else:
        free = [(first, final, count) for first, final, kind, count in stored.cells if kind == AVAILABLE]
    for at, (first, final, count) in enumerate(free, 1):
        if first == stored.start:
            found.first_deliveries = count
        if count:
            found.given_back_records += final - first + 1
            found.most_deliveries = max(found.most_deliveries, count)
            if len(found.given_back) < most:
                found.given_back.append(GivenBack(first, final, count))
        if at % STEP == 0:
            yield STEP * ROW_BYTES
    found.awaiting_dead_letters = sum(last - first + 1 for first, last, *_ in archiving(stored.cells))
    if served is not None:
        yield from _locks(found, served, stored, state.now, most)
        tally = shard.tallies.get(key)
        if tally is not None:
            found.stands_ms = max(state.now - tally.moved_ms, 0)
            found.counts = dict(tally.counts)
            archived = list(tally.archived or ())[-most:] if most else []
            found.archived = [
                ArchivedRange(one.first, one.last, one.deliveries, one.why, one.member, one.at_ms, one.dead_letter)
                for one in archived
            ]
    return msgspec.json.encode(found)


def _locks(
    found: ShareReport, served: SharePartition, stored: ShareState, now: Millis, most: int
) -> Generator[int, None, None]:
    for at, (first, final, member, count, until) in enumerate(list(served.locks), 1):
        records, left = final - first + 1, max(until - now, 0)
        found.in_flight_records += records
        found.most_deliveries = max(found.most_deliveries, count)
        holding = found.holders.get(member)
        if holding is None and len(found.holders) < MOST_HOLDERS:
            holding = found.holders[member] = Holding(next_end_ms=left)
        if holding is not None:
            holding.records += records
            holding.deliveries[count] = holding.deliveries.get(count, 0) + records
            holding.next_end_ms = min(holding.next_end_ms, left)
        if len(found.in_flight) < most:
            found.in_flight.append(InFlight(first, final, member, count, left))
        if first <= stored.start <= final:
            found.first_deliveries, found.first_member = count, member
        if at % STEP == 0:
            yield STEP * ROW_BYTES
