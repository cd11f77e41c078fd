"""Checks that span several settings, and the bounds of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kohort.config.addresses import PLAINTEXT, Address, addresses, spelled_out
from kohort.config.bearer import bearer_at
from kohort.config.compatibility import KAFKA, STRICT
from kohort.config.declaration import ConfigError
from kohort.config.listeners import BEARER, listeners_of, mechanisms_at, value_at
from kohort.config.memory import check_memory
from kohort.config.parsing import check_bounds
from kohort.config.settings import ALL, AUTHORIZER, SETTINGS, Config, property_name

GROUP_PROTOCOLS = frozenset(("classic", "consumer", "share", "streams"))


def check(config: Config) -> Config:
    """Check what spans several settings. Returns the config, listeners spelled out; raises ConfigError."""
    for name, setting in SETTINGS.items():
        check_bounds(name, getattr(config, setting.name))
    _check_compatibility(config)
    check_memory(config)
    _check_authorization(config)
    check_per_ip(config)
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
    _check_consumer_groups(config)
    _check_share_groups(config)
    protocols = {name.strip() for name in config.group_coordinator_rebalance_protocols.split(",")}
    if "classic" not in protocols or not protocols <= GROUP_PROTOCOLS:
        given = config.group_coordinator_rebalance_protocols
        raise ConfigError(f"group.coordinator.rebalance.protocols is {given!r}; it takes classic, or classic,consumer")
    if config.default_replication_factor > config.brokers:
        raise ConfigError(
            f"default.replication.factor is {config.default_replication_factor}, larger than brokers ({config.brokers})"
        )
    _check_storage(config)
    listeners = listeners_of(config)
    for listener in listeners:
        if listener.is_sasl and BEARER in mechanisms_at(config, listener.name):
            bearer_at(config, listener.name)
    http_address(config)
    if len(racks := config.broker_rack.split(",")) not in (1, config.brokers):
        raise ConfigError(f"broker.rack names {len(racks)} racks, but brokers is {config.brokers}; they must agree")
    return replace(
        config,
        listeners=spelled_out((listener.name, listener.addresses) for listener in listeners),
        advertised_listeners=spelled_out((listener.name, listener.advertised or ()) for listener in listeners),
    )


def _check_storage(config: Config) -> None:
    if not config.storage:
        if config.cluster_serving == ALL:
            raise ConfigError("cluster.serving=all needs storage: the nodes' common database")
        return
    if not config.storage.startswith(("postgresql://", "postgres://")):
        raise ConfigError("storage takes postgresql://USER@HOST/DATABASE")  # other forms may have a password anywhere
    if config.broker_session_timeout_ms < 3 * config.broker_heartbeat_interval_ms:
        raise ConfigError("broker.session.timeout.ms must be three times broker.heartbeat.interval.ms, or more")
    if config.brokers > 1:
        raise ConfigError("with storage, a process is one broker: leave out brokers, and start several processes")
    if config.data_dir:
        raise ConfigError("storage and data.dir exclude each other: the data is in the database, or in the directory")


def check_per_ip(config: Config) -> None:
    """Raises ConfigError if no address may connect. Source: KafkaConfig.validateValues."""
    if not config.max_connections_per_ip and not config.max_connections_per_ip_overrides:
        raise ConfigError(
            "max.connections.per.ip is 0, so nobody could connect; to allow single addresses, set "
            "max.connections.per.ip.overrides too"
        )


def http_address(config: Config) -> Address | None:
    """Where the HTTP listener is; None if there is none. Raises ConfigError."""
    found = addresses("http.listener", config.http_listener)
    if len(found) > 1 or any(name != PLAINTEXT for name, _ in found):
        raise ConfigError(f"http.listener is {config.http_listener!r}; it takes one HOST:PORT")
    return found[0][1] if found else None


def super_users_of(config: Config) -> tuple[str, ...]:
    """The principals of super.users. Raises ConfigError."""
    users = tuple(user.strip() for user in config.super_users.split(";") if user.strip())
    for user in users:
        kind, colon, _ = user.partition(":")
        if not colon or not kind:
            raise ConfigError(f"super.users names {user!r}; it takes principals such as User:{user.strip(':')}")
    return users


def _check_authorization(config: Config) -> None:
    users = super_users_of(config)
    if config.authorizer_class_name:
        return
    for name, given in (
        ("super.users", users),
        ("allow.everyone.if.no.acl.found", config.allow_everyone_if_no_acl_found),
    ):
        if given:
            raise ConfigError(f"{name} is given, but no authorizer: set authorizer.class.name={AUTHORIZER} too")


def is_everybody_anonymous(config: Config) -> bool:
    """Whether ACLs are on, and every client is User:ANONYMOUS, who is no super user."""
    return (
        bool(config.authorizer_class_name)
        and "User:ANONYMOUS" not in super_users_of(config)
        and not any(
            listener.is_sasl or (listener.is_tls and value_at(config, listener.name, "ssl.client.auth") != "none")
            for listener in listeners_of(config)
        )
    )


BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
"""Settings of consumer groups, without their "group.consumer.", whose bounds are settings themselves."""


def consumer_bounds(config: Config, name: str) -> tuple[int, int]:
    """The least and the largest value of one of BOUNDED, for the server and for single groups."""
    attribute = name.replace(".", "_")
    return getattr(config, f"group_consumer_min_{attribute}"), getattr(config, f"group_consumer_max_{attribute}")


BOUNDED_SHARES = (*BOUNDED, "record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
"""Settings of share groups, without their "group.share.", whose bounds are settings themselves."""


def share_bounds(config: Config, name: str) -> tuple[int, int]:
    """The least and the largest value of one of BOUNDED_SHARES, for single groups."""
    attribute = name.replace(".", "_")
    return getattr(config, f"group_share_min_{attribute}"), getattr(config, f"group_share_max_{attribute}")


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


def _check_share_groups(config: Config) -> None:
    if not config.group_share_enable:
        return  # files for Apache Kafka have such settings
    for name in BOUNDED_SHARES:
        low, high = share_bounds(config, name)
        if low > high:
            raise ConfigError(f"group.share.min.{name} is {low}, larger than group.share.max.{name} ({high})")
    session, interval = config.group_share_session_timeout_ms, config.group_share_heartbeat_interval_ms
    if session <= interval:
        raise ConfigError(
            f"group.share.session.timeout.ms is {session}; it must be more than "
            f"group.share.heartbeat.interval.ms ({interval})"
        )
    if config.group_share_max_share_sessions < config.group_share_max_size:
        raise ConfigError(
            f"group.share.max.share.sessions is {config.group_share_max_share_sessions}; it must be at least "
            f"group.share.max.size ({config.group_share_max_size})"
        )


def with_values(config: Config, **values: Any) -> Config:
    """A copy with some attributes replaced, checked."""
    return check(replace(config, **values))
