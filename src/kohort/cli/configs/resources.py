"""The resources that have settings, as they are written: `topic:orders`, `brokers`; and why one is not there."""

from __future__ import annotations

from typing import NamedTuple

import typer

from kohort.cli.connect import complete_groups, complete_topics
from kohort.cli.option_objects import near_word
from kohort.cli.places import near_topic
from kohort.client.admin.configs import ConfigSource, ResourceType
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.wire.errors import ErrorCode

ALL_BROKERS = "brokers"
TYPES = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    ALL_BROKERS: ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "broker-logger": ResourceType.BROKER_LOGGER,
}
KINDS = "topic:NAME, broker:ID, brokers, group:NAME, client-metrics:NAME, or broker-logger:ID"
RESOURCE_HELP = f"{KINDS}. brokers stands for the defaults of all brokers."

OWN = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS_CONFIG,
    ResourceType.GROUP: ConfigSource.GROUP_CONFIG,
}
"""Where a value comes from that is set on the resource itself."""


def complete_resources(context: typer.Context, incomplete: str) -> list[str]:
    """`topic:` and the other kinds for the shell, then the names of topics and groups."""
    kind, colon, name = incomplete.partition(":")
    if not colon:
        words = [word if word == ALL_BROKERS else f"{word}:" for word in TYPES]
        return [word for word in words if word.startswith(kind)]
    complete = {"topic": complete_topics, "group": complete_groups}.get(kind)
    return [f"{kind}:{found}" for found in complete(context, name)] if complete is not None else []


class Resource(NamedTuple):
    type: ResourceType
    name: str
    """Empty for the defaults of all brokers."""

    @property
    def word(self) -> str:
        """As it is written: `topic:orders`."""
        return f"{self.kind}:{self.name}" if self.name else ALL_BROKERS

    @property
    def kind(self) -> str:
        return self.type.name.lower().replace("_", "-") if self.name else ALL_BROKERS

    @property
    def is_of_brokers(self) -> bool:
        return self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)

    @property
    def own(self) -> ConfigSource:
        """The source of what is set on the resource itself."""
        return OWN[self.type] if self.name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def resource_of(text: str) -> Resource:
    """Raises BadParameter."""
    word, _, name = text.partition(":")
    kind = word.strip().lower()
    if kind == ALL_BROKERS and not name:
        return Resource(ResourceType.BROKER, "")
    if kind not in TYPES or not name or kind == ALL_BROKERS:
        near = kind if kind in TYPES else near_word(kind, TYPES)
        near = "broker" if near == ALL_BROKERS and name else near
        meant = near if near in (None, ALL_BROKERS) else f"{near}:{name or 'NAME'}"
        if ":" not in text and kind not in TYPES:
            meant = f"topic:{text}" + (f", or {meant}" if meant else "")
        hint = f"did you mean {meant}?" if meant else f"it takes {KINDS}"
        raise typer.BadParameter(f"{text!r} is no resource; {hint}")
    found = Resource(TYPES[kind], name)
    if found.is_of_brokers and not (name.isascii() and name.isdecimal() and int(name) < 2**31):
        raise typer.BadParameter(f"{text!r}: brokers are named by their ids, as {kind}:1")
    return found


def problem_of(cluster: Cluster, resource: Resource) -> str | None:
    """Why there is no such broker; None if there is."""
    if not resource.is_of_brokers or not resource.name:
        return None
    known = sorted(cluster.nodes())
    if int(resource.name) in known:
        return None
    return f"there is no broker {resource.name}; the cluster has {', '.join(map(str, known))}"


def refusal_of(cluster: Cluster, resource: Resource, error: ServerError) -> str:
    """What a refused request says; with the topic that was probably meant."""
    if resource.type == ResourceType.TOPIC and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        near = near_topic(cluster, resource.name)
        return f"topic {resource.name} does not exist" + (f"; {near}" if near else "")
    return error.message
