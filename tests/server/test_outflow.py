"""The shared limit of answers: those that are unread, and those that are being made."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kohort.broker.connection import Connection
from kohort.broker.request import InSteps
from kohort.broker.works import UNFINISHED, Works
from kohort.server.outflow import Outflow

MB = 1_000_000


class Unread:
    def __init__(self, unsent: int) -> None:
        self.unsent = unsent
        self.aborted = ""

    def abort_for(self, reason: str) -> None:
        self.aborted = reason
        self.unsent = 0


@pytest.mark.parametrize(
    ("unsent", "unfinished", "largest", "aborted", "left"),
    [
        ((40, 30, 20), 0, 0, 0, 10),
        ((60, 30, 20), 0, 0, 1, 50),
        ((40, 30, 20), 30, 10, 1, 50),  # the largest of all does not read
        ((40, 30, 20), 60, 50, 0, 10),  # the largest of all is being made: the broker drops it
        ((40, 30, 20), 90, 35, 1, 50),
        ((60, 60, 60), 0, 0, 2, 40),
    ],
)
def test_who_holds_the_most_pays(
    unsent: tuple[int, ...], unfinished: int, largest: int, aborted: int, left: int
) -> None:
    outflow = Outflow(100)
    writers = [Unread(size) for size in unsent]
    for writer in writers:
        outflow.sent(writer)
    assert outflow.room(unfinished, largest) == left
    assert [bool(writer.aborted) for writer in writers] == [n < aborted for n in range(len(writers))]


def test_answers_that_are_made_keep_below_what_unread_ones_leave() -> None:
    works = Works(100, lambda connection: None)
    connections = [begun(works, size, 1) for size in (50, 30)]
    told = []

    def room(unfinished: int, largest: int) -> int:
        told.append((unfinished, largest))
        return 40

    assert works.largest() is None
    works.share(room)
    assert told == [(80, 50)]
    assert works.largest() is connections[0]
    works.drop(connections[0])
    assert works.largest() is None


def test_an_answer_that_waits_is_made_although_others_begin_all_the_time() -> None:
    resumed: list[Connection] = []
    works = Works(100, resumed.append)
    large = [begun(works, 30, 3), begun(works, 30, 3)]
    for connection in large:
        works.go_on(connection, 1, lambda: False)
    small = begun(works, 1, 1)
    done = 0
    while large:
        assert (done := done + 1) < 50
        for connection in list(large):
            if not connection.work.waits and works.go_on(connection, 1, lambda: False) is not UNFINISHED:  # type: ignore[union-attr]
                works.drop(connection)
                large.remove(connection)
                works.free(lambda: False)
        behind = begun(works, 1, 1)
        assert works.go_on(small, 2, lambda: False) is not UNFINISHED, "small answers go on as well"
        works.drop(small)
        small = behind
    assert len(resumed) == 1


def test_an_answer_waits_before_it_takes_what_a_large_step_tells() -> None:
    """Each producer of a batch tells that it takes 25 MB next. Together they stay below the limit."""
    works = Works(84 * MB, lambda connection: None)
    producers = [begun(works, MB, 2, 25 * MB) for _ in range(4)]
    for _ in range(2):
        for connection in producers:
            if connection.work is not None and not connection.work.waits:
                works.go_on(connection, 10, lambda: False)
    assert works.largest() is None, "none has to be closed"


def begun(works: Works, size: int, steps: int, grows: int = 0) -> Connection:
    """A connection with an answer of this size that is made in steps, each of which makes it larger by `grows`."""
    connection = Connection.__new__(Connection)
    connection.work, connection.is_unread = None, False
    works.begin(connection, SimpleNamespace(request_id=size), InSteps(iter([grows] * steps)), size)  # type: ignore[arg-type]
    return connection
