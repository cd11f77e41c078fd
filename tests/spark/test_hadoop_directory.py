"""Files through Hadoop's file systems, as the lake's protocol needs them: made once, whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kohort.spark.files.hadoop import HadoopDirectory
from kohort.spark.lake.locks import Lease, Ownership, Taken

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("way", ["link", "rename", "upload"])
def test_a_file_is_made_once(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "rename":
        monkeypatch.setattr(os, "link", no_links)
    if way == "upload":
        monkeypatch.setattr("kohort.spark.files.hadoop.RENAMES_ARE_COPIES", ("file",))
    file = HadoopDirectory(spark, tmp_path / "below" / "file.json")
    assert file.modified_ms() is None
    assert file.write_new("one")
    assert not file.write_new("two")
    assert file.read_text() == "one"
    assert (file.modified_ms() or 0) // 1000 == int((tmp_path / "below" / "file.json").stat().st_mtime)
    file.write_over("three")
    assert not file.write_new("four")
    file.write_text("five")
    assert file.read_text() == "five"
    file.remove()
    assert file.write_new("six")
    assert [name for name in file.parent.names() if not name.endswith(".crc")] == ["file.json"]


def test_locks_on_hadoops_file_systems(spark: Any, tmp_path: Path) -> None:
    one, other = (Ownership(HadoopDirectory(spark, tmp_path)) for _ in range(2))
    one.take()
    one.check()
    with pytest.raises(Taken, match=f"process {os.getpid()} on "):
        other.take()
    one.release()
    other.take()
    other.check()
    other.release()
    lease = Lease(HadoopDirectory(spark, tmp_path / "lock"))
    lease.take()
    with pytest.raises(Taken, match=f"process {os.getpid()} on "):
        Lease(HadoopDirectory(spark, tmp_path / "lock")).take()
    assert lease.renew()
    assert lease.held()
    lease.release()
    assert not (tmp_path / "lock").exists()
