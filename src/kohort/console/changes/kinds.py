"""The table of all changes: their names in addresses, their forms and their plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.client.cluster import Cluster
from kohort.console.changes import groups, offsets, shares, topics
from kohort.console.changes.plan import Plan
from kohort.console.forms import Form


def nothing(cluster: Cluster, name: str) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Change:
    title: str
    kind: str
    """What it is of: group, topic, or empty for something new."""
    plan: Callable[[Cluster, str, Form], Plan]
    """For a group or topic and a form. Raises Wrong, BadParameter, Failed, KafkaError."""
    facts: Callable[[Cluster, str], Mapping[str, Any]] = nothing
    """What the form shows besides its fields."""


CHANGES = {
    "reset-offsets": Change("Reset offsets", "group", offsets.plan_of_reset),
    "restore-offsets": Change("Restore offsets", "group", offsets.plan_of_restore, offsets.undoable),
    "delete-offsets": Change("Delete offsets", "group", offsets.plan_of_deletion),
    "remove-member": Change("Remove a member", "group", groups.plan_of_removal),
    "release-records": Change("Release records", "group", shares.plan_of_release),
    "redeliver": Change("Deliver archived records again", "group", shares.plan_of_redelivery),
    "delete-group": Change("Delete group", "group", groups.plan_of_deletion),
    "create-topic": Change("Create a topic", "", topics.plan_of_creation),
    "topic-settings": Change("Change a setting", "topic", topics.plan_of_settings, topics.settings),
    "add-partitions": Change("Add partitions", "topic", topics.plan_of_partitions, topics.partitions),
    "delete-topic": Change("Delete topic", "topic", topics.plan_of_deletion),
}
