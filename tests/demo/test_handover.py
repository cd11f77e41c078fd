"""The watch over the loss of a worker, with made events: what a loaded machine makes of them."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from kohort.client.admin.groups import Committed
from kohort.demo import handover as handover_module
from kohort.demo.handover import Handover, HandoverFailed
from kohort.demo.ledger import Ledger


class Silent:
    """Workers that say nothing, and a cluster with the group's committed offsets."""

    def __init__(self) -> None:
        self.said: queue.Queue[Any] = queue.Queue()
        self.killed: list[str] = []

    def kill(self, name: str) -> None:
        self.killed.append(name)

    def committed(self, group: str, places: Any) -> dict[tuple[str, int], Any]:
        return {("t", 1): Committed(10, -1, "")}


def watched(workers: Any) -> Handover:
    return Handover(workers, ("one", "two"), "", "g", "t", {0: 10, 1: 10}, lambda *_: None, lambda _: None)


def note(ledger: Ledger, worker: str, event: str, **values: Any) -> None:
    ledger.note(worker, {"event": event, "time": 1.0, **values})


def test_a_worker_that_joins_when_all_is_read_is_killed_too() -> None:
    workers = Silent()
    watch = watched(workers)
    note(watch.ledger, "one", "assigned", partitions=[0])
    note(watch.ledger, "one", "processed", ranges={"0": [0, 10], "1": [0, 10]})
    note(watch.ledger, "one", "committed", offsets={"0": 10, "1": 10})
    watch._kill_at_half()
    assert workers.killed == []
    note(watch.ledger, "two", "assigned", partitions=[1])
    watch._kill_at_half()
    assert workers.killed == ["two"]


def test_a_commit_that_the_killed_worker_did_not_report_counts() -> None:
    workers: Any = Silent()
    watch = watched(workers)
    watch.times.killed = watch.times.noticed = watch.times.taken_over = 1.0
    note(watch.ledger, "one", "committed", offsets={"0": 10})
    watch._watch(workers)
    assert watch.ledger.committed_records == 20


def test_a_group_that_stands_still_fails_with_what_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_module, "STALLED_S", 0.2)
    workers: Any = Silent()
    watch = watched(workers)
    note(watch.ledger, "one", "assigned", partitions=[0, 1])
    with pytest.raises(HandoverFailed, match=r"one holds 2 partitions, two holds 0 partitions"):
        watch._watch(workers)
