"""The settings of topics, brokers, groups and client metrics: read, and changed one by one.

A broker answers for its own settings and loggers, and any broker for everything else (Source: ConfigHelper.scala,
KafkaAdminClient.nodeFor). A group need not exist to have settings. Brokers without settings of groups (Apache Kafka
before 4.0) answer INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kohort.client.errors import check
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import Router
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE = 0, 1
"""IncrementalAlterConfigs' operations."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    """Named by its id; the empty name stands for the defaults of all brokers."""
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource. `value` is None if the broker keeps it secret or has none."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool

    @property
    def set_on_topic(self) -> bool:
        return self.source == ConfigSource.DYNAMIC_TOPIC_CONFIG

    @property
    def set_on_group(self) -> bool:
        return self.source == ConfigSource.GROUP_CONFIG


OF_ONE_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


def describe_configs(router: Router, type: ResourceType, names: Iterable[str]) -> dict[str, tuple[ConfigEntry, ...]]:
    wanted = list(dict.fromkeys(names))
    asked = [[name] for name in wanted] if type in OF_ONE_BROKER else [wanted] if wanted else []
    return {name: entries for some in asked for name, entries in _described(router, type, some).items()}


def _described(router: Router, type: ResourceType, names: list[str]) -> dict[str, tuple[ConfigEntry, ...]]:
    """Of one request."""
    resources = tuple(
        DescribeConfigsResource(resource_type=type, resource_name=name, configuration_keys=None) for name in names
    )

    def attempt() -> DescribeConfigsResponse:
        connection = _connection(router, type, names[0])
        answer = connection.request(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for row in answer.results:
            check(row.error_code, f"settings of {words_of(type, row.resource_name)}", row.error_message)
        return answer

    return {row.resource_name: _entries(row) for row in router.retrying(attempt).results}


def _connection(router: Router, type: ResourceType, name: str) -> Connection:
    if type not in OF_ONE_BROKER or not name:
        return router.any_connection()
    router.fresh_view(())
    return router.connection(int(name))


def words_of(type: ResourceType, name: str) -> str:
    """`topic orders`, `broker 1`, `all brokers`."""
    return f"{type.name.lower().replace('_', ' ')} {name}" if name else "all brokers"


def _entries(row: DescribeConfigsResult) -> tuple[ConfigEntry, ...]:
    known = {int(source) for source in ConfigSource}
    return tuple(
        ConfigEntry(
            entry.name,
            entry.value,
            ConfigSource(entry.config_source) if entry.config_source in known else ConfigSource.UNKNOWN,
            entry.read_only,
            entry.is_sensitive,
        )
        for entry in sorted(row.configs, key=lambda entry: entry.name)
    )


def alter_configs(
    router: Router, type: ResourceType, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Change these settings, all or none; None removes one."""
    resource = AlterConfigsResource(
        resource_type=type,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in changes.items()
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)

    def attempt() -> None:
        answer = _connection(router, type, name).request(request, IncrementalAlterConfigsResponse)
        for row in answer.responses:
            check(row.error_code, f"cannot change the settings of {words_of(type, name)}", row.error_message)

    if changes:
        router.retrying(attempt)
