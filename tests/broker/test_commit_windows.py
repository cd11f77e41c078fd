"""Burrow's status of the partitions that a group reads. The cases follow calculatePartitionStatus in Burrow's
caching.go: rule by rule, and their order."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit
from wire_driver import Connection, Wire, delete_topics

from kohort.broker.lag import commit_windows
from kohort.broker.lag.commit_windows import COMMITS, RECENT_MS, BurrowStatus, Window
from kohort.broker.lag.lag_times import FORGET_MS, NEVER, Ring
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

OK, WARN, STOP, STALL, REWIND = (
    BurrowStatus.OK,
    BurrowStatus.WARN,
    BurrowStatus.STOP,
    BurrowStatus.STALL,
    BurrowStatus.REWIND,
)
S = 1_000
PARTITIONS = 1
NOWHERE: Any = None
"""A window of its own needs no partition."""


def ring_of(*points: tuple[int, int]) -> Ring:
    """Seconds and ends."""
    ring = Ring()
    for second, end in points:
        ring.add(end, second * S)
    return ring


def status(*commits: tuple[int, int, int | None], end: int, now: int, recent: Ring | None = None) -> int:
    """`commits`: seconds, offsets and lags."""
    window = Window(NOWHERE, commits[0][0] * S)
    for second, offset, lag in commits:
        ring = ring_of((second, offset + lag)) if lag is not None else None
        window.add(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=second * S), ring)
    return window.status(end, recent, now * S)


@pytest.mark.parametrize(
    ("offsets", "lags", "now", "expected"),
    [
        ((10, 20, 30, 40, 50), (5, 10, 15, 20, 25), 60, WARN),
        ((10, 20, 30, 40, 50), (5, 5, 5, 5, 5), 60, WARN),
        ((10, 20, 30, 40, 50), (5, 10, 9, 20, 25), 60, OK),
        ((10, 20, 30, 40, 50), (0, 10, 15, 20, 25), 60, OK),
        ((10, 10, 10, 10, 10), (5, 10, 15, 20, 25), 60, STALL),
        ((10, 10, 10, 10, 10), (5, 5, 5, 5, 5), 60, STALL),
        ((10, 10, 10, 10, 10), (0, 5, 10, 15, 20), 60, OK),
        ((10, 20, 5, 15, 19), (5, 5, 5, 5, 5), 60, REWIND),
        ((10, 20, 5, 15, 19), (0, 5, 5, 5, 5), 60, REWIND),
        ((10, 20, 5, 15, 20), (5, 4, 5, 5, 5), 60, OK),
        ((10, 20, 5, 20, 30), (5, 5, 5, 5, 5), 60, WARN),
        ((10, 20, 30, 40, 50), (5, 10, 15, 20, 25), 90, WARN),
        ((10, 20, 30, 40, 50), (5, 10, 15, 20, 25), 91, STOP),
        ((10, 20, 30, 40, 50), (0, 10, 15, 20, 25), 91, STOP),
        ((10, 10, 10, 10, 10), (5, 10, 15, 20, 25), 91, STOP),
        ((10, 20, 5, 15, 19), (5, 5, 5, 5, 5), 91, STOP),
        ((10, 20, 30, 40, 50), (None, 10, None, 20, 25), 60, WARN),
        ((10, 20, 30, 40, 50), (None, 10, None, 9, 25), 60, OK),
        ((10, 20, 30, 40, 50), (None,) * 5, 60, WARN),
    ],
)
def test_rules(offsets: tuple[int, ...], lags: tuple[int | None, ...], now: int, expected: int) -> None:
    commits = list(zip(range(10, 60, 10), offsets, lags, strict=True))
    assert status(*commits, end=99, now=now) == expected
    assert status(*commits, end=offsets[-1], now=now) == OK, "there is no lag any more"


def test_a_group_that_had_no_lag_a_short_time_ago_has_not_stopped() -> None:
    commits = ((10, 5, 3), (20, 9, 3))
    for recent, expected in (
        (ring_of((40, 9), (50, 12)), WARN),
        (ring_of((40, 10), (50, 12)), STOP),
        (ring_of((10, 8), (50, 12)), WARN),
        (ring_of((50, 12)), STOP),
    ):
        assert status(*commits, end=12, now=60, recent=recent) == expected
    long_ago = ring_of((10, 8), (50, 12))
    assert status(*commits, end=12, now=10 + RECENT_MS // S, recent=long_ago) == WARN
    assert status(*commits, end=12, now=11 + RECENT_MS // S, recent=long_ago) == STOP


def test_one_commit_is_not_judged_at_once() -> None:
    assert status((10, 5, 3), end=8, now=10 + RECENT_MS // S) == OK
    assert status((10, 5, 3), end=8, now=11 + RECENT_MS // S) == STOP


def test_a_window_has_the_newest_commits() -> None:
    window, ring = Window(NOWHERE, 0), ring_of((5, 100))
    for second in range(1, 15):
        for _ in range(2):  # the same commit is seen again and again
            window.add(OffsetCommitValue(offset=second, metadata="", commit_timestamp=second * S), ring)
    assert list(window.times) == [second * S for second in range(5, 15)]
    assert list(window.lags) == [100 - second for second in range(5, 15)], (
        "the log ended at 100 from the fifth second on"
    )
    assert len(window.offsets) == COMMITS


# -- in a broker


def told(client: Connection, topic: str = "t") -> int:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),), with_lag=True)
    [group] = client.ask(request, 8).groups
    [row] = [row for found in group.topics if found.name == topic for row in found.partitions]
    found: int = row.burrow_status
    return found


def test_a_group_that_falls_behind_and_stops(client: Connection, wire: Wire) -> None:
    client.produce("t", "a", "b")
    commit(client, 2)
    assert told(client) == OK
    assert not wire.broker.state.commit_windows.windows, "there is no lag"
    client.produce("t", "c", "d", "e")
    assert told(client) == OK, "nothing is known but one commit"
    for offset in (3, 4, 5):
        client.produce("t", "x", "y")
        wire.advance(5_000)
        commit(client, offset)
        wire.advance(1_000)  # the upkeep sees the commit without a question
    assert told(client) == WARN
    window = next(iter(wire.broker.state.commit_windows.windows.values()))
    assert (list(window.offsets), list(window.lags)) == ([2, 3, 4, 5], [3, 4, 5, 6])
    for _ in range(2):
        assert told(client) == WARN
        wire.advance(17_000)
    assert told(client) == WARN, "the log ended at the committed offset 100 s ago"
    wire.advance(90_000)
    assert told(client) == STOP
    commit(client, 11)
    assert told(client) == OK


def test_commits_that_do_not_move_and_that_go_back(client: Connection, wire: Wire) -> None:
    client.produce("t", *"abcdef")
    for offset, expected in ((3, OK), (3, STALL), (3, STALL), (2, REWIND), (2, REWIND), (4, OK)):
        commit(client, offset)
        assert told(client) == expected
        wire.advance(1_500)


def test_windows_are_forgotten(client: Connection, wire: Wire) -> None:
    windows = wire.broker.state.commit_windows
    client.produce("t", "a")
    commit(client, 0)
    told(client)
    wire.advance(FORGET_MS)
    assert windows.windows
    wire.advance(2_000)
    assert not windows.windows
    assert windows.due_ms == NEVER
    told(client)
    client.ask(delete_topics("t"), 5)
    wire.advance(2_000)
    assert not windows.windows, "its offsets are deleted with the topic"


def test_a_topic_that_is_made_anew_has_a_window_of_its_own(client: Connection, wire: Wire) -> None:
    client.produce("t", "a")
    commit(client, 0)
    told(client)
    [first] = wire.broker.state.commit_windows.windows.values()
    client.ask(delete_topics("t"), 5)
    client.create_topic("t", 1)
    client.produce("t", "a", "b")
    commit(client, 1)
    assert told(client) == OK
    [second] = wire.broker.state.commit_windows.windows.values()
    assert second is not first
    assert list(second.offsets) == [1]


def test_limits(client: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_topic("many", 5)
    for at in range(5):
        client.produce("many", "a", partition=at)
        commit(client, 0, topic="many", partition=at)
    windows = wire.broker.state.commit_windows
    monkeypatch.setattr(commit_windows, "MOST_WINDOWS", 3)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),), with_lag=True)
    [group] = client.ask(request, 8).groups
    assert [row.burrow_status for row in group.topics[0].partitions] == [1, 1, 1, -1, -1]
    assert len(windows.windows) == 3
    monkeypatch.setattr(commit_windows, "WINDOWS_A_TURN", 2)
    now = windows.due_ms
    windows.sample(now)
    assert windows.due_ms == now + 1
    windows.sample(now + 1)
    assert windows.due_ms == now + 1_000
