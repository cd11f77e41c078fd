"""A running group to and from its record.

Kafka's schema has no place for protocols that were not chosen. After a restart they are unknown, so the first rejoin of
a follower with its full list counts as changed and starts a rebalance (J36).
"""

from __future__ import annotations

from kohort.coordinator.classic.group import Group, Member, Phase, size_of_assignments
from kohort.coordinator.events import Client, Millis
from kohort.wire.schemas.group_records import GroupMetadataValue, MemberMetadata


def value_of(group: Group, *, since: Millis | None = None) -> GroupMetadataValue:
    """`since`: when the state begins that the group is about to enter."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.since if since is None else since,
        members=tuple(
            MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client.client_id,
                client_host=m.client.host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata_of(group.protocol),
                assignment=m.assignment,
            )
            for m in group.members.values()
        ),
    )


def group_of(group_id: str, value: GroupMetadataValue) -> Group:
    group = Group(
        group_id,
        Phase.STABLE if value.members else Phase.EMPTY,
        since=value.current_state_timestamp,
        protocol_type=value.protocol_type or None,
        generation_id=value.generation,
    )
    for stored in value.members:
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            Client(stored.client_id, stored.client_host),
            stored.session_timeout,
            stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout,
            ((value.protocol or "", stored.subscription),),
            stored.assignment,
        )
        group.add(member)
        if member.instance_id is not None:
            group.instances[member.instance_id] = member.member_id
    group.assignment_bytes = size_of_assignments([member.assignment for member in group.members.values()])
    if group.members:
        group.protocol = value.protocol or ""
        group.leader = value.leader if value.leader in group.members else next(iter(group.members))
    return group
