"""DescribeConfigs: the configs of topics and groups, and the settings of brokers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from kohort.broker.handlers.config_resources import (
    BROKER,
    BROKER_CONFIGS,
    DYNAMIC_BROKER_CONFIG,
    SECRET,
    TOPIC_CONFIG,
    Refused,
    Resource,
    resource_of,
    setting_synonyms,
    synonyms,
)
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, STEP_BYTES, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.broker.topics.topic_configs import topic_configs_of
from kohort.config import DYNAMIC, of_dynamic_listener
from kohort.coordinator.classic.checks import not_too_often
from kohort.coordinator.settings.config_keys import STRING
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_topics import CreatableTopicConfigs
from kohort.wire.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

PASSWORD = 9
"""The code of the type of a secret."""


@in_steps
def describe_configs(
    state: BrokerState, request: DescribeConfigsRequest, context: RequestContext
) -> Generator[int, None, DescribeConfigsResponse]:
    plain: _Plain = {}
    results: list[DescribeConfigsResult] = []
    counted: set[int] = set()
    for resource in not_too_often(request.resources, lambda asked: (asked.resource_type, asked.resource_name)):
        result = _described_resource(state, request, resource, plain, context.broker_id)
        results.append(result)
        yield STEP_BYTES + (0 if id(result.configs) in counted else ROW_BYTES * len(result.configs))
        counted.add(id(result.configs))  # resources without configs of their own share theirs
    return DescribeConfigsResponse(results=tuple(results))


_Plain = dict[tuple[int, tuple[str, ...] | None], tuple[DescribeConfigsResourceResult, ...]]
"""The described configs of resources without any of their own, by type and requested keys: all of these are equal."""


def _described_resource(
    state: BrokerState,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    plain: _Plain,
    broker_id: int,
) -> DescribeConfigsResult:
    error, message = ErrorCode.NONE, None
    entries: tuple[DescribeConfigsResourceResult, ...] = ()
    try:
        found = resource_of(state, resource.resource_type, resource.resource_name, broker_id)
        if resource.resource_type == BROKER:
            entries = _shaped(_broker_entries(state, found, resource.resource_name), resource, request)
        else:
            alike = (resource.resource_type, resource.configuration_keys)
            if found.configs or alike not in plain:
                entries = _shaped(_entries(state, found, broker_id), resource, request)
                if not found.configs:
                    plain[alike] = entries
            else:
                entries = plain[alike]
    except Refused as refused:
        error, message = refused.error, refused.message
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _shaped(
    entries: Iterable[DescribeConfigsResourceResult], resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> tuple[DescribeConfigsResourceResult, ...]:
    """The entries that the request asks for."""
    keys = frozenset(resource.configuration_keys or ())
    return tuple(
        changed(
            entry,
            synonyms=entry.synonyms if request.include_synonyms else (),
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in entries
        if not keys or entry.name in keys
    )


def _entries(state: BrokerState, resource: Resource, broker_id: int) -> Iterable[DescribeConfigsResourceResult]:
    for known in resource.keys.values():
        found = synonyms(state, known, resource.configs, resource.source, broker_id)
        yield DescribeConfigsResourceResult(
            name=known.name,
            value=found[0].value,
            read_only=False,
            is_sensitive=False,
            config_source=found[0].source,
            synonyms=found,
            config_type=known.type,
            documentation=known.doc,
        )


def described_for_creation(state: BrokerState, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
    """All configs of a new topic, for CreateTopics' answer: never null, which crashes Java's admin client."""
    found = []
    for known in topic_configs_of(state.config).values():
        synonym = synonyms(state, known, configs, TOPIC_CONFIG)[0]
        found.append(
            CreatableTopicConfigs(name=known.name, value=synonym.value, read_only=False, config_source=synonym.source)
        )
    return tuple(found)


def _broker_entries(state: BrokerState, resource: Resource, name: str) -> Iterable[DescribeConfigsResourceResult]:
    """All settings of a broker; for all brokers (the empty name), what is set on them while they run."""
    for known in resource.keys.values():
        if not name and known.name not in resource.configs:
            continue
        found = setting_synonyms(state, known.name, int(name) if name else None)
        if not name:
            found = found[:1]
        yield DescribeConfigsResourceResult(
            name=known.name,
            value=found[0].value,
            read_only=known.name not in DYNAMIC,
            is_sensitive=known.name in SECRET,
            config_source=found[0].source,
            synonyms=tuple(found),
            config_type=known.type,
            documentation=known.doc,
        )
    if name:
        yield from _keys_of_listeners(resource.configs)


def _keys_of_listeners(configs: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    """The keys and certificates that are set on a broker; no secret is told."""
    for name, text in configs.items():
        place = of_dynamic_listener(name)
        if place is not None:
            is_secret = place[1] in SECRET
            value = None if is_secret else text
            yield DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=False,
                is_sensitive=is_secret,
                config_source=DYNAMIC_BROKER_CONFIG,
                synonyms=(DescribeConfigsSynonym(name=name, value=value, source=DYNAMIC_BROKER_CONFIG),),
                config_type=PASSWORD if is_secret else STRING,
                documentation=BROKER_CONFIGS[place[1]].doc,
            )
