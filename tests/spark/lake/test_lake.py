"""The lake's protocol without Spark: a crash before and after every change of the file system, then a restart; and the
settings that stay beside a checkpoint."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_directory import Crash, Fate, LocalDirectory

from kohort.spark.files.directory import FileSystemError
from kohort.spark.lake.ingest_settings import Kept, SettingsDiffer, load, save
from kohort.spark.lake.lake import HIDDEN, Lake, LakeError, data_files
from kohort.spark.lake.locks import Ownership
from kohort.spark.lake.row_shape import JsonSettings
from kohort.spark.lake.tables import refuse_nested

BATCHES = 3
ROWS, DEAD = 4, 2


def writers(fate: Fate, batch: int) -> tuple[Callable[[str], tuple[int, int]], Callable[[str], int]]:
    """Writes as Spark would: a file for each of two directories, one line for each row, and a marker without data."""

    def write(address: str, names: list[str]) -> None:
        for number, name in enumerate(names):
            (LocalDirectory(Path(address), fate) / f"topic=t/date={number % 2}" / f"part-{number}-u.c000.snappy.parquet"
             ).write_text(name)  # fmt: skip
        (LocalDirectory(Path(address), fate) / "_SUCCESS").write_text("")

    def rows(address: str) -> tuple[int, int]:
        write(address, [f"row {batch} {n}" for n in range(ROWS)])
        return ROWS, DEAD

    def dead(address: str) -> int:
        write(address, [f"dead {batch} {n}" for n in range(DEAD)])
        return DEAD

    return rows, dead


@contextmanager
def lake_at(where: Path, fate: Fate | None = None, scheme: str = "file", writer: str = "writer-1") -> Iterator[Lake]:
    """One run's lake. When a process dies, its locks are free."""
    output = LocalDirectory(where, fate or Fate(), scheme)
    lake = Lake(output, output / "_dead_letters", writer)
    try:
        yield lake
    finally:
        lake.close()


class Run:
    """Batches in order, each finished in a checkpoint of our own; a new run repeats the unfinished batch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.finished = 0

    def go(self, fate: Fate) -> None:
        with lake_at(self.root / "lake", fate) as lake:
            lake.recover()
            while self.finished < BATCHES:
                written = lake.write(self.finished, *writers(fate, self.finished))
                assert (written.rows, written.dead_letters, written.files) == (ROWS, DEAD, ROWS + DEAD)
                fate.change()  # Spark writes its commit log
                self.finished += 1

    def die(self, fate: Fate) -> None:
        with contextlib.suppress(Crash):
            self.go(fate)

    def seen(self, table: str) -> Counter[str]:
        return seen_in(self.root / table)


def seen_in(directory: Path) -> Counter[str]:
    """The rows that a reader counts."""
    found = data_files([f.path for f in LocalDirectory(directory).files()])
    return Counter((directory / name).read_text() for name in found)


def expected(kind: str, count: int, batches: int = BATCHES) -> Counter[str]:
    return Counter(f"{kind} {batch} {n}" for batch in range(batches) for n in range(count))


def changes(tmp_path: Path) -> int:
    fate = Fate()
    Run(tmp_path / "whole").go(fate)
    return fate.changes


@pytest.mark.parametrize("made", [False, True])
def test_each_batch_is_there_once_after_a_crash_at_any_change(tmp_path: Path, made: bool) -> None:
    total = changes(tmp_path)
    assert total > 50
    for n in range(total):
        run = Run(tmp_path / f"{n}")
        run.die(Fate(n, made))
        for kind in (run.seen("lake"), run.seen("lake/_dead_letters")):
            assert set(kind.values()) <= {1}, f"a crash at change {n} shows a row twice"
        run.go(Fate())
        assert run.seen("lake") == expected("row", ROWS), n
        assert run.seen("lake/_dead_letters") == expected("dead", DEAD), n


def test_two_crashes_one_in_the_recovery(tmp_path: Path) -> None:
    total = changes(tmp_path)
    for n in range(0, total, 11):
        for m in range(0, 12, 2):
            run = Run(tmp_path / f"{n}-{m}")
            for fate in (Fate(n), Fate(m, made=True)):
                run.die(fate)
            run.go(Fate())
            assert run.seen("lake") == expected("row", ROWS), (n, m)


def test_nothing_is_left_on_the_stage_and_two_writers_share_a_lake(tmp_path: Path) -> None:
    for writer in ("a" * 8, "b" * 8):
        dying = Fate(8)
        with contextlib.suppress(Crash), lake_at(tmp_path, dying, writer=writer) as lake:
            lake.write(0, *writers(dying, 0))
        assert any(name.startswith("stage-0-") for name in LocalDirectory(tmp_path / HIDDEN / writer).names())
        with lake_at(tmp_path, writer=writer) as lake:
            lake.write(0, *writers(Fate(), 0))
    assert sorted(LocalDirectory(tmp_path / HIDDEN).names()) == ["a" * 8, "b" * 8]
    assert LocalDirectory(tmp_path / HIDDEN / ("a" * 8)).names() == ["batches", "owner.json", "owner.lock"]
    assert len(list((tmp_path / "topic=t").rglob("*.snappy.parquet"))) == 2 * ROWS


def test_a_stage_that_does_not_agree_is_written_again_or_refused(tmp_path: Path) -> None:
    rows, dead = writers(Fate(), 0)
    counts = iter([1, DEAD])
    with lake_at(tmp_path) as lake:
        for missing in ((lambda _: (ROWS, DEAD), dead), (rows, lambda _: DEAD)):
            with pytest.raises(LakeError, match=r"Spark wrote \d rows to .*, and there is no file"):
                lake.write(0, *missing)
        assert lake.write(0, rows, lambda address: (dead(address), next(counts))[1]).files == ROWS + DEAD
        assert len(list((tmp_path / "topic=t").rglob("*.parquet"))) == ROWS
        with pytest.raises(LakeError, match="2 records did not parse, but 1 when they were read again"):
            lake.write(1, rows, lambda address: 1)
        lake.write(5, *writers(Fate(), 5))
        with pytest.raises(LakeError, match="has batch 5 of this query and its checkpoint goes back to 4"):
            lake.write(4, *writers(Fate(), 4))


# -- two runs over one checkpoint


def test_a_second_run_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    with lake_at(tmp_path) as first, lake_at(tmp_path) as second:
        first.recover()
        for attempt in (second.recover, lambda: second.write(0, *writers(Fate(), 0))):
            with pytest.raises(LakeError, match=r"another run over this checkpoint is writing to .*\(process \d+ on "):
                attempt()
        first.write(0, *writers(Fate(), 0))
        first.close()
        second.write(0, *writers(Fate(), 0))
    assert seen_in(tmp_path) == expected("row", ROWS, 1)


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_where_there_are_no_locks_a_newer_run_takes_over_at_any_change(tmp_path: Path, batches: int) -> None:
    """It writes this many batches while the older run is paused; then the older run continues."""

    def run(where: Path, fate: Fate) -> None:
        with lake_at(where, fate, "hdfs") as lake:
            lake.recover()
            lake.write(0, *writers(fate, 0))

    whole = Fate()
    run(tmp_path / "whole", whole)
    assert whole.changes == 18
    refused = 0
    for n in range(whole.changes):
        where = tmp_path / str(n)
        with lake_at(where, scheme="hdfs") as newer:

            def takes_over(newer: Lake = newer) -> None:
                newer.recover()
                for batch in range(batches):
                    newer.write(batch, *writers(Fate(), batch))

            try:
                run(where, Fate(before=n, acts=takes_over))
            except (LakeError, FileSystemError):
                refused += 1
        with lake_at(where, scheme="hdfs") as restarted:
            for batch in range(max(batches - 1, 0), 2):  # Spark repeats the last one
                restarted.write(batch, *writers(Fate(), batch))
        assert seen_in(where) == expected("row", ROWS, 2), n
        assert seen_in(where / "_dead_letters") == expected("dead", DEAD, 2), n
    assert refused == (9 if batches else 8)  # one that has seen that it may decides, unless the other one has


def test_a_batch_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that have both found the lock free: one of them makes the manifest."""
    monkeypatch.setattr(Ownership, "check", lambda _: None)
    rows, dead = writers(Fate(), 0)
    with lake_at(tmp_path, scheme="hdfs") as one, lake_at(tmp_path, scheme="hdfs") as other:

        def meanwhile(address: str) -> tuple[int, int]:
            other.write(0, rows, dead)
            return rows(address)

        with pytest.raises(LakeError, match="it has decided the batch"):
            one.write(0, meanwhile, dead)
        for file in list((tmp_path / "topic=t").rglob("*.parquet")):
            file.rename(file.with_name(f"compact-{file.name}"))
        one.write(0, rows, dead)
    assert seen_in(tmp_path) == expected("row", ROWS, 1)


def test_dead_letters_do_not_lie_among_the_rows() -> None:
    for fine in ("s3a://b/lake/_dead_letters", "s3a://b/lake-dead", "s3a://b/lake/_x/y", "s3a://b/other"):
        refuse_nested("s3a://b/lake", fine)
    for wrong in ("s3a://b/lake", "s3a://b/lake/", "s3a://b/lake/dead", "s3a://b", "s3a://b/lake/topic=t/_dead"):
        with pytest.raises(LakeError, match="must not be inside each other"):
            refuse_nested("s3a://b/lake", wrong)


# -- settings

FIRST = JsonSettings({"type": "struct", "fields": []})
SECOND = JsonSettings({"type": "struct", "fields": []}, "permissive", keep_rest=False)


def test_a_planned_batch_keeps_the_settings_that_it_was_planned_with(tmp_path: Path) -> None:
    checkpoint = LocalDirectory(tmp_path)
    kept = load(checkpoint, ["topic"]).then(FIRST, 0)
    assert kept.then(FIRST, 7) is kept
    changed = kept.then(SECOND, 4).then(None, 9)
    save(checkpoint, changed)
    again = load(checkpoint, ["topic"])
    assert again == changed
    assert [again.of(batch) for batch in (0, 3, 4, 8, 9, 100)] == [FIRST, FIRST, SECOND, SECOND, None, None]
    # A change that no batch was planned with is no version of its own.
    assert changed.then(FIRST, 4) == Kept(("topic",), ((0, FIRST), (4, FIRST)))
    with pytest.raises(SettingsDiffer, match="partitioned by topic and this run asks for topic, date"):
        load(checkpoint, ["topic", "date"])
