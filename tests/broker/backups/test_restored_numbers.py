"""Across a restore no number comes again: fencing tokens, epochs of groups and leaders, producer ids. Each test takes a
backup, lets the cluster go on, kills it, restores the backup, and goes on with the restored directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from group_driver import commit, committed, consumer_beat, consumer_join, heartbeat, leave, stable
from stored_world import World, backup_of, producer_id, server_on
from transaction_driver import Transactional, described, fetched, log_of, state_of
from wire_driver import Wire

from kohort.broker.backups.contents import BeyondEnd
from kohort.broker.backups.raising import PRODUCER_IDS
from kohort.coordinator.restored import FAR, STEP
from kohort.server.backups.restore import Restored, restore
from kohort.server.backups.verify import verify
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

IN_2027 = 1_800_000_000_000
Life = Callable[[World], None]


class Story:
    """`later` happens between the backup and the crash."""

    def __init__(self, tmp_path: Path, later: Life = lambda world: None) -> None:
        self.world = World(tmp_path / "data")
        self.backup = tmp_path / "backup.db"
        backup_of(self.world.directory, self.backup)
        later(self.world)
        self.world.wire.storage.close()
        self.directory = tmp_path / "restored"
        self.done: Restored = restore(self.backup, self.directory, lambda: False)
        assert verify(self.directory).faults == ()
        self.wire: Wire = server_on(self.directory, now=self.world.wire.now)
        self.wire.broker.validate()


def generation_of_next(wire: Wire, group: str) -> int:
    """A member joins a group without members, and leaves."""
    client = wire.connect()
    joined = stable(client, group)
    leave(client, joined.member_id, group)
    return joined.generation_id


def test_fencing_tokens(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def later(world: World) -> None:
        """The group of the backup goes on, one is new, and one is deleted."""
        leave(world.wire.connect(), world.member.member_id)
        for group in ("g", "new", "deleted"):
            seen[group] = max(generation_of_next(world.wire, group) for _ in range(3))
        answer = world.wire.connect().ask(DeleteGroupsRequest(groups_names=("deleted",)), 2)
        assert answer.results[0].error_code == 0

    story = Story(tmp_path, later)
    assert seen["g"] > story.world.member.generation_id
    for group, last in seen.items():
        assert generation_of_next(story.wire, group) > last


def test_a_member_of_the_backup_is_unknown(tmp_path: Path) -> None:
    """After the backup it may have been fenced."""
    story = Story(tmp_path)
    client, member = story.wire.connect(), story.world.member
    generation = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
    assert heartbeat(client, member) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(client, 6, **generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(client) == 5
    assert committed(client, "simple") == 3


def test_epochs_of_consumer_groups(tmp_path: Path) -> None:
    seen: list[int] = []

    def later(world: World) -> None:
        for n in range(3):
            joined = world.wire.connect().ask(consumer_join(f"m{n}", group="c"), 1)
            seen.append(joined.member_epoch)
        seen.append(world.wire.connect().ask(consumer_join("m", group="new"), 1).member_epoch)

    story = Story(tmp_path, later)
    client = story.wire.connect()
    known = client.ask(consumer_beat("m", story.world.consumer_epoch, (), group="c"), 1)
    assert known.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joined = client.ask(consumer_join("m", group="c"), 1)
    assert (joined.error_code, joined.member_epoch > max(seen)) == (0, True)
    assert client.ask(consumer_join("m", group="new"), 1).member_epoch > max(seen)


def test_producer_ids(tmp_path: Path) -> None:
    seen: list[int] = []
    story = Story(tmp_path, lambda world: seen.extend(producer_id(world.wire.connect()) for _ in range(20)))
    assert producer_id(story.wire.connect()) > max(seen)


def test_transactional_ids_get_new_producer_ids(tmp_path: Path) -> None:
    """Epochs are small numbers, and a producer of later than the backup has the one that would be next."""
    zombies: list[Transactional] = []

    def later(world: World) -> None:
        for _ in range(3):
            world.done.init()
            zombies.append(world.done.copy())

    story = Story(tmp_path, later)
    present = Transactional(story.wire.connect(), "done")
    assert present.init() == 0
    assert present.producer_id > max(zombie.producer_id for zombie in zombies)
    for zombie in zombies:
        zombie.client = story.wire.connect()
        for version in (11, 12):
            assert zombie.produce("late", version=version) != 0
        assert zombie.commit() != 0
    assert present.produce("new") == 0
    assert present.commit() == 0
    assert "late" not in log_of(story.wire)


def test_open_transactions_are_aborted(tmp_path: Path) -> None:
    story = Story(tmp_path)
    assert story.done.raised.aborted_transactions == 1
    assert described(story.wire.connect(), "open").transaction_state == "CompleteAbort"
    producer = story.world.open
    assert log_of(story.wire)[-1] == f"ABORT {producer.producer_id}/{producer.epoch + 1}"
    partition = story.wire.partitions("t")[0]
    assert partition.last_stable_offset == partition.end_offset
    assert fetched(story.wire.connect(), "group-of-open") == (-1, 0)
    assert fetched(story.wire.connect(), "group-of-done") == (7, 0)
    assert state_of(story.wire, "open").producer_id > producer.producer_id
    producer.client = story.wire.connect()
    assert producer.commit() != 0, "it has sent more than the backup has"


def test_leader_epochs(tmp_path: Path) -> None:
    """A client that knows more records than the backup has learns where its log ends."""
    story = Story(tmp_path, lambda world: world.wire.connect().produce("t", *["later"] * 5))
    assert {each.leader_epoch for each in story.wire.partitions("t")} == {story.done.raised.epochs}
    client = story.wire.connect()
    end = story.wire.partitions("t")[0].end_offset
    assert client.produce("t", "of the new epoch") == end
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=(OffsetForLeaderTopic(topic="t", partitions=(asked,)),))
    found = client.ask(request, 4).topics[0].partitions[0]
    assert (found.leader_epoch, found.end_offset) == (0, end - 1), "the marker at the start is of the new epoch"


def test_what_stays(tmp_path: Path) -> None:
    story = Story(tmp_path)
    before, after = story.world.wire.broker, story.wire.broker
    assert after.state.catalog.cluster_id == before.state.catalog.cluster_id
    assert after.state.catalog.topics["t"].topic_id == story.world.topic_id
    assert story.wire.connect().values("t")[0] == b"value-0 value-0 "
    assert story.done.beyond_ends == ()


def test_the_journal_has_a_note(tmp_path: Path) -> None:
    story = Story(tmp_path)
    for group in ("g", "c"):
        last = json.loads(story.wire.broker.state.journal.stories(group, 1)[0])
        assert last["cause"]["what"] == "group restored"
        assert "must join again" in last["cause"]["cause"]
    [only] = story.wire.broker.state.journal.stories("simple", 9)
    assert json.loads(only)["cause"]["what"] == "offsets changed", "it has no members that must join again"


def test_offsets_beyond_the_end_of_their_log(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    end = world.wire.partitions("t")[1].end_offset
    assert commit(world.wire.connect(), end + 1, group="ahead", partition=1) == 0
    assert commit(world.wire.connect(), end, group="at-the-end", partition=1) == 0
    backup_of(world.directory, tmp_path / "backup.db")
    world.wire.storage.close()
    done = restore(tmp_path / "backup.db", tmp_path / "restored", lambda: False)
    assert done.beyond_ends == (BeyondEnd("ahead", "t", 1, end + 1, end),)


def restored_at(backup: Path, directory: Path, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> Wire:
    monkeypatch.setattr("kohort.server.stopped.time.time_ns", lambda: now_ms * 1_000_000)
    restore(backup, directory, lambda: False)
    return server_on(directory, now=now_ms)


def test_a_backup_is_restored_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second cluster does not repeat the numbers of the first one."""
    backup = tmp_path / "backup.db"
    World(tmp_path / "data")
    backup_of(tmp_path / "data", backup)
    first = restored_at(backup, tmp_path / "first", IN_2027, monkeypatch)
    tokens = [generation_of_next(first, group) for group in ["g", "new"] * 3]
    ids = [producer_id(first.connect()) for _ in range(5)]
    epochs = [part.leader_epoch for part in first.partitions("t")]
    first.storage.close()
    second = restored_at(backup, tmp_path / "second", IN_2027 + 60_000, monkeypatch)
    assert min(generation_of_next(second, group) for group in ("g", "new")) > max(tokens)
    assert producer_id(second.connect()) > max(ids)
    assert min(part.leader_epoch for part in second.partitions("t")) > max(epochs)
    second.storage.close()


@pytest.mark.parametrize("now_ms", [1_000, 2**53], ids=["1970", "too late"])
def test_a_clock_that_is_wrong(tmp_path: Path, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "data")
    backup_of(tmp_path / "data", tmp_path / "backup.db")
    wire = restored_at(tmp_path / "backup.db", tmp_path / "restored", now_ms, monkeypatch)
    assert generation_of_next(wire, "g") == world.member.generation_id + FAR + 1
    assert {part.leader_epoch for part in wire.partitions("t")} == {FAR}
    assert 0 < producer_id(wire.connect()) - producer_id(world.wire.connect()) - PRODUCER_IDS < 10_000
    wire.storage.close()


@pytest.mark.parametrize(
    ("later_ms", "more"), [(-3_600_000, FAR), (10_000, STEP), (3_600_000, 7_198)], ids=["back", "soon", "later"]
)
def test_a_backup_of_a_restored_cluster(
    tmp_path: Path, later_ms: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a clock that was set back."""
    World(tmp_path / "data")
    backup_of(tmp_path / "data", tmp_path / "backup.db")
    wire = restored_at(tmp_path / "backup.db", tmp_path / "restored", IN_2027, monkeypatch)
    last = generation_of_next(wire, "g") + 1  # with the member's departure
    backup_of(tmp_path / "restored", tmp_path / "second.db")
    wire.storage.close()
    again = restored_at(tmp_path / "second.db", tmp_path / "again", IN_2027 + later_ms, monkeypatch)
    assert generation_of_next(again, "g") == last + more + 1
    again.storage.close()
