"""The schedule of turns, without IO: an edge that notes what it is asked for, and a broker that decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kohort.broker.turn import Arrived, ConnectionId, Frame, Millis, MoveGroup, Opened, Shutdown, Turn
from kohort.broker.turn_schedule import LOOK_MS, PAUSE_MS, TurnSchedule
from kohort.coordinator.events import ServerPaused
from kohort.storage.protocol import CreateLog, LogKey

HERE = ConnectionId(1)
READ, WRITE = Frame(HERE, b"read"), Frame(HERE, b"write")
ANSWER = b"answer", 4


class Calls(list[object]):
    """The calls of methods, by name; a time stands for `wake_at`."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.append(args[0] if name == "wake_at" else name)


class Scene:
    """A schedule and its broker."""

    def __init__(self) -> None:
        self.edge_and_observer: Any = Calls()
        self.arrived: list[list[Arrived]] = []
        self.busy = False
        self.deadline: Millis | None = None
        self.schedule = TurnSchedule(self, self.edge_and_observer, (self.edge_and_observer,))

    def since(self) -> list[object]:
        """The calls of the edge and of the observer since the last look."""
        said = self.edge_and_observer.copy()
        self.edge_and_observer.clear()
        return list(said)

    def begin(self, now: Millis = 0) -> list[object]:
        self.schedule.begin(now)
        return self.since()

    def step(self, arrived: Sequence[Arrived], now: Millis, time_is_up: Callable[[], int]) -> Turn:
        self.arrived.append(list(arrived))
        writes = [CreateLog(LogKey(b"t" * 16, 0)) for event in arrived if event is WRITE]
        return Turn(tuple(writes), ())

    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]:
        return ANSWER

    def next_deadline(self) -> Millis | None:
        return self.deadline


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_answers_leave_after_the_commit_and_observers_see_each_moment(scene: Scene) -> None:
    scene.schedule.arrive(WRITE)
    assert scene.since() == ["begin_soon"]
    assert scene.begin() == ["turn_begins", "decided", "commit"]
    scene.schedule.committed()
    assert scene.since() == ["committed", "release", "turn_ends"]


def test_a_turn_without_operations_is_released_without_a_commit(scene: Scene) -> None:
    scene.schedule.arrive(READ)
    assert scene.begin() == ["begin_soon", "turn_begins", "decided", "release", "turn_ends"]
    assert scene.begin() == [], "no turn is due"


def test_requests_that_arrive_during_a_commit_wait_for_the_next_turn(scene: Scene) -> None:
    scene.schedule.arrive(WRITE)
    scene.begin()
    scene.schedule.arrive(READ)
    scene.schedule.arrive(READ)
    assert scene.begin() == [], "a turn is under way"
    assert scene.schedule.waiting == 2
    scene.schedule.committed()
    assert scene.since() == ["committed", "release", "turn_ends", "begin_soon"]
    scene.begin()
    assert scene.arrived == [[WRITE], [READ, READ]]


def test_controls_come_before_what_arrived(scene: Scene) -> None:
    """A control was checked against the state before the turn's requests, and a shutdown waits for none of them."""
    move, shutdown = MoveGroup("group", 1), Shutdown()
    scene.schedule.arrive(READ)
    scene.schedule.begin(0, (move, shutdown))
    assert scene.arrived == [[move, shutdown, READ]]


def test_an_answer_without_a_turn_waits_only_for_earlier_requests_of_its_connection(scene: Scene) -> None:
    schedule, other = scene.schedule, ConnectionId(2)
    assert schedule.at_once(HERE, b"beat", 0) == ANSWER
    schedule.arrive(Opened(other, 1, "127.0.0.1"))
    schedule.arrive(Frame(other, b"join"))
    schedule.wake()
    assert schedule.at_once(HERE, b"beat", 0) == ANSWER, "others' requests do not come before"
    assert schedule.at_once(other, b"beat", 0) == (b"", 0)
    schedule.arrive(WRITE)
    assert schedule.at_once(HERE, b"beat", 0) == (b"", 0)
    scene.begin()
    assert schedule.at_once(other, b"beat", 0) == (b"", 0), "a turn is under way"
    assert schedule.at_once(HERE, b"beat", 0) == (b"", 0), "a turn is under way"
    schedule.committed()
    assert schedule.at_once(HERE, b"beat", 0) == ANSWER


def test_a_busy_broker_gets_the_next_turn_at_once(scene: Scene) -> None:
    scene.busy = True
    scene.schedule.wake()
    assert scene.begin()[-1] == "begin_soon"


def test_the_timer_moves_only_to_an_earlier_deadline(scene: Scene) -> None:
    found = []
    for deadline in (100, 120, 80, None, 80):
        scene.deadline = deadline
        scene.schedule.wake()
        found.append([said for said in scene.begin() if isinstance(said, int)])
    assert found == [[100], [], [80], [], []]
    scene.schedule.deadline_reached()
    assert [said for said in scene.begin() if said in ("begin_soon", 80)] == ["begin_soon", 80]


def test_nothing_is_released_after_a_stop(scene: Scene) -> None:
    scene.schedule.arrive(WRITE)
    scene.begin()
    scene.schedule.stop()
    scene.schedule.committed()
    scene.schedule.arrive(READ)
    scene.schedule.wake()
    assert scene.begin() == []
    assert scene.schedule.at_once(HERE, b"beat", 0) == (b"", 0)


def test_the_turn_after_a_pause_begins_with_the_lost_time(scene: Scene) -> None:
    schedule = scene.schedule
    schedule.wake()
    scene.begin(1_000)
    schedule.look(1_000 + LOOK_MS)
    assert schedule.at_once(HERE, b"beat", 1_300) == ANSWER
    assert schedule.at_once(HERE, b"beat", 9_000) == (b"", 0), "the pause is handled before"
    schedule.look(9_000)
    schedule.arrive(READ)
    assert schedule.is_late(9_000)
    assert "paused" in scene.begin(9_000)
    lost_ms = 9_000 - (1_000 + LOOK_MS) - PAUSE_MS
    assert scene.arrived[-1] == [ServerPaused(lost_ms, "the server did not run for 7.8 s"), READ]
    assert not schedule.is_late(9_000)


def test_a_slow_commit_is_a_pause(scene: Scene) -> None:
    schedule = scene.schedule
    schedule.arrive(WRITE)
    scene.begin(1_000)
    for now in range(1_000, 8_000, LOOK_MS):
        schedule.look(now)
    schedule.committed()
    schedule.look(8_000)
    scene.begin(8_000)
    assert scene.arrived[-1] == [ServerPaused(7_000 - PAUSE_MS, "a commit took 7.0 s")]


def test_a_server_without_requests_is_not_paused(scene: Scene) -> None:
    schedule = scene.schedule
    schedule.wake()
    scene.begin(0)
    for now in range(0, 60_000, LOOK_MS):
        schedule.look(now)
    schedule.arrive(READ)
    scene.begin(60_000)
    assert scene.arrived[-1] == [READ]


def test_a_clock_that_is_advanced_by_hand_shows_no_pause(scene: Scene) -> None:
    schedule = TurnSchedule(scene, scene.edge_and_observer, finds_pauses=False)
    for now in (0, 60_000):
        schedule.arrive(READ)
        schedule.begin(now)
    assert scene.arrived == [[READ], [READ]]
