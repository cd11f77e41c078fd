"""Requests about one group, each for one page: its members and stories, its offsets, its settings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kohort.cli.groups.shares.describing import log_ends
from kohort.cli.groups.watch.trends import in_flight_words
from kohort.cli.groups.wording import Document, Names, as_document
from kohort.client.admin.commit_metadata import group_reader_of
from kohort.client.admin.configs import ConfigEntry
from kohort.client.admin.explanations import NoJournal
from kohort.client.admin.groups import DEAD, SHARE, GroupDescription, GroupMember
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.wire.embedded import CONSUMER_PROTOCOL
from kohort.wire.errors import ErrorCode

STORIES = 200
"""The newest stories that pages about a group's past have."""
NO_SUCH_SETTINGS = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION))


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group, and what the journal of its coordinator knows of it."""

    group: GroupDescription
    now_ms: int
    """By the coordinator's clock; without a journal, by this machine's."""
    status: Document | None = None
    rebalance: Document | None = None
    stories: tuple[Document, ...] = ()
    no_journal: str = ""
    """Why there are no stories; empty if the coordinator keeps a journal."""
    names: Names = field(init=False)
    """Of its members: thousands of them take a while, so they are made in the thread of the question."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", Names(map(as_document, self.group.members)))

    @property
    def exists(self) -> bool:
        return self.group.state != DEAD


@dataclass(frozen=True, slots=True)
class PartitionRow:
    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: GroupMember | None
    reader: str = ""
    """Without an owner: who says in the offset's metadata that it reads the partition."""
    age_ms: int | None = None
    """How long the first uncommitted record has waited, if the coordinator tells it."""
    told: bool = False
    """Whether the coordinator tells ends and ages."""
    unfinished: int | None = None
    """Of a share group, whose `committed` is the start offset."""
    lag: int | None = field(init=False)
    """A view reads it several times of each row."""

    def __post_init__(self) -> None:
        lag = None if self.committed is None or self.end is None else max(self.end - self.committed, 0)
        object.__setattr__(self, "lag", lag if self.unfinished is None else self.unfinished)


def group_now(cluster: Cluster, group_id: str, stories: int) -> GroupNow:
    try:
        found = cluster.explain_group(group_id, last=stories)
    except NoJournal as error:
        group = cluster.describe_groups([group_id])[group_id]
        return GroupNow(group, int(time.time() * 1000), no_journal=error.message)
    return GroupNow(found.group, found.now_ms, found.status, found.rebalance, found.stories)


def partition_rows(cluster: Cluster, group: GroupDescription) -> list[PartitionRow]:
    """Each partition with a committed offset or an owner, in order."""
    owners = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assigned.items()
        for partition in partitions
    }
    if group.type == SHARE:
        names = Names(map(as_document, group.members))
        offsets = cluster.share_groups.offsets([group.group_id], ranges=0)[group.group_id]
        ends = log_ends(cluster, offsets)
        shared = []
        for place, one in sorted(offsets.partitions.items()):
            holds = in_flight_words(one, names, group)
            shared.append(PartitionRow(*place, one.start, ends.get(place), None, holds, unfinished=one.lag))
        return shared
    if group.protocol_type not in ("", CONSUMER_PROTOCOL):
        return []
    [found] = cluster.group_lags([group.group_id], also=owners).values()
    rows = []
    for (topic, partition), lag in found.partitions.items():
        offset, owner = lag.committed, owners.get((topic, partition))
        if offset is None and owner is None:
            continue
        reader = None if owner is not None or offset is None else group_reader_of(offset.metadata)
        rows.append(
            PartitionRow(
                topic,
                partition,
                None if offset is None else offset.offset,
                lag.end,
                owner,
                str(reader) if reader else "",
                lag.lag_ms,
                found.as_of_ms is not None,
            )
        )
    return rows


def group_settings(cluster: Cluster, group_id: str) -> tuple[ConfigEntry, ...] | None:
    """None if the cluster's groups have no settings."""
    try:
        return cluster.group_configs([group_id]).get(group_id, ())
    except UnsupportedVersion:
        return None
    except ServerError as error:
        if error.code in NO_SUCH_SETTINGS:
            return None
        raise
