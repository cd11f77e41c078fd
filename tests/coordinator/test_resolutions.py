"""What has been compared with which pattern: every name once, in pieces, in turns; late answers change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.events import Found, PatternsAsked, PatternsResolved
from kohort.coordinator.patterns.pattern_matches import MOST_UNUSED, NAMES_A_TASK, Resolutions
from kohort.coordinator.patterns.regex import resolved
from kohort.coordinator.topics import Topics, topics_of


def topics(names: Iterable[str]) -> Topics:
    return topics_of(TopicSpec(name.encode().ljust(16, b"\0"), name, 1) for name in names)


def work(resolutions: Resolutions) -> list[PatternsAsked]:
    """Do all that there is to do."""
    done = []
    while (task := resolutions.ask()) is not None:
        assert resolutions.ask() is None, "one task at a time"
        done.append(task)
        resolutions.resolved(resolved(task))
    return done


def compared(tasks: Iterable[PatternsAsked]) -> list[tuple[str, str]]:
    return sorted((text, name) for task in tasks for text, names in task.asked for name in names)


def test_every_name_is_compared_once_with_every_pattern() -> None:
    resolutions = Resolutions()
    resolutions.change_topics(topics(("a1", "a2", "b1")), None)
    resolutions.use("a.", "g")
    resolutions.use(".1", "h")
    assert resolutions.matched("a.") is None
    everything = [(text, name) for text in (".1", "a.") for name in ("a1", "a2", "b1")]
    assert compared(work(resolutions)) == sorted(everything)
    assert resolutions.matched("a.") == {"a1", "a2"}
    assert resolutions.matched(".1") == {"a1", "b1"}
    assert resolutions.change_topics(topics(("a1", "a3", "b1")), ("a2", "a3")) == ["a."]
    assert resolutions.matched("a.") is None, "until the new one has been looked at"
    assert compared(work(resolutions)) == [(".1", "a3"), ("a.", "a3")]
    assert resolutions.matched("a.") == {"a1", "a3"}
    assert resolutions.change_topics(topics(("a3",)), None) == ["a.", ".1"]
    assert work(resolutions) == []
    assert (resolutions.matched("a."), resolutions.matched(".1")) == ({"a3"}, frozenset())


def test_many_names_are_looked_at_in_pieces_and_patterns_take_turns() -> None:
    resolutions = Resolutions()
    names = [f"t{number}" for number in range(2 * NAMES_A_TASK + 10)]
    resolutions.change_topics(topics(names), None)
    resolutions.use(".*", "g")
    resolutions.use("t.", "h")
    tasks = work(resolutions)
    assert all(sum(len(names) for _, names in task.asked) <= NAMES_A_TASK for task in tasks)
    assert [task.asked[0][0] for task in tasks] == [".*", "t.", ".*", "t.", ".*"]
    assert len(compared(tasks)) == len(set(compared(tasks))) == 2 * len(names)
    assert resolutions.matched(".*") == set(names)


def test_an_answer_may_be_about_the_first_names_only() -> None:
    resolutions = Resolutions()
    resolutions.change_topics(topics(("t1", "t2", "u1")), None)
    resolutions.use("t.", "g")
    first = resolutions.ask()
    assert first is not None
    ((_, names),) = first.asked
    found = tuple(name for name in names[:1] if name.startswith("t"))
    assert resolutions.resolved(PatternsResolved(first.number, (Found(1, found),))) == []
    assert compared(work(resolutions)) == [("t.", name) for name in sorted(names[1:])]
    assert resolutions.matched("t.") == {"t1", "t2"}


def test_topics_may_change_while_it_is_looked() -> None:
    resolutions = Resolutions()
    resolutions.change_topics(topics(("t1", "t2")), None)
    resolutions.use("t.", "g")
    under_way = resolutions.ask()
    assert under_way is not None
    resolutions.change_topics(topics(("t2", "t3")), None)
    resolutions.change_topics(topics(("t1", "t3")), ("t1", "t2"))
    assert resolutions.resolved(resolved(under_way)) == [], "t3 has not been looked at"
    work(resolutions)
    assert resolutions.matched("t.") == {"t1", "t3"}


def test_only_the_answer_that_is_awaited_counts() -> None:
    resolutions = Resolutions()
    resolutions.change_topics(topics(("t1",)), None)
    resolutions.use("t.", "g")
    first = resolutions.ask()
    assert first is not None
    resolutions.clear()
    assert resolutions.resolved(PatternsResolved(first.number, (Found(1, ("t1",)),))) == []
    resolutions.use("t.", "g")
    second = resolutions.ask()
    assert second is not None
    assert resolutions.resolved(PatternsResolved(first.number, (Found(1, ("t1",)),))) == []
    assert resolutions.matched("t.") is None
    assert resolutions.resolved(resolved(second)) == ["t."]
    assert resolutions.resolved(resolved(second)) == [], "it comes twice"


def test_what_nobody_uses_is_remembered_for_a_while_and_costs_nothing() -> None:
    resolutions = Resolutions()
    resolutions.change_topics(topics(("t1",)), None)
    for number in range(MOST_UNUSED + 1):
        resolutions.use(f"t{number}", "g")
    work(resolutions)
    for number in range(MOST_UNUSED + 1):
        resolutions.release(f"t{number}", "g")
    assert not resolutions.knows("t0")
    assert resolutions.knows("t1")
    resolutions.use("t1", "h")
    assert resolutions.matched("t1") == {"t1"}
    assert resolutions.users(["t1", "t0"]) == ["h"]
    resolutions.change_topics(topics(("t1", "t2")), None)
    assert compared(work(resolutions)) == [("t1", "t2")], "and not with the patterns that nobody uses"
    resolutions.use("t2", "g")
    assert resolutions.matched("t2") is None
    work(resolutions)
    assert resolutions.matched("t2") == {"t2"}


def test_a_pattern_of_another_coordinator_may_be_none_here() -> None:
    resolutions = Resolutions()
    resolutions.change_topics(topics(("t1",)), None)
    resolutions.use("(?=t)", "g")
    work(resolutions)
    assert resolutions.is_refused("(?=t)")
    assert resolutions.matched("(?=t)") is None
    assert not resolutions.knows("(?=t)")
    resolutions.change_topics(topics(("t1", "t2")), None)
    assert work(resolutions) == []
