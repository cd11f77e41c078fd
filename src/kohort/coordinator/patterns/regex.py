"""Regular expressions of subscriptions: is one valid, and which topic names does it match as a whole?

The language is RE2's, which has no backtracking: a match takes time in proportion to the name and to the compiled
program. So two limits bound the cost: the length of the text and the size of the program. The check of a pattern is
cheap enough for a step of the coordinator (some milliseconds for a hostile pattern, microseconds for an ordinary one).
The search among all topics is done outside the shard (`PatternsAsked`).

Kafka uses RE2/J, the same language. Source: TopicRegexResolver.java, Utils.throwIfRegularExpressionIsInvalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kohort.coordinator.events import Found, PatternsAsked, PatternsResolved

MEMORY = 65_536
"""Bytes for a compiled pattern (some 2,500 instructions), and for the states that RE2 caches while it searches. When
the cache is full, RE2 searches without it, with the same result. With more memory the worst patterns take longer."""
WORK = 20_000_000
"""Instructions times characters in a task: some 70 ms at worst; for ordinary patterns a hundred thousand names."""
MOST_UNICODE_CLASSES = 8
"""`\\p{…}` in one pattern: RE2 takes a tenth of a millisecond to read one. Topic names are ASCII."""


class _Compiled(Protocol):
    programsize: int

    def fullmatch(self, text: str) -> object | None: ...


def problem_of(text: str, longest: int) -> str:
    """The reason for which the pattern is refused; "" if it is valid."""
    if len(text) > longest:
        return f"It has {len(text)} characters; group.consumer.regex.max.length allows {longest}."
    if text.count("\\p") + text.count("\\P") > MOST_UNICODE_CLASSES:
        return f"It has more than {MOST_UNICODE_CLASSES} Unicode classes; topics' names are ASCII."
    compiled = _compiled(text)
    return compiled if isinstance(compiled, str) else ""


def compiled_pattern(text: str, longest: int) -> Callable[[str], bool] | str:
    """Whether a text matches the pattern as a whole; or the reason for which the pattern is refused.

    A match takes time in proportion to the text."""
    problem = problem_of(text, longest)
    if problem:
        return problem
    compiled = _compiled(text)
    return compiled if isinstance(compiled, str) else lambda name: compiled.fullmatch(name) is not None


def search(task: PatternsAsked) -> PatternsResolved:
    """Do a task, or the first part of it if it is expensive."""
    share = WORK // max(len(task.asked), 1)
    return PatternsResolved(task.number, tuple(_searched(text, names, share) for text, names in task.asked))


def matching(text: str, names: Iterable[str]) -> tuple[str, ...] | None:
    """The names that the pattern matches as a whole, however long that takes; None if it is invalid."""
    found = _searched(text, tuple(names), None)
    return found.names if found is not None else None


def _searched(text: str, names: tuple[str, ...], work: int | None) -> Found | None:
    compiled = _compiled(text)
    if isinstance(compiled, str):
        return None
    found: list[str] = []
    done = 0
    for looked_at, name in enumerate(names):
        if work is not None and done >= work:
            return Found(looked_at, tuple(found))
        done += compiled.programsize * len(name)
        if compiled.fullmatch(name) is not None:
            found.append(name)
    return Found(len(names), tuple(found))


def _compiled(text: str) -> _Compiled | str:
    """The compiled pattern, or the reason why it is invalid. RE2's wrapper would cache the last 128, however large."""
    import re2  # many servers never see a pattern, and it is 2 MB of code

    options = re2.Options()
    options.max_mem = MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        compiled: _Compiled = re2.compile(text, options)
    except re2.error as error:
        what = error.args[0]
        return what.decode(errors="replace") if isinstance(what, bytes) else str(what)
    finally:
        re2.purge()
    return compiled
