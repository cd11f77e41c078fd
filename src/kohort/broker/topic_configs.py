"""The topic configurations: one table of names, types, bounds and defaults, and the typed values a log works with.

A topic keeps only what was set on it, as text. The value in force is the topic's own, else the broker's setting of the
mapped name, else the constant here. Names, types and bounds are those of Apache Kafka's LogConfig; settings about
segments, flushing and index files are accepted and described for clients' sake, since kohort's logs have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kohort.config import INT_MAX, LONG_MAX, Config, property_name

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""DescribeConfigs' codes of types."""


LONGEST_VALUE = 8_000
"""Characters of a value: what a flexible request can carry, older versions of DescribeConfigs cannot answer."""


class InvalidConfig(ValueError):
    """An unknown name or a bad value of a topic configuration. The message names it."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    type: int
    default: Any
    """Used when no broker setting is mapped."""
    setting: str | None
    """The attribute of Config that gives the default."""
    parse: Callable[[str], Any]
    doc: str

    def default_of(self, config: Config) -> Any:
        return getattr(config, self.setting) if self.setting is not None else self.default

    @property
    def synonym(self) -> str | None:
        return property_name(self.setting) if self.setting is not None else None


def _number(text: str) -> str:
    """Without what only Python reads as a number: clients parse the text that they are told."""
    if not text.isascii() or "_" in text:
        raise ValueError("it must be a number")
    return text


def _whole(low: int, high: int, text: str) -> int:
    try:
        value = int(_number(text))
    except ValueError:
        raise ValueError("it takes a whole number") from None
    if not low <= value <= high:
        raise ValueError(f"it must be between {low} and {high}")
    return value


def _ratio(text: str) -> float:
    value = float(_number(text))
    if not 0 <= value <= 1:
        raise ValueError("it must be between 0 and 1")
    return value


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("it must be true or false")
    return lowered == "true"


def _never(text: str) -> bool:
    if _boolean(text):
        raise ValueError("kohort has no such feature; only false is accepted")
    return False


def _one_of(allowed: tuple[str, ...], text: str) -> str:
    if text not in allowed:
        raise ValueError(f"it must be one of {', '.join(allowed)}")
    return text


def _policies(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not all(part in ("compact", "delete") for part in parts):
        raise ValueError("it must be a list of compact and delete")
    return ",".join(parts)


def _any_text(text: str) -> str:
    return text


def _config(
    name: str, type: int, default: Any, parse: Callable[[str], Any], doc: str, setting: str | None = None
) -> tuple[str, TopicConfig]:
    return name, TopicConfig(name, type, default, setting, parse, doc)


def _int(name: str, low: int, default: int, doc: str, setting: str | None = None) -> tuple[str, TopicConfig]:
    return _config(name, INT, default, partial(_whole, low, INT_MAX), doc, setting)


def _long(name: str, low: int, default: int, doc: str, setting: str | None = None) -> tuple[str, TopicConfig]:
    return _config(name, LONG, default, partial(_whole, low, LONG_MAX), doc, setting)


_WEEK_MS = 604_800_000

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's names of the codecs, and their numbers in a batch's attributes."""

TOPIC_CONFIGS: dict[str, TopicConfig] = dict(
    (
        _config(
            "cleanup.policy",
            LIST,
            "delete",
            _policies,
            "What happens to old records: delete, compact or both",
            "log_cleanup_policy",
        ),
        _config(
            "compression.type",
            STRING,
            "producer",
            partial(_one_of, ("producer", *CODECS)),
            "The codec of stored batches; with producer they are kept as they came",
            "compression_type",
        ),
        _int("compression.gzip.level", -1, -1, "No effect: each codec has one level"),
        _int("compression.lz4.level", 1, 9, "No effect: each codec has one level"),
        _int("compression.zstd.level", -131072, 3, "No effect: each codec has one level"),
        _long(
            "delete.retention.ms",
            0,
            86_400_000,
            "How long tombstones stay readable",
            "log_cleaner_delete_retention_ms",
        ),
        _long("file.delete.delay.ms", 0, 60_000, "No effect: a log is no set of files"),
        _long("flush.messages", 1, LONG_MAX, "No effect: every answer waits for the disk"),
        _long("flush.ms", 0, LONG_MAX, "No effect: every answer waits for the disk"),
        _config(
            "follower.replication.throttled.replicas",
            LIST,
            "",
            _any_text,
            "No effect: nothing is copied between brokers",
        ),
        _int("index.interval.bytes", 0, 4_096, "No effect: every batch is indexed"),
        _config(
            "leader.replication.throttled.replicas", LIST, "", _any_text, "No effect: nothing is copied between brokers"
        ),
        _long("local.retention.bytes", -2, -2, "No effect: there is no remote storage"),
        _long("local.retention.ms", -2, -2, "No effect: there is no remote storage"),
        _long("max.compaction.lag.ms", 1, LONG_MAX, "No effect: the dirty ratio decides when to compact"),
        _int("max.message.bytes", 0, 1_048_588, "Largest record batch", "message_max_bytes"),
        _long("message.timestamp.after.max.ms", 0, LONG_MAX, "How far ahead a record's timestamp may be"),
        _long("message.timestamp.before.max.ms", 0, LONG_MAX, "How far back a record's timestamp may be"),
        _config(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            partial(_one_of, ("CreateTime", "LogAppendTime")),
            "Whose clock stamps records",
            "log_message_timestamp_type",
        ),
        _config(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            _ratio,
            "Share of a log not yet compacted that starts a compaction",
            "log_cleaner_min_cleanable_ratio",
        ),
        _long("min.compaction.lag.ms", 0, 0, "How long a record stays uncompacted"),
        _int("min.insync.replicas", 1, 1, "Replicas that must be in sync for acks=all", "min_insync_replicas"),
        _config("preallocate", BOOLEAN, False, _boolean, "No effect: a log is no set of files"),
        _config("remote.log.copy.disable", BOOLEAN, False, _never, "There is no remote storage"),
        _config("remote.log.delete.on.disable", BOOLEAN, False, _never, "There is no remote storage"),
        _config("remote.storage.enable", BOOLEAN, False, _never, "There is no remote storage"),
        _long("retention.bytes", -1, -1, "Bytes a partition keeps; -1 no limit", "log_retention_bytes"),
        _long("retention.ms", -1, _WEEK_MS, "Records older than this are deleted; -1 never", "log_retention_ms"),
        _int("segment.bytes", 14, 1_073_741_824, "No effect: a log has no segments", "log_segment_bytes"),
        _int("segment.index.bytes", 4, 10_485_760, "No effect: a log has no segments"),
        _long("segment.jitter.ms", 0, 0, "No effect: a log has no segments"),
        _long("segment.ms", 1, _WEEK_MS, "No effect: a log has no segments"),
        _config("unclean.leader.election.enable", BOOLEAN, False, _boolean, "No effect: replicas share one log"),
    )
)
"""Name: what is known of it, in the order of names."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The values of one topic that have an effect, typed."""

    compact: bool
    delete: bool
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    codec: int | None
    """The codec that batches are stored with; None leaves them as they came."""


def parse(name: str, text: str) -> Any:
    """The typed value. Raises InvalidConfig."""
    known = TOPIC_CONFIGS.get(name)
    if known is None:
        raise InvalidConfig(f"There is no topic config {name}")
    if len(text) > LONGEST_VALUE:
        raise InvalidConfig(f"{name} takes up to {LONGEST_VALUE} characters; {len(text)} came")
    try:
        return known.parse(text.strip())
    except ValueError as error:
        raise InvalidConfig(f"{name} cannot be {text}: {error}") from None


def value_text(value: Any) -> str:
    """A typed value as clients expect to read it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def resolve(configs: Mapping[str, str], config: Config) -> TopicSettings:
    """The values in force of a topic that has `configs` set."""

    def value(name: str) -> Any:
        if name in configs:
            return parse(name, configs[name])
        return TOPIC_CONFIGS[name].default_of(config)

    policies = value("cleanup.policy").split(",")
    return TopicSettings(
        compact="compact" in policies,
        delete="delete" in policies,
        max_message_bytes=value("max.message.bytes"),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        retention_ms=value("retention.ms"),
        retention_bytes=value("retention.bytes"),
        delete_retention_ms=value("delete.retention.ms"),
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        min_insync_replicas=value("min.insync.replicas"),
        codec=CODECS.get(value("compression.type")),
    )
