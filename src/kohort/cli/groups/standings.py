"""Over all stories of a group: what each client cost the others, and since when a member has its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kohort.cli.groups.timeline import ORDINARY
from kohort.cli.groups.wording import Document, client_of, plain


@dataclass(slots=True)
class Offender:
    """The delays that a client caused in its group, over the stories shown."""

    name: str
    host: str
    caused: int = 0
    """Rebalances that it started, except those in which a cooperative member hands on the partitions it revoked."""
    took_ms: int = 0
    """How long these rebalances took, without the time in which the others waited for a member that was late."""
    waited_ms: int = 0
    """How long the others waited for it."""
    expired: int = 0
    """Its sessions that expired."""
    removed: int = 0
    """How often it was removed after a timeout."""

    @property
    def cost_ms(self) -> int:
        """How long the group waited because of it."""
        return self.took_ms + self.waited_ms


def offenders(stories: Iterable[Document]) -> list[Offender]:
    """The one that cost the group most time first. Instance id or client id, and host, identify a client, since member
    ids change at each start."""
    found: dict[tuple[str, str], Offender] = {}

    def of(document: Document) -> Offender | None:
        name = str(document.get("instance_id") or client_of(document))
        host = str(document.get("host", "")).removeprefix("/")
        return found.setdefault((name, host), Offender(plain(name), plain(host))) if name else None

    for story in stories:
        cause = story.get("cause", {})
        is_classic = story.get("group_type") != "consumer"
        handed_on = is_classic and cause.get("what") == "subscription changed" and cause.get("cause")
        if story.get("outcome") != "noted" and not handed_on and (who := of(cause)):
            who.caused += 1
            late = (one for one in story.get("held_up_by", ()) if one.get("how") not in ORDINARY)
            who.took_ms += max((story.get("took_ms") or 0) - sum(one.get("waited_ms", 0) for one in late), 0)
        for happening in (cause, *story.get("happenings", ())):
            if happening.get("what") == "session expired" and (who := of(happening)):
                who.expired += 1
            if happening.get("what") == "member removed" and "waited_ms" in happening and (who := of(happening)):
                who.removed += 1
        for held_up in story.get("held_up_by", ()):
            if who := of(held_up):
                who.waited_ms += held_up.get("waited_ms", 0)

    def order(who: Offender) -> tuple[int, int, int, str]:
        return -who.cost_ms, -who.expired - who.removed, -who.caused, who.name

    return sorted(found.values(), key=order)


@dataclass(slots=True)
class Owned:
    """Partitions that a member has owned since a story; `story` None: since before the oldest story shown."""

    topic: str
    partitions: list[int]
    story: Document | None
    since_ms: int | None = None
    """A member of a consumer group may get its partitions before the story's end."""


def owned_since(member: Document, assigned: Mapping[str, Sequence[int]], stories: Sequence[Document]) -> list[Owned]:
    """A member's current partitions by the story that assigned them, the longest owned first."""
    left = {(topic, index) for topic, indexes in assigned.items() for index in indexes}
    found: list[Owned] = []
    for story in reversed(stories):
        then = next((m for m in story.get("members", ()) if _same(m, member)), None)
        if then is not None:
            found[:0] = _take(left, then, story)
    oldest: dict[str, list[int]] = {}
    for topic, index in sorted(left):
        oldest.setdefault(topic, []).append(index)
    return [Owned(topic, indexes, None) for topic, indexes in oldest.items()] + found


def _take(left: set[tuple[str, int]], member: Document, story: Document) -> list[Owned]:
    found = []
    after = member.get("steps", {}).get("got_after_ms", story.get("took_ms", 0))
    for topic, indexes in sorted(member.get("gained", {}).items()):
        here = [index for index in indexes if (topic, index) in left]
        if here:
            left.difference_update((topic, index) for index in here)
            found.append(Owned(topic, here, story, story["started_ms"] + after))
    return found


def _same(one: Document, other: Document) -> bool:
    if one.get("instance_id") or other.get("instance_id"):
        return bool(one.get("instance_id") == other.get("instance_id"))
    return bool(one.get("member_id") == other.get("member_id"))
