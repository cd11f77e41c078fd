"""The onlooker of rollout holds: while one lasts, who is there keeps what it has.

A hold lasts from the turn after the one that set it until the one that ends it. In between the target of a member that
stays loses nothing but partitions that it does not ask for any more, or that are gone.
"""

from __future__ import annotations

from kohort.broker.broker import Broker
from kohort.coordinator.settings.group_settings import HOLD_UNTIL
from kohort.simulator.checks.consumer_ledger import Durable, Partition
from kohort.simulator.world.world import Millis


def held_until(broker: Broker, group: str) -> Millis:
    """By the group's settings; 0 where it is not on hold."""
    return int(broker.state.catalog.group_configs.get(group, {}).get(HOLD_UNTIL, 0))


def taken_from(broker: Broker, before: Durable, after: Durable) -> str:
    """Who lost what though nobody should have; "" where all is well."""
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
