"""Rules about the stories of kohort's journal: which clients drop out again and again, and what a storm is.

A client is an instance id or client id, and its host: member ids change at each start. In a rolling deployment many
clients come and go once or twice each; a client that loses its session or its place again and again is the same one.
`kohort groups doctor` judges the stories of the last hour by these rules, `kohort pipeline history` all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from kohort.spark.history.limits import MINUTE, Limits

Document = Mapping[str, Any]
"""A story or a part of one, as JSON has it (`kohort.coordinator.journal.story`)."""

WITHIN_MS = 60 * MINUTE
OFTEN = 3
"""So many removals of one client within WITHIN_MS are a loop; of several members with the same name and host, so many
for each."""

SESSION, POLL, GONE = "its session expired", "it took longer than max.poll.interval.ms", "it left and came back"
ADVICE = {
    SESSION: "Its process stops for longer than session.timeout.ms, is killed or disconnected: look at its memory, its "
    "garbage collection and its network",
    POLL: "Lower max.poll.records, make batches shorter, or raise max.poll.interval.ms",
    GONE: "It restarts, or takes longer than max.poll.interval.ms between two polls: its log says which",
}


class Client(NamedTuple):
    """A client of a group, which keeps its name and host when its member id changes."""

    name: str
    """The instance id, else the client id, else the member id."""
    host: str = ""
    principal: str = ""
    """Of a change of committed offsets, "User:alice" if the client has authenticated."""

    @property
    def words(self) -> str:
        user = f" ({self.principal.replace('User:', 'user ')})" if self.principal else ""
        return f"{self.name} on {self.host}{user}" if self.host else self.name


def client_of(document: Document) -> Client | None:
    name = document.get("instance_id") or document.get("client_id") or document.get("member_id")
    return Client(str(name), plain_host(document.get("host")), str(document.get("principal", ""))) if name else None


def plain_host(host: object) -> str:
    """Java writes `/10.0.0.1`."""
    return str(host or "").removeprefix("/")


def happenings(stories: Iterable[Document]) -> Iterator[tuple[int, Document]]:
    """The events of stories with their times."""
    for story in stories:
        for happening in (story.get("cause", {}), *story.get("happenings", ())):
            yield story["started_ms"] + happening.get("after_ms", 0), happening


@dataclass(slots=True)
class Loop:
    """How a client was removed, or left and came back, again and again."""

    times: list[int] = field(default_factory=list)
    """In milliseconds."""
    kinds: list[str] = field(default_factory=list)
    """For each time SESSION, POLL or GONE."""
    silent_ms: int = 0
    """The longest silence of a session that expired."""

    def add(self, at_ms: int, kind: str, silent_ms: int) -> None:
        self.times.append(at_ms)
        self.kinds.append(kind)
        self.silent_ms = max(self.silent_ms, silent_ms)

    @property
    def kind(self) -> str:
        """The most frequent."""
        return Counter(self.kinds).most_common(1)[0][0]

    @property
    def others(self) -> str:
        """`, 2 times for other reasons` than the most frequent; may be empty."""
        count = len(self.times) - self.kinds.count(self.kind)
        return f", {count} times for other reasons" if count else ""

    def _split(self) -> list[Loop]:
        """The parts between which the client was left alone for WITHIN_MS."""
        parts = [Loop(silent_ms=self.silent_ms)]
        for at_ms, kind in sorted(zip(self.times, self.kinds, strict=True)):
            if parts[-1].times and at_ms - parts[-1].times[-1] > WITHIN_MS:
                parts.append(Loop(silent_ms=self.silent_ms))
            parts[-1].add(at_ms, kind, 0)
        return parts

    def _is_often(self, joined: int, members: int) -> bool:
        """Members that left by themselves may have been restarted by a person, so more is needed."""
        if 2 * self.kinds.count(GONE) > len(self.times):
            return min(len(self.times), joined) >= 2 * OFTEN * members
        needed = OFTEN * members
        return any(last - first <= WITHIN_MS for first, last in zip(self.times, self.times[needed - 1 :], strict=False))


def loops(stories: Sequence[Document], members_now: Sequence[Document] = ()) -> dict[Client, Loop]:
    """The clients that were removed, or left and came back, too often; of each the longest part of its story."""
    found: dict[Client, Loop] = {}
    joined: Counter[Client] = Counter()
    for at_ms, happening in happenings(stories):
        is_join, kind = happening.get("what") == "member joined", _removal(happening)
        who = client_of(happening) if is_join or kind is not None else None
        if who is None:
            continue
        if is_join:
            joined[who] += 1
        if kind is not None:
            silent_ms = (happening.get("waited_ms") or 0) if kind == SESSION else 0
            found.setdefault(who, Loop()).add(at_ms, kind, silent_ms)
    if not found:
        return {}
    sharing = _sharing(members_now, stories)
    often: dict[Client, Loop] = {}
    for who, loop in found.items():
        parts = [part for part in loop._split() if part._is_often(joined[who], max(sharing[who], 1))]
        if parts:
            often[who] = max(parts, key=lambda part: len(part.times))
    return often


def _removal(happening: Document) -> str | None:
    what, cause = happening.get("what"), str(happening.get("cause", ""))
    if what == "session expired":
        return SESSION
    if (what == "member removed" and "did not" in cause) or (what == "member left" and "poll timeout" in cause):
        return POLL
    return GONE if what == "member left" else None


def _sharing(members_now: Sequence[Document], stories: Sequence[Document]) -> Counter[Client]:
    """How many members had the same name and host at once, at most."""
    most: Counter[Client] = Counter()
    for members in (members_now, *(story.get("members", ()) for story in stories)):
        most |= Counter(who for member in members if (who := client_of(member)) is not None)
    return most


@dataclass(frozen=True, slots=True)
class StoriedStorm:
    """Rebalances in quick succession."""

    rebalances: int
    since: int
    until: int
    """Milliseconds; when the first and the last one began."""
    causes: Counter[Client]
    """How many of them each client caused."""
    newcomers: int
    """Different clients that joined."""
    is_rollout: bool


def storm_of(stories: Sequence[Document], limits: Limits, looping: Iterable[Client]) -> StoriedStorm | None:
    """The longest storm; none if the clients that loop explain it."""
    rebalances = [story for story in stories if story.get("outcome") != "noted" and not _hands_on(story)]
    if len(rebalances) < limits.storm_rebalances:
        return None
    storm = _longest(rebalances, limits.storm_gap_ms)
    if len(storm) < limits.storm_rebalances:
        return None
    causes = Counter(who for story in storm if (who := client_of(story.get("cause", {}))) is not None)
    looping = list(looping)
    if sum(causes[who] for who in looping) * 2 >= len(storm):
        return None
    newcomers = {
        who
        for _, happening in happenings(storm)
        if happening.get("what") == "member joined" and (who := client_of(happening)) is not None
    }
    is_rollout = len(newcomers) >= len(storm) // 2 and not looping
    since, until = storm[0]["started_ms"], storm[-1]["started_ms"]
    return StoriedStorm(len(storm), since, until, causes, len(newcomers), is_rollout)


def _hands_on(story: Document) -> bool:
    """The second half of a cooperative rebalance: members rejoin to hand on what they gave up."""
    cause = story.get("cause", {})
    is_classic = story.get("group_type") != "consumer"
    return bool(is_classic and cause.get("what") == "subscription changed" and cause.get("cause"))


def _longest(rebalances: Sequence[Document], gap_ms: int) -> list[Document]:
    runs: list[list[Document]] = [[*rebalances[:1]]]
    for before, story in pairwise(rebalances):
        if story["started_ms"] - before["started_ms"] <= gap_ms:
            runs[-1].append(story)
        else:
            runs.append([story])
    return max(runs, key=len)
