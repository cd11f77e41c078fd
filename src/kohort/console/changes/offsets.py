"""Committed offsets of a group: reset, restore and delete them. The plans are those of `kohort groups`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kohort.cli.groups.delete import places_to_delete, refused_words
from kohort.cli.groups.lookup import UNDELETED, Offsets, why_not
from kohort.cli.groups.offset_plan import (
    MOVE_COLUMNS,
    Move,
    first_records,
    move_cells,
    move_notes,
    record_words,
    set_words,
    undo_lines,
)
from kohort.cli.groups.reset import Destination, check_unchanged, moment_of, plan_reset, set_offsets
from kohort.cli.groups.restore import ALL_STORIES, already_so, plan_restore
from kohort.cli.groups.shares.resetting import AGAIN, is_share_group
from kohort.cli.groups.timeline import headline
from kohort.cli.groups.undo import restore_command, restore_moment
from kohort.cli.groups.wording import Names, instant, people_of, utc
from kohort.cli.output import Column, name, number, plural
from kohort.cli.places import Scope, instant_of, scope_of, words_of
from kohort.client.admin.explanations import NoJournal
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, ServerError
from kohort.client.metadata import TopicPartition
from kohort.console.changes.plan import SHOWN, Outcome, Plan, Wrong
from kohort.console.forms import Form
from kohort.console.shared import address

LARGEST_OFFSET = 2**63 - 1
UNDOABLE = 20
"""Changes that the form of a restore lists."""
LOGGED = 100
"""Offsets of a change that the log names."""


def scope_in(form: Form) -> Scope:
    """The partitions that a form names: none of all that have a committed offset."""
    if form.get("which", "all") == "all":
        return {}
    given = re.split(r"[\s;]+", form.get("topics", "").strip())
    if given == [""]:
        raise Wrong("topics", "Name the topics: orders, or orders:0,2-5 for some of its partitions.")
    return scope_of("topics", given)


# -- reset


def plan_of_reset(cluster: Cluster, group: str, form: Form) -> Plan:
    to, scope = destination_in(form), scope_in(form)
    moment_ms, moment = moment_of(to)
    shared = is_share_group(cluster, group)
    if not scope and not shared and not cluster.committed(group):
        raise Wrong("which", f"Group {group} has no committed offsets. Name the topics instead.")
    old, moves, lost = plan_reset(cluster, group, to, scope, moment_ms)
    columns, rows = [*MOVE_COLUMNS], [move_cells(move) for move in moves]
    if "preview" in form:
        first = first_records(cluster, moves[:SHOWN])
        columns.append(Column("FIRST-RECORD", spare=True))
        words = {place: record_words(record) for place, record in first.items()}
        rows = [(*row, words.get(move.place)) for row, move in zip(rows, moves, strict=True)]
    notes = [moment] if moment else []
    notes += [AGAIN] if shared else []
    return Plan(
        f"Set {plural(len(moves), 'offset')} of group {group}?",
        "offsets reset",
        "Set the offsets",
        lambda cluster: set_as_planned(cluster, group, moves, old),
        columns,
        rows,
        [*move_notes(moves), *notes, *left_out(lost)],
        details={"offsets": logged(moves)},
    )


def destination_in(form: Form) -> Destination:
    match form.get("to", ""):
        case "earliest":
            return Destination(to_earliest=True)
        case "latest":
            return Destination(to_latest=True)
        case "offset":
            return Destination(to_offset=whole(form, "offset", 0, LARGEST_OFFSET))
        case "shift":
            return Destination(shift_by=whole(form, "shift", -LARGEST_OFFSET, LARGEST_OFFSET))
        case "time":
            return Destination(to_datetime=filled(form, "time", "Which time? Write 2026-11-21T12:00."))
        case "duration":
            return Destination(by_duration=filled(form, "duration", "How long? Write 30s, 5m, 1h30m or 2d."))
    raise Wrong("to", "Choose where the offsets go.")


def whole(form: Form, field: str, least: int, most: int) -> int:
    text = form.get(field, "").strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII) or not least <= int(text) <= most:
        raise Wrong(field, f"Write a whole number{f' of {least} or more' if least >= 0 else ''}.")
    return int(text)


def filled(form: Form, field: str, why: str) -> str:
    text = form.get(field, "").strip()
    if not text:
        raise Wrong(field, why)
    return text


def set_as_planned(cluster: Cluster, group: str, moves: Sequence[Move], old: Offsets) -> Outcome:
    check_unchanged(cluster, {group: list(moves)}, {group: old})
    command, undo = restore_command(cluster, group), address_to_restore(cluster, group)
    try:
        set_offsets(cluster, group, moves)
    except KafkaError as error:
        if len(moves) > 1:
            raise error.because("some of the offsets may be set already") from None
        raise
    is_shared = is_share_group(cluster, group)
    lines = [] if is_shared else [line.text for line in undo_lines(group, moves, command)]
    return Outcome(set_words(group, moves), lines=lines, undo=undo)


def address_to_restore(cluster: Cluster, group: str) -> str:
    """Of the form that undoes what is changed from now on; empty if the coordinator keeps no offsets."""
    moment = restore_moment(cluster, group)
    return address("/change/restore-offsets", group=group, before=moment) if moment else ""


def left_out(lost: Sequence[TopicPartition]) -> list[str]:
    return [f"left out, because the topic or partition does not exist any more: {words_of(lost)}"] if lost else []


def logged(moves: Iterable[Move]) -> str:
    said = [
        f"{move.topic}-{move.partition}: {move.old.offset if move.old else 'none'} -> {move.new.offset}"
        for move in moves
    ]
    more = [f"and {len(said) - LOGGED} more"] if len(said) > LOGGED else []
    return ", ".join([*said[:LOGGED], *more])


# -- restore


def plan_of_restore(cluster: Cluster, group: str, form: Form) -> Plan:
    text = filled(form, "before", "Which time? Write 2026-11-21T12:00, or choose a change below.")
    moment_ms, moment = instant_of("before", text)
    old, moves, lost, new, _, about = plan_restore(cluster, group, scope_in(form), moment_ms, moment)
    if not moves:
        raise Wrong("before", already_so(moment))
    notes = [f"undoes {line.text}" for line in about]
    if new:
        notes.append(f"{words_of(new)} had no offset before; the committed offset stays")
    return Plan(
        f"Set {plural(len(moves), 'offset')} of group {group} to those before {moment}?",
        "offsets restored",
        "Bring the offsets back",
        lambda cluster: set_as_planned(cluster, group, moves, old),
        MOVE_COLUMNS,
        [move_cells(move) for move in moves],
        [*move_notes(moves), *notes, *left_out(lost)],
        details={"offsets": logged(moves), "before": moment},
    )


def undoable(cluster: Cluster, group: str) -> Mapping[str, Any]:
    """The newest changes that the journal can undo, for the form."""
    try:
        explanation = cluster.explain_group(group, last=ALL_STORIES)
    except NoJournal as error:
        return {"stories": [], "why": error.message}
    changes = [story for story in explanation.stories if story.get("changed")]
    names = Names(people_of(changes))
    found = [
        {"when": instant(story["started_ms"]), "what": headline(story, names), "before": utc(story["started_ms"])}
        for story in reversed(changes[-UNDOABLE:])
    ]
    return {"stories": found, "why": "" if found else "The journal has no such change of this group."}


# -- delete


def plan_of_deletion(cluster: Cluster, group: str, form: Form) -> Plan:
    scope = scope_in({**form, "which": "some"})
    committed = cluster.committed(group)
    places = places_to_delete(cluster, group, committed, scope)

    def carry_out(cluster: Cluster) -> Outcome:
        now = cluster.committed(group)
        if any(now.get(place) != committed[place] for place in places):
            why = f"the committed offsets of group {group} have changed meanwhile"
            return Outcome(f"{why}; {UNDELETED}", done=False)
        command, undo = restore_command(cluster, group), address_to_restore(cluster, group)
        try:
            refused = cluster.delete_offsets(group, places)
        except ServerError as error:
            return Outcome(f"{why_not(cluster, group, error)}; {UNDELETED}", done=False)
        gone = [place for place in places if place not in refused]
        lines = [
            f"{refused_words(group, code)}: {words_of(place for place in places if refused.get(place) == code)}"
            for code in dict.fromkeys(refused.values())
        ]
        if not gone:
            return Outcome(UNDELETED, done=False, lines=lines)
        lines += [f"to undo: {command}"] if command else []
        return Outcome(f"deleted {plural(len(gone), 'offset')} of group {group}: {words_of(gone)}", True, lines, undo)

    return Plan(
        f"Delete {plural(len(places), 'committed offset')} of group {group}?",
        "offsets deleted",
        "Delete the offsets",
        carry_out,
        [name("TOPIC"), number("PARTITION"), number("COMMITTED")],
        [(*place, committed[place].offset) for place in places],
        ["A consumer of the group then starts where auto.offset.reset says."],
        typed=group,
        details={"offsets": words_of(places)},
    )
