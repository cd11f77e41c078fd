"""What happened to a group between two surveys: its rebalances from kohort's journal, or else the differences.

Other clusters keep no journal. There a change of the state, of a consumer group's epoch, of the members or of their
partitions is what a client can see. Changes that begin and end between two surveys leave members or partitions changed,
or nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kohort.cli.groups.timeline import headline
from kohort.cli.groups.wording import Document, Names, as_document, duration, people_of
from kohort.cli.output import plural
from kohort.client.admin.groups import DEAD, GroupDescription
from kohort.client.admin.survey import SurveyedGroup

MOST_NAMES = 3
NEW_MS = 60_000
"""The stories of a group that was not there before are told if they are younger."""
Key = tuple[int, int]
"""When a story began, and its number."""


@dataclass(frozen=True, slots=True)
class Change:
    """A line about a group. A story that has a `key` is told again when it ends."""

    at_ms: int
    group: str
    text: str
    key: Key | None = None


class Changes:
    """What is known of each group from the survey before."""

    def __init__(self) -> None:
        self._before: dict[str, SurveyedGroup] | None = None
        self._ended: dict[str, Key] = {}
        """The newest story that has ended."""
        self._running: dict[str, Key] = {}

    def between(self, groups: Sequence[SurveyedGroup], at_ms: int) -> list[Change]:
        """The changes since the last call; the first one tells of running rebalances only."""
        before, self._before = self._before, {one.group.group_id: one for one in groups}
        found: list[Change] = []
        for one in groups:
            if one.error:
                continue
            group_id = one.group.group_id
            known = before.get(group_id) if before is not None else one
            if one.explanation is not None:
                stories = one.explanation.stories
                if known is None:  # the journal may have stories of an earlier group of this name
                    since_ms = one.explanation.now_ms - NEW_MS
                    stories = tuple(story for story in stories if story["started_ms"] >= since_ms)
                found += self._stories(stories, group_id, tell_old=known is None)
            elif known is None:
                found.append(Change(at_ms, group_id, f"new: {_standing(one.group)}"))
            elif not known.error and (text := difference(known.group, one.group)):
                found.append(Change(at_ms, group_id, text))
            if known is not None and (text := went_back(known, one)):
                found.append(Change(at_ms, group_id, text))
        for group_id in (before or {}).keys() - self._before.keys():
            self._ended.pop(group_id, None)
            self._running.pop(group_id, None)
            found.append(Change(at_ms, group_id, "the group is gone"))
        return sorted(found, key=lambda change: (change.at_ms, change.group))

    def _stories(self, stories: Sequence[Document], group_id: str, *, tell_old: bool) -> list[Change]:
        """`tell_old`: the group was not there before, so all of its stories are new."""
        first = group_id not in self._ended and not tell_old
        last = self._ended.get(group_id, (-1, -1))
        found = []
        names = Names(people_of(stories))
        for story in stories:
            key = (story["started_ms"], story["number"])
            is_running = not story.get("outcome")
            if key <= last or (first and not is_running) or (is_running and self._running.get(group_id) == key):
                continue
            if is_running:
                self._running[group_id] = key
            found.append(Change(key[0], group_id, story_text(story, names), key))
        ended = [(story["started_ms"], story["number"]) for story in stories if story.get("outcome")]
        self._ended[group_id] = max([last, *ended])
        return found


def story_text(story: Document, names: Names) -> str:
    """`worker-3 on 10.0.0.3 joined; stable after 3.0 s`."""
    head = headline(story, names)
    more = len(story.get("happenings", ())) + sum(story.get("more", {}).values())
    also = f", and {more} more" if more else ""
    took = duration(story.get("took_ms"))
    match story.get("outcome", ""):
        case "":
            end = "; rebalancing"
        case "noted":
            end = ""
        case "Stable" | "Empty" as state:
            end = f"; {state.lower()} after {took}"
        case "superseded":
            end = f"; overtaken by the next rebalance after {took}"
        case outcome:
            end = f"; {outcome}"
    return f"{head}{also}{end}"


def difference(before: GroupDescription, after: GroupDescription) -> str:
    """What differs, in words; empty if nothing does."""
    parts = []
    if before.state != after.state:
        parts.append(f"{before.state or 'unknown'} → {after.state or 'unknown'}")
    if before.epoch is not None and after.epoch is not None and before.epoch != after.epoch:
        parts.append(f"group epoch {before.epoch} → {after.epoch}")
    was = {member.member_id: member for member in before.members}
    now = {member.member_id: member for member in after.members}
    names = Names([as_document(member) for member in (*before.members, *after.members)])
    for ids, verb in ((now.keys() - was.keys(), "joined"), (was.keys() - now.keys(), "left")):
        if ids:
            who = [names.with_host(as_document(now.get(one) or was[one])) for one in sorted(ids)]
            more = f" and {len(who) - MOST_NAMES} more" if len(who) > MOST_NAMES else ""
            parts.append(f"{', '.join(who[:MOST_NAMES])}{more} {verb}")
    if before.state == after.state == "Stable" and (moved := _moved(before, after)):
        parts.append(f"{plural(moved, 'partition')} moved")
    return "; ".join(parts)


def _moved(before: GroupDescription, after: GroupDescription) -> int:
    """Partitions with another owner than before."""
    was = before.owners()
    return sum(place in was and was[place].member_id != now.member_id for place, now in after.owners().items())


def went_back(before: SurveyedGroup, after: SurveyedGroup) -> str:
    """Committed offsets that are smaller than they were."""
    back = [
        before.committed[place].offset - now.offset
        for place, now in after.committed.items()
        if place in before.committed and now.offset < before.committed[place].offset
    ]
    if not back:
        return ""
    return f"offsets of {plural(len(back), 'partition')} went back, by {plural(max(back), 'record')} at most"


def _standing(group: GroupDescription) -> str:
    return f"{group.state if group.state != DEAD else 'of an unknown state'}, {plural(len(group.members), 'member')}"
