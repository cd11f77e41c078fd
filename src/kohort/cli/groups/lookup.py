"""Groups that a command is about to change: whether they exist, and why their offsets may not be changed."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kohort.cli.groups.shares.resetting import start_offsets
from kohort.cli.groups.wording import Names, as_document, plain
from kohort.cli.option_objects import near_word
from kohort.cli.output import plural
from kohort.client.admin.groups import DEAD, SHARE, Committed, GroupDescription, ListedGroup
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.client.metadata import TopicPartition
from kohort.wire.embedded import CONSUMER_PROTOCOL
from kohort.wire.errors import ErrorCode

SHOWN_MEMBERS = 5
UNDELETED = "nothing was deleted"
OTHER_TYPES = ("share", "streams")

Offsets = Mapping[TopicPartition, Committed]


def listed_instead(cluster: Cluster, group: GroupDescription) -> GroupDescription | None:
    """A group that describing does not find: ListGroups has groups of all types."""
    listed = next((entry for entry in cluster.list_groups() if entry.group_id == group.group_id), None)
    if listed is None or not listed.state or listed.state == DEAD:
        return None
    return replace(group, state=listed.state, protocol_type=listed.protocol_type, type=listed.type.lower())


def offsets_to_change(
    cluster: Cluster, group_id: str, *, new: bool = False, shares: bool = False
) -> tuple[Offsets, str | None]:
    """A group's committed offsets, and why they cannot be changed from outside, if so.

    `new`: a group that does not exist may be created. `shares`: a share group's start offsets are meant too.
    """
    [group] = cluster.describe_groups([group_id]).values()
    if shares and group.type == SHARE:
        return start_offsets(cluster, group), inactive(group)
    if group.state == DEAD:
        group = listed_instead(cluster, group) or group
    if (why := refusal(group)) is not None:
        return {}, why
    committed = cluster.committed(group_id)
    if group.state == DEAD and not committed and not new:
        return {}, does_not_exist(cluster, group_id)
    return committed, None


def of_consumers(group: ListedGroup) -> bool:
    """Whether a listed group may have committed offsets."""
    return group.protocol_type in ("", CONSUMER_PROTOCOL) and group.type.lower() not in OTHER_TYPES


def is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def matching(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The groups with these names, and the known ones that match those of the names that are patterns: `billing-*`.

    A name that no known group matches stays, for the command to say that there is none.
    """
    known = sorted(known)
    found: dict[str, None] = {}
    for name in names:
        matches = fnmatch.filter(known, name) if name not in known and is_pattern(name) else []
        found |= dict.fromkeys(matches or [name])
    return list(found)


def selected(cluster: Cluster, names: Sequence[str], *, shares: bool = False) -> list[ListedGroup]:
    """The listed groups with these names or patterns, all without names; no streams groups, and share groups only with
    `shares`."""
    others = [one for one in OTHER_TYPES if not (shares and one == SHARE)]
    listed = [group for group in cluster.list_groups() if group.type.lower() not in others]
    wanted = set(matching(names, (group.group_id for group in listed)))
    return [group for group in listed if not names or group.group_id in wanted]


def absent(cluster: Cluster, names: Iterable[str], found: Iterable[ListedGroup]) -> list[str]:
    """A message for each name that no group has, and for each pattern that none matches."""
    known = [group.group_id for group in found]
    return [
        not_found(cluster, name)
        for name in names
        if name not in known and not (is_pattern(name) and fnmatch.filter(known, name))
    ]


def not_found(cluster: Cluster, name: str) -> str:
    """Of a name that may be a pattern."""
    return f"no group matches {name}" if is_pattern(name) else does_not_exist(cluster, name)


def does_not_exist(cluster: Cluster, group_id: str) -> str:
    near = near_word(group_id, (group.group_id for group in cluster.list_groups()))
    return f"group {group_id} does not exist" + (f"; did you mean {plain(near)}?" if near and near != group_id else "")


def members_of(group: GroupDescription) -> str:
    """`2 members: worker-1 on 127.0.0.1, worker-2 on 127.0.0.1`."""
    documents = [as_document(member) for member in group.members]
    names = Names(documents)
    shown = [plain(names.with_host(document)) for document in documents[:SHOWN_MEMBERS]]
    more = f" and {len(documents) - len(shown)} more" if len(documents) > len(shown) else ""
    return f"{plural(len(documents), 'member')}: {', '.join(shown)}{more}"


def why_not(cluster: Cluster, group_id: str, error: ServerError) -> str:
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND and is_pattern(group_id):
        return f"group {group_id} does not exist; delete takes names and no patterns"
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return does_not_exist(cluster, group_id)
    if error.code == ErrorCode.NON_EMPTY_GROUP:
        group: GroupDescription = cluster.describe_groups([group_id])[group_id]
        members = f" {members_of(group)}" if group.members else " members"
        return f"group {group_id} is not empty, it has{members}; stop them first"
    return error.message


def refusal(group: GroupDescription) -> str | None:
    """Why the offsets of a group cannot be changed from outside; None if they can."""
    if group.protocol_type not in ("", CONSUMER_PROTOCOL) or group.type in OTHER_TYPES:
        of = group.type if group.type in OTHER_TYPES else f"protocol type {group.protocol_type}"
        return f"group {group.group_id} is no consumer group: it is of {of}"
    return inactive(group)


def inactive(group: GroupDescription) -> str | None:
    """Why a group's members prevent a change of its offsets; None if there are none."""
    if group.members or group.state not in ("Empty", DEAD):
        has = f" with {members_of(group)}; stop them first" if group.members else ""
        return f"offsets can only be changed while group {group.group_id} is inactive, and it is {group.state}{has}"
    return None
