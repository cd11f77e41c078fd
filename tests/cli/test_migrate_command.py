"""`kohort migrate`: what it prints, and a process that is killed in the middle."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_command import Kohort

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data directory of a server that has stopped."""
    with KohortServer(data_dir=tmp_path / "data", offsets_topic_num_partitions=3) as server:
        server.create_topic("t", 2)
        server.produce("t", "a", "b", "c")
        with Cluster(server.bootstrap_servers) as cluster:
            cluster.commit("billing", {("t", 0): 1})
    return tmp_path / "data"


def test_there_and_back(kohort: Kohort, stopped: Path, tmp_path: Path, postgres_url: str) -> None:
    shown = postgres_url.partition("?")[0].replace("tests@", "")
    contents = "1 topic with 2 partitions and 3 records, 1 group"
    planned = kohort("migrate", "--from", str(stopped), "--to", postgres_url, "--dry-run").out.splitlines()
    assert re.fullmatch(f"would migrate {re.escape(str(stopped))} to {shown}: 7 logs, \\d+ kB", planned[0])
    assert planned[1:] == [contents]
    done = kohort("migrate", "--from", str(stopped), "--to", postgres_url)
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0].startswith(f"migrated {stopped} to {shown} in ")
    assert lines[1:] == [contents, f"compared: all logs are equal. No server starts on {stopped} any more"]
    back = json.loads(kohort("migrate", "--from", postgres_url, "--to", str(tmp_path / "back"), "-o", "json").out)
    assert (back["source"], back["target"], back["records"], back["logs"]) == (shown, str(tmp_path / "back"), 3, 7)
    assert [(row["topic"], row["partition"]) for row in back["partitions"]] == [
        *(("__consumer_offsets", index) for index in range(3)),
        ("__kohort_journal", 0),
        ("metadata", 0),
        ("t", 0),
        ("t", 1),
    ]
    of_topic = back["partitions"][-2:]
    assert sum(row["records"] for row in of_topic) == sum(row["end_offset"] for row in of_topic) == 3
    again = kohort("migrate", "--from", postgres_url, "--to", str(tmp_path / "other"), code=1)
    assert again.err.startswith(f"kohort: the data of {shown} was migrated to {tmp_path / 'back'} already")
    assert again.err.count("\n") == 1
    with KohortServer(data_dir=tmp_path / "back") as server, Cluster(server.bootstrap_servers) as cluster:
        assert cluster.committed("billing")["t", 0].offset == 1


def test_places_that_are_wrong(kohort: Kohort, stopped: Path, tmp_path: Path) -> None:
    def told(from_: str, to: str, code: int = 1) -> str:
        err = kohort("migrate", "--from", from_, "--to", to, code=code).err
        assert err.count("\n") == 1, err
        return err

    new = str(tmp_path / "new")
    assert "has no kohort.db" in told(str(tmp_path / "none"), new)
    assert "kohort.db is a file: only data directories" in told(str(stopped / "kohort.db"), new)
    assert "is not empty (kohort.db)" in told(str(stopped), str(stopped))
    assert "a database is written as postgresql://" in told("mysql://host/db", new, code=2)
    assert "name a data directory, or postgresql://" in told(str(stopped), "", code=2)
    for place in ("postgresql://user:secret@127.0.0.1:1/none",):
        for error in (told(str(stopped), place, code=3), told(place, new, code=3)):
            assert "postgresql://127.0.0.1:1/none" in error
            assert "secret" not in error
    assert not (tmp_path / "new").exists()


WAITING = """
import sys
from kohort.cli.interrupt import interrupts
from kohort.cli.main import main
from kohort.storage import copying

copying.MOST_OPERATIONS = 1
commit = copying._Commits.commit

def waiting(self):
    commit(self)
    if not interrupts.asked():
        print("copying", flush=True)
        interrupts.wait(600)

copying._Commits.commit = waiting
main(sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("is_back", [False, True], ids=["there", "back"])
def test_a_process_that_ends_while_it_copies(
    kohort: Kohort, stopped: Path, tmp_path: Path, postgres_url: str, number: signal.Signals, is_back: bool
) -> None:
    source, target = str(stopped), postgres_url
    if is_back:
        kohort("migrate", "--from", source, "--to", target)
        source, target = postgres_url, str(tmp_path / "back")
    command = [sys.executable, "-c", WAITING, "migrate", "--from", source, "--to", target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "copying\n"
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    if number != signal.SIGKILL:
        assert errors.startswith("kohort: interrupted; nothing was migrated")
        assert process.returncode == 130
    place = {"data_dir": target} if is_back else {"storage": target}
    if number == signal.SIGKILL or not is_back:
        told = (
            "has a migration that was interrupted; repeat kohort migrate" if is_back else "is the target of a migration"
        )
        with pytest.raises(Exception, match=told):
            KohortServer(**place).start()
    else:
        assert not Path(target).exists()
    kohort("migrate", "--from", source, "--to", target)
    with KohortServer(**place) as server, Cluster(server.bootstrap_servers) as cluster:
        assert cluster.committed("billing")["t", 0].offset == 1
