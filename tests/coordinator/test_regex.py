"""Regular expressions of subscriptions: valid ones, their matches, and the limits of their cost."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from time_taken import takes_less

from kohort.coordinator.events import Found, PatternsAsked
from kohort.coordinator.patterns.regex import WORK, matching, problem_of, search

LONGEST = 2_048


def filled(with_what: str) -> str:
    return with_what * (LONGEST // len(with_what))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ("orders",)),
        ("^orders", ("orders",)),
        ("^orders.*", ("orders", "orders-eu", "orders.us")),
        ("orders[-.]..", ("orders-eu", "orders.us")),
        ("(^orders-.*)|(^pay.*)", ("orders-eu", "payments")),
        ("(?i)ORDERS", ("orders",)),
        ("rder", ()),
        (r"\Qorders.us\E", ("orders.us",)),
        (r"(?P<what>orders).(?P<where>eu)", ("orders-eu",)),
        (".*", ("orders", "orders-eu", "orders.us", "payments")),
        ("", ()),
        ("ordersé*", ("orders",)),
    ],
)
def test_the_whole_name_has_to_match(pattern: str, found: tuple[str, ...]) -> None:
    assert problem_of(pattern, LONGEST) == ""
    assert matching(pattern, ("orders", "orders-eu", "orders.us", "payments")) == found


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a-", "*", "a**", "a{2,1}", "(?=a)", "(?<!a)", r"(a)\1", "\\", "a{1001}", r"\p{Nobody}"],
)
def test_an_invalid_pattern_is_refused_with_a_reason(pattern: str) -> None:
    assert problem_of(pattern, LONGEST)
    assert matching(pattern, ("a",)) is None


@pytest.mark.parametrize("pattern", ["a" * (LONGEST + 1), "(?:[^a]{99}){9}", ".{1000}", r"\pL\PL" * 5, "[^a]" * 500])
def test_a_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    assert problem_of(pattern, LONGEST)


def test_a_task_is_answered_pattern_by_pattern() -> None:
    done = search(PatternsAsked(7, (("a.", ("a1", "b1")), ("(", ("a1",)), ("b1", ("a1", "b1")))))
    assert done.number == 7
    assert done.found == (Found(2, ("a1",)), None, Found(2, ("b1",)))


def test_an_expensive_search_is_done_in_parts() -> None:
    expensive, cheap = "(?:(?:[ab]{0,30}){0,30}a)", "[ab]*"
    names = tuple("ab" * 100 + str(number) for number in range(1_000))
    assert not problem_of(expensive, LONGEST)
    one, other = search(PatternsAsked(1, ((expensive, names), (cheap, names)))).found
    assert 1 <= one.looked_at <= WORK / 200 / 1_000, "a program of more than a thousand instructions"
    assert other.looked_at == len(names), "it has its own share"


@settings(derandomize=True, database=None, deadline=None)
@given(st.from_regex(r"[ab.*+?()|^$]{0,8}", fullmatch=True), st.lists(st.text("ab", max_size=6), max_size=6))
def test_it_finds_what_python_finds(pattern: str, names: list[str]) -> None:
    try:
        known = re.compile(pattern)
    except re.error:
        return
    if not problem_of(pattern, LONGEST):
        assert matching(pattern, names) == tuple(name for name in names if known.fullmatch(name))


HOSTILE_TO_CHECK = [
    filled("a?"),
    "(?i)" + filled("a?")[4:],
    filled("\uffff?"),
    filled("[b-\uffff]"),
    filled("a{1,9}"),
    r"(?i:[\PL\pN\P{Greek}])" * 2 + "a?" * 900,
    r"(?i:\PL)" * 8,
    "(?:" * 400 + "a" + ")*" * 400,
    "((a{100}){100}){100}",
]
HOSTILE_TO_SEARCH = [
    "(a*)*b",
    "(?:(?:[ab]{0,30}){0,30}a)",
    "(?:a|b|ab|ba|aab|bba){220}",
    "(?:(?:a?){5}(?:b?){5}){100}",
    ".*a.{100}|.*b.{100}",
]


@pytest.mark.parametrize("pattern", HOSTILE_TO_CHECK)
def test_a_check_takes_milliseconds_at_most(pattern: str) -> None:
    """2 ms at the most here; the bound leaves room for a busy machine."""
    assert len(pattern) <= LONGEST
    took = []
    for _ in range(3):
        start = time.thread_time()
        problem_of(pattern, LONGEST)
        took.append(time.thread_time() - start)
    assert min(took) < 0.05


@pytest.mark.parametrize("pattern", HOSTILE_TO_SEARCH)
def test_a_search_takes_time_in_proportion_to_the_names(pattern: str) -> None:
    """1.6 ms for the longest name, made for the pattern; a backtracking search would not end."""
    assert not problem_of(pattern, LONGEST)
    names = ["".join("ab"[(n * n + length) % 7 % 2] for n in range(249)) for length in range(20)]
    with takes_less(2, time.thread_time):
        assert matching(pattern, names) is not None
