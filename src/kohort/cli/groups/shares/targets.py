"""What a command about a share group is about: the group, and its share-partitions."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.cli.connect import fail
from kohort.cli.groups.lookup import does_not_exist
from kohort.cli.option_objects import and_so, near_word
from kohort.cli.places import Scope, in_scope
from kohort.client.admin.groups import DEAD, SHARE, GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition


def described(cluster: Cluster, group_id: str) -> GroupDescription:
    [group] = cluster.describe_groups([group_id]).values()
    return group


def share_group(cluster: Cluster, group_id: str, unchanged: str) -> GroupDescription:
    """The group. Fails if there is no share group of this name."""
    group = described(cluster, group_id)
    if group.state == DEAD:
        fail(and_so(does_not_exist(cluster, group_id), unchanged))
    if group.type != SHARE:
        fail(f"group {group_id} is no share group, but of type {group.type}; {unchanged}")
    return group


def chosen(group_id: str, known: Iterable[TopicPartition], scope: Scope, unchanged: str) -> list[TopicPartition]:
    """The partitions of the group that a scope has, in order. Fails if one that is named is not there."""
    places = sorted(known)
    for name, indexes in scope.items():
        missing = sorted(index for index in indexes or () if (name, index) not in places)
        if missing or all(name != place[0] for place in places):
            near = near_word(name, {place[0] for place in places})
            hint = f"; did you mean {near}?" if near and near != name else ""
            what = f"partition {missing[0]} of topic {name}" if missing else f"topic {name}"
            fail(f"group {group_id} does not read {what}{hint}; {unchanged}")
    found = [place for place in places if in_scope(place, scope)]
    if not found:
        fail(f"group {group_id} has not read any topic yet; {unchanged}")
    return found
