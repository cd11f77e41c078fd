"""Timers as data, compared with a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator import deadlines
from kohort.coordinator.deadlines import Deadline, Deadlines

MOVES = st.lists(
    st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 20)), st.integers(0, 3), st.booleans()),
    max_size=60,
)


@given(MOVES)
def test_they_come_up_when_they_are_due(moves: list[tuple[str, int | None, int, bool]]) -> None:
    timers: Deadlines[str] = Deadlines()
    plain: dict[str, int] = {}
    kept: dict[str, Deadline] = {}
    now = 0
    for key, when, passes, postpones in moves:
        if when is None:
            timers.clear(key)
            plain.pop(key, None)
        elif postpones:
            # A kept deadline, even one kept since before it was cleared, postpones only an armed deadline.
            is_later = timers.get(key) is not None and now + when >= plain[key]
            if key in kept and kept[key].postpone(now + when):
                assert is_later
                plain[key] = now + when
            assert timers.find(key) is None or kept.get(key) is not timers.find(key) or timers.get(key) == plain[key]
        else:
            timers.set(key, now + when)
            plain[key] = now + when
        if (deadline := timers.find(key)) is not None:
            kept[key] = deadline
        assert timers.items() == sorted(plain.items(), key=lambda item: (item[1], item[0]))
        assert timers.next() == min(plain.values(), default=None)
        now += passes
        due = {key for key, deadline in plain.items() if deadline <= now}
        found = set()
        while (key_due := timers.pop_due(now)) is not None:
            found.add(key_due)
            del plain[key_due]
        assert found == due


def test_cleared_deadlines_leave_the_heap() -> None:
    timers: Deadlines[str] = Deadlines()
    timers.set("stays", 500_000)
    for number in range(20_000):
        timers.set(f"short-lived {number}", 300_000 + number)
        timers.clear(f"short-lived {number}")
        assert timers.places <= deadlines.SPARE_PLACES + 4
    assert timers.next() == 500_000


def test_clearing_up_keeps_the_order() -> None:
    timers: Deadlines[int] = Deadlines()
    for number in range(100):
        timers.set(number, 7)
    for number in range(1_000, 10_000):
        timers.set(number, 7)
        timers.clear(number)
    timers.set(50, 9)
    due = []
    while (key := timers.pop_due(10)) is not None:
        due.append(key)
    assert due == [*range(50), *range(51, 100), 50]


def test_deadlines_are_lengthened() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, when in (("a", 5), ("b", 20), ("other", 7)):
        deadlines.set(key, when)
    assert deadlines.lengthen(100, lambda key: key != "other", 10) == ["a"]
    assert [deadlines.pop_due(when) for when in (7, 104, 105, 119, 120)] == ["other", None, "a", None, "b"]
