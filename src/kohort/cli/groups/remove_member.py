"""`kohort groups remove-member`: take members out of a group, as Kafka's Admin.removeMembersFromConsumerGroup does.

The coordinator removes a member at once, and the others get its partitions, instead of waiting for the end of its
session. A static member is removed by its instance id, whatever process has it. It works for members of both protocols
(Apache Kafka 2.4 and later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kohort.cli.confirmation import DRY_RUN, Execute, YesToExecute, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, FAILED, ClusterOptions, Group, complain, connected, fail
from kohort.cli.groups.lookup import does_not_exist
from kohort.cli.groups.wording import Line, Names, as_document, partitions, plain, show
from kohort.cli.option_objects import and_so, near_word
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table
from kohort.client.admin.groups import DEAD, SHARE, GroupDescription, GroupMember, Member
from kohort.client.cluster import Cluster
from kohort.wire.errors import ErrorCode

UNCHANGED = "nobody was removed"
COMES_BACK = "A process that still runs joins again; stop it first."
COLUMNS = (name("CONSUMER-ID"), name("GROUP-INSTANCE-ID"), name("HOST"), name("CLIENT-ID"), number("#PARTITIONS"))


def remove_member(
    group: Group,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="MEMBER", help="A member id, or a client id that only one member has; several."),
    ] = None,
    instance_id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A static member, by its instance id; repeatable.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All members.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="For the coordinator's log and journal.")] = "",
    execute: Execute = False,
    yes: YesToExecute = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Remove members of a group at once.

    The others get their partitions without waiting for the end of their sessions. Shows what would change; --execute
    does it, and asks first. A process that still runs joins again: stop it first.
    """
    if every == bool(names or instance_id):
        raise typer.BadParameter("name members, or add --instance-id ID or --all")
    refused: Mapping[Member, ErrorCode] = {}
    with connected(where) as cluster:
        [found] = cluster.describe_groups([group]).values()
        if found.type == SHARE:
            fail(f"group {group} is a share group: kohort groups release gives back what a member holds; {UNCHANGED}")
        chosen = list(found.members) if every else chosen_members(cluster, found, names or (), instance_id or ())
        if not chosen:
            fail(and_so(_without_members(cluster, found), UNCHANGED))
        if output == Format.TABLE:
            print_table(COLUMNS, [cells(member) for member in chosen])
        if execute:
            question = f"Remove {plural(len(chosen), 'member')} of group {group}? {COMES_BACK}"
            confirm(question, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            refused = cluster.remove_members(group, [identity(member) for member in chosen], reason)
    done = [member for member in chosen if execute and identity(member) not in refused]
    if output != Format.TABLE:
        rows = [document_of(member, member in done, refused.get(identity(member))) for member in chosen]
        print_document({"group": group, "executed": execute, "members": rows}, output)
    elif not execute:
        show([Line(f"{UNCHANGED}: {DRY_RUN}")])
    elif done:
        show([Line(removed_words(group, done))])
    for text in refused_lines(group, chosen, refused):
        complain(text)
    if refused:
        raise typer.Exit(FAILED)


def chosen_members(
    cluster: Cluster, group: GroupDescription, names: Sequence[str], instances: Sequence[str]
) -> list[GroupMember]:
    """The members with these ids. Fails unless there is one for each."""
    if not group.members:
        fail(and_so(_without_members(cluster, group), UNCHANGED))
    by_id = {member.member_id: member for member in group.members}
    by_instance = {member.group_instance_id: member for member in group.members if member.group_instance_id}
    found: dict[str, GroupMember] = {}
    for one in names:
        same = [by_id[one]] if one in by_id else [m for m in group.members if one in (m.client_id, m.group_instance_id)]
        if len(same) > 1:
            ids = ", ".join(member.member_id for member in same[:5])
            fail(f"group {group.group_id} has {len(same)} members with the client id {one}: {ids}; {UNCHANGED}")
        if not same:
            fail(_unknown(group, "member", one, [*by_id, *(member.client_id for member in group.members)]))
        found[same[0].member_id] = same[0]
    for one in instances:
        if one not in by_instance:
            fail(_unknown(group, "static member", one, [instance for instance in by_instance if instance]))
        found[by_instance[one].member_id] = by_instance[one]
    return list(found.values())


def identity(member: GroupMember) -> Member:
    """As Kafka's admin client names it: a static member by its instance id alone."""
    return Member("", member.group_instance_id) if member.group_instance_id else Member(member.member_id)


def cells(member: GroupMember) -> tuple[str | int | None, ...]:
    owned = sum(map(len, member.assigned.values()))
    return member.member_id, member.group_instance_id, member.host, member.client_id, owned


def removed_words(group: str, members: Sequence[GroupMember]) -> str:
    names = Names(map(as_document, members))
    who = ", ".join(names.with_host(as_document(member)) for member in members[:5])
    more = f" and {len(members) - 5} more" if len(members) > 5 else ""
    owned = partitions(members[0].assigned) if len(members) == 1 else ""
    return f"removed {who}{more} from group {group}{f'; it had {plain(owned)}' if owned else ''}"


def refused_lines(group: str, members: Sequence[GroupMember], refused: Mapping[Member, ErrorCode]) -> list[str]:
    names = Names(map(as_document, members))
    return [
        f"{names.with_host(as_document(member))} was not removed from group {group}: {_why(refused[identity(member)])}"
        for member in members
        if identity(member) in refused
    ]


def document_of(member: GroupMember, removed: bool, error: ErrorCode | None) -> dict[str, Any]:
    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "partitions": sum(map(len, member.assigned.values())),
        "removed": removed,
        "error": error.name if error else None,
    }


def _why(code: ErrorCode) -> str:
    return "it has left meanwhile" if code == ErrorCode.UNKNOWN_MEMBER_ID else f"{code.name}: {code.message}"


def _without_members(cluster: Cluster, group: GroupDescription) -> str:
    if group.state == DEAD and not cluster.committed(group.group_id):
        return does_not_exist(cluster, group.group_id)
    return f"group {group.group_id} has no members"


def _unknown(group: GroupDescription, what: str, given: str, known: Sequence[str]) -> str:
    near = near_word(given, known)
    hint = f"; did you mean {plain(near)}?" if near else ""
    return and_so(f"group {group.group_id} has no {what} {given}{hint}", UNCHANGED)
