"""The demo's bookkeeping: what the workers have read, committed and left behind."""

from __future__ import annotations

from typing import Any

from kohort.demo.ledger import Ledger, Start


def event(name: str, time: float = 0.0, **values: Any) -> dict[str, Any]:
    return {"event": name, "time": time, **values}


def test_records_that_were_read_twice_count_once_as_distinct() -> None:
    ledger = Ledger()
    ledger.note("a", event("processed", ranges={"0": [0, 10], "1": [0, 4]}))
    ledger.note("b", event("processed", ranges={"0": [7, 20]}))
    assert (ledger.processed, ledger.distinct) == (27, 24)
    assert (ledger.processed_by("a"), ledger.processed_by("b"), ledger.processed_by("c")) == (14, 13, 0)


def test_gaps_and_ends_that_nobody_read_are_missing() -> None:
    ledger = Ledger()
    ledger.note("a", event("processed", ranges={"0": [0, 10]}))
    ledger.note("a", event("processed", ranges={"0": [12, 20]}))
    assert ledger.missing({0: 20}) == 2
    assert ledger.missing({0: 15, 1: 5}) == 2 + 5
    assert ledger.missing({0: 8}) == 0


def test_the_first_record_after_an_assignment_is_where_a_worker_starts() -> None:
    ledger = Ledger()
    ledger.note("a", event("assigned", partitions=[0, 1]))
    ledger.note("a", event("processed", 1.0, ranges={"0": [0, 5]}))
    ledger.note("a", event("processed", 2.0, ranges={"0": [5, 9], "1": [3, 4]}))
    ledger.note("a", event("assigned", 3.0, partitions=[0]))
    ledger.note("a", event("processed", 4.0, ranges={"0": [9, 10]}))
    assert ledger.starts == [Start("a", 0, 0, 1.0), Start("a", 1, 3, 2.0), Start("a", 0, 9, 4.0)]
    assert ledger.held == {"a": (0,)}
    assert ledger.held_since == {"a": 3.0}


def test_records_that_a_failed_worker_did_not_commit() -> None:
    ledger = Ledger()
    assert ledger.uncommitted("a") == 0
    ledger.note("a", event("assigned", partitions=[0, 1]))
    ledger.note("a", event("processed", ranges={"0": [0, 10], "1": [0, 5]}))
    ledger.note("a", event("committed", offsets={"0": 8}))
    ledger.note("a", event("failed", error="no broker"))
    assert ledger.uncommitted("a") == 2 + 5
    assert ledger.committed_records == 8
    assert ledger.failures == ["a: no broker"]
