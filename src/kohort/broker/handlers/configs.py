"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

Topics have configs of their own; brokers have the settings they were started with, which are described and cannot be
changed while they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kohort.broker.messages import shortened
from kohort.broker.state import BrokerState, RequestContext
from kohort.broker.topic_configs import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    TOPIC_CONFIGS,
    InvalidConfig,
    TopicConfig,
    parse,
    value_text,
)
from kohort.broker.topics import OWN_TOPICS, Topic, check_topic_name
from kohort.config import INT_MAX, SETTINGS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_configs as alter_schema
from kohort.wire.schemas import incremental_alter_configs as incremental_schema
from kohort.wire.schemas.create_topics import CreatableTopicConfigs
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC, BROKER = 2, 4
"""Codes of resource types."""
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
"""Codes of where a value comes from."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""IncrementalAlterConfigs' operations."""


class _Refused(Exception):
    """One resource of a request cannot be served."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = shortened(message)


# -- describing


def describe_configs(
    state: BrokerState, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=tuple(_described_resource(state, request, resource) for resource in request.resources)
    )


def _described_resource(
    state: BrokerState, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    error, message = ErrorCode.NONE, None
    entries: tuple[DescribeConfigsResourceResult, ...] = ()
    try:
        if resource.resource_type == TOPIC:
            described = _topic_entries(state, _existing_topic(state, resource.resource_name))
        elif resource.resource_type == BROKER:
            described = _broker_entries(state, resource.resource_name)
        else:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"There are no configs of resource type {resource.resource_type}")
        keys = resource.configuration_keys
        entries = tuple(_shaped(entry, request) for entry in described if not keys or entry.name in keys)
    except _Refused as refused:
        error, message = refused.error, refused.message
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _existing_topic(state: BrokerState, name: str) -> Topic:
    if problem := check_topic_name(name):
        raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = state.topic(name)
    if topic is None:
        raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}")
    return topic


def _shaped(entry: DescribeConfigsResourceResult, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    """Without what was not asked for."""
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_sensitive=False,
        config_source=entry.config_source,
        synonyms=entry.synonyms if request.include_synonyms else (),
        config_type=entry.config_type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _topic_entries(state: BrokerState, topic: Topic) -> Iterable[DescribeConfigsResourceResult]:
    for known in TOPIC_CONFIGS.values():
        synonyms = _topic_synonyms(state, known, topic.configs)
        yield DescribeConfigsResourceResult(
            name=known.name,
            value=synonyms[0].value,
            read_only=False,
            is_sensitive=False,
            config_source=synonyms[0].source,
            synonyms=synonyms,
            config_type=known.type,
            documentation=known.doc,
        )


def _topic_synonyms(
    state: BrokerState, known: TopicConfig, configs: Mapping[str, str]
) -> tuple[DescribeConfigsSynonym, ...]:
    """Where a topic's value could come from, the one in force first."""
    synonyms = []
    if known.name in configs:
        synonyms.append(DescribeConfigsSynonym(name=known.name, value=configs[known.name], source=TOPIC_CONFIG))
    default = value_text(known.default)
    if known.setting is not None:
        name = known.synonym or known.name
        value = value_text(known.default_of(state.config))
        default = value_text(SETTINGS[name].default)
        if value != default:
            synonyms.append(DescribeConfigsSynonym(name=name, value=value, source=STATIC_BROKER_CONFIG))
        synonyms.append(DescribeConfigsSynonym(name=name, value=default, source=DEFAULT_CONFIG))
    elif not synonyms:
        synonyms.append(DescribeConfigsSynonym(name=known.name, value=default, source=DEFAULT_CONFIG))
    return tuple(synonyms)


def described_for_creation(state: BrokerState, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
    """All configs of a new topic, for CreateTopics' answer: never null, which crashes Java's admin client."""
    found = []
    for known in TOPIC_CONFIGS.values():
        synonym = _topic_synonyms(state, known, configs)[0]
        found.append(
            CreatableTopicConfigs(name=known.name, value=synonym.value, read_only=False, config_source=synonym.source)
        )
    return tuple(found)


def _broker_entries(state: BrokerState, name: str) -> Iterable[DescribeConfigsResourceResult]:
    """The settings of a broker; for the empty name, the dynamic defaults of all brokers: there are none."""
    if name == "":
        return
    _check_broker(state, name)
    for setting_name, setting in SETTINGS.items():
        value = getattr(state.config, setting.name)
        if setting_name == "broker.id":
            value = int(name)
        is_default = value == setting.default
        source = DEFAULT_CONFIG if is_default else STATIC_BROKER_CONFIG
        synonyms = [DescribeConfigsSynonym(name=setting_name, value=value_text(setting.default), source=DEFAULT_CONFIG)]
        if not is_default:
            synonyms.insert(0, DescribeConfigsSynonym(name=setting_name, value=value_text(value), source=source))
        yield DescribeConfigsResourceResult(
            name=setting_name,
            value=value_text(value),
            read_only=True,
            is_sensitive=False,
            config_source=source,
            synonyms=tuple(synonyms),
            config_type=_setting_type(setting),
            documentation=setting.metadata["doc"],
        )


def _setting_type(setting: Any) -> int:
    if isinstance(setting.default, bool):
        return BOOLEAN
    if isinstance(setting.default, int):
        return INT if (setting.metadata["high"] or 0) <= INT_MAX and abs(setting.default) <= INT_MAX else LONG
    return DOUBLE if isinstance(setting.default, float) else STRING


def _check_broker(state: BrokerState, name: str) -> None:
    if name not in map(str, state.node_by_id):
        known = ", ".join(str(node.id) for node in state.nodes)
        raise _Refused(ErrorCode.INVALID_REQUEST, f"There is no broker {name!r}; there are {known}")


# -- changing


def incremental_alter_configs(
    state: BrokerState, request: incremental_schema.IncrementalAlterConfigsRequest, context: RequestContext
) -> incremental_schema.IncrementalAlterConfigsResponse:
    response = incremental_schema.AlterConfigsResourceResponse
    return incremental_schema.IncrementalAlterConfigsResponse(
        responses=tuple(
            response(error_code=error, error_message=message, resource_type=kind, resource_name=name)
            for error, message, kind, name in _alter(state, request.resources, request.validate_only, _incremental)
        )
    )


def alter_configs(
    state: BrokerState, request: alter_schema.AlterConfigsRequest, context: RequestContext
) -> alter_schema.AlterConfigsResponse:
    response = alter_schema.AlterConfigsResourceResponse
    return alter_schema.AlterConfigsResponse(
        responses=tuple(
            response(error_code=error, error_message=message, resource_type=kind, resource_name=name)
            for error, message, kind, name in _alter(state, request.resources, request.validate_only, _replaced)
        )
    )


def _alter(
    state: BrokerState,
    resources: Iterable[Any],
    validate_only: bool,
    compute: Callable[[BrokerState, Topic, Any], dict[str, str]],
) -> list[tuple[ErrorCode, str | None, int, str]]:
    """Change each resource, or say why not: error, message, type and name of each."""
    resources = list(resources)
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results: list[tuple[ErrorCode, str | None, int, str]] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if times[kind, name] > 1:
                raise _Refused(ErrorCode.INVALID_REQUEST, "The request names a resource more than once")
            topic = _alterable_topic(state, kind, name)
            configs = compute(state, topic, resource)
            if not validate_only and configs != topic.configs:
                state.change_topic(topic, configs=configs)
            results.append((ErrorCode.NONE, None, kind, name))
        except _Refused as refused:
            results.append((refused.error, refused.message, kind, name))
    return results


def _alterable_topic(state: BrokerState, kind: int, name: str) -> Topic:
    if kind == BROKER:
        if name:
            _check_broker(state, name)
        raise _Refused(
            ErrorCode.INVALID_REQUEST, "Settings of brokers cannot be changed while they run; start again with others"
        )
    if kind != TOPIC:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"There are no configs of resource type {kind}")
    return _existing_topic(state, name)


def _incremental(state: BrokerState, topic: Topic, resource: incremental_schema.AlterConfigsResource) -> dict[str, str]:
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise _Refused(ErrorCode.INVALID_REQUEST, "The request names a config more than once")
    configs = dict(topic.configs)
    for config in resource.configs:
        operation, name, value = config.config_operation, config.name, config.value
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise _Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} on {name}")
        if operation == DELETE:
            if name not in TOPIC_CONFIGS:
                raise _Refused(ErrorCode.INVALID_CONFIG, f"There is no topic config {name}")
            configs.pop(name, None)
            continue
        if value is None:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"{name} needs a value")
        if operation in (APPEND, SUBTRACT):
            value = _changed_list(state, configs, name, operation, value)
        configs[name] = value
    return _checked(topic, configs)


def _changed_list(state: BrokerState, configs: Mapping[str, str], name: str, operation: int, value: str) -> str:
    known = TOPIC_CONFIGS.get(name)
    if known is None or known.type != LIST:
        raise _Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list; values cannot be added to or taken from it")
    present = configs.get(name, value_text(known.default_of(state.config)))
    items = [item.strip() for item in present.split(",") if item.strip()]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _replaced(state: BrokerState, topic: Topic, resource: alter_schema.AlterConfigsResource) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in resource.configs:
        if config.name in configs:
            raise _Refused(ErrorCode.INVALID_REQUEST, "The request names a config more than once")
        if config.value is None:
            raise _Refused(ErrorCode.INVALID_REQUEST, f"{config.name} needs a value")
        configs[config.name] = config.value
    return _checked(topic, configs)


def _checked(topic: Topic, configs: dict[str, str]) -> dict[str, str]:
    try:
        for name, value in configs.items():
            parse(name, value)
    except InvalidConfig as error:
        raise _Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    own = OWN_TOPICS.get(topic.name)
    if own is not None and set(configs.get("cleanup.policy", "").replace(" ", "").split(",")) != own.cleanup:
        policy = ",".join(sorted(own.cleanup))
        raise _Refused(
            ErrorCode.INVALID_CONFIG, f"The cleanup.policy of {topic.name} stays {policy}: it holds {own.holds}"
        )
    return configs
