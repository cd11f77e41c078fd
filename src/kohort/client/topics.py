"""Topics: list, create, delete, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kohort.client.connection import Connection
from kohort.client.errors import ServerError, server_error
from kohort.client.metadata import Topic
from kohort.client.routing import MISSING_TOPIC, Router
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC_RESOURCE = 2
NOT_THERE_YET = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, as DescribeConfigs says it."""

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
    """One setting of a topic. `value` is None where the broker keeps it secret or has none."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool

    @property
    def set_on_topic(self) -> bool:
        return self.source == ConfigSource.DYNAMIC_TOPIC_CONFIG


def topics(router: Router, names: Iterable[str] | None, *, internal: bool, create: bool) -> dict[str, Topic]:
    asked = None if names is None else list(dict.fromkeys(names))

    def attempt() -> dict[str, Topic]:
        router.refresh(asked, create=create)
        known = router.view.topics
        if asked is None:
            return {name: known[name] for name in sorted(known) if internal or not known[name].internal}
        for name in asked:
            if name in known and known[name].error in NOT_THERE_YET:
                raise server_error(known[name].error, f"topic {name}")
        return {name: known[name] for name in asked if name in known}

    if asked is not None and not asked:
        return {}
    return router.retrying(attempt)


def create_topic(
    router: Router, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
    )

    def attempt() -> None:
        answer = _controller(router).request(
            CreateTopicsRequest(topics=(topic,), timeout_ms=router.timing.request), CreateTopicsResponse
        )
        for row in answer.topics:
            _check(router, row.error_code, f"cannot create topic {name}", row.error_message)

    router.retrying(attempt)
    router.view.topics.pop(name, None)


def delete_topic(router: Router, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=name),), topic_names=(name,), timeout_ms=router.timing.request
    )

    def attempt() -> ServerError | None:
        answer = _controller(router).request(request, DeleteTopicsResponse)
        for row in answer.responses:
            if row.error_code in MISSING_TOPIC:  # elsewhere worth another try, here it is the answer
                return server_error(row.error_code, f"cannot delete topic {name}", row.error_message)
            _check(router, row.error_code, f"cannot delete topic {name}", row.error_message)
        return None

    missing = router.retrying(attempt)
    router.view.topics.pop(name, None)
    if missing is not None:
        raise missing


def describe_configs(router: Router, names: Iterable[str]) -> dict[str, tuple[ConfigEntry, ...]]:
    resources = tuple(
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in dict.fromkeys(names)
    )
    if not resources:
        return {}

    def attempt() -> DescribeConfigsResponse:
        answer = router.any_connection().request(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for row in answer.results:
            if row.error_code:
                raise server_error(row.error_code, f"settings of topic {row.resource_name}", row.error_message)
        return answer

    return {row.resource_name: _entries(row) for row in router.retrying(attempt).results}


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


def _controller(router: Router) -> Connection:
    """A connection to the controller, who alone changes topics in clusters with ZooKeeper; any broker where the
    cluster does not say who it is."""
    view = router.fresh_view(())
    if view.controller_id in view.nodes:
        return router.connection(view.controller_id)
    return router.any_connection()


def _check(router: Router, number: int, what: str, text: str | None) -> None:
    if not number:
        return
    if number == ErrorCode.NOT_CONTROLLER:
        router.expire_view()
    raise server_error(number, what, text)
