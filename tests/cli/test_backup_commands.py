"""`kohort backup`, `verify` and `restore`, beside a running server and without one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from run_command import Ran
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.cli.interrupt import interrupts
from kohort.client.cluster import Cluster
from kohort.client.coordination.blocking_election import blocking_lead
from kohort.testing import KohortServer

GROUPS, PARTITIONS = 3, 4


def kohort(*arguments: str | Path, code: int = 0) -> Ran:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    ran = Ran(result.exit_code, result.stdout, result.stderr)
    assert ran.code == code, f"{ran}\n{result.exception!r}"
    return ran


class Committer(threading.Thread):
    """Commits ascending offsets of a group, as fast as they are acknowledged."""

    def __init__(self, servers: str, group: str) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.sent = 0
        self.over = threading.Event()
        self.error: Exception | None = None
        self._servers = servers

    def run(self) -> None:
        try:
            with Cluster(self._servers) as cluster:
                while not self.over.is_set():
                    self.sent += 1
                    offsets = {("t", index): self.sent for index in range(PARTITIONS)}
                    cluster.commit(self.group, offsets)
                    self.acknowledged = offsets
        except Exception as error:
            self.error = error

    def wait_for(self, offset: int) -> None:
        while not self.acknowledged or self.acknowledged["t", 0] < offset:
            assert self.error is None, self.error
            self.over.wait(0.005)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that has stopped."""
    directory = tmp_path_factory.mktemp("stopped") / "data"
    with KohortServer(data_dir=directory, offsets_topic_num_partitions=3) as server:
        server.create_topic("t", 2)
        server.produce("t", "a", "b", "c")
        with Cluster(server.bootstrap_servers) as cluster:
            cluster.commit("billing", {("t", 0): 1})
    return directory


def test_commits_that_were_acknowledged_before_the_backup_are_in_it(tmp_path: Path) -> None:
    data, file, restored = tmp_path / "data", tmp_path / "backup.db", tmp_path / "restored"
    with KohortServer(data_dir=data) as server:
        server.create_topic("t", PARTITIONS)
        committers = [Committer(server.bootstrap_servers, f"group-{n}") for n in range(GROUPS)]
        for committer in committers:
            committer.start()
        for committer in committers:
            committer.wait_for(20)
        before = {committer.group: committer.acknowledged for committer in committers}
        kohort("backup", "--data-dir", data, "--to", file)
        after = {committer.group: committer.sent for committer in committers}
        for committer in committers:
            committer.wait_for(after[committer.group] + 5)
            committer.over.set()
        for committer in committers:
            committer.join(20)
            assert committer.error is None
    assert json.loads(kohort("verify", file, "-o", "json").out)["groups"] == GROUPS
    kohort("restore", file, "--to", restored)
    with KohortServer(data_dir=restored) as server, Cluster(server.bootstrap_servers) as cluster:
        for group, offsets in before.items():
            found = cluster.committed(group)
            for place, offset in offsets.items():
                assert offset <= found[place].offset <= after[group], (group, place)
            assert len({committed.offset for committed in found.values()}) == 1, "a commit is in it whole or not at all"


def test_what_the_commands_print(stopped: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "backup.db", tmp_path / "restored"
    made = kohort("backup", "--data-dir", stopped, "--to", file)
    contents = "1 topic with 2 partitions and 3 records, 1 group"
    first, second = made.out.splitlines()
    assert first.startswith(f"backed up {stopped} to {file}: ")
    assert second == contents
    assert kohort("verify", file).out.splitlines()[1] == contents
    assert kohort("verify", stopped).out.startswith(f"{stopped} is sound: ")
    done = kohort("restore", file, "--to", restored).out.splitlines()
    assert done[0].startswith(f"restored {file} to {restored} in ")
    assert done[1] == contents
    numbers = r"raised: generations and epochs to [\d,]+ at least, producer ids to [\d,]+"
    assert re.fullmatch(numbers, done[2])
    assert len(done) == 3
    assert f"{file} exists" in kohort("backup", "--data-dir", stopped, "--to", file, code=1).err
    assert f"{restored} is not empty (kohort.db)" in kohort("restore", file, "--to", restored, code=1).err
    assert kohort("backup", "--data-dir", stopped, "--to", file, "--force").err == ""


def test_documents(stopped: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "backup.db", tmp_path / "restored"
    numbers = {"topics": 1, "partitions": 2, "records": 3, "groups": 1, "transactional_ids": 0, "users": 0}
    made = json.loads(kohort("backup", "--data-dir", stopped, "--to", file, "-o", "json").out)
    size = file.stat().st_size
    assert made.pop("took_ms") >= 0
    assert made == {"data_dir": str(stopped), "file": str(file), "bytes": size, **numbers}
    found = json.loads(kohort("verify", file, "-o", "json").out)
    assert found.pop("took_ms") >= 0
    assert found == {"path": str(file), "sound": True, "faults": [], "bytes": size, **numbers}
    done = json.loads(kohort("restore", file, "--to", restored, "-o", "json").out)
    assert done["raised"]["epochs"] > 1_000_000
    assert done["beyond_ends"] == []
    file.write_bytes(file.read_bytes().replace(b"billing", b"bellini"))
    damaged = json.loads(kohort("verify", file, "-o", "json", code=1).out)
    assert not damaged["sound"]
    assert [sorted(fault) for fault in damaged["faults"]] == [["what", "where"]] * len(damaged["faults"])
    assert "groups" not in damaged


def test_a_damaged_record_does_not_prevent_a_restore(tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    with KohortServer(data_dir=tmp_path / "data") as server:
        server.produce("t", "a-value-to-damage")
    kohort("backup", "--data-dir", tmp_path / "data", "--to", file)
    file.write_bytes(file.read_bytes().replace(b"to-damage", b"of-damage"))
    assert "t-0: the batch at offset 0 fails its checksum" in kohort("verify", file, code=1).out
    assert "--no-verify" in kohort("restore", file, "--to", tmp_path / "restored", code=1).err
    kohort("restore", file, "--to", tmp_path / "restored", "--no-verify")
    with KohortServer(data_dir=tmp_path / "restored") as server:
        server.produce("t", "b")


def test_a_copy_that_no_server_could_start_from_replaces_no_backup(stopped: Path, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "backup.db"
    data.mkdir()
    database = (stopped / "kohort.db").read_bytes()
    (data / "kohort.db").write_bytes(database.replace(b"billing", b"bellini"))
    file.write_bytes(b"the last good one")
    failed = kohort("backup", "--data-dir", data, "--to", file, "--force", code=1)
    assert failed.err.startswith(f"kohort: no server can start from the data of {data}, so no backup was written: ")
    assert file.read_bytes() == b"the last good one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "data"]


def test_a_running_server_is_not_verified_and_not_restored_into(tmp_path: Path) -> None:
    with KohortServer(data_dir=tmp_path / "data"):
        assert "stop it, or take a backup" in kohort("verify", tmp_path / "data", code=1).err
        kohort("backup", "--data-dir", tmp_path / "data", "--to", tmp_path / "backup.db")
        assert "is not empty" in kohort("restore", tmp_path / "backup.db", "--to", tmp_path / "data", code=1).err


def test_interrupted(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kohort("backup", "--data-dir", stopped, "--to", tmp_path / "first.db")
    monkeypatch.setattr(interrupts, "asked", lambda: True)
    made = kohort("backup", "--data-dir", stopped, "--to", tmp_path / "backup.db", code=1)
    assert made.err == "kohort: interrupted; no backup was written\n"
    done = kohort("restore", tmp_path / "first.db", "--to", tmp_path / "restored", code=1)
    assert done.err == "kohort: interrupted; nothing was restored\n"
    assert [path.name for path in tmp_path.iterdir()] == ["first.db"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--to", "f", "--max-wal", "4g"], "4g is more than 3g; the server stops at 4g"),
        (["--to", "f", "--max-wal", "much"], "'much' is not a size; write 500m or 1g"),
        (["--to", "f", "--max-wal", "0m"], "'0m' is not a size"),
    ],
)
def test_wrong_sizes(arguments: list[str], told: str) -> None:
    ran = kohort("backup", *arguments, code=2)
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_missing_arguments_and_places(tmp_path: Path) -> None:
    assert "--to" in kohort("backup", "--data-dir", tmp_path, code=2).err
    assert "--to" in kohort("restore", tmp_path / "b.db", code=2).err
    kohort("verify", code=2)
    assert "does not exist" in kohort("verify", tmp_path / "b.db", code=1).err
    assert "does not exist" in kohort("restore", tmp_path / "b.db", "--to", tmp_path / "d", code=1).err
    assert "it has no kohort.db" in kohort("backup", "--data-dir", tmp_path, "--to", tmp_path / "b.db", code=1).err
    assert not (tmp_path / "d").exists()


WAITING_BACKUP = """
import sys
from kohort.cli.interrupt import interrupts
from kohort.cli.main import main
from kohort.storage import backup

class Waiting(backup.ReadOnlyFile):
    def __init__(self, path, *, immutable, checks_wal=False):
        super().__init__(path, immutable=immutable, checks_wal=checks_wal)
        self.db.set_progress_handler(self.progress, 20)

    def progress(self):
        if not interrupts.asked():
            print("copying", flush=True)
            interrupts.wait(600)

backup.ReadOnlyFile = Waiting
main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_process_that_ends_while_it_copies(stopped: Path, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "backup.db"
    command = [sys.executable, "-c", WAITING_BACKUP, "backup", "--data-dir", str(stopped), "--to", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "copying\n"
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith(f"backup.db.partial-{process.pid}")]
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        assert left
        assert "which an interrupted backup has left" in kohort("backup", "--data-dir", stopped, "--to", file).err
        assert [path.name for path in tmp_path.iterdir()] == ["backup.db"]
    else:
        assert errors == "kohort: interrupted; no backup was written\n"
        assert process.returncode == (130 if number == signal.SIGINT else 143)
        assert not list(tmp_path.iterdir())


def test_the_tokens_of_leaders(tmp_path: Path) -> None:
    """A leader of after the restore has a larger token than every leader before it."""

    def token(server: KohortServer) -> int:
        with blocking_lead(server.bootstrap_servers, "nightly-report") as election:
            return next(iter(election)).token

    data, file, restored = tmp_path / "data", tmp_path / "backup.db", tmp_path / "restored"
    server = KohortServer(data_dir=data).start()
    tokens = [token(server)]
    kohort("backup", "--data-dir", data, "--to", file)
    tokens += [token(server) for _ in range(3)]
    server.kill()
    kohort("restore", file, "--to", restored)
    with KohortServer(data_dir=restored) as server:
        assert token(server) > max(tokens)
