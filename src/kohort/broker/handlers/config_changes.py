"""AlterConfigs, IncrementalAlterConfigs: a resource changes as a whole, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from kohort.broker.change_log import difference, tell_change
from kohort.broker.handlers.config_resources import Refused, Resource, is_secret, resource_of
from kohort.broker.messages import shortened
from kohort.broker.request import ROW_BYTES, RequestContext, in_steps
from kohort.broker.state import BrokerState
from kohort.coordinator.settings.config_keys import LIST, InvalidConfig, value_text
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_configs as alter_schema
from kohort.wire.schemas import incremental_alter_configs as incremental_schema

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""IncrementalAlterConfigs' operations."""


@in_steps
def incremental_alter_configs(
    state: BrokerState, request: incremental_schema.IncrementalAlterConfigsRequest, context: RequestContext
) -> Generator[int, None, incremental_schema.IncrementalAlterConfigsResponse]:
    answer = incremental_schema.AlterConfigsResourceResponse
    responses = yield from _alter(state, request, _incremental, answer, context)
    return incremental_schema.IncrementalAlterConfigsResponse(responses=responses)


@in_steps
def alter_configs(
    state: BrokerState, request: alter_schema.AlterConfigsRequest, context: RequestContext
) -> Generator[int, None, alter_schema.AlterConfigsResponse]:
    answer = alter_schema.AlterConfigsResourceResponse
    responses = yield from _alter(state, request, _replaced, answer, context)
    return alter_schema.AlterConfigsResponse(responses=responses)


def _alter(
    state: BrokerState,
    request: Any,
    compute: Callable[[BrokerState, Resource, Any], dict[str, str]],
    answer: Callable[..., Any],
    context: RequestContext,
) -> Generator[int, None, tuple[Any, ...]]:
    """Change each resource, and answer it. Each is a step."""
    times = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    answers: list[Any] = []
    for asked in request.resources:
        if answers:
            yield ROW_BYTES
        kind, name = asked.resource_type, asked.resource_name
        error, message = ErrorCode.NONE, None
        try:
            if times[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "The request names a resource more than once")
            resource = resource_of(state, kind, name, context.broker_id)
            configs = resource.checked(compute(state, resource, asked))
            if not request.validate_only:
                if configs != resource.configs:
                    changes = difference(resource.configs, configs, is_secret)
                    resource.put(configs)
                    whose = {resource.kind: name or "all"}
                    tell_change(state, context, f"{resource.kind} configs changed", **whose, changes=changes)
                elif resource.again is not None:
                    resource.again(configs)
        except Refused as refused:
            error, message = refused.error, refused.message
        except InvalidConfig as invalid:
            error, message = ErrorCode.INVALID_CONFIG, shortened(str(invalid))
        answers.append(answer(error_code=error, error_message=message, resource_type=kind, resource_name=name))
    return tuple(answers)


def _incremental(
    state: BrokerState, resource: Resource, asked: incremental_schema.AlterConfigsResource
) -> dict[str, str]:
    if len({config.name for config in asked.configs}) != len(asked.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "The request names a config more than once")
    configs = dict(resource.configs)
    for config in asked.configs:
        operation, name, value = config.config_operation, config.name, config.value
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} on {name}")
        if operation == DELETE:
            is_known = name in resource.keys or name in configs
            if not is_known and state.config.deviations.config_of_none:
                raise Refused(ErrorCode.INVALID_CONFIG, f"There is no {resource.kind} config {name}")
            configs.pop(name, None)
            continue
        if value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} needs a value")
        if operation in (APPEND, SUBTRACT):
            value = _changed_list(state, resource, configs, name, operation, value)
        configs[name] = value
    return configs


def _changed_list(
    state: BrokerState, resource: Resource, configs: dict[str, str], name: str, operation: int, value: str
) -> str:
    known = resource.keys.get(name)
    if known is None or known.type != LIST:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list; values cannot be added to or taken from it")
    text = configs.get(name, value_text(known.default_of(state.catalog.config)))
    items = [item.strip() for item in text.split(",") if item.strip()]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if operation == APPEND:
        present = frozenset(items)
        items += [item for item in given if item not in present]
    else:
        taken = frozenset(given)
        items = [item for item in items if item not in taken]
    return ",".join(items)


def _replaced(state: BrokerState, resource: Resource, asked: alter_schema.AlterConfigsResource) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.name in configs:
            raise Refused(ErrorCode.INVALID_REQUEST, "The request names a config more than once")
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{config.name} needs a value")
        configs[config.name] = config.value
    return configs
