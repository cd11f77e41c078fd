"""`kohort groups explain`: the timeline of a group's rebalances, who owns what since when, and the worst offenders.

The stories come from the journal of the group's coordinator (`kohort.client.admin.explanations`); this module sums up
over them. On a terminal, long lines are broken at words; into a pipe they stay whole.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, Group, connected, fail
from kohort.cli.groups.last_owners import last_owners, lines_of
from kohort.cli.groups.lookup import does_not_exist
from kohort.cli.groups.standings import Owned, offenders, owned_since
from kohort.cli.groups.subjects import Subject, subject_of
from kohort.cli.groups.timeline import status_lines, story_lines
from kohort.cli.groups.wording import Document, Line, Names, as_document, duration, instant, people_of, ranges, show
from kohort.cli.interrupt import interrupts
from kohort.cli.output import Cell, Format, Output, name, number, plural, print_document, print_table
from kohort.client.admin.explanations import GroupExplanation
from kohort.client.admin.groups import DEAD, SHARE
from kohort.client.cluster import Cluster

FOLLOW_EVERY_S = 1.0
MOST_OFFENDERS = 5
MOST_OWNERS = 20
MOST_ITEMS = 20
"""Items of a worker; `groups describe` lists all."""
OFTEN = 3
"""A member that joins and leaves causes two rebalances, which is normal."""
WORTH_NAMING_MS = 1_000
"""Shorter waits of the others, in all, are normal in a rebalance."""


def explain(
    group: Group,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=10_000, help="Number of stories, the newest ones.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new stories as they end, until Ctrl-C.")
    ] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Tell why a group rebalanced and what moved.

    Also tells which member held the rebalance up, who owns what since when, which clients keep causing rebalances, and
    how to undo a change of committed offsets.
    """
    if follow and output != Format.TABLE:
        raise typer.BadParameter("--follow goes with the timeline only")
    with connected(where) as cluster:
        explanation = cluster.explain_group(group, last=last)
        if explanation.group.state == DEAD and not explanation.stories and not follow:
            fail(does_not_exist(cluster, group))
        if output != Format.TABLE:
            print_document(_document(explanation), output)
            return
        _print(explanation, asked=last)
        sys.stdout.flush()
        if follow:
            with interrupts.careful():
                _follow(cluster, explanation)


def _follow(cluster: Cluster, explanation: GroupExplanation) -> None:
    """Print each story once it is over. Polls, since the protocol has no subscription."""
    group = explanation.group.group_id
    seen = {(story["number"], story["started_ms"]) for story in explanation.stories if story.get("outcome")}
    running = _phase(explanation)
    while not interrupts.wait(FOLLOW_EVERY_S):
        explanation = cluster.explain_group(group, last=50)
        names = Names(people_of(explanation.stories))
        for story in explanation.stories:
            key = (story["number"], story["started_ms"])
            if story.get("outcome") and key not in seen:
                seen.add(key)
                show([Line(""), *story_lines(story, names)])
        before, running = running, _phase(explanation)
        if running != before and (lines := rebalance_of(explanation)):
            show([Line(""), *lines])
        sys.stdout.flush()


def _phase(explanation: GroupExplanation) -> tuple[Any, Any]:
    status = explanation.status or {}
    return status.get("phase"), status.get("since_ms")


def _print(explanation: GroupExplanation, asked: int) -> None:
    names = Names([*people_of(explanation.stories), *map(as_document, explanation.group.members)])
    lines = [_summary(explanation, asked), *_subject(explanation)]
    for story in explanation.stories:
        if story.get("outcome"):
            lines += [Line(""), *story_lines(story, names)]
    if rebalance := rebalance_of(explanation):
        lines += [Line(""), *rebalance]
    if owners := _owners(explanation, names):
        lines += [Line(""), *owners]
    if not explanation.group.members and (last := last_owners(explanation.stories, None, names)):
        lines += [Line(""), *lines_of(last)]
    show(lines)
    _print_offenders(explanation.stories)


def _subject(explanation: GroupExplanation) -> list[Line]:
    subject = subject_of(explanation.group, explanation)
    if subject is None:
        return []
    lines = [Line(text, 2) for text in subject.lines]
    lines += [
        Line(f"{owner} has {', '.join(items[:MOST_ITEMS])}{' …' if len(items) > MOST_ITEMS else ''}", 2)
        for owner, items in _by_owner(subject)
    ]
    return lines


def _by_owner(subject: Subject) -> list[tuple[Cell, list[str]]]:
    """The items of a sharding, with their weights unless these are 1, by owner."""
    owners: dict[Cell, list[str]] = {}
    for item, weight, _, owner, _ in subject.items:
        owners.setdefault(owner, []).append(str(item) if weight == "1" else f"{item} (weight {weight})")
    return sorted(owners.items(), key=lambda pair: str(pair[0]))[:MOST_OWNERS]


def _summary(explanation: GroupExplanation, asked: int) -> Line:
    group = explanation.group
    if group.state == DEAD:
        return Line(f"{group.group_id} does not exist{' any more' if explanation.stories else ''}")
    parts = [group.state, plural(len(group.members), "member")]
    status = explanation.status or {}
    if status.get("generation", 0) > 0:
        word = "group epoch" if status.get("group_type") == "consumer" else "generation"
        parts.append(f"{word} {status['generation']}")
    elif group.type == SHARE and group.epoch is not None:
        parts.append(f"share group, epoch {group.epoch}")
    if status.get("since_ms"):
        parts.insert(1, f"for {duration(max(explanation.now_ms - status['since_ms'], 0))}")
    if explanation.loaded_ms is not None:
        parts.append(f"loaded {duration(max(explanation.now_ms - explanation.loaded_ms, 0))} ago")
    if not explanation.stories and asked:
        parts.append("the journal has nothing of it")
    return Line(f"{group.group_id}: {', '.join(parts)}")


def rebalance_of(explanation: GroupExplanation) -> list[Line]:
    """The running rebalance: the head of its story, and the members that it waits for."""
    if explanation.status is None:
        return []
    people = [*people_of(explanation.stories), *explanation.status.get("members", ())]
    names = Names(people)
    lines = story_lines(explanation.rebalance, names) if explanation.rebalance else []
    return lines + [Line(line.text, line.depth + 4) for line in status_lines(explanation.status, names)]


def rebalance_lines(status: Document | None) -> list[Line]:
    """For `groups describe`: the members that the group waits for; empty if there is no rebalance."""
    if status is None:
        return []
    return status_lines(status, Names(status.get("members", ())))


def _owners(explanation: GroupExplanation, names: Names) -> list[Line]:
    """Each member's partitions, since when, and by which story; only if the group does not rebalance."""
    members = [member for member in explanation.group.members if member.assigned]
    if explanation.group.state != "Stable" or not members or explanation.group.type == SHARE:
        return []  # the members of a share group own no partitions
    lines = [Line("Who owns what", bold=True)]
    for member in sorted(members, key=lambda member: (member.client_id, member.member_id))[:MOST_OWNERS]:
        document = as_document(member)
        lines.append(Line(names.with_host(document), 2))
        lines += [Line(_owned(row), 6) for row in owned_since(document, member.assigned, explanation.stories)]
    if len(members) > MOST_OWNERS:
        lines.append(Line(f"and {len(members) - MOST_OWNERS} more members, with -o json", 2))
    return lines


def _owned(row: Owned) -> str:
    where = f"{row.topic}[{ranges(row.partitions)}]"
    if row.story is None or row.since_ms is None:
        return f"{where}  since before the stories shown"
    return f"{where}  since {instant(row.since_ms)} (#{row.story['number']})"


def _print_offenders(stories: Iterable[Document]) -> None:
    worst = [
        who
        for who in offenders(stories)
        if who.waited_ms >= WORTH_NAMING_MS or who.expired or who.removed or who.caused >= OFTEN
    ]
    if not worst:
        return
    typer.echo()
    typer.secho("Worst offenders", bold=True)
    print_table(
        [name("CLIENT"), name("HOST"), number("GROUP-WAITED"), number("CAUSED"), number("EXPIRED"), number("REMOVED")],
        [
            (who.name, who.host, duration(who.cost_ms), who.caused, who.expired, who.removed)
            for who in worst[:MOST_OFFENDERS]
        ],
    )


def _document(explanation: GroupExplanation) -> dict[str, Any]:
    group = explanation.group
    subject = subject_of(group, explanation)
    return {
        "group": group.group_id,
        "state": group.state,
        "coordinator": group.coordinator,
        "now_ms": explanation.now_ms,
        "loaded_ms": explanation.loaded_ms,
        "status": explanation.status,
        "about": subject.document if subject is not None else None,
        "stories": list(explanation.stories),
        "owners": [
            {
                **as_document(member),
                "partitions": [
                    {
                        "topic": row.topic,
                        "partitions": row.partitions,
                        "story": row.story["number"] if row.story is not None else None,
                        "since_ms": row.since_ms,
                    }
                    for row in owned_since(as_document(member), member.assigned, explanation.stories)
                ],
            }
            for member in group.members
        ],
        "offenders": [dataclasses.asdict(who) for who in offenders(explanation.stories)],
    }
