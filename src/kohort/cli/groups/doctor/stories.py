"""Rules about the stories of a group's rebalances, which only kohort's journal has.

A client is an instance id or client id, and its host: member ids change at each start. In a rolling deployment many
clients come and go once or twice each; a client that loses its session or its place again and again is the same one.
The limits are those of the history report (`kohort.spark.history.limits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kohort.cli.groups.doctor.case import LIMITS, Case, Finding, Severity, rest_of
from kohort.cli.groups.standings import offenders
from kohort.cli.groups.wording import Document, client_of, duration, plain
from kohort.cli.output import plural
from kohort.spark.history.limits import MINUTE, why_storm

RECENT_MS = 60 * MINUTE
OFTEN = 3
"""So many removals of one client are a loop; of several members with the same name and host, so many for each."""
WAITED_MS = 10_000
"""The others' waits for one client, in all, that are worth a line."""

SESSION, POLL, GONE = "its session expired", "it took longer than max.poll.interval.ms", "it left and came back"
ADVICE = {
    SESSION: "Its process stops for longer than session.timeout.ms, is killed or disconnected: look at its memory, its "
    "garbage collection and its network",
    POLL: "Lower max.poll.records, make batches shorter, or raise max.poll.interval.ms",
    GONE: "It restarts, or takes longer than max.poll.interval.ms between two polls: its log says which",
}

Client = tuple[str, str]
"""Its name and its host."""


@dataclass(slots=True)
class _Loop:
    """How a client was removed, again and again."""

    times: list[int] = field(default_factory=list)
    """In milliseconds."""
    kinds: Counter[str] = field(default_factory=Counter)
    silent_ms: int = 0
    """The longest silence of a session that expired."""


def recent(case: Case) -> list[Document]:
    return [story for story in case.stories if story["started_ms"] >= case.server_ms - RECENT_MS]


def client(document: Document) -> Client | None:
    name = str(document.get("instance_id") or client_of(document))
    return (plain(name), plain(str(document.get("host", "")).removeprefix("/"))) if name else None


def words(who: Client) -> str:
    return f"{who[0]} on {who[1]}" if who[1] else who[0]


def _happenings(stories: Sequence[Document]) -> Iterator[tuple[int, Document]]:
    for story in stories:
        for happening in (story.get("cause", {}), *story.get("happenings", ())):
            yield story["started_ms"] + happening.get("after_ms", 0), happening


def loops(case: Case) -> dict[Client, _Loop]:
    """The clients that were removed, or left and came back, too often."""
    stories = recent(case)
    found: dict[Client, _Loop] = {}
    joined: Counter[Client] = Counter()
    for at_ms, happening in _happenings(stories):
        who = client(happening)
        if who is None:
            continue
        what, cause = happening.get("what"), str(happening.get("cause", ""))
        kind = None
        if what == "member joined":
            joined[who] += 1
        elif what == "session expired":
            kind = SESSION
        elif (what == "member removed" and "did not" in cause) or (what == "member left" and "poll timeout" in cause):
            kind = POLL
        elif what == "member left":
            kind = GONE
        if kind is not None:
            loop = found.setdefault(who, _Loop())
            loop.times.append(at_ms)
            loop.kinds[kind] += 1
            if kind == SESSION:
                loop.silent_ms = max(loop.silent_ms, happening.get("waited_ms") or 0)
    sharing = _sharing(case, stories)
    return {who: loop for who, loop in found.items() if _is_often(loop, joined[who], max(sharing[who], 1))}


def _is_often(loop: _Loop, joined: int, members: int) -> bool:
    """Members that left by themselves may have been restarted by a person, so more is needed."""
    if 2 * loop.kinds[GONE] > len(loop.times):
        return min(len(loop.times), joined) >= 2 * OFTEN * members
    return len(loop.times) >= OFTEN * members


def _sharing(case: Case, stories: Sequence[Document]) -> Counter[Client]:
    """How many members had the same name and host at once, at most."""
    most: Counter[Client] = Counter()
    now = [
        {"instance_id": member.group_instance_id, "client_id": member.client_id, "host": member.host}
        for member in case.after.group.members
    ]
    for members in (now, *(story.get("members", ()) for story in stories)):
        most |= Counter(who for member in members if (who := client(member)) is not None)
    return most


def removed_again_and_again(case: Case) -> Iterator[Finding]:
    for who, loop in loops(case).items():
        count = len(loop.times)
        [(kind, _)] = loop.kinds.most_common(1)
        silence = f" after {duration(loop.silent_ms)} of silence" if kind == SESSION and loop.silent_ms else ""
        others = f", {count - loop.kinds[kind]} times for other reasons" if len(loop.kinds) > 1 else ""
        lately_ms = case.server_ms - max(loop.times)
        yield Finding(
            Severity.WARNING if kind == GONE else Severity.CRITICAL,
            case.name,
            "removed again and again",
            f"{words(who)} dropped out {count} times in {duration(max(loop.times) - min(loop.times))}, the last time "
            f"{duration(lately_ms)} ago: {kind}{silence}{others}",
            ADVICE[kind],
            f"kohort groups explain {case.quoted}",
            count,
        )


def storms(case: Case) -> Iterator[Finding]:
    """Rebalances in quick succession, and who started them; nothing that one client explains by itself."""
    rebalances = [story for story in recent(case) if story.get("outcome") != "noted" and not _hands_on(story)]
    storm = _longest_storm(rebalances)
    if len(storm) < LIMITS.storm_rebalances:
        return
    causes = Counter(who for story in storm if (who := client(story.get("cause", {}))) is not None)
    looping = loops(case)
    if sum(causes[who] for who in looping) * 2 >= len(storm):
        return
    newcomers = {
        who
        for _, happening in _happenings(storm)
        if happening.get("what") == "member joined" and (who := client(happening)) is not None
    }
    lasted = duration(storm[-1]["started_ms"] - storm[0]["started_ms"])
    by = rest_of(f"{words(who)} ({count})" for who, count in causes.most_common())
    is_rollout = len(newcomers) >= len(storm) // 2 and not looping
    what = f"rebalanced {len(storm)} times in {lasted}: {why_storm(len(storm), len(newcomers))}"
    yield Finding(
        Severity.INFO if is_rollout else Severity.WARNING,
        case.name,
        "rolling deployment" if is_rollout else "storm",
        what + (f"; by {by}" if by else ""),
        "Give members a group.instance.id, or collect the next deployment into one rebalance"
        if is_rollout
        else "Look at the cause of each rebalance",
        f"kohort groups {'hold' if is_rollout else 'explain'} {case.quoted}{' --for 10m' if is_rollout else ''}",
        len(storm),
    )


def _hands_on(story: Document) -> bool:
    """The second half of a cooperative rebalance: members rejoin to hand on what they gave up."""
    cause = story.get("cause", {})
    is_classic = story.get("group_type") != "consumer"
    return bool(is_classic and cause.get("what") == "subscription changed" and cause.get("cause"))


def _longest_storm(rebalances: Sequence[Document]) -> list[Document]:
    runs: list[list[Document]] = [[*rebalances[:1]]]
    for before, story in pairwise(rebalances):
        if story["started_ms"] - before["started_ms"] <= LIMITS.storm_gap_ms:
            runs[-1].append(story)
        else:
            runs.append([story])
    return max(runs, key=len)


def waits(case: Case) -> Iterator[Finding]:
    """Members for which the others waited."""
    stories = recent(case)
    how: dict[Client, Counter[str]] = {}
    for story in stories:
        for held_up in story.get("held_up_by", ()):
            if (who := client(held_up)) is not None:
                how.setdefault(who, Counter())[str(held_up.get("how", "?"))] += 1
    for one in offenders(stories):
        reasons = how.get((one.name, one.host))
        if one.waited_ms < WAITED_MS or not reasons:
            continue
        times = sum(reasons.values())
        yield Finding(
            Severity.WARNING,
            case.name,
            "slow member",
            f"the others waited {duration(one.waited_ms)} for {words((one.name, one.host))}, in "
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
