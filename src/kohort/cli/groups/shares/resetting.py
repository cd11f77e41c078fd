"""`kohort groups reset-offsets` of a share group: the start offsets, from which on everything is delivered again.

What members finished one by one behind the new start is not remembered (Kafka drops it with the request).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kohort.cli.connect import fail
from kohort.cli.groups.offset_plan import Move
from kohort.cli.groups.wording import Line
from kohort.cli.places import words_of
from kohort.client.admin.groups import SHARE, Committed, GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition

AGAIN = "everything from the new offsets on is delivered again, also what members have finished there one by one"


def start_offsets(cluster: Cluster, group: GroupDescription) -> dict[TopicPartition, Committed]:
    """Of the partitions that were read."""
    found = cluster.share_groups.offsets([group.group_id])[group.group_id]
    return {place: Committed(one.start) for place, one in found.partitions.items() if one.start is not None}


def is_share_group(cluster: Cluster, group_id: str) -> bool:
    [group] = cluster.describe_groups([group_id]).values()
    return group.type == SHARE


def set_start_offsets(cluster: Cluster, group_id: str, moves: Sequence[Move]) -> None:
    """Fails if a partition is refused; the others are set."""
    refused = cluster.share_groups.set_offsets(group_id, {move.place: move.new.offset for move in moves})
    if refused:
        [first, *_] = refused.values()
        fail(f"not set, because of {first.name}: {words_of(refused)}; the other start offsets are set")


def undo_lines_of_shares(group_id: str, moves: Sequence[Move], backup: str | None) -> list[Line]:
    """`backup`: the file that has the old offsets."""
    if all(move.old is None for move in moves):
        return []
    if backup is None:
        return [Line("the old start offsets are only above; --backup FILE would have kept them in a file")]
    command = f"kohort groups reset-offsets {shlex.quote(group_id)} --from-file {shlex.quote(backup)} --execute"
    return [Line(f"to undo: {command}", whole=True)]
