"""Every limit and default, under Kafka's property names where Kafka has the setting.

`Config` holds typed values; an attribute's property name is the attribute with dots for underscores
(`group_initial_rebalance_delay_ms` is `group.initial.rebalance.delay.ms`). Values come from, later ones winning:
the defaults here, a .properties or TOML file, the environment (`KOHORT_GROUP_INITIAL_REBALANCE_DELAY_MS`), flags.
An unknown name or a bad value is a `ConfigError` that names it. Units last; bounds are inclusive.
Source of the defaults: Apache Kafka trunk, August 2026 (GroupCoordinatorConfig, ServerConfigs, LogConfig).
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

INT_MAX = 2_147_483_647
LONG_MAX = 9_223_372_036_854_775_807


class ConfigError(ValueError):
    """A setting has an unknown name or a bad value; the message names it and says what is allowed."""


def _setting(
    default: Any, doc: str, *, low: int | None = None, high: int | None = None, one_of: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "one_of": one_of})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a server. Build it with `load` (text, checked) or directly with typed values (tests)."""

    # -- where it listens and keeps its data
    listeners: str = _setting("127.0.0.1:9092", "HOST:PORT of each broker, comma separated; port 0 picks a free one")
    advertised_listeners: str = _setting(
        "", "HOST:PORT that clients are told, one a listener; the listeners when empty"
    )
    brokers: int = _setting(1, "Brokers that this process presents; one listener each", low=1, high=64)
    broker_id: int = _setting(1, "Id of the first broker; the others count up from it", low=0, high=INT_MAX)
    broker_rack: str = _setting("", "Rack of the brokers, comma separated for several; empty for none")
    data_dir: str = _setting("", "Directory of the data; empty keeps everything in memory")

    # -- limits of connections and requests
    max_connections: int = _setting(10_000, "Open connections in all", low=1, high=INT_MAX)
    max_connections_per_ip: int = _setting(10_000, "Open connections of one address", low=1, high=INT_MAX)
    connections_max_idle_ms: int = _setting(600_000, "Idle connections are closed after this time", low=1)
    socket_request_max_bytes: int = _setting(104_857_600, "Largest request frame", low=1024, high=INT_MAX)
    group_request_max_bytes: int = _setting(1_048_576, "Largest request of a group API", low=1024, high=INT_MAX)
    queued_max_request_bytes: int = _setting(
        268_435_456, "Bytes of requests read and not yet answered, over all connections", low=1_048_576
    )
    connection_max_queued_bytes: int = _setting(
        16_777_216,
        "Bytes of answers that a slow reader may leave unread before its requests are no longer read",
        low=65_536,
    )

    # -- topics and logs
    auto_create_topics_enable: bool = _setting(True, "Create a topic when a client asks for its metadata")
    num_partitions: int = _setting(1, "Partitions of a topic created without a number", low=1, high=100_000)
    default_replication_factor: int = _setting(1, "Replication factor of such a topic", low=1, high=32767)
    max_partitions: int = _setting(100_000, "Partitions in all", low=1)
    message_max_bytes: int = _setting(1_048_588, "Largest record batch", low=0, high=INT_MAX)
    fetch_max_bytes: int = _setting(57_671_680, "Most bytes in one answer to a fetch", low=1024, high=INT_MAX)
    log_cleanup_policy: str = _setting(
        "delete", "Default cleanup policy", one_of=("delete", "compact", "compact,delete", "delete,compact")
    )
    log_retention_ms: int = _setting(
        604_800_000, "Records older than this are deleted; -1 never", low=-1, high=LONG_MAX
    )
    log_retention_bytes: int = _setting(-1, "Bytes a partition keeps; -1 no limit", low=-1, high=LONG_MAX)
    log_retention_check_interval_ms: int = _setting(300_000, "How often retention and compaction look", low=1)
    log_segment_bytes: int = _setting(
        1_073_741_824, "Accepted for clients' sake; kohort's logs have no segments", low=14
    )
    log_cleaner_enable: bool = _setting(True, "Compact compacted topics")
    log_cleaner_delete_retention_ms: int = _setting(86_400_000, "How long tombstones stay readable", low=0)
    log_cleaner_min_cleanable_ratio: float = _setting(0.5, "Share of a log not yet compacted that starts a compaction")
    log_message_timestamp_type: str = _setting(
        "CreateTime", "Whose clock stamps records", one_of=("CreateTime", "LogAppendTime")
    )
    producer_id_expiration_ms: int = _setting(86_400_000, "A silent producer id is forgotten after this time", low=1)
    compression_type: str = _setting(
        "producer", "Accepted value: producer (batches are kept as they came)", one_of=("producer",)
    )
    min_insync_replicas: int = _setting(1, "Accepted for clients' sake", low=1)

    # -- classic groups
    group_min_session_timeout_ms: int = _setting(6_000, "Shortest session timeout a member may ask for", low=1)
    group_max_session_timeout_ms: int = _setting(1_800_000, "Longest session timeout a member may ask for", low=1)
    group_initial_rebalance_delay_ms: int = _setting(3_000, "How long a new group waits for more members", low=0)
    group_max_size: int = _setting(INT_MAX, "Members of one group", low=1, high=INT_MAX)
    group_new_member_join_timeout_ms: int = _setting(300_000, "A new member parked longer than this is removed", low=1)

    # -- offsets
    offsets_topic_num_partitions: int = _setting(
        50, "Shards of the coordinator; fixed at the first start", low=1, high=10_000
    )
    offsets_topic_replication_factor: int = _setting(3, "Capped at the number of brokers", low=1, high=32767)
    offset_metadata_max_bytes: int = _setting(4_096, "Longest metadata of a committed offset, in UTF-16 units", low=0)
    offsets_retention_minutes: int = _setting(10_080, "Offsets of an empty group are kept this long", low=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, "How often offsets are checked for expiry", low=1)

    # -- producers
    transaction_max_timeout_ms: int = _setting(900_000, "Longest transaction timeout a producer may ask for", low=1)

    # -- operation
    log_level: str = _setting("info", "Least severe log lines shown", one_of=("debug", "info", "warning", "error"))
    log_format: str = _setting("auto", "Shape of the log", one_of=("auto", "console", "json", "logfmt"))


def property_name(attribute: str) -> str:
    """`log_retention_ms` → `log.retention.ms`."""
    return attribute.replace("_", ".")


SETTINGS: dict[str, Any] = {property_name(f.name): f for f in fields(Config)}
"""Property name: dataclass field; `metadata` has doc, low, high, one_of."""

ALIASES: dict[str, tuple[str, int]] = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "node.id": ("broker.id", 1),
}
"""Other names of a setting, and what their value is multiplied by."""


CLIENT_VARIABLES = frozenset({"KOHORT_BOOTSTRAP_SERVER"})
"""Variables of the commands that talk to a server; a server started beside them ignores them."""


def load(
    overrides: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Build a Config from a file, the environment (`KOHORT_…`) and overrides; later ones win."""
    texts: dict[str, str] = {}
    if file is not None:
        texts.update(_read_file(file))
    for variable, value in (os.environ if environ is None else environ).items():
        if variable.startswith("KOHORT_") and variable not in CLIENT_VARIABLES:
            texts[property_name(variable.removeprefix("KOHORT_").lower())] = value
    texts.update(dict(overrides))
    values: dict[str, Any] = {}
    for name, text in texts.items():
        name, factor = ALIASES.get(name, (name, 1))
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown setting {name}{hint}")
        values[SETTINGS[name].name] = parse_value(name, text, factor)
    return check(Config(**values))


def check(config: Config) -> Config:
    """Check what spans several settings. Returns the config; raises ConfigError."""
    for name, setting in SETTINGS.items():
        _check_bounds(name, getattr(config, setting.name))
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
    listeners = [part for part in config.listeners.split(",") if part.strip()]
    if len(listeners) != config.brokers:
        raise ConfigError(
            f"listeners names {len(listeners)} addresses, but brokers is {config.brokers}; they must agree"
        )
    advertised = [part for part in config.advertised_listeners.split(",") if part.strip()]
    if advertised and len(advertised) != config.brokers:
        raise ConfigError(f"advertised.listeners names {len(advertised)} addresses, but brokers is {config.brokers}")
    if config.default_replication_factor > config.brokers:
        raise ConfigError(
            f"default.replication.factor is {config.default_replication_factor}, larger than brokers ({config.brokers})"
        )
    return config


def with_values(config: Config, **values: Any) -> Config:
    """A copy with some attributes replaced, checked."""
    return check(replace(config, **values))


def parse_value(name: str, text: str, factor: int = 1) -> Any:
    """The typed value of a setting's text. Raises ConfigError."""
    setting = SETTINGS[name]
    kind = type(setting.default)
    value: Any
    text = text.strip()
    try:
        if kind is bool:
            value = {"true": True, "false": False}[text.lower()]
        elif kind is int:
            value = int(text)
            value = value * factor if value >= 0 else value
        elif kind is float:
            value = float(text)
        else:
            value = text
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{name} is {text!r}; it takes {wanted}") from None
    _check_bounds(name, value)
    return value


def _check_bounds(name: str, value: Any) -> None:
    meta = SETTINGS[name].metadata
    if meta["low"] is not None and value < meta["low"]:
        raise ConfigError(f"{name} is {value}; the least is {meta['low']}")
    if meta["high"] is not None and value > meta["high"]:
        raise ConfigError(f"{name} is {value}; the most is {meta['high']}")
    if meta["one_of"] and value not in meta["one_of"]:
        raise ConfigError(f"{name} is {value!r}; it takes one of {', '.join(meta['one_of'])}")


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from None
    if path.suffix == ".toml":
        try:
            return dict(_flatten(tomllib.loads(text), ""))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: {error}") from None
    texts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ConfigError(f"{path}, line {number}: expected name=value, found {line!r}")
        texts[name.strip()] = value.strip()
    return texts


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, ",".join(str(item) for item in value)
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value)
