"""Checks that span several settings, and the bounds of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kohort.config.addresses import one_each
from kohort.config.compatibility import KAFKA, STRICT
from kohort.config.memory import check_memory
from kohort.config.settings import SETTINGS, Config, ConfigError, property_name

GROUP_PROTOCOLS = frozenset(("classic", "consumer", "share", "streams"))


def check(config: Config) -> Config:
    """Check what spans several settings. Returns the config, listeners spelled out; raises ConfigError."""
    for name, setting in SETTINGS.items():
        check_bounds(name, getattr(config, setting.name))
    _check_compatibility(config)
    check_memory(config)
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
    _check_consumer_groups(config)
    protocols = {name.strip() for name in config.group_coordinator_rebalance_protocols.split(",")}
    if "classic" not in protocols or not protocols <= GROUP_PROTOCOLS:
        given = config.group_coordinator_rebalance_protocols
        raise ConfigError(f"group.coordinator.rebalance.protocols is {given!r}; it takes classic, or classic,consumer")
    if config.default_replication_factor > config.brokers:
        raise ConfigError(
            f"default.replication.factor is {config.default_replication_factor}, larger than brokers ({config.brokers})"
        )
    listeners = one_each(config.brokers, "listeners", config.listeners)
    advertised = one_each(config.brokers, "advertised.listeners", config.advertised_listeners)
    if len(racks := config.broker_rack.split(",")) not in (1, config.brokers):
        raise ConfigError(f"broker.rack names {len(racks)} racks, but brokers is {config.brokers}; they must agree")
    return replace(
        config,
        listeners=",".join(map(str, listeners)),
        advertised_listeners=",".join(map(str, advertised)),
    )


BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""Settings of consumer groups, without their "group.consumer.", whose bounds are settings themselves."""


def consumer_bounds(config: Config, name: str) -> tuple[int, int]:
    """The least and the largest value of one of BOUNDED, for the server and for single groups."""
    attribute = name.replace(".", "_")
    return getattr(config, f"group_consumer_min_{attribute}"), getattr(config, f"group_consumer_max_{attribute}")


OF_PACKAGES = "*"
"""In the list of assignors: all those of other packages."""
JAVA_ASSIGNORS = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""The class names of Kafka's assignors in configurations before 4.0."""


def assignor_names(config: Config) -> list[str]:
    """The configured assignors, in order. Raises ConfigError."""
    names = [name.strip() for name in config.group_consumer_assignors.split(",") if name.strip()]
    names = [JAVA_ASSIGNORS.get(name, name) for name in names]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"group.consumer.assignors names {name} twice")
    if not set(names) - {OF_PACKAGES}:
        raise ConfigError("group.consumer.assignors names no assignor; kohort has uniform, range, rack and lag")
    return names


def _check_compatibility(config: Config) -> None:
    if config.compatibility != KAFKA:
        return
    for attribute, value in STRICT.items():
        given = getattr(config, attribute)
        if given != value:
            raise ConfigError(
                f"{property_name(attribute)} is {_text(given)}, but compatibility=kafka needs {_text(value)}; "
                "leave out one of the two settings"
            )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_consumer_groups(config: Config) -> None:
    assignor_names(config)
    for name in BOUNDED:
        low, high = consumer_bounds(config, name)
        if low > high:
            raise ConfigError(f"group.consumer.min.{name} is {low}, larger than group.consumer.max.{name} ({high})")
        value = getattr(config, f"group_consumer_{name.replace('.', '_')}")
        for bound, passed in ((f"min.{name}", value < low), (f"max.{name}", value > high)):
            if passed:
                limit = low if value < low else high
                raise ConfigError(
                    f"group.consumer.{name} is {value}, beyond its bound: group.consumer.{bound} is {limit}; "
                    "set them both"
                )
    session, interval = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
    if session <= interval:
        raise ConfigError(
            f"group.consumer.session.timeout.ms is {session}; it must be more than "
            f"group.consumer.heartbeat.interval.ms ({interval}), or no member would live to its next heartbeat"
        )


def with_values(config: Config, **values: Any) -> Config:
    """A copy with some attributes replaced, checked."""
    return check(replace(config, **values))


def check_bounds(name: str, value: Any) -> None:
    meta = SETTINGS[name].metadata
    if meta["low"] is not None and not value >= meta["low"]:
        raise ConfigError(f"{name} is {value}; the least is {meta['low']}")
    if meta["high"] is not None and not value <= meta["high"]:
        raise ConfigError(f"{name} is {value}; the most is {meta['high']}")
    if meta["one_of"] and value not in meta["one_of"]:
        raise ConfigError(f"{name} is {value!r}; it takes one of {', '.join(meta['one_of'])}")
