"""`kohort groups reset-offsets`: set a group's committed offsets, or a share group's start offsets, with a dry run by
default.

The offsets are committed from outside, as a simple consumer commits them, so only while the group has no members. The
same choices as in Kafka's kafka-consumer-groups.sh, and `--to-group`. The command reads the committed offsets again
after the question, and refuses if they have changed meanwhile.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from kohort.cli.confirmation import DRY_RUN, Execute, YesToExecute, confirm
from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    ClusterOptions,
    Group,
    complain,
    complete_groups,
    complete_topics,
    connected,
    fail,
)
from kohort.cli.groups.lookup import Offsets, does_not_exist, offsets_to_change
from kohort.cli.groups.offset_files import check_new, read_offsets, write_backup
from kohort.cli.groups.offset_plan import (
    NO_OFFSET,
    NO_RECORD,
    Move,
    clamped,
    documents,
    first_records,
    print_moves,
    set_words,
    undo_lines,
)
from kohort.cli.groups.shares.resetting import AGAIN, is_share_group, set_start_offsets, undo_lines_of_shares
from kohort.cli.groups.undo import restore_command
from kohort.cli.groups.wording import Line, instant, show
from kohort.cli.option_objects import and_so, milliseconds
from kohort.cli.output import Format, Output, plural, print_document
from kohort.cli.places import (
    TOPIC_PARTITIONS,
    Scope,
    existing,
    in_scope,
    instant_of,
    partitions_in,
    places_scope,
    scope_of,
    words_of,
)
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.metadata import TopicPartition

UNCHANGED = "nothing was changed"
COMMITTED = 1_000
"""Offsets of one request. kohort takes up to 10,000, and Kafka as many as fit into message.max.bytes."""

OnlyTopics = Annotated[
    list[str] | None,
    typer.Option(
        metavar=TOPIC_PARTITIONS,
        help="Only this topic, or these partitions of it; repeatable.",
        autocompletion=complete_topics,
    ),
]
Backup = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="With --execute: first write the old offsets to a new file."),
]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the offsets go: exactly one of these options."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start of each log.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end of each log.")] = False
    to_offset: Annotated[int | None, typer.Option(min=0, metavar="N", help="To this offset.")] = None
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record at or after this ISO 8601 time, as 2026-11-21T12:00 (local time) or "
            "2026-11-21T12:00:00Z.",
        ),
    ] = None
    by_duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="To the first record of the last 30s, 2h or 3d.")
    ] = None
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="By N records on, or back if negative.")] = None
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Keep committed offsets; to the end where there is none.")
    ] = False
    from_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="To offsets from kohort groups export, or CSV: topic,partition,offset."),
    ] = None
    to_group: Annotated[
        str | None,
        typer.Option(metavar="OTHER", help="To the offsets of another group.", autocompletion=complete_groups),
    ] = None

    def check(self) -> None:
        """Raises BadParameter unless exactly one option is given."""
        flags = {f"--{field.name.replace('_', '-')}": getattr(self, field.name) for field in fields(self)}
        given = [flag for flag, value in flags.items() if value is not None and value is not False]
        if len(given) != 1:
            has = f"{' and '.join(given)} are given" if given else "none is given"
            raise typer.BadParameter(f"choose one of {', '.join(flags)}; {has}")

    @property
    def copies(self) -> bool:
        """Whether the destination names the partitions itself."""
        return self.from_file is not None or self.to_group is not None


def reset_offsets(
    group: Group,
    to: Destination,
    topic: OnlyTopics = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions with a committed offset.")] = False,
    new: Annotated[bool, typer.Option("--new", help="The group need not exist.")] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Show the first record at each new offset.")] = False,
    execute: Execute = False,
    yes: YesToExecute = False,
    backup: Backup = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Set a group's committed offsets.

    Of a share group, its start offsets. Shows what would change; --execute does it, and asks first. The group must have
    no members.
    """
    to.check()
    scope = scope_of("--topic", topic or ())
    if scope and all_topics:
        raise typer.BadParameter("choose one of --topic and --all-topics")
    if not (scope or all_topics or to.copies):
        raise typer.BadParameter("which partitions? Add --topic TOPIC, --topic TOPIC:0,2-5 or --all-topics")
    check_new("--backup", backup)
    moment_ms, moment = moment_of(to)
    from_file = None if to.from_file is None else _of_group(to.from_file, group)
    with connected(where) as cluster:
        old, moves, lost = plan_reset(cluster, group, to, scope, moment_ms, from_file, new=new)
        first = first_records(cluster, moves) if preview else None
        restore = None
        shared = is_share_group(cluster, group)
        if output == Format.TABLE:
            print_moves(moves, first)
            if moment:
                show([Line(moment)])
            if shared:
                show([Line(AGAIN)])
        if lost:
            complain(f"left out, because the topic or partition does not exist any more: {words_of(lost)}")
        if execute:
            what = f"Set {plural(len(moves), 'offset')} of group {group}?"
            confirm(what, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            restore = restore_command(cluster, group)
            commit(cluster, {group: moves}, {group: old}, backup)
    if output != Format.TABLE:
        document = {"group": group, "executed": execute, "undo": restore, "offsets": documents(moves, first)}
        print_document(document | {"left_out": [{"topic": name, "partition": index} for name, index in lost]}, output)
    elif execute:
        file = None if backup is None else shlex.quote(str(backup))
        if shared:
            file_name = None if backup is None else str(backup)
            show([Line(set_words(group, moves)), *undo_lines_of_shares(group, moves, file_name)])
            return
        undo = f"kohort groups import {file} --execute" if file else None  # it keeps the metadata of the old offsets
        show([Line(set_words(group, moves)), *undo_lines(group, moves, undo, restore)])
    else:
        show([Line(f"{UNCHANGED}: {DRY_RUN}")])


class ResetPlan(NamedTuple):
    old: Offsets
    """What the group has committed."""
    moves: list[Move]
    lost: list[TopicPartition]
    """Left out, because they exist no more."""


def plan_reset(
    cluster: Cluster,
    group: str,
    to: Destination,
    scope: Scope,
    moment_ms: int = 0,
    from_file: Offsets | None = None,
    *,
    new: bool = False,
) -> ResetPlan:
    """What a reset would do; an empty scope is all partitions with a committed offset. Fails if it cannot be done.

    `new`: the group need not exist."""
    old, why = offsets_to_change(cluster, group, new=new, shares=True)
    if why is not None:
        fail(and_so(why, UNCHANGED))
    copied = _offsets_of_other(cluster, to.to_group) if to.to_group is not None else from_file
    places, lost = places_to_reset(cluster, group, to, scope, old, copied)
    return ResetPlan(old, _moves(cluster, to, moment_ms, places, old, copied), lost)


def commit(
    cluster: Cluster, planned: Mapping[str, list[Move]], old: Mapping[str, Offsets], backup: Path | None
) -> None:
    """Commit the moves of each group, after a backup. Fails before that if a group has changed since it was read.

    A group, or a partition, may be refused when others are done already."""
    check_unchanged(cluster, planned, old)
    if backup is not None:
        kept = {
            group_id: {move.place: move.old for move in moves if move.old is not None}
            for group_id, moves in planned.items()
        }
        write_backup(backup, kept)
    try:
        for group_id, moves in planned.items():
            set_offsets(cluster, group_id, moves)
    except KafkaError:
        if sum(map(len, planned.values())) > 1:
            where = "" if backup is None else f"; the old ones are in {backup}"
            complain(f"some of the offsets may be set already{where}")
        raise


def check_unchanged(cluster: Cluster, planned: Mapping[str, list[Move]], old: Mapping[str, Offsets]) -> None:
    """Fails if a group has got members, or other offsets, since the moves were planned."""
    for group_id, moves in planned.items():
        now, why = offsets_to_change(cluster, group_id, new=True, shares=True)
        if why is None and any(now.get(move.place) != move.old for move in moves):
            why = f"the committed offsets of group {group_id} have changed meanwhile"
        if why is not None:
            fail(and_so(why, UNCHANGED))


def set_offsets(cluster: Cluster, group_id: str, moves: Sequence[Move]) -> None:
    """In requests of COMMITTED offsets each: after a failure some of the offsets may be set."""
    if is_share_group(cluster, group_id):
        set_start_offsets(cluster, group_id, moves)
        return
    for first in range(0, len(moves), COMMITTED):
        cluster.commit(group_id, {move.place: move.new for move in moves[first : first + COMMITTED]})


def moment_of(to: Destination) -> tuple[int, str]:
    """The time of a destination in milliseconds, and how to say it; 0 and "" if it is none. Raises BadParameter."""
    if to.to_datetime is not None:
        moment_ms, words = instant_of("--to-datetime", to.to_datetime)
        return moment_ms, f"new offsets: the first records at or after {words}"
    if to.by_duration is not None:
        moment_ms = int(time.time() * 1000) - milliseconds("--by-duration", to.by_duration)
        return moment_ms, f"new offsets: the first records at or after {instant(moment_ms)}, by this machine's clock"
    return 0, ""


def _of_group(file: Path, group: str) -> Offsets:
    found = read_offsets("--from-file", file)
    if (offsets := found.get(group, found.get(None))) is not None:
        return offsets
    names = ", ".join(sorted(map(str, found)))
    raise typer.BadParameter(
        f"{file} has no offsets of group {group}; it has those of {names}", param_hint=["--from-file"]
    )


def _offsets_of_other(cluster: Cluster, group: str) -> Offsets:
    offsets = cluster.committed(group)
    if not offsets:
        known = {one.group_id for one in cluster.list_groups()}
        why = f"group {group} has no committed offsets" if group in known else does_not_exist(cluster, group)
        fail(and_so(why, UNCHANGED))
    return offsets


def places_to_reset(
    cluster: Cluster, group: str, to: Destination, scope: Scope, old: Offsets, copied: Offsets | None
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """The partitions to reset, and those left out because they exist no more."""
    if copied is None and scope:
        return partitions_in(cluster, scope, UNCHANGED), []
    source = old if copied is None else copied
    chosen = sorted(place for place in source if in_scope(place, scope))
    origin = f"group {group}" if copied is None else f"group {to.to_group}" if to.to_group else str(to.from_file)
    named = [(name, index) for name, indexes in scope.items() for index in indexes or ()]
    missing = words_of(sorted(place for place in named if place not in source)) or ", ".join(
        name for name, indexes in scope.items() if indexes is None and all(name != place[0] for place in chosen)
    )
    if missing or not chosen:
        hint = "; name the partitions with --topic" if copied is None else ""
        fail(f"{origin} has no committed offsets{f' of {missing}' if missing else ''}; {UNCHANGED}{hint}")
    if to.from_file is not None:
        return partitions_in(cluster, places_scope(chosen), UNCHANGED), []
    known = existing(cluster, chosen)
    lost = [place for place in chosen if place not in known]
    if len(lost) == len(chosen):
        fail(f"no partition exists any more of those where {origin} has committed offsets; {UNCHANGED}")
    return [place for place in chosen if place in known], lost


def _moves(
    cluster: Cluster,
    to: Destination,
    moment_ms: int,
    places: list[TopicPartition],
    old: Offsets,
    copied: Offsets | None,
) -> list[Move]:
    current = {place: old[place].offset for place in places if place in old}
    found: dict[TopicPartition, tuple[int, str]]
    if copied is not None:
        found = clamped(cluster, {place: copied[place].offset for place in places})
    elif to.to_earliest or to.to_latest:
        ends = cluster.offsets(places, "earliest" if to.to_earliest else "latest")
        found = {place: (offset, "") for place, offset in ends.items()}
    elif to.to_offset is not None:
        found = clamped(cluster, dict.fromkeys(places, to.to_offset))
    elif to.shift_by is not None:
        if without := [place for place in places if place not in current]:
            fail(f"there is no committed offset to shift: {words_of(without)}; {UNCHANGED}")
        found = clamped(cluster, {place: offset + to.shift_by for place, offset in current.items()})
    else:
        later = current if to.to_current else cluster.offsets(places, moment_ms)
        found = {place: (offset, "") for place, offset in later.items() if offset >= 0}
        rest = cluster.offsets([place for place in places if place not in found], "latest")
        found |= {place: (offset, NO_OFFSET if to.to_current else NO_RECORD) for place, offset in rest.items()}
    return [Move(*place, old.get(place), Committed(found[place][0]), found[place][1]) for place in places]
