"""`kohort groups assign --dry-run`: which partitions an assignor would move in a running group. It changes nothing.

The assignor runs in the command's process: the server's own code, or a package that is installed here and found by
entry point, as the server finds it. The group may use either protocol; its members must be consumers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, Group, complain, connected, fail
from kohort.cli.groups.group_specs import spec_of
from kohort.cli.groups.lookup import does_not_exist
from kohort.cli.groups.wording import Names, as_document, partitions
from kohort.cli.output import Cell, Column, Format, Output, name, number, plural, print_document, print_table
from kohort.client.admin.groups import DEAD, GroupDescription
from kohort.client.cluster import Cluster
from kohort.coordinator.assignors.dry_run import DryRun, what_would_move
from kohort.coordinator.assignors.registry import BUILT_IN, with_plugins
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec
from kohort.server import assignor_plugins
from kohort.wire.embedded import CONSUMER_PROTOCOL

CONFIG = "consumer.assignor"
"""The group config that selects the assignor."""


def complete_assignors(incomplete: str) -> list[str]:
    """Names for the shell, without importing plug-ins."""
    return [name for name in (*BUILT_IN, *assignor_plugins.names()) if name.startswith(incomplete)]


def assign(
    group: Group,
    assignor: Annotated[
        str,
        typer.Option(metavar="NAME", help="Built in, or of an installed package.", autocompletion=complete_assignors),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Required: the command does nothing else.")] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Show what an assignor would move; change nothing.

    Compares its assignment of the group's partitions with the current one.
    """
    if not dry_run:
        raise typer.BadParameter(
            "add --dry-run: the command does nothing else. "
            f"To let {assignor} assign the group from now on: kohort groups configs {group} --set {CONFIG}={assignor}"
        )
    chosen = _assignor(assignor)
    with connected(where) as cluster:
        found = _described(cluster, group)
        spec = spec_of(cluster, found)
    began = time.monotonic()
    result = what_would_move(spec, chosen)
    took_ms = round((time.monotonic() - began) * 1000)
    if isinstance(result, str):
        fail(f"what assignor {assignor} answers for group {group} would be refused: {result}")
    if output != Format.TABLE:
        print_document(_document(found, spec, assignor, result, took_ms), output)
    else:
        _print(found, spec, assignor, result, took_ms)


def _assignor(wanted: str) -> Assignor:
    """The assignor of this name; packages are imported only for a name that is not built in."""
    if wanted in BUILT_IN:
        return BUILT_IN[wanted]
    plugins, failures = assignor_plugins.load()
    assignors, refusals = with_plugins(plugins)
    for why in (*failures, *refusals):
        complain(why)
    if wanted not in assignors:
        fail(f"no assignor {wanted} is installed here; there are {', '.join(assignors)}")
    return assignors[wanted]


def _described(cluster: Cluster, group_id: str) -> GroupDescription:
    """The group, if its members are consumers and have their partitions; else the command fails."""
    group = cluster.describe_groups([group_id])[group_id]
    if group.state == DEAD:
        fail(does_not_exist(cluster, group_id))
    if not group.members:
        fail(f"group {group_id} has no members to assign partitions to")
    if group.protocol_type != CONSUMER_PROTOCOL:
        fail(f"the members of group {group_id} are not consumers: its protocol type is {group.protocol_type}")
    if group.members[0].target is None and group.state != "Stable":
        fail(f"group {group_id} is {group.state}: its members' partitions are known once it is Stable")
    return group


# -- what is printed


def _print(group: GroupDescription, spec: GroupSpec, assignor: str, result: DryRun, took_ms: int) -> None:
    has_lag = _has_lag(spec)
    columns = [name("MEMBER"), Column("HOST", shrinks=True, repeats=True), number("NOW"), number("THEN")]
    columns += [number("LAG-NOW"), number("LAG-THEN")] if has_lag else []
    columns += [Column("GETS"), Column("GIVES-UP")]
    members = {member.member_id: as_document(member) for member in group.members}
    names = Names(members.values())
    rows: list[tuple[Cell, ...]] = []
    for change in result.changes:
        member = members[change.member.member_id]
        lags = (change.lag_before, change.lag_after) if has_lag else ()
        moves = [partitions(_by_name(spec, some)) for some in (change.gets, change.gives_up)]
        host = member["host"].removeprefix("/")
        rows.append((names.of(member), host, change.before, change.after, *lags, *moves))
    print_table(columns, rows)
    for line in _summary(group, assignor, result, took_ms, has_lag):
        typer.echo(line)


def _summary(group: GroupDescription, assignor: str, result: DryRun, took_ms: int, has_lag: bool) -> list[str]:
    counts = {"moved": result.moved, "newly assigned": result.taken, "given up": result.released}
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none moved"
    now = f" (now {group.protocol})" if group.protocol else ""
    changes = result.changes
    lines = [
        f"{group.group_id}: {group.state}, {plural(len(group.members), 'member')}; with {assignor}{now}, "
        f"of {plural(result.partitions, 'partition')}: {told}",
        f"partitions a member: {_span([c.before for c in changes])} now, {_span([c.after for c in changes])} then",
    ]
    if has_lag:
        before, after = _span([c.lag_before for c in changes]), _span([c.lag_after for c in changes])
        lines.append(f"lag of a member: {before} now, {after} then")
    if result.unassigned:
        lines.append(f"{plural(result.unassigned, 'partition')} would be unassigned")
    return [*lines, f"nothing was changed; computed here in {took_ms} ms"]


def _span(numbers: Sequence[int]) -> str:
    """`3 to 5`, or `4`."""
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _document(group: GroupDescription, spec: GroupSpec, assignor: str, result: DryRun, took_ms: int) -> dict[str, Any]:
    members = {member.member_id: as_document(member) for member in group.members}
    has_lag = _has_lag(spec)
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": assignor,
        "assignor_now": group.protocol or None,
        "took_ms": took_ms,
        "partitions": result.partitions,
        "moved": result.moved,
        "newly_assigned": result.taken,
        "given_up": result.released,
        "unassigned": result.unassigned,
        "balance": {
            when: {"least": min(counts), "most": max(counts)}
            for when, counts in (
                ("now", [change.before for change in result.changes]),
                ("then", [change.after for change in result.changes]),
            )
        },
        "members": [
            {
                **members[change.member.member_id],
                "now": change.before,
                "then": change.after,
                "lag_now": change.lag_before if has_lag else None,
                "lag_then": change.lag_after if has_lag else None,
                "gets": _by_name(spec, change.gets),
                "gives_up": _by_name(spec, change.gives_up),
            }
            for change in result.changes
        ],
    }


def _has_lag(spec: GroupSpec) -> bool:
    return any(any(topic.lag or ()) for topic in spec.topics.values())


def _by_name(spec: GroupSpec, assignment: Assignment) -> dict[str, tuple[int, ...]]:
    return {spec.topics[topic_id].name: indexes for topic_id, indexes in assignment.items()}
