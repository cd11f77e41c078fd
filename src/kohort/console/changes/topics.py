"""Topics: create, delete, change settings, add partitions. The cluster checks a change before it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.cli.configs.words import HIDDEN, change_of, is_secret, source_of, value_of
from kohort.cli.option_objects import fail
from kohort.cli.output import name, number, plural
from kohort.cli.places import near_topic, partitions_in
from kohort.cli.topics.alter import ON_TOPIC, UNCHANGED, refusal
from kohort.client.admin.configs import ConfigEntry, ResourceType
from kohort.client.cluster import BROKER_DEFAULT, Cluster
from kohort.client.errors import ServerError
from kohort.client.metadata import NO_LEADER
from kohort.console.changes.offsets import filled, whole
from kohort.console.changes.plan import Outcome, Plan, Wrong
from kohort.console.forms import Form
from kohort.wire.errors import ErrorCode

MOST_PARTITIONS = 100_000
MOST_REPLICAS = 1_000


# -- create


def plan_of_creation(cluster: Cluster, _: str, form: Form) -> Plan:
    topic = filled(form, "name", "Name the topic.")
    partitions, replicas = (
        whole(form, field, 1, most) if form.get(field, "").strip() else BROKER_DEFAULT
        for field, most in (("partitions", MOST_PARTITIONS), ("replicas", MOST_REPLICAS))
    )
    configs = settings_in(form)
    if not (found := cluster.topics([topic])[topic]).error:
        raise Wrong("name", f"Topic {topic} exists already, with {plural(len(found.partitions), 'partition')}.")
    try:
        cluster.create_topic(topic, partitions, replicas, configs, validate_only=True)
    except ServerError as error:
        raise Wrong(FIELD_OF_ERROR.get(error.code, ""), error.message) from None

    def carry_out(cluster: Cluster) -> Outcome:
        cluster.create_topic(topic, partitions, replicas, configs)
        return Outcome(f"created topic {topic}")

    def chosen(value: int) -> str | int:
        return value if value != BROKER_DEFAULT else "the broker's default"

    said = {"partitions": chosen(partitions), "replicas": chosen(replicas)}
    shown = ", ".join(f"{key}={HIDDEN if is_secret(key, None) else value}" for key, value in configs.items())
    return Plan(
        f"Create topic {topic}?",
        "topic created",
        "Create the topic",
        carry_out,
        [name("SETTING"), name("VALUE")],
        list((said | configs).items()),
        details={"topic": topic, "configs": shown} | {key: str(value) for key, value in said.items()},
    )


FIELD_OF_ERROR = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "name",
    ErrorCode.TOPIC_ALREADY_EXISTS: "name",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replicas",
    ErrorCode.INVALID_CONFIG: "configs",
}


def settings_in(form: Form) -> dict[str, str]:
    """Lines of NAME=VALUE."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, form.get("configs", "").splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise Wrong("configs", f"{line!r} is not NAME=VALUE.")
        if key.strip() in found:
            raise Wrong("configs", f"The setting {key.strip()} is there twice.")
        found[key.strip()] = value.strip()
    return found


# -- settings


def settings(cluster: Cluster, topic: str) -> Mapping[str, Any]:
    """For the form."""
    partitions_in(cluster, {topic: None}, UNCHANGED)
    entries = cluster.describe_configs([topic])[topic]
    rows = [{"name": one.name, "value": value_of(one), "source": source_of(one)} for one in entries]
    return {"settings": rows, "changeable": [one.name for one in entries if not one.read_only]}


DELETING = ("retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes", "delete.retention.ms")
"""Limits above which records are deleted; a smaller one deletes more of them. -1 is no limit."""
POLICIES = ("cleanup.policy", "remote.storage.enable", "remote.log.delete.on.disable")
"""Settings that say how and where records are deleted."""


def may_delete(key: str, old: ConfigEntry | None, value: str | None) -> bool:
    """True if the log may lose records by a change of this setting; None is the default, which may be anything."""
    before = old.value if old is not None else None
    if key not in (*DELETING, *POLICIES) or before == value:
        return False
    if value is None:
        return old is None or old.source == ON_TOPIC
    if key in POLICIES or before is None or not value.removeprefix("-").isdecimal():
        return True
    return int(value) != -1 and not 0 <= int(before) <= int(value)


def plan_of_settings(cluster: Cluster, topic: str, form: Form) -> Plan:
    key = filled(form, "setting", "Choose a setting.")
    value = None if form.get("how") == "default" else form.get("value", "").strip()
    old: dict[str, ConfigEntry] = {entry.name: entry for entry in cluster.describe_configs([topic])[topic]}
    try:
        cluster.alter_configs(ResourceType.TOPIC, topic, {key: value}, validate_only=True)
    except ServerError as error:
        if error.code != ErrorCode.INVALID_CONFIG:
            raise
        raise Wrong("value" if key in old else "setting", refusal(error, {key: value}, old)) from None
    change, deletes = change_of(key, old.get(key), ON_TOPIC, value), may_delete(key, old.get(key), value)

    def carry_out(cluster: Cluster) -> Outcome:
        now = {entry.name: entry for entry in cluster.describe_configs([topic])[topic]}
        if now.get(key) != old.get(key):
            fail(f"the setting {key} of topic {topic} has changed meanwhile; {UNCHANGED}")
        cluster.alter_configs(ResourceType.TOPIC, topic, {key: value})
        return Outcome(f"changed {key} of topic {topic}: {change}")

    return Plan(
        f"Change {key} of topic {topic}?",
        "topic configs changed",
        "Change the setting",
        carry_out,
        [name("SETTING"), name("CHANGE")],
        [(key, change)],
        ["The topic may lose records by this change. They do not come back."] if deletes else [],
        typed=topic if deletes else "",
        details={"changes": f"{key}: {change}"},
    )


# -- partitions


def partitions(cluster: Cluster, topic: str) -> Mapping[str, Any]:
    """For the form."""
    return {"count": len(partitions_in(cluster, {topic: None}, UNCHANGED))}


def plan_of_partitions(cluster: Cluster, topic: str, form: Form) -> Plan:
    wanted = whole(form, "count", 1, MOST_PARTITIONS)
    count = len(partitions_in(cluster, {topic: None}, UNCHANGED))
    if wanted <= count:
        raise Wrong("count", f"Topic {topic} has {plural(count, 'partition')}, and can only get more.")
    try:
        cluster.create_partitions(topic, wanted, validate_only=True)
    except ServerError as error:
        raise Wrong("count", error.message) from None

    def carry_out(cluster: Cluster) -> Outcome:
        now = len(partitions_in(cluster, {topic: None}, UNCHANGED))
        if now != count:
            fail(f"topic {topic} has {plural(now, 'partition')} meanwhile; {UNCHANGED}")
        cluster.create_partitions(topic, wanted)
        return Outcome(f"topic {topic}: {plural(count, 'partition')} → {wanted}")

    return Plan(
        f"Give topic {topic} {wanted} partitions instead of {count}?",
        "partitions added",
        "Add the partitions",
        carry_out,
        notes=["Keys then belong to other partitions, and partitions cannot be removed."],
        details={"partitions": f"{count} -> {wanted}"},
    )


# -- delete


def plan_of_deletion(cluster: Cluster, topic: str, form: Form) -> Plan:
    found = cluster.topics([topic])[topic]
    if found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        near = near_topic(cluster, topic)
        fail(f"topic {topic} does not exist{f'; {near}' if near else ''}")
    if found.error:
        fail(f"topic {topic}: {found.error.name}: {found.error.message}")
    led = [(part.topic, part.index) for part in found.partitions if part.leader != NO_LEADER]
    starts, ends = cluster.offsets(led, "earliest"), cluster.offsets(led, "latest")

    def carry_out(cluster: Cluster) -> Outcome:
        now = cluster.topics([topic])[topic]
        if not now.error and now.topic_id != found.topic_id:
            fail(f"topic {topic} was created again meanwhile; nothing was deleted")
        cluster.delete_topic(topic)
        return Outcome(f"deleted topic {topic}")

    return Plan(
        f"Delete topic {topic} and all its records?",
        "topic deleted",
        "Delete the topic",
        carry_out,
        [number("PARTITION"), number("FIRST-OFFSET"), number("END")],
        [(place[1], starts[place], ends[place]) for place in led],
        ["Records that are deleted do not come back. Committed offsets of the topic are deleted, too."],
        typed=topic,
        details={"partitions": str(len(found.partitions))},
    )
