"""The topic configurations: one table of names, types, bounds and defaults, and the typed values a log works with.

Names, types and bounds are those of Apache Kafka's LogConfig; settings about segments, flushing and index files are
accepted and described for clients' sake, since kohort's logs have none. The configs that are set on a topic, and the
values that result from them (coordinator/settings/config_keys.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from kohort.config import LONG_MAX, Config
from kohort.coordinator.settings import config_keys
from kohort.coordinator.settings.config_keys import (
    BOOLEAN,
    DOUBLE,
    LIST,
    STRING,
    ConfigKey,
    any_text,
    boolean,
    config_key,
    int_key,
    long_key,
    never,
    one_of,
    ratio,
)

_WEEK_MS = 604_800_000


def _policies(text: str) -> str:
    """Each policy once. Without any policy a topic keeps all its records (KIP-1161)."""
    parts = dict.fromkeys(part.strip() for part in text.split(",")) if text else {}
    if not all(part in ("compact", "delete") for part in parts):
        raise ValueError("it must be a list of compact and delete")
    return ",".join(parts)


DEAD_LETTERS_ALLOWED = "errors.deadletterqueue.group.enable"
"""Apache Kafka has it since 4.4 (KIP-1191)."""
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's names of the codecs, and their numbers in a batch's attributes."""

TOPIC_CONFIGS: dict[str, ConfigKey] = dict(
    (
        config_key(
            "cleanup.policy",
            LIST,
            "delete",
            _policies,
            "What happens to old records: delete, compact, both, or nothing if it is empty",
            "log_cleanup_policy",
        ),
        config_key(
            "compression.type",
            STRING,
            "producer",
            partial(one_of, ("producer", *CODECS)),
            "The codec of stored batches; with producer they are kept as they came",
            "compression_type",
        ),
        int_key("compression.gzip.level", -1, -1, "No effect: each codec has one level"),
        int_key("compression.lz4.level", 1, 9, "No effect: each codec has one level"),
        int_key("compression.zstd.level", -131072, 3, "No effect: each codec has one level"),
        long_key(
            "delete.retention.ms",
            0,
            86_400_000,
            "How long tombstones stay readable",
            "log_cleaner_delete_retention_ms",
        ),
        config_key(
            DEAD_LETTERS_ALLOWED,
            BOOLEAN,
            False,
            boolean,
            "Whether share groups may use the topic as their dead-letter topic",
        ),
        long_key("file.delete.delay.ms", 0, 60_000, "No effect: a log is no set of files"),
        long_key("flush.messages", 1, LONG_MAX, "No effect: every answer waits for the disk"),
        long_key("flush.ms", 0, LONG_MAX, "No effect: every answer waits for the disk"),
        config_key(
            "follower.replication.throttled.replicas",
            LIST,
            "",
            any_text,
            "No effect: nothing is copied between brokers",
        ),
        int_key("index.interval.bytes", 0, 4_096, "No effect: every batch is indexed"),
        config_key(
            "leader.replication.throttled.replicas", LIST, "", any_text, "No effect: nothing is copied between brokers"
        ),
        long_key("local.retention.bytes", -2, -2, "No effect: there is no remote storage"),
        long_key("local.retention.ms", -2, -2, "No effect: there is no remote storage"),
        long_key("max.compaction.lag.ms", 1, LONG_MAX, "No effect: the dirty ratio decides when to compact"),
        int_key("max.message.bytes", 0, 1_048_588, "Largest record batch", "message_max_bytes"),
        long_key("message.timestamp.after.max.ms", 0, LONG_MAX, "How far ahead a record's timestamp may be"),
        long_key("message.timestamp.before.max.ms", 0, LONG_MAX, "How far back a record's timestamp may be"),
        config_key(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            partial(one_of, ("CreateTime", "LogAppendTime")),
            "Whose clock stamps records",
            "log_message_timestamp_type",
        ),
        config_key(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            ratio,
            "Share of a log not yet compacted that starts a compaction",
            "log_cleaner_min_cleanable_ratio",
        ),
        long_key("min.compaction.lag.ms", 0, 0, "How long a record stays uncompacted"),
        int_key("min.insync.replicas", 1, 1, "Replicas that must be in sync for acks=all", "min_insync_replicas"),
        config_key("preallocate", BOOLEAN, False, boolean, "No effect: a log is no set of files"),
        config_key("remote.log.copy.disable", BOOLEAN, False, never, "There is no remote storage"),
        config_key("remote.log.delete.on.disable", BOOLEAN, False, never, "There is no remote storage"),
        config_key("remote.storage.enable", BOOLEAN, False, never, "There is no remote storage"),
        long_key("retention.bytes", -1, -1, "Bytes a partition keeps; -1 no limit", "log_retention_bytes"),
        long_key("retention.ms", -1, _WEEK_MS, "Records older than this are deleted; -1 never", "log_retention_ms"),
        int_key("segment.bytes", 14, 1_073_741_824, "No effect: a log has no segments", "log_segment_bytes"),
        int_key("segment.index.bytes", 4, 10_485_760, "No effect: a log has no segments"),
        long_key("segment.jitter.ms", 0, 0, "No effect: a log has no segments"),
        long_key("segment.ms", 1, _WEEK_MS, "No effect: a log has no segments"),
        config_key("unclean.leader.election.enable", BOOLEAN, False, boolean, "No effect: replicas share one log"),
    )
)
"""The configurations by name, sorted."""


TOPIC_CONFIGS_OF_KAFKA = {name: key for name, key in TOPIC_CONFIGS.items() if name != DEAD_LETTERS_ALLOWED}
"""Those that Apache Kafka 4.3 has too."""


def topic_configs_of(config: Config) -> dict[str, ConfigKey]:
    """The configs that a topic may have on this server."""
    return TOPIC_CONFIGS if config.deviations.extensions else TOPIC_CONFIGS_OF_KAFKA


class TopicSettings(msgspec.Struct, frozen=True):
    """The values of one topic that have an effect, typed."""

    compact: bool
    delete: bool
    max_message_bytes: int
    max_uncompressed_bytes: int
    """The limit of a decompressed batch. This one and the next two are settings of the server."""
    max_records: int
    """The limit of a batch."""
    producer_id_expiration_ms: int
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


def parse(name: str, text: str, known: Mapping[str, ConfigKey] = TOPIC_CONFIGS) -> Any:
    """The typed value. Raises InvalidConfig."""
    return config_keys.parse(known, "topic", name, text)


def resolve(configs: Mapping[str, str], config: Config) -> TopicSettings:
    """The effective values for a topic with these `configs`."""

    def value(name: str) -> Any:
        if name in configs:
            return parse(name, configs[name])
        return TOPIC_CONFIGS[name].default_of(config)

    policies = value("cleanup.policy").split(",")
    return TopicSettings(
        compact="compact" in policies,
        delete="delete" in policies,
        max_message_bytes=value("max.message.bytes"),
        max_uncompressed_bytes=config.message_max_uncompressed_bytes,
        max_records=config.message_max_records,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
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
