"""Which job is next, and which topic is asked next, without IO."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kohort.client.queue.backlog import Backlog, TopicTurns


@dataclass(frozen=True)
class Job:
    number: int
    key: bytes | None = None
    topic: str = "jobs"


def test_jobs_of_a_key_come_one_by_one_in_order() -> None:
    backlog: Backlog[Job] = Backlog(1)
    jobs = [Job(0, b"a"), Job(1, b"a"), Job(2), Job(3, b"b"), Job(4, b"a"), Job(5, b"a", "others")]
    for job in jobs:
        backlog.add(job)
    first = [backlog.pop() for _ in range(5)]
    assert first == [jobs[0], jobs[2], jobs[3], jobs[5], None]
    assert (len(backlog), backlog.ready, backlog.blocked) == (2, 0, 2)
    backlog.ended(jobs[2])
    assert backlog.pop() is None
    backlog.ended(jobs[0])
    assert backlog.pop() == jobs[1]
    backlog.ended(jobs[1])
    late = Job(6, b"a")
    backlog.add(late)
    assert [backlog.pop(), backlog.pop()] == [jobs[4], None]
    backlog.ended(jobs[4])
    assert backlog.pop() == late
    backlog.ended(late)
    assert len(backlog) == 0


def test_a_limit_above_one() -> None:
    backlog: Backlog[Job] = Backlog(2)
    jobs = [Job(number, b"a") for number in range(4)]
    for job in jobs:
        backlog.add(job)
    assert [backlog.pop() for _ in range(3)] == [jobs[0], jobs[1], None]
    backlog.ended(jobs[1])
    assert [backlog.pop(), backlog.pop()] == [jobs[2], None]


def test_jobs_that_are_lost_while_they_wait() -> None:
    backlog: Backlog[Job] = Backlog(1)
    jobs = [Job(number, b"a") for number in range(3)]
    for job in jobs:
        backlog.add(job)
    assert backlog.remove(jobs[1])
    assert not backlog.remove(jobs[1])
    assert backlog.remove(jobs[0])
    assert backlog.drain() == [jobs[2]]
    backlog.add(Job(9, b"a"))
    assert backlog.pop() == Job(9, b"a")


def asked(turns: TopicTurns, topics: list[str], full: set[str], rounds: int) -> Counter[str | None]:
    """How often each topic was asked; those in `full` have always records."""
    found: Counter[str | None] = Counter()
    for _ in range(rounds):
        topic = turns.next(topics)
        found[topic] += 1
        turns.fetched(topic, int(topic in full if topic is not None else bool(full)))
    return found


def test_topics_are_asked_by_weight() -> None:
    topics = ["high", "low"]
    turns = TopicTurns({"high": 3, "low": 1})
    assert asked(turns, topics, {"high", "low"}, 40) == {"high": 30, "low": 10}
    found = asked(turns, topics, {"low"}, 40)
    assert found["low"] >= 18, "the topic with jobs gets the slots"
    assert found["high"] >= 10, "the empty topic is asked again and again"


def test_empty_topics_are_waited_for_together() -> None:
    turns = TopicTurns({"high": 3, "low": 1})
    assert asked(turns, ["high", "low"], set(), 10) == {"high": 1, "low": 1, None: 8}
    turns.fetched(None, 1)
    assert turns.next(["high", "low"]) == "high"
    assert TopicTurns({"only": 1}).next(["only"]) is None
