"""The transactions of a partition, compared with a log that is searched from its beginning."""

from __future__ import annotations

import random

import pytest

from kohort.broker.logs.transactions import Transactions


def test_readers_stop_at_the_oldest_open_transaction() -> None:
    partition = Transactions()
    assert partition.stable_offset(0) == 0
    partition.appended(1, 3)
    partition.appended(2, 5)
    partition.appended(1, 7)
    assert partition.stable_offset(9) == 3
    assert partition.stable_offset(2) == 2, "the log's durable part ends before"
    partition.ended(1, committed=True, marker_offset=9)
    assert partition.stable_offset(10) == 5
    partition.ended(2, committed=False, marker_offset=10)
    assert partition.stable_offset(11) == 11


def test_deleted_records_of_an_open_transaction_hold_readers_at_the_beginning() -> None:
    partition = Transactions()
    partition.appended(1, 3)
    partition.trimmed(6)
    assert partition.stable_offset(9, start=6) == 6


def test_a_marker_without_records_aborts_nothing() -> None:
    partition = Transactions()
    partition.ended(1, committed=False, marker_offset=0)
    assert partition.aborted == []
    partition.appended(1, 1)
    partition.ended(1, committed=False, marker_offset=2)
    partition.ended(1, committed=False, marker_offset=3)
    assert [(one.first_offset, one.marker_offset) for one in partition.aborted] == [(1, 2)]


MOVES = ["append"] * 10 + ["abort"] * 6 + ["commit"] * 2 + ["trim"]


@pytest.mark.parametrize("seed", range(100))
def test_the_aborted_are_those_that_a_search_of_the_log_finds(seed: int) -> None:
    """For readers of every part of the log."""
    chance = random.Random(seed)
    moves = [(chance.choice(MOVES), chance.randint(1, 4)) for _ in range(40)]
    partition = Transactions()
    log: list[tuple[str, int]] = []
    start = 0
    for what, producer in moves:
        if what == "trim":
            start = min(start + producer, len(log))
            partition.trimmed(start)
        elif what == "append":
            partition.appended(producer, len(log))
            log.append((what, producer))
        else:
            partition.ended(producer, committed=what == "commit", marker_offset=len(log))
            log.append((what, producer))
    open_: dict[int, int] = {}
    aborted = []
    for offset, (what, producer) in enumerate(log):
        if what == "append":
            open_.setdefault(producer, offset)
        elif producer in open_:
            began = open_.pop(producer)
            if what == "abort" and offset >= start:
                aborted.append((producer, began, offset))
    stable = partition.stable_offset(len(log), start)
    assert stable == max(min(open_.values(), default=len(log)), start)
    resumed = Transactions.resumed(dict(reversed(open_.items())), aborted)
    for transactions in (partition, resumed):
        assert transactions.stable_offset(len(log), start) == stable
        for first in range(start, stable):
            for end in range(first + 1, stable + 1):
                expected = [one for one in aborted if one[2] >= first and one[1] < end]
                found = transactions.aborted_in(first, end)
                assert [(one.producer_id, one.first_offset, one.marker_offset) for one in found] == expected
    assert resumed.first_open() == partition.first_open()
