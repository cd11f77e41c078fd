"""What happens in the demo with the console, by a clock of the test: no process and no broker."""

from __future__ import annotations

import queue
from typing import Any

from kohort.demo.flights import FlightRecord
from kohort.demo.living import EVERY_S, FIRST_S, PARTITIONS, PRODUCED_PER_SECOND, TURNS, Play, options_of


class Workers:
    """Each needs a second to end."""

    def __init__(self) -> None:
        self.said: queue.Queue[Any] = queue.Queue()
        self.acts: list[tuple[str, str]] = []
        self.ends_at: dict[str, float] = {}
        self.now = 0.0

    def end(self, name: str) -> None:
        self.acts.append(("ends", name))
        self.ends_at[name] = self.now + 1

    def kill(self, name: str) -> None:
        self.acts.append(("is killed", name))
        self.ends_at[name] = self.now + 15  # longer than it is away: the play waits for it

    def runs(self, name: str) -> bool:
        return self.now < self.ends_at[name]

    def begin(self, name: str) -> None:
        assert not self.runs(name)
        self.acts.append(("begins", name))


class Producer:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def produce(self, topic: str, value: bytes, key: str) -> None:
        self.values.append(value)

    def poll(self, timeout: float) -> None:
        pass


def play(seconds: float) -> tuple[Workers, Producer]:
    workers, producer = Workers(), Producer()
    flights = [FlightRecord("plane", b"%d" % number) for number in range(100)]
    made = Play(workers, producer, lambda: iter(flights), 0.0)  # type: ignore[arg-type]
    for step in range(1, int(seconds * 10) + 1):
        workers.said.put(("billing-1", {}))
        workers.now = step / 10
        made.step(workers.now)
        assert workers.said.empty(), "what they say is read"
    return workers, producer


def test_records_do_not_end() -> None:
    _, producer = play(3)
    assert len(producer.values) == 3 * PRODUCED_PER_SECOND
    assert len(set(producer.values)) == 100, "the same flights again"


def test_workers_go_in_turn_and_come_back() -> None:
    workers, _ = play(FIRST_S + EVERY_S * len(TURNS) + 17)
    gone_and_back = [(what, name) for name in TURNS for what in ("ends", "begins")]
    assert workers.acts == [*gone_and_back, ("is killed", TURNS[0]), ("begins", TURNS[0])]


def test_the_groups() -> None:
    options = options_of("somewhere:9092")
    assert {one.name for one in options} >= set(TURNS)
    assert {one.protocol for one in options if one.group == "search"} == {"consumer"}
    assert sum(one.group == "billing" for one in options) < PARTITIONS
