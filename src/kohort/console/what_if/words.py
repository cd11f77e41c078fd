"""The answer in sentences: what static members would have avoided, and which way stands still least."""

from __future__ import annotations

from kohort.cli.groups.wording import duration
from kohort.cli.output import plural
from kohort.console.what_if.answers import Answer, Way
from kohort.console.what_if.history import History

NAMES = {
    "eager": "classic, eager",
    "cooperative": "classic, cooperative",
    "consumer": "consumer protocol",
}
SAME = 0.8
"""A way is named as better if it stands still at most so long as the present one, as a part of it."""


def name_of(way: Way) -> str:
    return f"{NAMES[way.protocol]}{', static members' if way.is_static else ''}"


def static_line(history: History) -> str:
    """By the rules of KIP-345 alone, without the simulator."""
    avoided, total = len(history.avoidable), history.rebalances
    if history.is_static:
        return "The group has static members already (group.instance.id)."
    how = "" if history.session_known else ", the clients' default"
    if not avoided:
        return (
            f"Static members would have avoided none of {plural(total, 'rebalance')}: no member came back within its "
            f"session timeout ({duration(history.session_ms)}{how})."
        )
    return (
        f"Static members (group.instance.id) would have avoided {avoided} of {plural(total, 'rebalance')}: the members "
        f"came back within their session timeout ({duration(history.session_ms)}{how})."
    )


def best_line(history: History, answer: Answer) -> str:
    """Empty if there is nothing to compare with."""
    if len(answer.ways) < 2 or any(way.problem for way in answer.ways[:1]):
        return ""
    present = answer.ways[0]
    best = min((way for way in answer.ways if not way.problem), key=lambda way: way.paused_ms)
    if best is present or best.paused_ms > present.paused_ms * SAME:
        return "No other way stands still much shorter."
    each = duration(round(best.paused_ms / history.partitions))
    now = duration(round(present.paused_ms / history.partitions))
    return f"Shortest: {name_of(best)}. A partition stands still for {each} in the mean, instead of {now}."


def played_line(history: History) -> str:
    members = plural(history.members, "member")
    group = "A smaller group" if history.scaled else "The group"
    return (
        f"{group} was played: {members} at first, {plural(history.partitions, 'partition')}, "
        f"{plural(len(history.changes), 'change')}."
    )


MODELLED = (
    "It plays the group's own changes from the journal, in their order: members that joined, left or died, and how "
    "long members needed to give partitions up. The code is kohort's own coordinator, in virtual time, with "
    "Java's client timing, heartbeats held by the server, and each protocol's usual assignor."
)
NOT_MODELLED = (
    "Not modelled: the load of the records, caches that a new owner fills, other groups on the coordinator, your own "
    "assignor, members that exceed max.poll.interval.ms, topics that change. Quiet times between changes are "
    "shortened. Compare the rows with each other, and not with the journal's times."
)
