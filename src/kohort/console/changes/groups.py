"""Delete a group with its committed offsets; remove members."""

from __future__ import annotations

from kohort.cli.groups.lookup import UNDELETED, does_not_exist, listed_instead, members_of, why_not
from kohort.cli.groups.remove_member import (
    COLUMNS,
    COMES_BACK,
    cells,
    chosen_members,
    identity,
    refused_lines,
    removed_words,
)
from kohort.cli.groups.undo import restore_command
from kohort.cli.option_objects import fail
from kohort.cli.output import name, number, plural
from kohort.client.admin.groups import DEAD
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.console.changes.offsets import address_to_restore, filled
from kohort.console.changes.plan import Outcome, Plan
from kohort.console.forms import Form


def plan_of_deletion(cluster: Cluster, group: str, form: Form) -> Plan:
    [found] = cluster.describe_groups([group]).values()
    committed = cluster.committed(group)
    if found.members:
        fail(f"group {group} is not empty, it has {members_of(found)}; stop them first")
    if found.state == DEAD and not committed and listed_instead(cluster, found) is None:
        fail(f"{does_not_exist(cluster, group)}; {UNDELETED}")

    def carry_out(cluster: Cluster) -> Outcome:
        if cluster.committed(group) != committed:
            fail(f"the committed offsets of group {group} have changed meanwhile; {UNDELETED}")
        command, undo = restore_command(cluster, group), address_to_restore(cluster, group)
        try:
            cluster.delete_group(group)
        except ServerError as error:
            return Outcome(f"{why_not(cluster, group, error)}; {UNDELETED}", done=False)
        return Outcome(f"deleted group {group}", lines=[f"to undo: {command}"] if command else [], undo=undo)

    return Plan(
        f"Delete group {group} and its {plural(len(committed), 'committed offset')}?",
        "group deleted",
        "Delete the group",
        carry_out,
        [name("TOPIC"), number("PARTITION"), number("COMMITTED")],
        [(*place, offset.offset) for place, offset in sorted(committed.items())],
        typed=group,
        details={"offsets": str(len(committed))},
    )


def plan_of_removal(cluster: Cluster, group: str, form: Form) -> Plan:
    named = filled(form, "member", "Which member? Write its member id, or a client id that no other has.")
    [found] = cluster.describe_groups([group]).values()
    members = chosen_members(cluster, found, [named], [])
    reason = form.get("reason", "").strip()

    def carry_out(cluster: Cluster) -> Outcome:
        refused = cluster.remove_members(group, [identity(member) for member in members], reason)
        if refused:
            return Outcome("; ".join(refused_lines(group, members, refused)), done=False)
        return Outcome(removed_words(group, members))

    return Plan(
        f"Remove {plural(len(members), 'member')} of group {group}?",
        "member removed",
        "Remove the member",
        carry_out,
        COLUMNS,
        [cells(member) for member in members],
        [f"The others get its partitions at once. {COMES_BACK}"],
        details={"member": ", ".join(member.member_id for member in members), "why": reason},
    )
