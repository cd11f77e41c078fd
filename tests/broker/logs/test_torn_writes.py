"""Crash at the n-th write, torn and damaged files: a broker's groups and offsets afterwards.

A broker works on the SQLite engine, and after each commit is noted where it ends in the write-ahead log and what the
hard state is then. Each write of SQLite appends to that log (a frame's header, then its page), so a crash at the n-th
write leaves a prefix of it, and a torn write a prefix that ends within a frame. A broker that starts on it must know
exactly what the last whole commit left: nothing that was acknowledged is lost, and no part of a commit is there.

A checkpoint writes page by page into the database. A crash during a checkpoint leaves some pages old, some new, and
maybe one torn; the log is whole then, and recovery must restore them from it.

Damage, unlike a torn write, hits what was synced. The start is refused or a batch is, or the damage does no harm; a
state that never was is never served. A damaged last commit is the exception, since it looks like a torn one (see
storage/directory.py): then the state is the one before.
"""

from __future__ import annotations

import random
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from group_driver import commit, join, leave, sync_request
from transaction_driver import Transactional
from wire_driver import Connection, Wire

from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.storage import sqlite
from kohort.storage.directory import checksum
from kohort.storage.protocol import StorageError
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.sqlite_file import FILE_NAME
from kohort.storage.sqlite_format import PAGE_SIZE
from kohort.wire.schemas.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

WAL_NAME = f"{FILE_NAME}-wal"
WAL_HEADER = 32
FRAME_HEADER = 24
FRAME = FRAME_HEADER + PAGE_SIZE
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
    "transaction_state_log_num_partitions": 2,
}

World = tuple[Any, ...]


def world_of(wire: Wire) -> World:
    """The hard state, and what the partitions of topics know of transactions: all that a crash must not touch."""
    state = wire.broker.state
    partitions = [
        (topic.name, partition.log.partition, partition.stable_end, partition.first_open())
        + (tuple(partition.aborted_in(0, 1 << 40)), tuple(partition.producer_states(wire.now)))
        for topic in state.catalog.topics.values()
        if topic.name != JOURNAL_TOPIC  # a start writes to it
        for partition in state.topics.partitions[topic.topic_id]
    ]
    shards = [(s.hard.groups, s.hard.offsets, s.hard.generations) for s in state.shards]
    # Values are frozen; the dictionaries are not. An empty file counts as absent.
    return (
        [
            (dict(groups), {group: dict(offsets) for group, offsets in committed.items() if offsets}, dict(generations))
            for groups, committed, generations in shards
        ],
        sorted((topic.name, topic.topic_id) for topic in state.catalog.topics.values()),
        sorted(partitions, key=lambda each: each[:2]),
    )


class Recorded(SqliteStorage):
    """Notes after each commit how long the write-ahead log is, and what `world` says."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.ends: list[int] = []
        self.worlds: list[World] = []
        self.world: Callable[[], World] = tuple

    def commit(self, operations: Any, lease: Any) -> None:
        super().commit(operations, lease)
        self.ends.append(self.path.with_name(WAL_NAME).stat().st_size)
        self.worlds.append(self.world())


class Story:
    """Some of a broker's working life, kept as files: the database, its log, and the state after each commit."""

    def __init__(self, directory: Path, work: Callable[[Wire], None], database: bytes = b"") -> None:
        if database:
            laid_out(directory, database, b"")
        storage = Recorded(directory)
        wire = Wire(storage, **SETTINGS)
        self.base = world_of(wire)
        """The world before the first commit or, for a database of its own, after it."""
        storage.worlds = [self.base for _ in storage.ends]
        storage.world = lambda: world_of(wire)
        work(wire)
        self.ends = storage.ends
        self.worlds = storage.worlds
        self.database = (directory / FILE_NAME).read_bytes()
        self.wal = (directory / WAL_NAME).read_bytes()
        storage.close()
        self.checkpointed = (directory / FILE_NAME).read_bytes()

    def world_at(self, length: int) -> World | None:
        """The world after the last whole commit in this much of the log; None before the first."""
        whole = sum(end <= length for end in self.ends)
        return self.worlds[whole - 1] if whole else None

    @property
    def last_commit(self) -> int:
        """Where it begins."""
        return self.ends[-2]


def groups_at_work(wire: Wire) -> None:
    """Members of two groups come, commit and go. A producer's transactions end one way and the other; records of an
    open one are deleted."""
    client = wire.connect()
    client.create_topic("t", 2)
    producer = Transactional(wire.connect())
    assert producer.init() == 0
    for turn in range(4):
        assert producer.produce("a", "b") == producer.produce("c", partition=1) == producer.commit_offsets(turn) == 0
        if turn == 2:
            deleted = DeleteRecordsPartition(partition_index=0, offset=-1)
            topics = (DeleteRecordsTopic(name="t", partitions=(deleted,)),)
            client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1), 2)
        assert producer.end(committed=turn % 2 == 0) == 0
        member, generation = join_and_sync(client, "static", "instance")
        for number in range(3):
            offset = 10 * turn + number
            assert commit(client, offset, group="simple", partition=number % 2) == 0
            fields = {"generation_id_or_member_epoch": generation, "member_id": member}
            assert commit(client, offset, group="static", group_instance_id="instance", **fields) == 0
        member, generation = join_and_sync(client, "dynamic", None)
        fields = {"generation_id_or_member_epoch": generation, "member_id": member}
        assert commit(client, turn, group="dynamic", **fields) == 0
        leave(client, member, "dynamic")


def two_commits(wire: Wire) -> None:
    client = wire.connect()
    for offset in (4711, 4712):
        assert commit(client, offset, group="simple") == 0


def join_and_sync(client: Connection, group: str, instance: str | None) -> tuple[str, int]:
    joined = join(client, group, 5 if instance else 3, group_instance_id=instance)
    sync = sync_request(joined.member_id, joined.generation_id, b"all", group, group_instance_id=instance)
    assert client.ask(sync, 3).error_code == 0
    return joined.member_id, joined.generation_id


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Gathered batches move into the logs from time to time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "GATHERED_BYTES", 1500)
        yield Story(tmp_path_factory.mktemp("story"), groups_at_work)


@pytest.fixture(scope="module")
def sequel(tmp_path_factory: pytest.TempPathFactory, story: Story) -> Story:
    """Two commits more, in a log of their own."""
    return Story(tmp_path_factory.mktemp("sequel"), two_commits, story.checkpointed)


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory where the system has such a place: hundreds of data directories are opened and closed here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def laid_out(place: Path, database: bytes, wal: bytes) -> Path:
    (place / FILE_NAME).write_bytes(database)
    (place / WAL_NAME).write_bytes(wal)
    (place / f"{FILE_NAME}-shm").unlink(missing_ok=True)
    return place


def started_on(place: Path) -> World:
    """The state of a broker that starts in this directory. Raises StorageError where it refuses to."""
    storage = SqliteStorage(place)
    try:
        return world_of(Wire(storage, seed=7, **SETTINGS))
    finally:
        storage.close()


def is_fresh(world: World) -> bool:
    shards, topics, _ = world
    return len(topics) <= 2 and not any(part for shard in shards for part in shard)


# -- crashes


@pytest.mark.conformance("R4")
def test_a_crash_at_any_write_leaves_the_last_whole_commit(story: Story, place: Path) -> None:
    """SQLite writes a frame's header, then its page: between all of them, and in their midst."""
    assert len(story.ends) > 20
    checked = 0
    for frame in range(WAL_HEADER, len(story.wal), FRAME):
        for length in (frame, frame + FRAME_HEADER, frame + FRAME_HEADER + PAGE_SIZE // 2):
            world = started_on(laid_out(place, story.database, story.wal[:length]))
            expected = story.world_at(length)
            assert is_fresh(world) if expected is None else world == expected, f"{length} bytes of the log"
            checked += 1
    assert checked > 200


@pytest.mark.conformance("R4")
def test_a_commit_torn_at_any_byte_of_its_last_frame_has_no_effect(sequel: Story, place: Path) -> None:
    """SQLite alone, which is quick, replays every cut; a broker replays some of them."""
    last_frame = len(sequel.wal) - FRAME
    laid_out(place, sequel.database, sequel.wal[: sequel.last_commit])
    before = rows_of(place)
    for length in range(last_frame, len(sequel.wal)):
        laid_out(place, sequel.database, sequel.wal[:length])
        assert rows_of(place) == before, f"{length} bytes of the log"
    for length in (*range(last_frame, last_frame + FRAME_HEADER + 3), *range(last_frame, len(sequel.wal), 487)):
        assert started_on(laid_out(place, sequel.database, sequel.wal[:length])) == sequel.worlds[-2]
    assert started_on(laid_out(place, sequel.database, sequel.wal)) == sequel.worlds[-1] != sequel.worlds[-2]


def rows_of(place: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(place / FILE_NAME)) as db:
        db.execute("PRAGMA synchronous = OFF")
        return db.execute("SELECT * FROM logs").fetchall()


@pytest.mark.conformance("R4")
@pytest.mark.parametrize("seed", range(40))
def test_pages_of_an_unsynced_commit_reach_the_disk_in_any_order(story: Story, place: Path, seed: int) -> None:
    """Until the sync, the system writes them at any time, in sectors; sectors that are not written are zeros."""
    chance = random.Random(seed)
    wal = bytearray(story.wal)
    lost = 0
    for sector in range(story.last_commit, len(wal), 512):
        if any(wal[sector : sector + 512]) and chance.random() < 0.4:
            wal[sector : sector + 512] = bytes(len(wal[sector : sector + 512]))
            lost += 1
    if not lost:  # the commit is a page or two, most of which are zeros anyway
        del wal[chance.randrange(story.last_commit, len(wal)) :]
    assert started_on(laid_out(place, story.database, bytes(wal))) == story.worlds[-2]


def test_a_crash_in_a_checkpoint_at_any_page(story: Story, place: Path) -> None:
    """The database is part old, part new, and one of its pages half of each; the log holds everything."""
    old, new = story.database, story.checkpointed
    old = old + bytes(max(0, len(new) - len(old)))
    for page in range(0, len(new), PAGE_SIZE):
        for cut in (page, page + PAGE_SIZE // 2):
            for database in (new[:cut] + old[cut:], old[:cut] + new[cut:], new[:cut]):
                whole = database if len(database) >= len(story.database) else story.database
                assert started_on(laid_out(place, whole, story.wal)) == story.worlds[-1], f"{cut} bytes copied"


def test_a_crash_while_the_log_restarts(story: Story, sequel: Story, place: Path) -> None:
    """After a checkpoint SQLite overwrites old frames with new ones; later frames are from the previous round."""
    assert sequel.database == story.checkpointed
    assert len(sequel.wal) < len(story.wal)
    for frame in range(WAL_HEADER, len(sequel.wal) + 1, FRAME):
        for length in (frame, min(frame + FRAME_HEADER, len(sequel.wal)), min(frame + 1000, len(sequel.wal))):
            mixed = sequel.wal[:length] + story.wal[length:]
            expected = sequel.world_at(length) or story.worlds[-1]
            assert started_on(laid_out(place, sequel.database, mixed)) == expected, f"{length} bytes"


# -- damage


def without_producers(world: World) -> World:
    """The index by producer is not covered by a checksum: a lost entry may hide a producer, and nothing else."""
    *others, partitions = world
    return (*others, [partition[:-1] for partition in partitions])


def right_or_refused(
    place: Path, allowed: list[World], how: str, part: Callable[[World], World] = lambda world: world
) -> None:
    try:
        world = started_on(place)
    except StorageError:
        return
    assert part(world) in [part(each) for each in allowed], f"{how}: served a state that never was"


def test_a_bit_flipped_in_any_header_of_the_log_is_noticed(story: Story, place: Path) -> None:
    """Frames before the last commit: their content was synced, so it must not be dropped as if it were torn."""
    chance = random.Random(8)
    frames = range(WAL_HEADER, story.last_commit, FRAME)
    places = [*range(WAL_HEADER), *(header + chance.randrange(FRAME_HEADER) for header in frames)]
    places += [header + byte for header in frames[-4:] for byte in range(FRAME_HEADER)]
    for position in places:
        wal = bytearray(story.wal)
        wal[position] ^= 1 << chance.randrange(8)
        right_or_refused(laid_out(place, story.database, bytes(wal)), [story.worlds[-1]], f"byte {position}")


def test_a_mark_of_a_commit_that_became_0_is_noticed(story: Story, place: Path) -> None:
    """The last but one commit would look like the beginning of the last one."""
    header = story.last_commit - FRAME
    [mark] = struct.unpack_from(">I", story.wal, header + 4)
    one_bit = 1 << mark.bit_length() - 1
    wal = remarked(story.wal, header, one_bit)
    assert started_on(laid_out(place, story.database, wal)) == story.worlds[-1], "the log with another mark is right"
    spoiled = wal[: header + 4] + bytes(4) + wal[header + 8 :]
    with pytest.raises(StorageError, match="synced commits after it"):
        started_on(laid_out(place, story.database, spoiled))


def remarked(wal: bytes, header: int, mark: int) -> bytes:
    """The log with another mark in a frame, and with matching checksums in this and the following frames."""
    data = bytearray(wal)
    order = ">" if data[3] & 1 else "<"
    sums = struct.unpack_from(">II", data, header - FRAME + 16)
    struct.pack_into(">I", data, header + 4, mark)
    for frame in range(header, len(data), FRAME):
        sums = checksum(data[frame : frame + 8], order, sums)
        sums = checksum(data[frame + FRAME_HEADER : frame + FRAME], order, sums)
        struct.pack_into(">II", data, frame + 16, *sums)
    return bytes(data)


@pytest.mark.parametrize("seed", range(100))
def test_a_bit_flipped_anywhere_in_the_log_is_noticed(story: Story, place: Path, seed: int) -> None:
    position = random.Random(seed).randrange(len(story.wal))
    wal = bytearray(story.wal)
    wal[position] ^= 1 << seed % 8
    torn = [story.worlds[-2]] if position >= story.last_commit else []
    right_or_refused(laid_out(place, story.database, bytes(wal)), [story.worlds[-1], *torn], f"byte {position}")


@pytest.mark.parametrize("seed", range(200))
def test_a_bit_flipped_anywhere_in_the_database_is_noticed(story: Story, place: Path, seed: int) -> None:
    chance = random.Random(seed)
    position = chance.randrange(len(story.checkpointed))
    if seed % 2:  # what structures a page
        position = position // PAGE_SIZE * PAGE_SIZE + chance.randrange(64)
    database = bytearray(story.checkpointed)
    database[position] ^= 1 << chance.randrange(8)
    damaged = laid_out(place, bytes(database), b"")
    right_or_refused(damaged, [story.worlds[-1]], f"byte {position}", without_producers)
