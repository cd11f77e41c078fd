"""Some cycles of the crash harness with real clients; `make test-crash` runs two hundred of each workload."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

import pytest
from crash_backups import COMMITTERS, IN_EXCHANGE, PARTITIONS, BackupRun
from crash_copies import ABORTED, Copies
from crash_ledger import Place, place_from
from crash_nodes import CrashNodes
from crash_queues import Ledger, QueueRun
from crash_run import GROUPS, Run
from crash_transactions import GROUPS as COPYING
from crash_transactions import TransactionRun
from postgres_server import PostgresServer


@pytest.mark.alone
@pytest.mark.client
@pytest.mark.timeout(900)
@pytest.mark.conformance("R3", "R4")
def test_cycles_of_kill_9_under_load() -> None:
    directory = Path(tempfile.mkdtemp(prefix="kohort-crash-"))  # stays where it fails, longer than pytest's own would
    run = Run(directory, cycles=8, seed=secrets.randbelow(10**6), rate=3_000)
    figures = run.run()
    print(run.told())
    assert figures.kills >= 8
    assert figures.checked > 60
    assert all(figures.kept[str(group["name"])] for group in GROUPS)
    assert figures.acknowledged > 10_000
    shutil.rmtree(directory)


@pytest.mark.alone
@pytest.mark.client
@pytest.mark.timeout(900)
def test_six_cycles_of_kill_9_under_transactions() -> None:
    directory = Path(tempfile.mkdtemp(prefix="kohort-crash-"))
    run = TransactionRun(directory, cycles=6, seed=secrets.randbelow(10**6))
    figures = run.run()
    print(run.told())
    assert figures.kills >= 6
    assert figures.agreed >= 6
    assert figures.inputs > 500
    assert figures.copies == len(COPYING) * figures.inputs
    assert figures.workers["committed"] > 50
    shutil.rmtree(directory)


@pytest.mark.alone
@pytest.mark.client
@pytest.mark.timeout(900)
def test_five_cycles_of_kill_9_under_a_share_group() -> None:
    directory = Path(tempfile.mkdtemp(prefix="kohort-crash-"))
    run = QueueRun(directory, cycles=5, seed=secrets.randbelow(10**6))
    figures = run.run()
    print(run.told())
    assert figures.kills >= 5
    assert figures.confirmed > 200
    assert figures.quiet == 1
    shutil.rmtree(directory)


@pytest.mark.alone
@pytest.mark.client
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workload", [Run, TransactionRun])
def test_cycles_of_takeovers(workload: type[Run | TransactionRun], postgres_server: PostgresServer) -> None:
    directory = Path(tempfile.mkdtemp(prefix="kohort-crash-"))
    nodes: list[CrashNodes] = []

    def made(directory: Path, settings: dict[str, str]) -> CrashNodes:
        nodes.append(CrashNodes(postgres_server, 2, directory / "server.log", settings, blips=True))
        return nodes[-1]

    run = workload(directory, cycles=5, seed=secrets.randbelow(10**6), rate=400, server=made)
    figures = run.run()
    print(run.told(), nodes[0].faults)
    assert figures.kills >= 5
    assert nodes[0].faults["blip"] > 2
    shutil.rmtree(directory)


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_backups_while_20000_commits_a_second_run() -> None:
    directory = Path(tempfile.mkdtemp(prefix="kohort-backups-"))
    run = BackupRun(directory, backups=3)
    figures = run.run()
    print(run.told())
    assert (figures.restored, figures.checked) == (3, 3 * COMMITTERS * PARTITIONS)
    shutil.rmtree(directory)


def test_a_backup_under_load(tmp_path: Path) -> None:
    figures = BackupRun(tmp_path, backups=1, rate=2_000).run()
    assert (figures.restored, figures.checked, figures.kinds) == (1, COMMITTERS * PARTITIONS, 4)
    assert figures.commits > 3 * COMMITTERS * IN_EXCHANGE


def test_a_copy_that_comes_twice_or_was_aborted_is_a_violation() -> None:
    copies = Copies("group")
    for offset, value in enumerate(("0:0", "1:0", "0:1", "0:3")):
        copies.add(0, offset, value)
    assert not copies.violations
    assert (copies.first_missing(0), copies.last(0), copies.first_missing(2), copies.last(2)) == (2, 3, 0, -1)
    copies.add(1, 0, "0:1")
    copies.add(0, 4, ABORTED + "0:2")
    copies.add(0, 4, "0:2")
    twice, aborted, again = copies.violations
    assert "'0:1' at 0 was copied before" in twice
    assert "aborted transaction" in aborted
    assert "offset 4 again" in again
    assert (copies.first_missing(0), copies.total()) == (4, 5)


def test_the_lower_bound_is_the_last_acknowledged_commit() -> None:
    place = Place(generation=1, last=10, sent=10)
    assert [place.next() for _ in range(5)] == [11, 12, 13, 14, 15]
    place.acknowledged(11)
    place.acknowledged(12)
    assert place.least() == 12
    assert place.possible() == [12, 13, 14, 15]


def test_a_commit_that_was_sent_again_may_stand_in_the_place_of_a_newer_one() -> None:
    place = Place(generation=1, last=10, sent=10)
    for _ in range(5):
        place.next()
    place.acknowledged(15)
    assert place.least() == 11, "11 is still under way, and would take the place of 15"
    for offset in (11, 12, 13, 14):
        place.failed(offset)
    assert place.least() == 11, "it is not known whether they took effect"
    place.acknowledged(place.next())
    assert place.least() == 16, "it was sent when they had failed already, so it came after them"


def test_an_answer_to_a_commit_of_an_earlier_generation_changes_nothing() -> None:
    place = Place(generation=2, last=100, sent=150)
    place.acknowledged(140)
    place.failed(141)
    assert place.possible() == [100]


def test_a_member_that_joins_the_same_generation_again_may_repeat_its_commits() -> None:
    before = Place(generation=2, last=10, sent=10)
    for _ in range(3):
        before.next()
    before.failed(11)
    before.acknowledged(13)
    same = place_from(13, 2, before)
    assert same.least() == 11, "11 and 12 may still arrive"
    assert place_from(13, 3, before).least() == 13, "a new generation fences them"
    assert place_from(13, 3, before).next() == 14
    assert place_from(5, 1, None).possible() == [5]


def test_a_record_that_is_finished_twice_is_found() -> None:
    ledger = Ledger()
    for worker, what, places in (
        ("a", "try", [(0, 0), (0, 1)]),
        ("a", "done", [(0, 0)]),
        ("b", "try", [(0, 1), (1, 0)]),
        ("b", "done", [(0, 1), (1, 0)]),
    ):
        ledger.take(worker, what, places)
    assert not ledger.twice
    assert ledger.untried({0: 2, 1: 1}) == []
    assert ledger.untried({0: 3, 1: 1}) == [(0, 2)]
    ledger.take("a", "done", [(0, 1)])
    assert ledger.twice == ["input[0] 1 was finished for b and a"]
