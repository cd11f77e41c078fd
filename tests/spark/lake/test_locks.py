"""Locks of a lake, on file systems where a lock ends with its process and on others. Without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from local_directory import Fate, LocalDirectory

from kohort.spark.lake.locks import STALE_S, Lease, Ownership, Taken, leased, lock_file


def age(file: Path, seconds: float = STALE_S + 1) -> None:
    """Makes the lock look as if it had not been written for this long."""
    at = file.stat().st_mtime - seconds
    os.utime(file, (at, at))


def test_a_local_lock_has_one_holder_until_its_file_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "below" / "lock")
    held = lock_file(path)
    with pytest.raises(Taken, match="a running process"):
        lock_file(path)
    assert held is not None
    held.close()
    again = lock_file(path)
    assert again is not None
    again.close()


def test_the_newest_owner_is_the_owner(tmp_path: Path) -> None:
    older, newer = (Ownership(LocalDirectory(tmp_path, scheme="hdfs")) for _ in range(2))
    older.take()
    older.check()
    newer.take()
    newer.check()
    with pytest.raises(Taken, match=rf"process {os.getpid()} on .*, since 20..-"):
        older.check()


def test_a_lease_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    file = LocalDirectory(tmp_path / "lock", scheme="hdfs")
    with leased(file) as lease:
        assert lease.held()
        with pytest.raises(Taken, match=f"process {os.getpid()} on "), leased(file):
            pass
        assert lease.renew()
    with leased(file):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [None, ""])
def test_a_lease_that_is_not_renewed_is_taken_over_and_its_holder_sees_it(tmp_path: Path, text: str | None) -> None:
    """This includes a lock of an earlier version, whose file is empty."""
    file = LocalDirectory(tmp_path / "lock", scheme="hdfs")
    dead, second = Lease(file), Lease(file)
    dead.take()
    if text is not None:
        file.write_over(text)
    with pytest.raises(Taken):
        second.take()
    age(file.where)
    if text is None:
        assert dead.renew()  # it was alive after all
        with pytest.raises(Taken):
            second.take()
        age(file.where)
    second.take()
    assert (second.held(), dead.held(), dead.renew()) == (True, False, False)
    dead.release()
    assert second.held()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_of_two_takeovers_one_succeeds(tmp_path: Path) -> None:
    for before in range(5):
        file = LocalDirectory(tmp_path / str(before) / "lock", scheme="hdfs")
        Lease(file).take()
        age(file.where)
        fast = Lease(file)
        slow = Lease(LocalDirectory(file.where, Fate(before=before, acts=fast.take), "hdfs"))
        with pytest.raises(Taken):
            slow.take()
        assert fast.held(), before
        assert list(file.where.parent.iterdir()) == [file.where], before
