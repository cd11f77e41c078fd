"""Partitions and instants as options name them: `orders`, `orders:0,2-5`, `2026-11-21T12:00`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import typer

from kohort.cli.connect import partitions_of
from kohort.cli.groups.wording import partitions, ranges
from kohort.cli.option_objects import near_word
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.wire.embedded import by_topic

TOPIC_PARTITIONS = "TOPIC[:P,P…]"

MOST = 100_000
"""The most partitions in one range of an option."""

Scope = dict[str, set[int] | None]
"""Topics with their chosen partitions; None for all."""


def scope_of(flag: str, given: Iterable[str]) -> Scope:
    """`orders`, `orders:0,2-5`, each of them any number of times. Raises BadParameter."""
    found: Scope = {}
    for text in given:
        topic, colon, indexes = text.partition(":")
        wanted = _indexes(indexes) if colon else set()
        if not topic or wanted is None:
            raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:0,2-5", param_hint=[flag])
        named = found.setdefault(topic, set())
        if not colon:
            found[topic] = None
        elif named is not None:
            named |= wanted
    return found


def _indexes(text: str) -> set[int] | None:
    """The numbers of `0,2-5`; None if the text is something else."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST:
            return None
        found.update(range(first, last + 1))
    return found


def partitions_in(cluster: Cluster, scope: Scope, refusal: str) -> list[TopicPartition]:
    """The partitions of a scope, in order. Fails if one does not exist; `refusal` ends the message."""
    found = []
    for name, topic in cluster.topics(scope).items():
        hint = refusal
        if topic.error and (near := near_topic(cluster, name)):
            hint = f"{near} {refusal}"
        wanted = scope[name]
        known = partitions_of(topic, sorted(wanted or ()), hint)
        found += [(name, index) for index in (known if wanted is None else sorted(wanted))]
    return sorted(found)


def near_topic(cluster: Cluster, name: str) -> str:
    """A question after the topic that was probably meant; empty if none has a similar name."""
    near = near_word(name, cluster.topics())
    return f"did you mean {near}?" if near and near != name else ""


def places_scope(places: Iterable[TopicPartition]) -> Scope:
    return {topic: set(indexes) for topic, indexes in by_topic(places)}


def existing(cluster: Cluster, places: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Those of the partitions that the cluster has."""
    wanted = set(places)
    topics = cluster.topics(sorted({topic for topic, _ in wanted})).values()
    return wanted & {(topic.name, part.index) for topic in topics for part in topic.partitions}


def in_scope(place: TopicPartition, scope: Mapping[str, set[int] | None]) -> bool:
    """Whether a scope has this partition; an empty scope has all."""
    if not scope:
        return True
    topic, index = place
    if topic not in scope:
        return False
    wanted = scope[topic]
    return wanted is None or index in wanted


def words_of(places: Iterable[TopicPartition]) -> str:
    """`orders[0-2] payments[1]`."""
    return partitions(dict(by_topic(places)))


def options_of(flag: str, places: Sequence[TopicPartition]) -> str:
    """The options that name these partitions: `--topic orders:0,2-5 --topic payments:1`."""
    return " ".join(f"{flag} {topic}:{ranges(indexes)}" for topic, indexes in by_topic(places))


def instant_of(flag: str, text: str) -> tuple[int, str]:
    """Milliseconds since 1970 of an ISO 8601 date and time, and how to say it with its zone. Without a zone it is local
    time, as the commands print it. Raises BadParameter."""
    try:
        given = datetime.fromisoformat(text)
        moment = given.astimezone()
        milliseconds = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        hint = "write 2026-11-21T12:00 or 2026-11-21T12:00:00Z"
        raise typer.BadParameter(f"{text!r} is no time; {hint}", param_hint=[flag]) from None
    if milliseconds < 0:
        raise typer.BadParameter(f"{text!r} is before 1970", param_hint=[flag])
    assumed = "" if given.tzinfo else " (local time, because it has no zone)"
    shown = given if given.tzinfo else moment
    return milliseconds, f"{shown.isoformat(' ', 'milliseconds' if shown.microsecond else 'seconds')}{assumed}"
