"""Damage of a backup: each flipped byte is a line that names the place, or the file."""

from __future__ import annotations

import random
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stored_world import World, backup_of
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.server.backups.verify import StorageError, verify
from kohort.storage import seal
from kohort.storage.sqlite_file import FILE_NAME
from kohort.storage.sqlite_format import PAGE_SIZE
from kohort.storage.stored_file import StoredFile

FLIPS = 12
"""Flipped bytes of a seed, one at a time."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    world = World(folder / "data")
    made = backup_of(world.directory, folder / "backup.db")
    world.wire.storage.close()
    assert (made.contents.topics, made.contents.partitions, made.contents.transactional_ids) == (2, 3, 3)
    assert made.contents.groups == 4, "g, c, simple, group-of-done"
    return folder / "backup.db"


def told(path: Path) -> list[str]:
    """The lines for users."""
    try:
        lines = [f"{fault.where}: {fault.what}" for fault in verify(path).faults]
    except StorageError as error:
        lines = [str(error)]
    for line in lines:
        assert re.fullmatch(r"\S+:? .+", line), repr(line)
    return lines


def content(path: Path) -> Any:
    with closing(StoredFile(path)) as file:
        return [(info, file.read(info.key, 0, 1 << 30), file.kept_producers(info.key)) for info in file.logs()]


def test_a_sound_backup(sound: Path) -> None:
    found = verify(sound)
    assert found.faults == ()
    assert found.contents is not None
    assert found.contents.records == 20 + 2 * 2 + 1, "values; records and markers of ended transactions; an open one"


@pytest.mark.parametrize("seed", range(16))
def test_flipped_bytes(sound: Path, tmp_path: Path, seed: int) -> None:
    data, right = sound.read_bytes(), content(sound)
    chance = random.Random(seed)
    path = tmp_path / "damaged.db"
    for n in range(FLIPS):
        position = chance.randrange(len(data))
        if n % 2:  # what structures the file: the first bytes of a page
            position = position // PAGE_SIZE * PAGE_SIZE + chance.randrange(64)
        spoiled = bytearray(data)
        spoiled[position] ^= chance.randrange(1, 256)
        path.write_bytes(spoiled)
        assert told(path), f"seed {seed}, byte {position}"
        # Without the seal, what nobody notices does no harm.
        seal.remove(path)
        assert told(path) or content(path) == right, f"seed {seed}, byte {position}"


def test_each_page_is_missed(sound: Path, tmp_path: Path) -> None:
    data = sound.read_bytes()
    path = tmp_path / "damaged.db"
    for page in range(0, len(data), PAGE_SIZE):
        path.write_bytes(data[:page] + bytes(PAGE_SIZE) + data[page + PAGE_SIZE :])
        assert told(path), f"page {page // PAGE_SIZE}"


@pytest.mark.parametrize("keep", [0, 1, 99, 4096, PAGE_SIZE, 3 * PAGE_SIZE, -PAGE_SIZE, -1])
def test_a_cut_file(sound: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.db"
    path.write_bytes(sound.read_bytes()[:keep])
    assert told(path)


def test_each_damaged_batch_has_a_line(sound: Path, tmp_path: Path) -> None:
    data = bytearray(sound.read_bytes())
    for value in (b"value-2 value-2", b"value-3 value-3", b"value-6 value-6"):
        data[data.index(value)] ^= 1
    path = tmp_path / "damaged.db"
    path.write_bytes(data)
    assert told(path) == [
        "t-0: the batch at offset 1 fails its checksum",
        "t-0: the batch at offset 3 fails its checksum",
        "t-1: the batch at offset 1 fails its checksum",
    ]
    ran = CliRunner().invoke(app, ["verify", str(path)])
    assert ran.exit_code == 1
    assert ran.stdout.splitlines()[0] == "t-0: the batch at offset 1 fails its checksum"
    assert ran.stderr == f"kohort: {path} is damaged: 3 faults\n"
    restored = CliRunner().invoke(app, ["restore", str(path), "--to", str(tmp_path / "restored")])
    assert restored.exit_code == 1
    assert "3 faults; nothing was restored" in restored.stderr
    assert not (tmp_path / "restored").exists()


def test_damage_of_a_group(sound: Path, tmp_path: Path) -> None:
    data = sound.read_bytes()
    path = tmp_path / "damaged.db"
    places = {fault.where for at in _places(data, b"simple") for fault in _faults_with_flip(path, data, at)}
    assert any(place.startswith("__consumer_offsets-") for place in places) or str(path) in places


def _places(data: bytes, word: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(word, at)]


def _faults_with_flip(path: Path, data: bytes, at: int) -> Any:
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return verify(path).faults


def test_verifying_changes_nothing(tmp_path: Path) -> None:
    """Of a backup, of a directory after a stop, and of one after a crash."""
    world = World(tmp_path / "data")
    backup_of(world.directory, tmp_path / "backup.db")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        shutil.copy(world.directory / name, crashed / name)
    with pytest.raises(StorageError, match=r"in use by kohort \(process \d+\); stop it, or take a backup"):
        verify(world.directory)
    world.wire.storage.close()
    assert not (world.directory / f"{FILE_NAME}-wal").exists()
    assert (crashed / f"{FILE_NAME}-wal").stat().st_size > 0
    before = files_in(tmp_path)
    for path in (tmp_path / "backup.db", world.directory, crashed):
        assert verify(path).faults == ()
    assert files_in(tmp_path) == before


def test_a_damaged_write_ahead_log(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        shutil.copy(world.directory / name, crashed / name)
    world.wire.storage.close()
    wal = crashed / f"{FILE_NAME}-wal"
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 1
    wal.write_bytes(data)
    before = files_in(crashed)
    [fault] = verify(crashed).faults
    assert fault.where == str(crashed)
    assert "its write-ahead log has a bad frame, and synced commits after it" in fault.what
    with pytest.raises(StorageError, match="its write-ahead log has a bad frame"):
        backup_of(crashed, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()
    assert files_in(crashed).keys() - {crashed / f"{FILE_NAME}-shm"} == before.keys()


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
