"""The search for topics that patterns match: every name once, in parts, in turns; late results change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.events import Found, PatternsAsked, PatternsResolved
from kohort.coordinator.patterns.pattern_matches import (
    MATCH_BYTES,
    MOST_UNUSED,
    MOST_UNUSED_MATCHES,
    NAMES_A_TASK,
    PATTERNS_A_TASK,
    PatternMatches,
)
from kohort.coordinator.patterns.regex import search
from kohort.coordinator.topics import Topics, topics_of


def topics(names: Iterable[str]) -> Topics:
    return topics_of(TopicSpec(name.encode().ljust(16, b"\0"), name, 1) for name in names)


def matches_of(*names: str) -> PatternMatches:
    """Of these topics."""
    matches = PatternMatches()
    matches.change_topics(topics(names), None)
    return matches


def work(matches: PatternMatches) -> list[PatternsAsked]:
    """Do all tasks."""
    done = []
    while (task := matches.next_task()) is not None:
        assert matches.next_task() is None, "one task at a time"
        done.append(task)
        matches.take(search(task))
    return done


def compared(tasks: Iterable[PatternsAsked]) -> list[tuple[str, str]]:
    return sorted((text, name) for task in tasks for text, names in task.asked for name in names)


def test_every_name_is_compared_once_with_every_pattern() -> None:
    matches = matches_of("a1", "a2", "b1")
    matches.use("a.", "g")
    matches.use(".1", "h")
    assert matches.matched("a.") is None
    everything = [(text, name) for text in (".1", "a.") for name in ("a1", "a2", "b1")]
    assert compared(work(matches)) == sorted(everything)
    assert matches.matched("a.") == {"a1", "a2"}
    assert matches.matched(".1") == {"a1", "b1"}
    assert matches.change_topics(topics(("a1", "a3", "b1")), ("a2", "a3")) == ["a."]
    assert matches.matched("a.") is None, "until the new topic has been compared"
    assert compared(work(matches)) == [(".1", "a3"), ("a.", "a3")]
    assert matches.matched("a.") == {"a1", "a3"}
    assert matches.change_topics(topics(("a3",)), None) == ["a.", ".1"]
    assert work(matches) == []
    assert (matches.matched("a."), matches.matched(".1")) == ({"a3"}, frozenset())


def test_many_names_are_compared_in_parts_and_patterns_take_turns() -> None:
    matches = PatternMatches()
    names = [f"t{number}" for number in range(2 * NAMES_A_TASK + 10)]
    matches.change_topics(topics(names), None)
    matches.use(".*", "g")
    matches.use("t.", "h")
    tasks = work(matches)
    assert all(sum(len(names) for _, names in task.asked) <= NAMES_A_TASK for task in tasks)
    assert [task.asked[0][0] for task in tasks] == [".*", "t.", ".*", "t.", ".*"]
    assert len(compared(tasks)) == len(set(compared(tasks))) == 2 * len(names)
    assert matches.matched(".*") == set(names)


def test_a_result_may_cover_the_first_names_only() -> None:
    matches = matches_of("t1", "t2", "u1")
    matches.use("t.", "g")
    first = matches.next_task()
    ((_, names),) = first.asked
    found = tuple(name for name in names[:1] if name.startswith("t"))
    assert matches.take(PatternsResolved(first.number, (Found(1, found),))) == []
    assert compared(work(matches)) == [("t.", name) for name in sorted(names[1:])]
    assert matches.matched("t.") == {"t1", "t2"}


def test_topics_may_change_during_a_search() -> None:
    matches = matches_of("t1", "t2")
    matches.use("t.", "g")
    under_way = matches.next_task()
    matches.change_topics(topics(("t2", "t3")), None)
    matches.change_topics(topics(("t1", "t3")), ("t1", "t2"))
    assert matches.take(search(under_way)) == [], "t3 has not been compared"
    work(matches)
    assert matches.matched("t.") == {"t1", "t3"}


def test_the_list_of_names_does_not_grow_with_topics_that_come_and_go() -> None:
    matches = matches_of("t0")
    matches.use("t.*", "g")
    work(matches)
    matches.use("u.*", "g")
    behind = matches.next_task()
    for number in range(3 * NAMES_A_TASK):
        matches.change_topics(topics((f"t{number}", f"t{number + 1}", f"u{number}")), None)
    matches.take(search(behind))
    matches.change_topics(topics(("t1", "t2", "u1")), None)
    assert len(matches._names) <= 2 * 3
    work(matches)
    assert matches.matched("t.*") == {"t1", "t2"}
    assert matches.matched("u.*") == {"u1"}


def test_matches_have_a_size() -> None:
    matches = matches_of("t1", "t2", "u1")
    assert matches.size_of_new("t.") == 3 * MATCH_BYTES
    matches.use("t.", "g")
    assert (matches.size, matches.size_of_new("t.")) == (3 * MATCH_BYTES, 0), "it may match them all"
    work(matches)
    assert matches.matched("t.") == {"t1", "t2"}
    assert matches.size == 2 * MATCH_BYTES


def test_patterns_that_nobody_uses_take_no_room_from_others() -> None:
    names = [f"t{number}" for number in range(MOST_UNUSED_MATCHES // 4)]
    matches = matches_of(*names)
    for number in range(6):
        matches.use(f".*|{number}", "g")
        work(matches)
        matches.release(f".*|{number}", "g")
        assert matches.size == 0
    assert [matches.is_valid(f".*|{number}") for number in range(6)] == [False, False, True, True, True, True]
    assert matches.size_of_new(".*|5") == len(names) * MATCH_BYTES, "it counts again"
    matches.use(".*|5", "g")
    assert (matches.size, matches.size_of_new(".*|5")) == (len(names) * MATCH_BYTES, 0)


def test_the_result_of_a_task_may_be_too_much_for_a_pattern_that_nobody_uses_any_more() -> None:
    matches = matches_of(*(f"t{number}" for number in range(2 * MOST_UNUSED_MATCHES)))
    matches.use("t.*", "g")
    matches.take(search(matches.next_task()))
    assert matches.is_valid("t.*")
    under_way = matches.next_task()
    matches.release("t.*", "g")
    assert matches.is_valid("t.*")
    matches.take(search(under_way))
    assert not matches.is_valid("t.*")


def test_only_the_result_of_the_running_task_counts() -> None:
    matches = matches_of("t1")
    matches.use("t.", "g")
    first = matches.next_task()
    matches.clear()
    assert matches.take(PatternsResolved(first.number, (Found(1, ("t1",)),))) == []
    matches.use("t.", "g")
    second = matches.next_task()
    assert matches.take(PatternsResolved(first.number, (Found(1, ("t1",)),))) == []
    assert matches.matched("t.") is None
    assert matches.take(search(second)) == ["t."]
    assert matches.take(search(second)) == [], "it comes twice"


def test_an_unused_pattern_is_kept_for_a_while_and_costs_nothing() -> None:
    matches = matches_of("t1")
    for number in range(MOST_UNUSED + 1):
        matches.use(f"t{number}", "g")
    work(matches)
    for number in range(MOST_UNUSED + 1):
        matches.release(f"t{number}", "g")
    assert not matches.is_valid("t0")
    assert matches.is_valid("t1")
    matches.use("t1", "h")
    assert matches.matched("t1") == {"t1"}
    assert matches.users(["t1", "t0"]) == ["h"]
    matches.change_topics(topics(("t1", "t2")), None)
    assert compared(work(matches)) == [("t1", "t2")], "and not with the patterns that nobody uses"
    matches.use("t2", "g")
    assert matches.matched("t2") is None
    work(matches)
    assert matches.matched("t2") == {"t2"}


def test_few_patterns_are_in_a_task() -> None:
    matches = matches_of("t1")
    for number in range(PATTERNS_A_TASK + 1):
        matches.use(f"t{number}", "g")
    assert [len(task.asked) for task in work(matches)] == [PATTERNS_A_TASK, 1]


def test_a_pattern_that_another_coordinator_accepted_may_be_invalid_here() -> None:
    matches = matches_of("t1")
    matches.use("(?=t)", "g")
    assert matches.take(search(matches.next_task())) == ["(?=t)"]
    assert matches.is_refused("(?=t)")
    assert matches.matched("(?=t)") is None
    assert not matches.is_valid("(?=t)")
    matches.change_topics(topics(("t1", "t2")), None)
    assert work(matches) == []
