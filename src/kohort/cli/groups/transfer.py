"""`kohort groups export` and `import`: the committed offsets of groups to a file, and from a file into groups.

An import creates groups that do not exist. It keeps the metadata of the offsets, and no leader epochs: those of another
cluster mean nothing, and those of this cluster may be outdated.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.confirmation import DRY_RUN, Execute, YesToExecute, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, FAILED, ClusterOptions, complain, complete_groups, connected, fail
from kohort.cli.groups.lookup import Offsets, matching, not_found, of_consumers, offsets_to_change
from kohort.cli.groups.offset_files import check_new, csv_of, document_of, read_offsets
from kohort.cli.groups.offset_plan import Move, clamped, documents, print_moves, set_words, undo_lines
from kohort.cli.groups.reset import UNCHANGED, Backup, commit
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import choice
from kohort.cli.output import Format, Output, plural, print_document
from kohort.cli.places import existing, words_of
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition

CSV = "csv"


def export(
    names: Annotated[list[str], typer.Argument(metavar="GROUP|PATTERN", autocompletion=complete_groups)],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="json|yaml|csv",
            help="JSON, which import reads; YAML; or the CSV of Kafka's tool, without metadata.",
            **choice(("json", "yaml", CSV)),
        ),
    ] = "json",
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Print the committed offsets of groups as JSON.

    kohort groups import and reset-offsets --from-file read it.
    """
    found: dict[str, Offsets] = {}
    missing = []
    with connected(where) as cluster:
        listed = cluster.list_groups()
        known = {one.group_id for one in listed}
        for group_id in matching(names, (one.group_id for one in listed if of_consumers(one))):
            offsets = cluster.committed(group_id) if group_id in known else {}
            if offsets or group_id in known:
                found[group_id] = offsets
            else:
                missing.append(not_found(cluster, group_id))
    if output == CSV:
        typer.echo(csv_of(found), nl=False)
    else:
        print_document(document_of(found), Format(output))
    for message in missing:
        complain(message)
    if missing:
        raise typer.Exit(FAILED)


def import_offsets(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From kohort groups export; - for stdin.")],
    execute: Execute = False,
    yes: YesToExecute = False,
    backup: Backup = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Set the committed offsets of groups from a file.

    Shows what would change; --execute does it, and asks first. The groups must have no members; those that do not exist
    are created.
    """
    check_new("--backup", backup)
    wanted = _named(file)
    with connected(where) as cluster:
        old, lost = _readable(cluster, wanted)
        planned = {
            group_id: moves
            for group_id, offsets in wanted.items()
            if (moves := _moves(cluster, offsets, old[group_id], lost))
        }
        if output == Format.TABLE:
            for group_id, moves in planned.items():
                show([Line(f"group {group_id}:", bold=True)])
                print_moves(moves, None)
        if lost:
            complain(f"left out, because the topic or partition does not exist: {words_of(sorted(lost))}")
        if not planned:
            fail(f"no topic of {file} exists; {UNCHANGED}")
        if execute:
            count = plural(sum(map(len, planned.values())), "offset")
            what = f"Set {count} of {plural(len(planned), 'group')}?"
            confirm(what, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            commit(cluster, planned, old, backup)
    if output != Format.TABLE:
        print_document([_document(group_id, moves, execute) for group_id, moves in planned.items()], output)
    elif not execute:
        show([Line(f"{UNCHANGED}: {DRY_RUN}")])
    else:
        show(Line(set_words(group_id, moves)) for group_id, moves in planned.items())
        undo = None if backup is None else f"kohort groups import {shlex.quote(str(backup))} --execute"
        lines = [line for group_id, moves in planned.items() for line in undo_lines(group_id, moves, undo)]
        show(dict.fromkeys(lines))


def _named(file: Path) -> dict[str, Offsets]:
    """The offsets of the file by group. Raises BadParameter."""
    found = read_offsets("FILE", file)
    wanted: dict[str, Offsets] = {group_id: offsets for group_id, offsets in found.items() if group_id is not None}
    if None in found:
        hint = f"use kohort groups reset-offsets GROUP --from-file {file}"
        raise typer.BadParameter(f"{file} has lines without a group; {hint}", param_hint=["FILE"])
    if not any(wanted.values()):
        raise typer.BadParameter(f"{file} has no offsets", param_hint=["FILE"])
    return wanted


def _readable(cluster: Cluster, wanted: dict[str, Offsets]) -> tuple[dict[str, Offsets], set[TopicPartition]]:
    """The present offsets of the groups, and the partitions of the file that do not exist. Fails if the offsets of one
    of the groups cannot be changed."""
    old: dict[str, Offsets] = {}
    refused = False
    for group_id in wanted:
        old[group_id], why = offsets_to_change(cluster, group_id, new=True)
        if why is not None:
            complain(why)
            refused = True
    if refused:
        fail(UNCHANGED)
    places = {place for offsets in wanted.values() for place in offsets}
    return old, places - existing(cluster, places)


def _moves(cluster: Cluster, wanted: Offsets, old: Offsets, lost: set[TopicPartition]) -> list[Move]:
    offsets = clamped(cluster, {place: found.offset for place, found in sorted(wanted.items()) if place not in lost})
    return [
        Move(*place, old.get(place), Committed(offset, -1, wanted[place].metadata), note)
        for place, (offset, note) in offsets.items()
    ]


def _document(group_id: str, moves: list[Move], executed: bool) -> dict[str, Any]:
    return {"group": group_id, "executed": executed, "offsets": documents(moves, None)}
