"""Resources with configs that clients may set: topics, and groups, which need not exist.

A `Resource` lists the configs of one of them with their values, and changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from kohort.broker.messages import shortened
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OWN_TOPICS, Topic, check_topic_name
from kohort.broker.topics.topic_configs import TOPIC_CONFIGS, parse
from kohort.config import SETTINGS
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.settings import group_settings
from kohort.coordinator.settings.config_keys import LIST, ConfigKey, InvalidConfig, value_text
from kohort.coordinator.settings.group_settings import configs_of_groups
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_configs import DescribeConfigsSynonym

TOPIC, BROKER, GROUP = 2, 4, 32
"""Codes of resource types."""
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG, GROUP_CONFIG = 1, 4, 5, 8
"""Codes of where a value comes from."""


class Refused(Exception):
    """One resource of a request cannot be served."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = shortened(message) if message is not None else error.message


class Resource(msgspec.Struct, frozen=True):
    kind: str
    """In error messages."""
    keys: Mapping[str, ConfigKey]
    configs: Mapping[str, str]
    """Set on the resource itself."""
    source: int
    """Their source in DescribeConfigs."""
    checked: Callable[[dict[str, str]], dict[str, str]]
    """Returns the configs that result from the requested ones. Raises InvalidConfig."""
    put: Callable[[dict[str, str]], object]


def resource_of(state: BrokerState, type: int, name: str) -> Resource:
    if type == TOPIC:
        return _topic(state, name)
    if type == GROUP:
        return _group(state, name)
    raise Refused(ErrorCode.INVALID_REQUEST, f"There are no configs of resource type {type}")


def synonyms(
    state: BrokerState, known: ConfigKey, configs: Mapping[str, str], source: int
) -> tuple[DescribeConfigsSynonym, ...]:
    """The values of a config by their sources, the one in force first."""
    found = []
    if known.name in configs:
        text = configs[known.name]
        # A list is described as it is read: without spaces, and each policy once.
        value = known.parse(text.strip()) if known.type == LIST else text
        found.append(DescribeConfigsSynonym(name=known.name, value=value, source=source))
    default = value_text(known.default)
    if known.setting is not None:
        name = known.synonym or known.name
        value = value_text(known.default_of(state.config))
        default = value_text(SETTINGS[name].default)
        if value != default:
            found.append(DescribeConfigsSynonym(name=name, value=value, source=STATIC_BROKER_CONFIG))
        found.append(DescribeConfigsSynonym(name=name, value=default, source=DEFAULT_CONFIG))
    elif not found:
        found.append(DescribeConfigsSynonym(name=known.name, value=default, source=DEFAULT_CONFIG))
    return tuple(found)


def check_broker(state: BrokerState, name: str) -> None:
    if name not in map(str, state.node_by_id):
        known = ", ".join(str(node.id) for node in state.nodes)
        raise Refused(ErrorCode.INVALID_REQUEST, f"There is no broker {name!r}; there are {known}")


# -- topics


def _topic(state: BrokerState, name: str) -> Resource:
    if problem := check_topic_name(name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = state.topic(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}")
    return Resource(
        "topic",
        TOPIC_CONFIGS,
        topic.configs,
        TOPIC_CONFIG,
        lambda configs: _checked_topic(topic, configs),
        lambda configs: state.topics.change(topic, configs=configs),
    )


def _checked_topic(topic: Topic, configs: dict[str, str]) -> dict[str, str]:
    for name, value in configs.items():
        parse(name, value)
    own = OWN_TOPICS.get(topic.name)
    if own is not None and set(configs.get("cleanup.policy", "").replace(" ", "").split(",")) != own.cleanup:
        policy = ",".join(sorted(own.cleanup))
        raise InvalidConfig(f"The cleanup.policy of {topic.name} stays {policy}: it holds {own.holds}")
    return configs


# -- groups


def _group(state: BrokerState, name: str) -> Resource:
    if not name or len(name) > LONGEST_NAME:
        raise Refused(ErrorCode.INVALID_REQUEST, f"A group's name has between 1 and {LONGEST_NAME} characters")
    former = state.catalog.group_configs.get(name, {})
    return Resource(
        "group",
        configs_of_groups(state.config),
        former,
        GROUP_CONFIG,
        lambda configs: _checked_group(state, configs, former),
        lambda configs: state.groups.configure(name, configs),
    )


def _checked_group(state: BrokerState, configs: dict[str, str], former: Mapping[str, str]) -> dict[str, str]:
    kept = group_settings.checked(configs, former, state.config, state.assignors, state.now)
    if configs and not former and len(state.catalog.group_configs) >= state.config.group_max_configured:
        limit = f"{state.config.group_max_configured} groups have settings of their own: group.max.configured"
        raise Refused(ErrorCode.POLICY_VIOLATION, limit)
    return kept
