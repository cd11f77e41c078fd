"""A running group as an assignor sees it, put together from what a client may ask: its description, topics, offsets.

The server makes the same for itself (`coordinator/consumer_targets.py`); here it is of a group of either protocol and
of any cluster. Owned is what the group aims at, for a classic group what its members have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.cluster import Cluster
from kohort.client.groups import Committed, GroupDescription, GroupMember
from kohort.client.metadata import Node, Partition, Topic, TopicPartition
from kohort.coordinator.assignors.spec import GroupSpec, MemberSpec, TopicSpec


def spec_of(cluster: Cluster, group: GroupDescription) -> GroupSpec:
    """The group with its topics, their racks and the group's lag in them. Raises KafkaError."""
    subscribed = {member.member_id: _subscribed(member, group.members) for member in group.members}
    names = {name for topics in subscribed.values() for name in topics}
    topics = {name: topic for name, topic in cluster.topics(names).items() if not topic.error}
    led = [(topic.name, p.index) for topic in topics.values() for p in topic.partitions if p.leader >= 0]
    committed = cluster.committed(group.group_id)
    ends = cluster.offsets([partition for partition in led if partition in committed], "latest")
    nodes = cluster.nodes()
    specs = {name: _topic(topic, nodes, committed, ends) for name, topic in sorted(topics.items())}
    ids = {name: spec.topic_id for name, spec in specs.items()}
    members = {
        member.member_id: MemberSpec(
            member.member_id,
            member.group_instance_id,
            member.rack,
            tuple(sorted(ids[name] for name in subscribed[member.member_id] if name in ids)),
            {ids[name]: indexes for name, indexes in _owned(member).items() if name in ids},
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    }
    return GroupSpec(members, {spec.topic_id: spec for spec in specs.values()})


def _owned(member: GroupMember) -> Mapping[str, tuple[int, ...]]:
    return member.assigned if member.target is None else member.target


def _subscribed(member: GroupMember, members: Iterable[GroupMember]) -> set[str]:
    """What it asked for by name; and for its pattern what those who share it have, since no answer tells more."""
    names = {*member.subscribed, *_owned(member)}
    if member.pattern:
        names.update(name for other in members if other.pattern == member.pattern for name in _owned(other))
    return names


def _topic(
    topic: Topic,
    nodes: Mapping[int, Node],
    committed: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, int],
) -> TopicSpec:
    def rack(node_id: int) -> str | None:
        return nodes[node_id].rack if node_id in nodes else None

    def lag(partition: Partition) -> int:
        key = (topic.name, partition.index)
        return max(ends[key] - committed[key].offset, 0) if key in ends else 0

    has_racks = any(node.rack for node in nodes.values())
    return TopicSpec(
        # Clusters without topic ids have only names; an assignor does not care.
        topic.topic_id or topic.name.encode(),
        topic.name,
        len(topic.partitions),
        tuple(frozenset(filter(None, map(rack, p.replicas))) for p in topic.partitions) if has_racks else (),
        tuple(rack(p.leader) for p in topic.partitions) if has_racks else (),
        tuple(lag(p) for p in topic.partitions)
        if any((topic.name, p.index) in ends for p in topic.partitions)
        else None,
    )
