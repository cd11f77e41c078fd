"""Journal entries of consumer groups: the members' steps to the target, and what changed for the group."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition
from kohort.coordinator.consumer.soft_state import RunningConsumers
from kohort.coordinator.topics import Topics
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

MAX_NAMED = 5
"""Topics, or members that another member waits for, that an entry names."""


def note_steps(
    consumers: RunningConsumers,
    group: ConsumerGroup,
    member_id: str,
    before: MemberState,
    after: MemberState,
    *,
    pushed: bool,
) -> None:
    """Note a member's change of state. `pushed`: the member learns it from the answer to its held heartbeat."""
    if before.revoking and not after.revoking:
        consumers.note(group, "revoked", member_id=member_id, partitions=len(before.revoking))
    told = len(after.revoking.keys() - before.revoking.keys())
    if told:
        consumers.note(group, "told to revoke", member_id=member_id, partitions=told, pushed=pushed)
    got = len(after.assigned.keys() - before.assigned.keys())
    if got:
        awaits = owners_of(group, missing_of(group, member_id))
        consumers.note(group, "got partitions", member_id=member_id, partitions=got, pushed=pushed, peers=awaits)
    began_to_wait = after.member_epoch != before.member_epoch or before.state is not after.state
    if after.state is Reconciliation.UNRELEASED_PARTITIONS and began_to_wait:
        missing = missing_of(group, member_id)
        peers = owners_of(group, missing)
        consumers.note(group, "waits for partitions", member_id=member_id, partitions=len(missing), peers=peers)


def missing_of(group: ConsumerGroup, member_id: str) -> Collection[TopicPartition]:
    """The partitions of its target that the member does not have yet."""
    return group.targets.get(member_id, frozenset()) - group.state_of(member_id).assigned.keys()


def owners_of(group: ConsumerGroup, partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    """The owners of these partitions, at most MAX_NAMED."""
    owners = {owner for partition in partitions if (owner := group.owners.get(partition)) is not None}
    return tuple(sorted(owners)[:MAX_NAMED])


def subscription_change(former: ConsumerGroupMemberMetadataValue, value: ConsumerGroupMemberMetadataValue) -> str:
    """For example `+ audit, − orders`; a pattern in its new form."""
    had, has = set(former.subscribed_topic_names), set(value.subscribed_topic_names)
    changes = [f"+ {name}" for name in sorted(has - had)] + [f"− {name}" for name in sorted(had - has)]
    pattern = value.subscribed_topic_regex or ""
    if pattern != (former.subscribed_topic_regex or ""):
        changes.append(f"pattern {pattern}" if pattern else "no pattern any more")
    return _listed(changes)


def topics_change(before: Topics, after: Topics, names: Iterable[str]) -> str:
    """For example `orders: 4 → 6 partitions, audit is new`."""
    changes = []
    for name in sorted(names):
        had, has = before.by_name.get(name), after.by_name.get(name)
        if had == has:
            continue
        if has is None:
            changes.append(f"{name} is gone")
        elif had is None:
            changes.append(f"{name} is new")
        elif had.topic_id != has.topic_id:
            changes.append(f"{name} is another topic of that name")
        elif had.partitions != has.partitions:
            changes.append(f"{name}: {had.partitions} → {has.partitions} partitions")
        else:
            changes.append(f"{name}: replicas moved")
    return _listed(changes)


def _listed(changes: list[str]) -> str:
    more = f" and {len(changes) - MAX_NAMED} more" if len(changes) > MAX_NAMED else ""
    return ", ".join(changes[:MAX_NAMED]) + more
