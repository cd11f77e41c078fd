"""A running group as an assignor sees it, built from a client's requests: its description, topics and offsets.

The server builds its own (`coordinator/consumer/target.py`); this one works for either protocol and any cluster. The
owned partitions of a member are its target, plus its current partitions that are in no member's target. In a classic
group they are its current partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.client.admin.groups import GroupDescription, GroupMember
from kohort.client.cluster import Cluster
from kohort.client.metadata import Node, Topic, TopicPartition
from kohort.coordinator.assignors.spec import GroupSpec, MemberSpec, TopicSpec
from kohort.coordinator.patterns.regex import matching


def spec_of(cluster: Cluster, group: GroupDescription) -> GroupSpec:
    """The group with its topics, their racks and the group's lag. Raises KafkaError."""
    subscribed = _subscriptions(cluster, group.members)
    names = {name for topics_of_member in subscribed.values() for name in topics_of_member}
    topics = {name: topic for name, topic in cluster.topics(names).items() if not topic.error}
    led = [(topic.name, p.index) for topic in topics.values() for p in topic.partitions if p.leader >= 0]
    lags = _lags(cluster, group.group_id, led)
    nodes = cluster.nodes()
    specs = {name: _topic(topic, nodes, lags) for name, topic in sorted(topics.items())}
    ids = {name: spec.topic_id for name, spec in specs.items()}
    owned = _owned(group.members)
    members = {
        member.member_id: MemberSpec(
            member.member_id,
            member.group_instance_id,
            member.rack,
            tuple(sorted(ids[name] for name in subscribed[member.member_id] if name in ids)),
            {ids[name]: indexes for name, indexes in owned[member.member_id].items() if name in ids},
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    }
    return GroupSpec(members, {spec.topic_id: spec for spec in specs.values()})


def _subscriptions(cluster: Cluster, members: Sequence[GroupMember]) -> dict[str, set[str]]:
    """Topics by member. A pattern matches no internal topics."""
    patterns = {member.pattern for member in members if member.pattern}
    present = cluster.topics() if patterns else {}
    matched = {pattern: matching(pattern, present) or () for pattern in sorted(patterns)}
    return {member.member_id: {*member.subscribed, *matched.get(member.pattern, ())} for member in members}


def _owned(members: Sequence[GroupMember]) -> dict[str, Mapping[str, tuple[int, ...]]]:
    """For each member, its target, and its current partitions that are in no target."""
    targeted = {place for member in members for place in _places(member.target or {})}
    owned: dict[str, Mapping[str, tuple[int, ...]]] = {}
    for member in members:
        places = _places(member.assigned)
        if member.target is not None:
            places = _places(member.target) | (places - targeted)
        by_topic: dict[str, tuple[int, ...]] = {}
        for name, index in sorted(places):
            by_topic[name] = (*by_topic.get(name, ()), index)
        owned[member.member_id] = by_topic
    return owned


def _places(assignment: Mapping[str, tuple[int, ...]]) -> set[TopicPartition]:
    return {(name, index) for name, indexes in assignment.items() for index in indexes}


def _lags(cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The group's lag in records; all records of a partition without a committed offset, as the server counts."""
    committed = cluster.committed(group_id)
    starts, ends = cluster.offsets(partitions, "earliest"), cluster.offsets(partitions, "latest")
    lags = {}
    for partition in partitions:
        known = committed.get(partition)
        position = starts[partition] if known is None else max(known.offset, starts[partition])
        lags[partition] = max(ends[partition] - position, 0)
    return lags


def _topic(topic: Topic, nodes: Mapping[int, Node], lags: Mapping[TopicPartition, int]) -> TopicSpec:
    def rack(node_id: int) -> str | None:
        return nodes[node_id].rack if node_id in nodes else None

    has_racks = any(node.rack for node in nodes.values())
    return TopicSpec(
        # Clusters without topic ids have only names; assignors treat ids as opaque.
        topic.topic_id or topic.name.encode(),
        topic.name,
        len(topic.partitions),
        tuple(frozenset(filter(None, map(rack, p.replicas))) for p in topic.partitions) if has_racks else (),
        tuple(rack(p.leader) for p in topic.partitions) if has_racks else (),
        tuple(lags.get((topic.name, p.index), 0) for p in topic.partitions),
    )
