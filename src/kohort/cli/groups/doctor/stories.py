"""Rules about the stories of a group's rebalances, which only kohort's journal has.

`kohort.spark.history.stories` says what a loop and a storm are, for the history report too. Here these rules judge the
stories of the last hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from kohort.cli.groups.doctor.case import LIMITS, Case, Finding, Severity, rest_of
from kohort.cli.groups.standings import offenders
from kohort.cli.groups.wording import Document, as_document, duration, plain
from kohort.cli.output import plural
from kohort.spark.history.limits import MINUTE, why_storm
from kohort.spark.history.stories import ADVICE, GONE, SESSION, Client, Loop, client_of, storm_of
from kohort.spark.history.stories import loops as loops_in

RECENT_MS = 60 * MINUTE
WAITED_MS = 10_000
"""The others' waits for one client, in all, that are worth a line."""


def recent(case: Case) -> list[Document]:
    return [story for story in case.stories if story["started_ms"] >= case.server_ms - RECENT_MS]


def loops(case: Case) -> dict[Client, Loop]:
    """The clients that were removed, or left and came back, too often."""
    return loops_in(recent(case), [as_document(member) for member in case.after.group.members])


def removed_again_and_again(case: Case) -> Iterator[Finding]:
    for who, loop in loops(case).items():
        count, kind = len(loop.times), loop.kind
        silence = f" after {duration(loop.silent_ms)} of silence" if kind == SESSION and loop.silent_ms else ""
        lately_ms = case.server_ms - max(loop.times)
        yield Finding(
            Severity.WARNING if kind == GONE else Severity.CRITICAL,
            case.name,
            "removed again and again",
            f"{who.words} dropped out {count} times in {duration(max(loop.times) - min(loop.times))}, the last time "
            f"{duration(lately_ms)} ago: {kind}{silence}{loop.others}",
            ADVICE[kind],
            f"kohort groups explain {case.quoted}",
            count,
        )


def storms(case: Case) -> Iterator[Finding]:
    """Rebalances in quick succession, and who started them; nothing that one client explains by itself."""
    storm = storm_of(recent(case), LIMITS, loops(case))
    if storm is None:
        return
    by = rest_of(f"{who.words} ({count})" for who, count in storm.causes.most_common())
    what = f"rebalanced {storm.rebalances} times in {duration(storm.until - storm.since)}: "
    what += why_storm(storm.rebalances, storm.newcomers)
    yield Finding(
        Severity.INFO if storm.is_rollout else Severity.WARNING,
        case.name,
        "rolling deployment" if storm.is_rollout else "storm",
        what + (f"; by {by}" if by else ""),
        "Give members a group.instance.id, or collect the next deployment into one rebalance"
        if storm.is_rollout
        else "Look at the cause of each rebalance",
        f"kohort groups {'hold' if storm.is_rollout else 'explain'} {case.quoted}"
        f"{' --for 10m' if storm.is_rollout else ''}",
        storm.rebalances,
    )


def waits(case: Case) -> Iterator[Finding]:
    """Members for which the others waited."""
    stories = recent(case)
    how: dict[Client, Counter[str]] = {}
    for story in stories:
        for held_up in story.get("held_up_by", ()):
            if (who := client_of(held_up)) is not None:
                shown = Client(plain(who.name), plain(who.host))
                how.setdefault(shown, Counter())[str(held_up.get("how", "?"))] += 1
    for one in offenders(stories):
        reasons = how.get(Client(one.name, one.host))
        if one.waited_ms < WAITED_MS or not reasons:
            continue
        times = sum(reasons.values())
        yield Finding(
            Severity.WARNING,
            case.name,
            "slow member",
            f"the others waited {duration(one.waited_ms)} for {Client(one.name, one.host).words}, in "
            f"{plural(times, 'rebalance')}: {rest_of(reason for reason, _ in reasons.most_common())}",
            "It finishes a batch before it gives partitions up or rejoins: lower max.poll.records, or use the "
            "consumer protocol, where others go on meanwhile",
            f"kohort groups explain {case.quoted}",
            one.waited_ms,
        )


def assignor_changes(case: Case) -> Iterator[Finding]:
    """Rebalances that end with another assignor each time: members differ in partition.assignment.strategy."""
    used = [story["protocol"] for story in recent(case) if story.get("outcome") == "Stable" and story.get("protocol")]
    changes = sum(before != after for before, after in pairwise(used))
    if changes >= 2:
        yield Finding(
            Severity.WARNING,
            case.name,
            "mixed assignors",
            f"changed its assignor {changes} times in its last {plural(len(used), 'rebalance')}: "
            f"{rest_of(Counter(used))}",
            "Give all members the same partition.assignment.strategy",
            weight=changes,
        )


RULES = (removed_again_and_again, storms, waits, assignor_changes)
