"""Groups as an operator sees them: list, describe, delete; committed offsets read, written and deleted from outside.

Requests about one group go to its coordinator. Lists are requested from every broker, because each knows its own groups
only. A group that does not exist has the state "Dead": the versions of DescribeGroups differ in how they say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kohort.client.errors import UnsupportedVersion, check, error_code, server_error
from kohort.client.metadata import TopicPartition
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import Router
from kohort.wire.embedded import CONSUMER_PROTOCOL, assignment_in, by_topic, rack_in, subscription_in
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
)
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from kohort.wire.schemas.share_group_describe import Assignment as SharedAssignment
from kohort.wire.schemas.share_group_describe import DescribedGroup as DescribedShareGroup
from kohort.wire.schemas.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

DEAD = "Dead"
SHARE = "share"
"""The type of a share group, and its protocol type."""
NOT_SHARED = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""ShareGroupDescribe's errors for a group that does not exist or is of another type, and where share groups are off."""
MANY_GROUPS = 8
"""The first version of OffsetFetch that takes many groups (Kafka 3.0)."""
NO_GENERATION = -1
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
"""Member epochs in KIP-848's heartbeats that leave the group."""
MEMBER_PROTOCOLS = {0: "classic", 1: "consumer"}


class Member(NamedTuple):
    """A member to remove: by its instance id, if it has one, whatever process has it; else by its member id."""

    member_id: str = ""
    instance_id: str | None = None


class Committed(NamedTuple):
    """A group's committed offset: the position of the next record. The leader epoch is -1 if it is unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def as_committed(offsets: Mapping[TopicPartition, int | Committed]) -> dict[TopicPartition, Committed]:
    return {place: offset if isinstance(offset, Committed) else Committed(offset) for place, offset in offsets.items()}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A row of the list of groups. Brokers before Kafka 2.6 leave `state` empty, those before 3.8 `type`."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    `metadata` and `assignment` are the member's own bytes, in a classic group. In a group of consumers, `subscribed`
    are the topics that the member subscribes to, and `assigned` its partitions by topic; both are empty otherwise. Only
    members of consumer groups (KIP-848) have the other fields. `target` are the partitions that they will have, and
    `pattern` a pattern that they subscribe to in addition. `protocol` is the protocol that the member speaks: "classic"
    or "consumer", "" if the server does not say. `epoch` is the member's epoch, -2 for a static member that is away.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes
    subscribed: tuple[str, ...]
    assigned: Mapping[str, tuple[int, ...]]
    rack: str | None = None
    target: Mapping[str, tuple[int, ...]] | None = None
    pattern: str = ""
    protocol: str = ""
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. `protocol` is the assignor; `state` is DEAD if there is no such group. `type` is
    "classic", "consumer" (KIP-848) or "share" (KIP-932), "" if it is unknown. A classic group has no `epoch`."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    coordinator: int
    type: str = ""
    epoch: int | None = None

    def owners(self) -> dict[TopicPartition, GroupMember]:
        """The member that has each partition; empty while a classic group rebalances."""
        return {
            (topic, index): member
            for member in self.members
            for topic, indexes in member.assigned.items()
            for index in indexes
        }


def list_groups(router: Router, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
    wanted_states, wanted_types = tuple(states), tuple(types)
    found: dict[int, list[ListedGroup]] = {}

    def attempt() -> None:
        for node_id in sorted(router.nodes()):
            if node_id not in found:
                found[node_id] = _groups_of(router.connection(node_id), node_id, wanted_states, wanted_types)

    router.retrying(attempt)
    listed = [group for groups in found.values() for group in groups]
    if wanted_states and any(not group.state for group in listed):
        # ListGroups before version 4 has no states; DescribeGroups has them.
        descriptions = describe_groups(router, [group.group_id for group in listed])
        listed = [replace(group, state=descriptions[group.group_id].state) for group in listed]
    lower_states = {state.lower() for state in wanted_states}
    lower_types = {type.lower() for type in wanted_types}
    return sorted(
        (
            group
            for group in listed
            if (not lower_states or group.state.lower() in lower_states)
            and (not lower_types or (group.type or "classic").lower() in lower_types)
        ),
        key=lambda group: group.group_id,
    )


def _groups_of(
    connection: Connection, node_id: int, states: tuple[str, ...], types: tuple[str, ...]
) -> list[ListedGroup]:
    version = connection.version_of(ListGroupsRequest)
    request = ListGroupsRequest(
        states_filter=states if version >= 4 else (), types_filter=types if version >= 5 else ()
    )
    answer = connection.request(request, ListGroupsResponse)
    check(answer.error_code, f"groups of broker {node_id} at {connection.address}")
    return [
        ListedGroup(row.group_id, row.protocol_type, row.group_state, row.group_type, node_id) for row in answer.groups
    ]


def describe_groups(router: Router, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    def ask(asked: Sequence[str], connection: Connection) -> dict[str, GroupDescription]:
        answer = connection.request(DescribeGroupsRequest(groups=tuple(asked)), DescribeGroupsResponse)
        node_id = router.coordinator(asked[0])
        found = [described(row, row.group_id, node_id) for row in answer.groups]
        return {group.group_id: group for group in consumers_instead(connection, found)}

    return router.at_coordinators(group_ids, ask)


def consumers_instead(connection: Connection, groups: Sequence[GroupDescription]) -> list[GroupDescription]:
    """For those that DescribeGroups does not find, ask for consumer groups (KIP-848), then for share groups (KIP-932):
    it does not know those."""
    dead = {group.group_id: group for group in groups if group.state == DEAD and group.group_id}
    found = {}
    if dead and connection.serves(ConsumerGroupDescribeRequest):
        request = ConsumerGroupDescribeRequest(group_ids=tuple(dead), include_authorized_operations=False)
        for row in connection.request(request, ConsumerGroupDescribeResponse).groups:
            if row.error_code != ErrorCode.GROUP_ID_NOT_FOUND and row.group_id in dead:
                check(row.error_code, f"cannot describe group {row.group_id}", row.error_message)
                found[row.group_id] = described_consumers(row, dead[row.group_id].coordinator)
    if (left := [name for name in dead if name not in found]) and connection.serves(ShareGroupDescribeRequest):
        asked = ShareGroupDescribeRequest(group_ids=tuple(left))
        for one in connection.request(asked, ShareGroupDescribeResponse).groups:
            if one.error_code not in NOT_SHARED and one.group_id in dead:
                check(one.error_code, f"cannot describe group {one.group_id}", one.error_message)
                found[one.group_id] = described_sharers(one, dead[one.group_id].coordinator)
    return [found.get(group.group_id, group) for group in groups]


def described_sharers(row: DescribedShareGroup, coordinator: int) -> GroupDescription:
    """The row of a share group that has no error."""
    members = []
    for one in row.members:
        names, assigned = one.subscribed_topic_names, _partitions(one.assignment)
        known = one.member_id, None, one.client_id, one.client_host, b"", b"", names, assigned, one.rack_id
        members.append(GroupMember(*known, epoch=one.member_epoch))
    return GroupDescription(
        row.group_id, row.group_state, SHARE, row.assignor_name, tuple(members), coordinator, SHARE, row.group_epoch
    )


def described_consumers(row: DescribedConsumerGroup, coordinator: int) -> GroupDescription:
    """The row of a consumer group that has no error."""
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            b"",
            b"",
            member.subscribed_topic_names,
            _partitions(member.assignment),
            member.rack_id,
            _partitions(member.target_assignment),
            member.subscribed_topic_regex or "",
            MEMBER_PROTOCOLS.get(member.member_type, ""),
            member.member_epoch,
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id,
        row.group_state,
        CONSUMER_PROTOCOL,
        row.assignor_name,
        members,
        coordinator,
        "consumer",
        row.group_epoch,
    )


def _partitions(assignment: DescribedAssignment | SharedAssignment) -> dict[str, tuple[int, ...]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


def described(row: DescribedGroup, group_id: str, coordinator: int) -> GroupDescription:
    """An answer's row. Raises ServerError."""
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group_id, DEAD, "", "", (), coordinator)
    check(row.error_code, f"cannot describe group {group_id}", row.error_message)
    consumers = row.protocol_type == CONSUMER_PROTOCOL
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.member_metadata,
            member.member_assignment,
            (subscription_in(member.member_metadata) or ()) if consumers else (),
            decode_assignment(member.member_assignment) if consumers else {},
            rack_in(member.member_metadata) if consumers else None,
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id,
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        members,
        coordinator,
        "" if row.group_state == DEAD else "classic",
    )


def delete_group(router: Router, group_id: str) -> None:
    def ask(connection: Connection) -> None:
        answer = connection.request(DeleteGroupsRequest(groups_names=(group_id,)), DeleteGroupsResponse)
        for row in answer.results:
            check(row.error_code, f"cannot delete group {group_id}")

    router.at_coordinator(group_id, ask)


REMOVED = "member was removed by an admin"
"""The reason that Kafka's own admin client gives to the coordinator."""
SINGLE_MEMBERS = 3
"""The first version of LeaveGroup with members by instance id (KIP-345, Kafka 2.4)."""


def remove_members(router: Router, group_id: str, members: Sequence[Member], reason: str) -> dict[Member, int]:
    """The refused members with their error codes."""
    why = f"{REMOVED}: {reason}" if reason else REMOVED
    identities = tuple(
        MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id, reason=why) for one in members
    )

    def ask(connection: Connection) -> dict[Member, int]:
        if connection.version_of(LeaveGroupRequest) < SINGLE_MEMBERS:
            raise UnsupportedVersion(f"the broker at {connection.address} cannot remove members by an operator")
        request = LeaveGroupRequest(group_id=group_id, members=identities)
        answer = connection.request(request, LeaveGroupResponse)
        check(answer.error_code, f"cannot remove members of group {group_id}")
        rows = zip(members, answer.members, strict=True)
        return {member: row.error_code for member, row in rows if row.error_code}

    return router.at_coordinator(group_id, ask)


def delete_offsets(router: Router, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The refused partitions with their error codes. Raises ServerError if the whole request is refused."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic, partitions=tuple(OffsetDeleteRequestPartition(partition_index=index) for index in indexes)
            )
            for topic, indexes in by_topic(partitions)
        ),
    )

    def ask(connection: Connection) -> dict[TopicPartition, int]:
        answer = connection.request(request, OffsetDeleteResponse)
        check(answer.error_code, f"cannot delete offsets of group {group_id}")
        return {
            (topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code
        }

    return router.at_coordinator(group_id, ask) if request.topics else {}


def committed(
    router: Router, group_id: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = False
) -> dict[TopicPartition, Committed]:
    """`stable` waits until no transaction holds an offset of these partitions (Kafka 2.5 and later)."""
    wanted = None if partitions is None else by_topic(partitions)

    def ask(connection: Connection) -> dict[TopicPartition, Committed]:
        by_group = connection.version_of(OffsetFetchRequest) >= MANY_GROUPS
        request = _offset_fetch(group_id, wanted, by_group=by_group, stable=stable)
        answer = connection.request(request, OffsetFetchResponse)
        found = {}
        for group in answer.groups if by_group else (answer,):
            check(group.error_code, f"offsets of group {group_id}")
            for topic in group.topics:
                for row in topic.partitions:
                    check(row.error_code, f"offset of group {group_id}, {topic.name}-{row.partition_index}")
                    if (offset := offset_of(row)) is not None:
                        found[topic.name, row.partition_index] = offset
        return found

    if wanted is not None and not wanted:
        return {}
    return router.at_coordinator(group_id, ask)


def offset_of(row: OffsetFetchResponsePartitions | OffsetFetchResponsePartition) -> Committed | None:
    if row.committed_offset < 0:
        return None
    return Committed(row.committed_offset, row.committed_leader_epoch, row.metadata or "")


def _offset_fetch(
    group_id: str, wanted: list[tuple[str, tuple[int, ...]]] | None, *, by_group: bool, stable: bool
) -> OffsetFetchRequest:
    """`by_group`: in the form of versions that take many groups."""
    if by_group:
        rows = (
            None if wanted is None else tuple(OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in wanted)
        )
        groups = (OffsetFetchRequestGroup(group_id=group_id, topics=rows),)
        return OffsetFetchRequest(groups=groups, require_stable=stable)
    topics = None if wanted is None else tuple(OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in wanted)
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)


@dataclass(frozen=True, slots=True)
class Committer:
    """The member that commits offsets, at its generation (classic) or member epoch (KIP-848)."""

    member_id: str
    generation_id_or_epoch: int
    instance_id: str | None = None


NOBODY = Committer("", NO_GENERATION)


def commit(router: Router, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> None:
    """Commit without being a member. Raises ServerError."""
    for (topic, index), code in commit_as(router, group_id, offsets, NOBODY).items():
        hint = "The group has members, and only they may commit." if code == ErrorCode.UNKNOWN_MEMBER_ID else None
        raise server_error(code, f"cannot commit {topic}-{index} for group {group_id}", hint)


def commit_as(
    router: Router, group_id: str, offsets: Mapping[TopicPartition, Committed], committer: Committer
) -> dict[TopicPartition, int]:
    """The refused partitions with their error codes. Retries retriable errors; raises KafkaError at the deadline."""
    request = _commit_request(group_id, offsets, committer)

    def ask(connection: Connection) -> dict[TopicPartition, int]:
        answer = connection.request(request, OffsetCommitResponse)
        rows = {
            (topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions
        }
        for (topic, index), code in rows.items():
            if code and error_code(code).retriable:
                raise server_error(code, f"cannot commit {topic}-{index} for group {group_id}")
        return {place: code for place, code in rows.items() if code}

    return router.at_coordinator(group_id, ask) if offsets else {}


def leave_as(router: Router, group_id: str, member: Committer, *, classic: bool) -> None:
    """Make a member leave, for instance one whose process has died. A static member of KIP-848 leaves for a while.

    Nothing happens if there is no such member, or if it is a static member of the classic protocol: another process
    replaces it by joining under its instance id.
    """
    if classic and member.instance_id is not None:
        return

    def ask(connection: Connection) -> None:
        if classic:
            only = MemberIdentity(member_id=member.member_id, reason="its process has ended")
            connection.request(
                LeaveGroupRequest(group_id=group_id, member_id=member.member_id, members=(only,)), LeaveGroupResponse
            )
        else:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member.member_id,
                member_epoch=LEAVES if member.instance_id is None else LEAVES_FOR_A_WHILE,
                instance_id=member.instance_id,
            )
            connection.request(request, ConsumerGroupHeartbeatResponse)

    router.at_coordinator(group_id, ask)


def _commit_request(
    group_id: str, offsets: Mapping[TopicPartition, Committed], committer: Committer
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=committer.generation_id_or_epoch,
        member_id=committer.member_id,
        group_instance_id=committer.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[topic, index].offset,
                        committed_leader_epoch=offsets[topic, index].leader_epoch,
                        committed_metadata=offsets[topic, index].metadata,
                    )
                    for index in indexes
                ),
            )
            for topic, indexes in by_topic(offsets)
        ),
    )


def decode_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic of a consumer's assignment; empty if there is none, or if it is of another protocol."""
    return {topic: tuple(sorted(partitions)) for topic, partitions in (assignment_in(data) or {}).items()}
