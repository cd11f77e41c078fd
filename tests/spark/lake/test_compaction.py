"""Small files merged: which, in what steps, and what a reader sees after a crash at any of them. Without Spark."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from local_directory import Crash, Fate, LocalDirectory

from kohort.spark.files.directory import FileInfo, FileSystemError
from kohort.spark.lake import file_swap as swap
from kohort.spark.lake.compaction import Compacted, compact_table, plan, recover
from kohort.spark.lake.lake import LakeError, data_files
from kohort.spark.lake.locks import STALE_S, Lease

KB = 1000
DAY = "topic=t/date=1"
SMALL, LARGE, LATE = 6, 1, "late"


def row_lines(name: str, size: int) -> str:
    return f"{name}\n".ljust(size, "#")


def fill(root: Path) -> Counter[str]:
    rows: Counter[str] = Counter()
    for n in range(SMALL + LARGE):
        file = root / DAY / f"w-{n}.snappy.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row_lines(f"row{n}", KB if n < SMALL else 90 * KB))
        (file.parent / f".{file.name}.crc").write_text("")
        rows[f"row{n}"] += 1
    return rows


def seen(root: Path) -> Counter[str]:
    """The rows that a reader of all files finds."""
    names = data_files([file.path for file in LocalDirectory(root).files()])
    lines = [line for name in names for line in (root / name).read_text().splitlines()]
    return Counter(line for line in lines if not line.startswith("#"))


def merging(fate: Fate) -> Any:
    def merge(addresses: Sequence[str], target: str, count: int) -> None:
        texts = [Path(address).read_text().replace("#", "") for address in addresses]
        for n in range(count):
            (LocalDirectory(Path(target), fate) / f"part-{n}.parquet").write_text("".join(texts[n::count]))
        (LocalDirectory(Path(target), fate) / "_SUCCESS").write_text("")

    return merge


@pytest.fixture
def fated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every change that a swap makes without a place counts, too; and a file arrives just before the exchange."""
    fates: list[Fate] = []
    real = {name: getattr(swap, name) for name in ("link", "mkdir", "rename", "rmdir", "unlink", "exchange")}

    def counted(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == "exchange" and not (arguments[0] / f"{LATE}.parquet").exists():
                (arguments[0] / f"{LATE}.parquet").write_text(f"{LATE}\n")
            last = fates[-1].change()
            result = real[name](*arguments)
            if last:
                raise Crash
            return result

        return call

    for name in real:
        monkeypatch.setattr(swap, name, counted(name))
    return fates


def run(root: Path, fate: Fate, scheme: str = "file") -> Compacted:
    return compact_table(LocalDirectory(root, fate, scheme), merging(fate), 100 * KB)


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("scheme", ["file", "hdfs"])
def test_a_crash_at_any_change_shows_no_row_twice_and_the_next_run_completes_it(
    tmp_path: Path, fated: list[Fate], scheme: str, made: bool
) -> None:
    """Where directories cannot be exchanged (hdfs), a reader may miss rows until the next run."""
    exchanges = scheme == "file"
    fated.append(Fate())
    rows = fill(tmp_path / "whole")
    run(tmp_path / "whole", fated[-1], scheme)
    late = Counter({LATE: 1} if exchanges else {})
    assert seen(tmp_path / "whole") == rows + late
    total = fated[-1].changes
    assert total > (25 if exchanges else 10)
    for n in range(total):
        root = tmp_path / str(n)
        fill(root)
        fated.append(Fate(n, made))
        with contextlib.suppress(Crash):
            run(root, fated[-1], scheme)
        assert set(seen(root).values()) == {1}, f"a crash at change {n}"
        assert not exchanges or seen(root) - late == rows, f"a crash at change {n}"
        fated.append(Fate())
        run(root, fated[-1], scheme)
        assert seen(root) == rows + late, n
        assert [path for path in (root / "_kohort").rglob("*") if path.is_file()] == []


def test_a_killed_compaction_is_reported_and_completed_once_its_lock_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = fill(tmp_path)
    table = LocalDirectory(tmp_path, scheme="hdfs")
    lock = table / "_kohort" / "compaction.lock"
    Lease(lock).take()
    with contextlib.suppress(Crash):
        run(tmp_path, Fate(6), "hdfs")
    assert len(seen(tmp_path)) < len(rows)
    assert not recover(table)
    told = capsys.readouterr().err
    assert f"another compaction of {tmp_path} is running (process {os.getpid()} on " in told
    assert f"readers miss rows of {tmp_path} until" in told
    os.utime(lock.where, (0, lock.where.stat().st_mtime - STALE_S - 1))
    assert recover(table)
    assert seen(tmp_path) == rows
    assert not lock.exists()


def test_a_compaction_that_lost_its_lock_replaces_nothing(tmp_path: Path) -> None:
    rows = fill(tmp_path)
    table = LocalDirectory(tmp_path, scheme="hdfs")
    with pytest.raises(LakeError, match="paused for too long, and another one has taken its lock over"):
        compact_table(table, merging(Fate()), 100 * KB, lock_held=lambda: False)
    decided = swap.Swap(DAY, ("w-0.snappy.parquet",), (("_kohort/compactions/gone/x.parquet", "c.parquet"),), None)
    with pytest.raises(FileSystemError, match="the files that it was made from stay"):
        swap.swap(table, table / "_kohort" / "compactions" / "j.json", decided)
    assert seen(tmp_path) == rows


def test_without_renameat2_files_are_moved_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fill(tmp_path)
    monkeypatch.setattr(swap, "exchange", lambda *_: False)
    done = run(tmp_path, Fate())
    assert (done.directories, done.files_before, done.files_after) == (1, SMALL, 1)
    assert seen(tmp_path) == rows
    assert len(list((tmp_path / DAY).glob("*.parquet"))) == 2


def test_which_directories_are_compacted() -> None:
    def found(path: str, size: int, modified_ms: int = 0) -> FileInfo:
        return FileInfo(path, size * KB, modified_ms)

    files = [
        *(found(f"a=1/{n}.parquet", 10) for n in range(3)),
        found("a=1/large.parquet", 80),
        *(found(f"a=2/{n}.parquet", 70) for n in range(4)),
        found("a=3/only.parquet", 1),
        found("a=4/x.parquet", 1),
        found("a=4/y.parquet", 1, 500),
        found("in-the-root.parquet", 1),
        *(found(f"_kohort/w/stage-1/a=9/{n}.parquet", 1) for n in range(3)),
        *(found(f"_dead_letters/a=9/{n}.parquet", 1) for n in range(3)),
        *(found(f"a=5/.{n}.parquet.crc", 1) for n in range(3)),
    ]
    chosen = plan(files, 100 * KB, 500)
    assert [(directory, len(small)) for directory, small in chosen] == [("a=1", 3), ("a=2", 4)]
    assert [directory for directory, _ in plan(files, 100 * KB, 501)] == ["a=1", "a=2", "a=4"]
    assert plan([found(f"a/{n}.parquet", 60) for n in range(2)], 100 * KB, 1) == []
