"""Checks of rollout freezes: during a freeze, members keep their partitions.

A freeze lasts from the turn after the turn that sets it, to the turn that ends it. In between, the target of a member
that stays loses only partitions that the member no longer subscribes to, or that are deleted.
"""

from __future__ import annotations

from kohort.broker.broker import Broker
from kohort.coordinator.settings.group_settings import HOLD_UNTIL
from kohort.simulator.checks.consumer_ledger import Durable, Partition
from kohort.simulator.world.world import Millis


def held_until(broker: Broker, group: str) -> Millis:
    """The end of the freeze, by the group's configs; 0 if it is not frozen."""
    return int(broker.state.catalog.group_configs.get(group, {}).get(HOLD_UNTIL, 0))


def taken_from(broker: Broker, before: Durable, after: Durable) -> str:
    """Which member lost which partitions without a reason; "" if none."""
    for member_id in sorted(before.members.keys() & after.members.keys()):
        lost = before.targets.get(member_id, frozenset()) - after.targets.get(member_id, frozenset())
        asked_for = after.members[member_id].subscribed_topic_names
        wrong = [partition for partition in sorted(lost) if _is_there(broker, partition, asked_for)]
        if wrong:
            return f"{wrong} taken from {member_id}"
    return ""


def _is_there(broker: Broker, partition: Partition, names: tuple[str, ...]) -> bool:
    topic = broker.state.catalog.by_id.get(partition[0])
    return topic is not None and topic.name in names and partition[1] < len(topic.partitions)
