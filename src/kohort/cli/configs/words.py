"""Values of settings and where they come from, for people. A secret is never among the words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort.client.admin.configs import ConfigEntry, ConfigSource

HIDDEN = "(hidden)"
THE_DEFAULT = "the default"

SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "dynamic-topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "dynamic-broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "dynamic-brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "static",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG: "dynamic-logger",
    ConfigSource.CLIENT_METRICS_CONFIG: "dynamic-client-metrics",
    ConfigSource.GROUP_CONFIG: "dynamic-group",
}
"""The sources of Kafka's DescribeConfigs; dynamic-brokers is set for all brokers."""
_SECRET = re.compile(r"password|passphrase|secret|jaas|credential|keystore\.key$")


def is_secret(name: str, entry: ConfigEntry | None) -> bool:
    """Whether the value must not be printed: the cluster says so, or the name of a setting that it does not list."""
    return entry.sensitive if entry is not None else _SECRET.search(name.lower()) is not None


def value_of(entry: ConfigEntry) -> str | None:
    """None for a secret, and for a setting without a value."""
    return None if entry.sensitive else entry.value


def source_of(entry: ConfigEntry) -> str:
    return SOURCES.get(entry.source, "unknown")


def change_of(name: str, old: ConfigEntry | None, own: ConfigSource, new: str | None) -> str:
    """`604800000 → 86400000`, `delete, the default already`. `own`: the source of what is set on the resource."""
    is_own = old is not None and old.source == own
    hides = is_secret(name, old)
    before = (old.value if old else None) or "not set"
    if hides:
        before = HIDDEN if old is not None and old.source != ConfigSource.DEFAULT_CONFIG else "not set"
    if new is None:
        return f"{before} → {THE_DEFAULT}" if is_own else f"{before}, {THE_DEFAULT} already"
    if hides:
        return f"{before} → {HIDDEN}"
    return f"{before} already" if is_own and old is not None and old.value == new else f"{before} → {new}"


def without_secrets(text: str, changes: Mapping[str, str | None], old: Mapping[str, ConfigEntry]) -> str:
    """The text of a refusal, which may repeat a value."""
    for name, value in changes.items():
        if value and is_secret(name, old.get(name)):
            text = text.replace(value, HIDDEN)
    return text
