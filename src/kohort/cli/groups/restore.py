"""`kohort groups restore`: bring back committed offsets that were changed from outside, deleted or expired.

kohort's journal keeps what an operator, an expiry or a commit without a member destroyed: of each partition the offset
before and after. The offsets before a moment are those before the first such change since then. Commits of members are
not in the journal: a partition that only members have committed is left alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from kohort.cli.confirmation import DRY_RUN, Execute, YesToExecute, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, Group, complain, connected, fail
from kohort.cli.groups.lookup import Offsets, does_not_exist, offsets_to_change
from kohort.cli.groups.offset_files import check_new
from kohort.cli.groups.offset_plan import Move, clamped, documents, print_moves, set_words
from kohort.cli.groups.reset import UNCHANGED, Backup, OnlyTopics, commit
from kohort.cli.groups.timeline import change_lines
from kohort.cli.groups.undo import restore_command
from kohort.cli.groups.wording import Document, Line, Names, instant, people_of, show
from kohort.cli.option_objects import and_so
from kohort.cli.output import Format, Output, plural, print_document
from kohort.cli.places import Scope, existing, in_scope, instant_of, options_of, scope_of, words_of
from kohort.client.admin.explanations import GroupExplanation, NoJournal
from kohort.client.admin.groups import DEAD, Committed
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition

ALL_STORIES = 10_000
SHOWN = 10
"""Changes that are listed."""
NONE = -1


def restore(
    group: Group,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Undo the changes from this time on, as 2026-11-21T12:00 (local time) or 2026-11-21T12:00:00Z; "
            "without it, the newest changes are listed.",
            show_default=False,
        ),
    ] = None,
    topic: OnlyTopics = None,
    execute: Execute = False,
    yes: YesToExecute = False,
    backup: Backup = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Bring back offsets that were reset, deleted or expired.

    Shows what would change; --execute does it, and asks first. The group must have no members; one that was deleted is
    created anew. Only the journal of a kohort server keeps such changes, and not the progress of members: kohort groups
    explain lists what can be undone.
    """
    if before is None:
        _choose(group, where, output)
    scope = scope_of("--topic", topic or ())
    check_new("--backup", backup)
    moment_ms, moment = instant_of("--before", before)
    undo: str | None = None
    with connected(where) as cluster:
        old, moves, lost, new, undone, about = plan_restore(cluster, group, scope, moment_ms, moment)
        if output == Format.TABLE:
            if moves:
                print_moves(moves, None)
            show([Line("undoes:", bold=True), *about])
        if lost:
            complain(f"left out, because the topic or partition does not exist any more: {words_of(lost)}")
        if not moves and not new:
            fail(already_so(moment))
        if moves and execute:
            what = f"Set {plural(len(moves), 'offset')} of group {group}?"
            confirm(what, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            undo = restore_command(cluster, group)
            commit(cluster, {group: moves}, {group: old}, backup)
    if output != Format.TABLE:
        document = {"group": group, "executed": execute and bool(moves), "offsets": documents(moves, None)}
        document |= {"left_out": _places(lost), "new_since_then": _places(new)}
        print_document(document | {"undoes": [story["number"] for story in undone]}, output)
        return
    if new:
        command = f"kohort groups delete-offsets {shlex.quote(group)} {options_of('--topic', new)}"
        show([Line(f"{words_of(new)} had no offset before; to delete it: {command}", whole=True)])
    if moves and execute:
        show([Line(set_words(group, moves)), Line(f"to undo: {undo}", whole=True)])
    elif moves:
        show([Line(f"{UNCHANGED}: {DRY_RUN}")])


class RestorePlan(NamedTuple):
    old: Offsets
    """What the group has committed."""
    moves: list[Move]
    lost: list[TopicPartition]
    """Left out, because they exist no more."""
    new: list[TopicPartition]
    """Had no committed offset before the moment, and have one now; it stays."""
    undone: list[Document]
    """The stories that are undone, the oldest first."""
    about: list[Line]
    """These stories in words."""


def plan_restore(cluster: Cluster, group: str, scope: Scope, moment_ms: int, moment: str) -> RestorePlan:
    """What a restore would do; `moment` is the time in words. Fails if it cannot be done."""
    stories = _stories(cluster, group, moment_ms, moment)
    old, why = offsets_to_change(cluster, group, new=True)
    if why is not None:
        fail(and_so(why, UNCHANGED))
    undone = [story for story in stories if story["started_ms"] >= moment_ms]
    wanted = {place: offset for place, offset in offsets_before(undone).items() if in_scope(place, scope)}
    if not wanted:
        fail(f"{_nothing(group, undone, scope, moment)}; {UNCHANGED}")
    moves, lost = _moves(cluster, wanted, old)
    new = sorted(place for place, offset in wanted.items() if offset == NONE and place in old)
    return RestorePlan(old, moves, lost, new, undone, _about(stories, undone, moment_ms))


def _choose(group: str, where: ClusterOptions, output: Format) -> NoReturn:
    """Show the newest changes, each with the command that undoes it, and end: the user has to name a time."""
    with connected(where) as cluster:
        try:
            stories = cluster.explain_group(group, last=ALL_STORIES).stories
        except NoJournal as error:
            fail(f"{error.message}; {UNCHANGED}")
    changes = [story for story in stories if story.get("changed")]
    names = Names(people_of(stories))
    why = f"the journal has none of group {group}"
    if changes and output == Format.TABLE:
        show([line for story in changes[-SHOWN:] for line in change_lines(story, names)])
        why = "The list has the command that undoes each"
    elif changes:
        why = f"kohort groups explain {shlex.quote(group)} lists them"
    raise typer.BadParameter(f"which changes? {why}", param_hint=["--before"])


def already_so(moment: str) -> str:
    return f"the committed offsets are those from before {moment} already; {UNCHANGED}"


def _stories(cluster: Cluster, group: str, moment_ms: int, moment: str) -> list[Document]:
    """The stories of changed offsets, the oldest first. Fails if the journal does not reach back to the moment."""
    try:
        explanation = cluster.explain_group(group, last=ALL_STORIES)
    except NoJournal as error:
        fail(f"{error.message}; {UNCHANGED}")
    if not explanation.keeps_offsets:
        fail(f"the coordinator of group {group} is an older kohort, whose journal keeps no offsets; {UNCHANGED}")
    if moment_ms > explanation.now_ms:
        raise typer.BadParameter(
            f"{moment} is in the future; the server has {instant(explanation.now_ms)}", param_hint=["--before"]
        )
    _check_reach(cluster, explanation, moment_ms, moment)
    changes = [story for story in explanation.stories if story.get("changed")]
    return sorted(changes, key=lambda story: (story["started_ms"], story["number"]))


def _check_reach(cluster: Cluster, explanation: GroupExplanation, moment_ms: int, moment: str) -> None:
    group, stories = explanation.group, explanation.stories
    if not stories:
        if group.state == DEAD and not cluster.committed(group.group_id):
            fail(and_so(does_not_exist(cluster, group.group_id), "the journal has nothing of it"))
        fail(f"the journal has nothing of group {group.group_id}; {UNCHANGED}")
    oldest = min(stories, key=lambda story: int(story["number"]))
    if oldest["number"] > 1 and moment_ms < oldest["started_ms"]:
        fail(
            f"the journal of group {group.group_id} reaches back to {instant(oldest['started_ms'])}, and not to "
            f"{moment}: what was changed in between is not known. Choose a later time; {UNCHANGED}"
        )


def offsets_before(undone: Sequence[Document]) -> dict[TopicPartition, int]:
    """Of each partition that these stories changed, the oldest first: its offset before the first change; -1 for
    none."""
    found: dict[TopicPartition, int] = {}
    for story in undone:
        for topic, rows in story["changed"].items():
            for index, offset, _ in rows:
                found.setdefault((topic, index), offset)
    return dict(sorted(found.items()))


def _nothing(group: str, undone: Sequence[Document], scope: Scope, moment: str) -> str:
    of = f" of {', '.join(scope)}" if scope and undone else ""
    return f"since {moment} no committed offset{of} of group {group} was changed from outside, deleted, or has expired"


def _moves(
    cluster: Cluster, wanted: dict[TopicPartition, int], old: Offsets
) -> tuple[list[Move], list[TopicPartition]]:
    """What changes, and the partitions that exist no more."""
    known = existing(cluster, wanted)
    places = {place: offset for place, offset in wanted.items() if offset != NONE}
    found = clamped(cluster, {place: offset for place, offset in places.items() if place in known})
    moves = [Move(*place, old.get(place), Committed(offset), note) for place, (offset, note) in found.items()]
    changing = [move for move in moves if move.old is None or move.old.offset != move.new.offset]
    return changing, [place for place in places if place not in known]


def _about(stories: Sequence[Document], undone: Sequence[Document], moment_ms: int) -> list[Line]:
    names = Names(people_of(stories))
    lines = [Line(change_lines(story, names)[0].text, 2) for story in undone[:SHOWN]]
    lines += [Line(f"and {len(undone) - SHOWN} more", 2)] if len(undone) > SHOWN else []
    for story in stories:
        who = names.with_host(story.get("cause", {}))
        if story.get("goes_on") and story in undone:
            lines.append(Line(f"{who} committed again and again since #{story['number']}: all of that is taken back"))
        elif story.get("goes_on") and story["started_ms"] < moment_ms <= undone[0]["started_ms"]:
            lines.append(Line(f"{who} committed before, since #{story['number']}: its last offsets come back"))
    return lines


def _places(places: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": name, "partition": index} for name, index in places]
