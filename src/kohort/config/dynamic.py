"""Settings that change while the server runs, by AlterConfigs on a broker: those that Kafka changes, and own limits.

Source: DynamicBrokerConfig.AllDynamicConfigs, as far as kohort has the setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kohort.config.declaration import ConfigError
from kohort.config.listeners import PREFIX
from kohort.config.parsing import parse_value
from kohort.config.settings import SETTINGS, Config

DYNAMIC = frozenset(
    (
        "compression.type",
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.topic.name.prefix",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleanup.policy",
        "log.level",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.ms",
        "log.segment.bytes",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "message.max.bytes",
        "message.max.records",
        "message.max.uncompressed.bytes",
        "min.insync.replicas",
        "producer.id.expiration.ms",
    )
)
"""Property names."""
DYNAMIC_OF_LISTENERS = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""Those that change with the prefix of a listener, on one broker. Source: SslConfigs.RECONFIGURABLE_CONFIGS."""


def of_dynamic_listener(name: str) -> tuple[str, str] | None:
    """The listener, in lower case, and the setting of `listener.name.NAME.SETTING`; None for other names."""
    rest = name.lower()
    if not rest.startswith(PREFIX):
        return None
    rest = rest.removeprefix(PREFIX)
    setting = next((known for known in DYNAMIC_OF_LISTENERS if rest.endswith(f".{known}")), "")
    return (rest.removesuffix(f".{setting}"), setting) if setting else None


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
