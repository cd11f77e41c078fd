"""The schedule of turns, without IO: an edge that notes what it is asked for, and a broker that decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kohort.broker.turn import Arrived, Closed, ConnectionId, Frame, Millis, MoveGroup, Opened, Shutdown, Turn
from kohort.broker.turn_schedule import TurnSchedule
from kohort.storage.protocol import CreateLog, LogKey

HERE = ConnectionId(1)
READ, WRITE = Frame(HERE, b"read"), Frame(HERE, b"write")
ANSWER = b"answer", 4


class Scene:
    """Broker, edge and observer of a schedule; `said` has their calls since it was last read."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.arrived: list[list[Arrived]] = []
        self.busy = False
        self.deadline: Millis | None = None
        self.schedule = TurnSchedule(self, self, (self,))

    def since(self) -> list[object]:
        said, self.said = self.said, []
        return said

    def begin(self) -> list[object]:
        self.schedule.begin(0)
        return self.since()

    # -- the broker

    def step(self, arrived: Sequence[Arrived], now: Millis) -> Turn:
        self.arrived.append(list(arrived))
        writes = [CreateLog(LogKey(b"t" * 16, 0)) for event in arrived if event is WRITE]
        return Turn(tuple(writes), ())

    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]:
        return ANSWER

    def next_deadline(self) -> Millis | None:
        return self.deadline

    # -- the edge

    def begin_soon(self) -> None:
        self.said.append("begin soon")

    def commit(self, turn: Turn) -> None:
        self.said.append("commit")

    def release(self, turn: Turn) -> None:
        self.said.append("release")

    def wake_at(self, deadline: Millis) -> None:
        self.said.append(deadline)

    # -- the observer

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self.said.append("turn begins")

    def decided(self, turn: Turn) -> None:
        self.said.append("decided")

    def committed(self, turn: Turn) -> None:
        self.said.append("committed")

    def turn_ends(self, turn: Turn) -> None:
        self.said.append("turn ends")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_answers_leave_after_the_commit_and_observers_see_each_moment(scene: Scene) -> None:
    scene.schedule.arrive(WRITE)
    assert scene.since() == ["begin soon"]
    assert scene.begin() == ["turn begins", "decided", "commit"]
    scene.schedule.committed()
    assert scene.since() == ["committed", "release", "turn ends"]


def test_a_turn_without_operations_is_released_without_a_commit(scene: Scene) -> None:
    scene.schedule.arrive(READ)
    assert scene.begin() == ["begin soon", "turn begins", "decided", "release", "turn ends"]
    assert scene.begin() == [], "no turn is due"


def test_what_arrives_during_a_commit_waits_for_the_next_turn(scene: Scene) -> None:
    scene.schedule.arrive(WRITE)
    scene.begin()
    scene.schedule.arrive(READ)
    scene.schedule.arrive(READ)
    assert scene.begin() == [], "a turn is under way"
    assert scene.schedule.waiting == 2
    scene.schedule.committed()
    assert scene.since() == ["committed", "release", "turn ends", "begin soon"]
    scene.begin()
    assert scene.arrived == [[WRITE], [READ, READ]]


def test_controls_come_before_what_arrived_and_a_shutdown_comes_last(scene: Scene) -> None:
    """A control was checked against the state before the turn's requests."""
    move, shutdown = MoveGroup("group", 1), Shutdown()
    scene.schedule.arrive(READ)
    scene.schedule.begin(0, (move,), (shutdown,))
    assert scene.arrived == [[move, READ, shutdown]]


def test_at_once_waits_for_nobody_but_those_who_came_before(scene: Scene) -> None:
    schedule = scene.schedule
    assert schedule.at_once(HERE, b"beat", 0) == ANSWER
    schedule.arrive(Opened(ConnectionId(2), 1, "127.0.0.1"))
    assert schedule.at_once(HERE, b"beat", 0) == ANSWER, "nobody waits for a new connection"
    schedule.arrive(Closed(ConnectionId(2)))
    assert schedule.at_once(HERE, b"beat", 0) == (b"", 0)
    schedule.arrive(WRITE)
    scene.begin()
    assert schedule.at_once(HERE, b"beat", 0) == (b"", 0), "a turn is under way"
    schedule.committed()
    assert schedule.at_once(HERE, b"beat", 0) == ANSWER


def test_a_busy_broker_gets_the_next_turn_at_once(scene: Scene) -> None:
    scene.busy = True
    scene.schedule.wake()
    assert scene.begin()[-1] == "begin soon"


def test_the_timer_moves_only_to_an_earlier_deadline(scene: Scene) -> None:
    found = []
    for deadline in (100, 120, 80, None, 80):
        scene.deadline = deadline
        scene.schedule.wake()
        found.append([said for said in scene.begin() if isinstance(said, int)])
    assert found == [[100], [], [80], [], []]
    scene.schedule.deadline_reached()
    assert [said for said in scene.begin() if said in ("begin soon", 80)] == ["begin soon", 80]


def test_nothing_is_released_after_a_stop(scene: Scene) -> None:
    scene.schedule.arrive(WRITE)
    scene.begin()
    scene.schedule.stop()
    scene.schedule.committed()
    scene.schedule.arrive(READ)
    scene.schedule.wake()
    assert scene.begin() == []
    assert scene.schedule.at_once(HERE, b"beat", 0) == (b"", 0)
