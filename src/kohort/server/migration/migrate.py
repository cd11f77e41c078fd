"""Migrates all data: counts it, copies it, compares the copy, and says which one is served from then on.

The order at the end matters. First the source says that its data has gone; then the target may be served. So servers
never start on both. A process that is killed in between leaves neither, and the migration is repeated.

Nothing is raised as by a restore: the source has stopped, and everything that it has acknowledged is in its logs, so
the target goes on where a restart would (docs/decisions/0024).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import msgspec

from kohort.broker.backups.contents import Contents, Details, contents_of, details_of
from kohort.broker.backups.numbers import numbers_of, write_numbers
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import METADATA_LOG
from kohort.config import Config
from kohort.server.migration.places import Source, Target, source_of, target_of
from kohort.server.stopped import broker_without_server
from kohort.storage.backup import Stopped
from kohort.storage.copying import LogSum, copy_logs, differences, sum_of, sums_of
from kohort.storage.protocol import LogKey, Storage, StorageError, Unavailable
from kohort.storage.slots import Numbers

__all__ = ["Counted", "Log", "Migrated", "Progress", "Stopped", "StorageError", "Unavailable", "count", "migrate"]

METADATA = "metadata"
UNSETTLED = ". Perhaps the nodes were stopped while topics were created or deleted: start and stop them once more"
NAMED = 3
"""Differing logs that an error names."""


class Counted(msgspec.Struct, frozen=True):
    """What data consists of."""

    source: str
    target: str
    logs: int
    size: int
    """Bytes of the record batches."""
    contents: Contents
    details: Details
    notes: tuple[str, ...]
    """What is different after the migration, or cannot be taken along."""


class Log(msgspec.Struct, frozen=True):
    """A partition of the copy. The sums of source and copy were equal."""

    topic: str
    partition: int
    sum: LogSum


class Migrated(msgspec.Struct, frozen=True):
    counted: Counted
    logs: tuple[Log, ...]
    took_ms: int


class Progress(msgspec.Struct, frozen=True):
    doing: str
    done: int
    """Bytes."""
    size: int
    """Bytes of the whole."""


def count(from_: str, to: str, *, serves_all: bool = False) -> Counted:
    """What a migration would do. Changes nothing. Raises StorageError. `serves_all`: nodes of the target, a database,
    are to serve at once."""
    with closing(source_of(from_, fences=False)) as source:
        target = target_of(to, serves_all=serves_all)
        _check(source, target)
        return _counted(source, target)


def migrate(
    from_: str,
    to: str,
    stopped: Callable[[], bool],
    told: Callable[[Progress], None],
    *,
    serves_all: bool = False,
) -> Migrated:
    """Raises StorageError, and Stopped soon after `stopped` returns True; then the source is as it was, and the target
    is empty or says that it is unfinished."""
    began = time.monotonic()
    with closing(source_of(from_, fences=True)) as source:
        target = target_of(to, serves_all=serves_all)
        _check(source, target)
        counted, work = _counted(source, target), _Work(source, stopped, told)
        try:
            with closing(target.fill()) as storage:
                sums = copy_logs(source.storage, storage, work.of("copying"))
                if source.numbers is not None and not target.serves_all:
                    _write_numbers(storage, source.numbers, sums, target)
            copy = target.read()
        except BaseException:
            target.discard()
            raise
        with closing(copy):
            state = _compared(copy, sums, counted, target, work)
            _finish(source, target, copy, source.numbers or numbers_of(state))
    logs = [Log(*_name(key, state), each) for key, each in sums.items()]
    logs.sort(key=lambda log: (log.topic, log.partition))
    return Migrated(counted, tuple(logs), round((time.monotonic() - began) * 1000))


class _Work:
    def __init__(self, source: Source, stopped: Callable[[], bool], told: Callable[[Progress], None]) -> None:
        self._size = _size(source)
        self._stopped = stopped
        self._told = told

    def of(self, doing: str) -> Callable[[int], None]:
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if self._stopped():
                raise Stopped
            self._told(Progress(doing, done, self._size))

        count(0)
        return count


def _size(source: Source) -> int:
    return sum(info.size for info in source.storage.logs())


def _check(source: Source, target: Target) -> None:
    """A target with data is refused, and a source whose data has gone, unless that migration was interrupted."""
    is_unfinished = target.check(_size(source))
    if source.migrated_to is not None and not (is_unfinished and source.migrated_to == target.shown):
        raise StorageError(
            f"the data of {source.shown} was migrated to {source.migrated_to} already: migrate that, because clients "
            "may have gone on there"
        )
    open_ones = sum(info.open_transactions for info in source.storage.logs())
    if target.serves_all and open_ones:
        raise StorageError(
            f"transactions are open in {open_ones} partitions, and nodes that serve at once (--serving all) cannot end "
            "them: start the server and end them (kohort transactions list, kohort transactions abort)"
        )


def _check_equal(sums: dict[LogKey, LogSum], found: dict[LogKey, LogSum], target: Target) -> None:
    wrong = [f"{key.topic_id.hex()}-{key.partition}: {what}" for key, what in differences(sums, found)]
    if wrong:
        more = f", and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        raise StorageError(f"the copy in {target.shown} differs from the source: {'; '.join(wrong[:NAMED])}{more}")


def _compared(copy: Storage, sums: dict[LogKey, LogSum], counted: Counted, target: Target, work: _Work) -> BrokerState:
    """The state of a server that starts from the copy. Raises StorageError if the copy is not the source."""
    try:
        _check_equal(sums, sums_of(copy, work.of("comparing")), target)
        state = _state_of(copy, target)
        if contents_of(state) != counted.contents:
            raise StorageError(f"a server would start from {target.shown} with other contents than from the source")
    except BaseException:
        copy.close()
        target.discard()
        raise
    return state


def _write_numbers(storage: Storage, numbers: Numbers, sums: dict[LogKey, LogSum], target: Target) -> None:
    """The copy's metadata log gets the numbers that were in tables. What that changes is compared before, and `sums`
    are those afterwards."""
    state = _state_of(storage, target)
    turn = write_numbers(state, numbers, state.now)
    keys = {operation.log for operation in turn.operations}
    before = {key: sum_of(storage, info, _untold) for key in keys if (info := storage.log_info(key)) is not None}
    _check_equal({key: sums[key] for key in before}, before, target)
    storage.commit(turn.operations, storage.acquire())
    sums |= {key: sum_of(storage, info, _untold) for key in keys if (info := storage.log_info(key)) is not None}


def _untold(size: int) -> None: ...


def _finish(source: Source, target: Target, copy: Storage, numbers: Numbers) -> None:
    try:
        source.mark(target.shown)
        target.finish(copy, numbers)
    except StorageError as error:
        target.release()
        raise StorageError(
            f"the copy is whole, but could not be finished: {error}. If servers start neither on {source.shown} nor on "
            f"{target.shown}, repeat the migration"
        ) from error


def _state_of(storage: Storage, place: Source | Target, hint: str = "") -> BrokerState:
    """As a server has it when it has started."""
    try:
        return broker_without_server(Config(), storage).load().state
    except Exception as error:  # code that reads damaged data may fail in any way
        why = " ".join(str(error).split()) or type(error).__name__
        raise StorageError(f"no server can start from the data of {place.shown}: {why}{hint}") from error


def _counted(source: Source, target: Target) -> Counted:
    found = _state_of(source.storage, source, UNSETTLED if source.numbers is not None else "")
    return Counted(
        source=source.shown,
        target=target.shown,
        logs=len(source.storage.logs()),
        size=_size(source),
        contents=contents_of(found),
        details=details_of(found),
        notes=tuple(_notes(found, source, target)),
    )


def _notes(state: BrokerState, source: Source, target: Target) -> list[str]:
    notes = []
    leaders = {one.leader for topic in state.catalog.topics.values() for one in topic.partitions if one.leader >= 0}
    if target.is_database and not target.serves_all and source.numbers is None and len(leaders) > 1:
        notes.append(
            f"brokers {', '.join(map(str, sorted(leaders)))} lead partitions; with PostgreSQL a process is one broker, "
            "which leads all of them"
        )
    if target.serves_all and contents_of(state).transactional_ids:
        notes.append("transactional ids are copied, and nodes that serve at once do not serve them yet")
    if target.serves_all and details_of(state).share_partitions:
        notes.append("share groups are copied, and nodes that serve at once do not serve them yet")
    return notes


def _name(key: LogKey, state: BrokerState) -> tuple[str, int]:
    if key == METADATA_LOG:
        return METADATA, 0
    topic = state.catalog.by_id.get(key.topic_id)
    return (topic.name if topic is not None else key.topic_id.hex()), key.partition
