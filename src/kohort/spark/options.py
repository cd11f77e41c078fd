"""The options of `format("kohort")`: Spark's Kafka source's names and meanings, plus `group.id`.

What Spark's source knows and this one does not is refused by name, and so is what neither knows: an option that is
silently ignored reads the wrong data. Source of the names: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kohort.client.security import Security
from kohort.client.security_properties import PREFIXES
from kohort.spark import member_options
from kohort.spark.member_options import MemberOptionError, MemberOptions

LATEST, EARLIEST = -1, -2
"""The two marks that may stand for an offset in JSON, as in Spark's source."""

Where = Literal["earliest", "latest", "group"] | dict[str, dict[int, int]]
"""Where to start or end: a word, or offsets by topic and partition."""

NOT_YET = {
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "groupidprefix",
    "includeheader",
}

KAFKA = {
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.request.timeout.ms",
    "kafka.isolation.level",
    "kafka.fetch.max.wait.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.group.id",
    *member_options.KAFKA,
}

SECURITY = tuple(f"kafka.{prefix}" for prefix in PREFIXES)

OWN = {
    "subscribe",
    "subscribepattern",
    "assign",
    "startingoffsets",
    "endingoffsets",
    "maxoffsetspertrigger",
    "minpartitions",
    "failondataloss",
    "includeheaders",
    "group.id",
    "decode",
    "groupmode",
}


class OptionError(ValueError):
    """An option is missing, unknown, or has a bad value; the message names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one source."""

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)
    starting: Where | None = None
    """None when the option was left out; `starting_or` has the default."""
    ending: Where = "latest"
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    decode: Literal["raw", "consumer_offsets"] = "raw"
    """Whether keys and values come as they are, or as the columns of `kohort.spark.history.decode`."""
    group_id: str | None = None
    member: MemberOptions | None = None
    """None: a query that commits to its group, and is no member of it."""
    client_id: str = "kohort-spark"
    request_timeout_ms: int = 30_000
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    max_wait_ms: int = 500
    partition_fetch_bytes: int = 4 * 1024 * 1024
    security: Security = field(default_factory=Security)

    def starting_or(self, default: Literal["earliest", "latest"]) -> Where:
        """Where to start; a group's committed offsets when a group is given and nothing else is said."""
        if self.starting is not None:
            return self.starting
        return "group" if self.group_id else default


def parse(options: Mapping[str, str]) -> Options:
    """Check the options of a source. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name in NOT_YET:
            raise OptionError(f"option {name}: Spark's Kafka source has it, kohort's does not yet")
        if name.startswith("kafka.") and name not in KAFKA and not name.startswith(SECURITY):
            raise OptionError(f"option {name}: kohort's client has no such setting (it has {', '.join(sorted(KAFKA))})")
        if not name.startswith("kafka.") and name not in OWN:
            raise OptionError(f"unknown option {name}")
    servers = given.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise OptionError("option kafka.bootstrap.servers is missing: HOST:PORT[,HOST:PORT…]")
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name, "").strip()]
    if len(chosen) != 1:
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign is needed, not {chosen or 'none'}")
    group_id = given.get("group.id") or given.get("kafka.group.id") or None
    starting = _where("startingOffsets", given["startingoffsets"]) if "startingoffsets" in given else None
    if starting == "group" and not group_id:
        raise OptionError("startingOffsets=group needs the option group.id")
    ending = _where("endingOffsets", given.get("endingoffsets", "latest"))
    if ending in ("earliest", "group"):
        raise OptionError(f"endingOffsets may not be {ending}")
    isolation = given.get("kafka.isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"kafka.isolation.level is {isolation!r}; it takes read_uncommitted or read_committed")
    return Options(
        bootstrap_servers=servers,
        security=security_of(given),
        topics=_topics(given.get("subscribe", "")),
        pattern=_pattern(given.get("subscribepattern")),
        assigned=_assigned(given.get("assign")),
        starting=starting,
        ending=ending,
        max_offsets_per_trigger=_number(given, "maxOffsetsPerTrigger", 1),
        min_partitions=_number(given, "minPartitions", 1),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        include_headers=_flag(given, "includeHeaders", False),
        decode=_decode(given.get("decode", "raw")),
        group_id=group_id,
        member=_member(given),
        client_id=given.get("kafka.client.id", "kohort-spark"),
        request_timeout_ms=_number(given, "kafka.request.timeout.ms", 1) or 30_000,
        isolation="read_committed" if isolation == "read_committed" else "read_uncommitted",
        max_wait_ms=_number(given, "kafka.fetch.max.wait.ms", 0) or 500,
        partition_fetch_bytes=_number(given, "kafka.max.partition.fetch.bytes", 1024) or 4 * 1024 * 1024,
    )


def _member(given: Mapping[str, str]) -> MemberOptions | None:
    try:
        return member_options.member_options(given)
    except MemberOptionError as error:
        raise OptionError(str(error)) from None


def security_of(given: Mapping[str, str]) -> Security:
    """`kafka.security.protocol`, `kafka.ssl.…`, `kafka.sasl.…`: as Kafka's clients take them. Raises OptionError."""
    try:
        lower = {name.lower(): value for name, value in given.items()}
        return Security.of({n.removeprefix("kafka."): value for n, value in lower.items() if n.startswith(SECURITY)})
    except ValueError as error:
        raise OptionError(f"options kafka.*: {error}") from None


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _pattern(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is no regular expression: {error}") from None
    return text


def _assigned(text: str | None) -> dict[str, tuple[int, ...]]:
    if text is None:
        return {}
    try:
        parsed = json.loads(text)
        return {str(topic): tuple(int(p) for p in partitions) for topic, partitions in parsed.items()}
    except (ValueError, TypeError, AttributeError):
        raise OptionError(f'assign is {text!r}; it takes JSON like {{"topic":[0,1]}}') from None


def _where(name: str, text: str) -> Where:
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if word == "group":
        return "group"
    try:
        return {
            str(topic): {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise OptionError(
            f'{name} is {text!r}; it takes earliest, latest, group or JSON like {{"topic":{{"0":23,"1":-2}}}}'
        ) from None


def _decode(text: str) -> Literal["raw", "consumer_offsets"]:
    if text == "raw":
        return "raw"
    if text == "consumer_offsets":
        return "consumer_offsets"
    raise OptionError(f"decode is {text!r}; it takes raw or consumer_offsets")


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < least:
        raise OptionError(f"{name} is {text!r}; it takes a whole number from {least} on")
    return int(text)


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}; it takes true or false")
    return text == "true"
