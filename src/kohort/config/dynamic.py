"""Settings that change while the server runs, by AlterConfigs on a broker: those that Kafka changes, and own limits.

Source: DynamicBrokerConfig.AllDynamicConfigs, as far as kohort has the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kohort.config.parsing import parse_value
from kohort.config.settings import SETTINGS, Config, ConfigError

DYNAMIC = frozenset(
    (
        "compression.type",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleanup.policy",
        "log.level",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.ms",
        "log.segment.bytes",
        "max.connections",
        "max.connections.per.ip",
        "message.max.bytes",
        "message.max.records",
        "message.max.uncompressed.bytes",
        "min.insync.replicas",
        "producer.id.expiration.ms",
    )
)
"""Property names."""


def with_dynamic(config: Config, texts: Mapping[str, str]) -> Config:
    """The config with dynamic settings over it. What this version cannot read counts as not set."""
    values = {}
    for name, text in texts.items():
        if name in DYNAMIC:
            try:
                values[SETTINGS[name].name] = parse_value(name, text)
            except ConfigError:
                continue
    return replace(config, **values) if values else config
