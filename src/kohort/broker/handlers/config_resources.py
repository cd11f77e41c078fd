"""Resources with configs that clients may set: topics, brokers, and groups, which need not exist.

A `Resource` lists the configs of one of them with their values, and changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from kohort.broker.messages import shortened
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OWN_TOPICS, Topic, check_topic_name
from kohort.broker.topics.topic_configs import parse, topic_configs_of
from kohort.config import (
    ALIASES,
    DYNAMIC,
    DYNAMIC_OF_LISTENERS,
    INT_MAX,
    PREFIX,
    SETTINGS,
    Config,
    ConfigError,
    check_per_ip,
    names_of,
    of_dynamic_listener,
    parse_value,
    with_dynamic,
)
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.settings import group_settings
from kohort.coordinator.settings.config_keys import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigKey,
    InvalidConfig,
    value_text,
)
from kohort.coordinator.settings.config_keys import (
    parse as parse_config,
)
from kohort.coordinator.settings.group_settings import configs_of_groups
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_configs import DescribeConfigsSynonym

TOPIC, BROKER, GROUP = 2, 4, 32
"""Codes of resource types."""
TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG = 1, 2, 3
STATIC_BROKER_CONFIG, DEFAULT_CONFIG, GROUP_CONFIG = 4, 5, 8
"""Codes of where a value comes from."""


SECRET = frozenset(name for name, setting in SETTINGS.items() if setting.metadata["secret"])
"""Settings whose values are not told."""


def is_secret(name: str) -> bool:
    """True for a setting whose value is not told, also for one of a listener."""
    place = of_dynamic_listener(name)
    return (name if place is None else place[1]) in SECRET


LONGEST_CONFIGURED = 256
"""Characters of the name of a group that has settings. Thousands of groups may have some."""


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
    again: Callable[[dict[str, str]], object] | None = None
    """Called for configs that are those of before, if these name files."""


def resource_of(state: BrokerState, type: int, name: str, broker_id: int) -> Resource:
    """`broker_id`: the broker that is asked. Raises Refused."""
    if type == TOPIC:
        return _topic(state, name)
    if type == GROUP:
        return _group(state, name)
    if type == BROKER:
        if name and not state.config.deviations.any_broker and name != str(broker_id):
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")
        return _broker(state, name)
    raise Refused(ErrorCode.INVALID_REQUEST, f"There are no configs of resource type {type}")


def synonyms(
    state: BrokerState, known: ConfigKey, configs: Mapping[str, str], source: int, broker_id: int | None = None
) -> tuple[DescribeConfigsSynonym, ...]:
    """The values of a config by their sources, the one in force first. `broker_id`: the broker that is asked."""
    found = []
    if known.name in configs:
        text = configs[known.name]
        # A list is described as it is read: without spaces, and each policy once.
        value = known.parse(text.strip()) if known.type == LIST else text
        found.append(DescribeConfigsSynonym(name=known.name, value=value, source=source))
    if known.synonym is not None:
        found += setting_synonyms(state, known.synonym, broker_id)
    elif not found:
        found.append(DescribeConfigsSynonym(name=known.name, value=value_text(known.default), source=DEFAULT_CONFIG))
    return tuple(found)


def setting_synonyms(state: BrokerState, name: str, broker_id: int | None) -> list[DescribeConfigsSynonym]:
    """The values of a broker's setting by their sources, the one in force first; without a broker, those of all."""
    default, static = SETTINGS[name].default, getattr(state.config, SETTINGS[name].name)
    if name in SECRET:
        source = DEFAULT_CONFIG if static == default else STATIC_BROKER_CONFIG
        return [DescribeConfigsSynonym(name=name, value=None, source=source)]
    if name == "broker.id" and broker_id is not None:
        static = broker_id
    found = []
    for broker, source in ((str(broker_id), DYNAMIC_BROKER_CONFIG), ("", DYNAMIC_DEFAULT_BROKER_CONFIG)):
        configs = state.catalog.broker_configs.get(broker, {})
        if name in configs:
            found.append(DescribeConfigsSynonym(name=name, value=configs[name], source=source))
    if static != default:
        found.append(DescribeConfigsSynonym(name=name, value=value_text(static), source=STATIC_BROKER_CONFIG))
    found.append(DescribeConfigsSynonym(name=name, value=value_text(default), source=DEFAULT_CONFIG))
    return found


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
    known = topic_configs_of(state.config)
    return Resource(
        "topic",
        known,
        topic.configs,
        TOPIC_CONFIG,
        lambda configs: _checked_topic(topic, configs, known),
        lambda configs: state.topics.change(topic, configs=configs),
    )


def _checked_topic(topic: Topic, configs: dict[str, str], known: Mapping[str, ConfigKey]) -> dict[str, str]:
    for name, value in configs.items():
        parse(name, value, known)
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
        lambda configs: _checked_group(state, name, configs, former),
        lambda configs: state.groups.configure(name, configs),
    )


def _checked_group(state: BrokerState, name: str, configs: dict[str, str], former: Mapping[str, str]) -> dict[str, str]:
    kept = group_settings.checked(configs, former, state.config, state.assignors, state.now)
    if configs and not former and len(name) > LONGEST_CONFIGURED:
        limit = f"A group with settings of its own has a name of at most {LONGEST_CONFIGURED} characters"
        raise Refused(ErrorCode.POLICY_VIOLATION, limit)
    if configs and not former and len(state.catalog.group_configs) >= state.config.group_max_configured:
        limit = f"{state.config.group_max_configured} groups have settings of their own: group.max.configured"
        raise Refused(ErrorCode.POLICY_VIOLATION, limit)
    return kept


# -- brokers


def _setting_type(name: str, setting: Any) -> int:
    if isinstance(setting.default, bool):
        return BOOLEAN
    if isinstance(setting.default, int):
        return INT if (setting.metadata["high"] or 0) <= INT_MAX and abs(setting.default) <= INT_MAX else LONG
    if isinstance(setting.default, float):
        return DOUBLE
    return LIST if name == "log.cleanup.policy" else STRING


BROKER_CONFIGS = {
    name: ConfigKey(
        name,
        _setting_type(name, setting),
        setting.default,
        setting.name,
        partial(parse_value, name),
        setting.metadata["doc"],
    )
    for name, setting in SETTINGS.items()
}


def _broker(state: BrokerState, name: str) -> Resource:
    """A broker; the empty name stands for the defaults of all brokers."""
    if name:
        check_broker(state, name)
    return Resource(
        "broker",
        BROKER_CONFIGS,
        state.catalog.broker_configs.get(name, {}),
        DYNAMIC_BROKER_CONFIG if name else DYNAMIC_DEFAULT_BROKER_CONFIG,
        lambda configs: _checked_broker(state, name, configs),
        lambda configs: _put_broker(state, name, configs),
        lambda configs: _use_keys(state, name, configs),
    )


def _put_broker(state: BrokerState, name: str, configs: dict[str, str]) -> None:
    former = state.catalog.broker_configs.get(name, {})
    state.configure_broker(name, configs)
    if _of_listeners(former) or _of_listeners(configs):
        _use_keys(state, name, configs)


def _use_keys(state: BrokerState, name: str, configs: dict[str, str]) -> None:
    if name and state.listener_keys is not None:
        state.listener_keys.use(int(name), _of_listeners(configs))


def _of_listeners(configs: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in configs.items() if name.lower().startswith(PREFIX)}


def _checked_broker(state: BrokerState, broker: str, configs: dict[str, str]) -> dict[str, str]:
    """Raises Refused with Kafka's text, or InvalidConfig."""
    keys = _of_listeners(configs)
    configs = {name: text for name, text in configs.items() if name.lower() not in keys}
    _check_keys(state, broker, keys, configs)
    fixed = sorted(name for name in configs if name not in DYNAMIC and (name in SETTINGS or name in ALIASES))
    if fixed:
        names = ", ".join(fixed)
        raise Refused(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{names}]")
    kept = {}
    for name, text in configs.items():
        try:
            kept[name] = value_text(parse_config(BROKER_CONFIGS, "broker", name, text))
        except InvalidConfig as invalid:
            if name not in SETTINGS:
                raise
            # Kafka's error for a bad value of a broker; that of a topic is INVALID_CONFIG.
            raise Refused(ErrorCode.INVALID_REQUEST, str(invalid)) from None
    _check_addresses(state.catalog.config if broker else state.config, kept)
    return kept | keys


def _check_addresses(config: Config, configs: Mapping[str, str]) -> None:
    """Limits of addresses: a step looks up no names, and somebody must be able to connect. Raises Refused."""
    if names := names_of(configs.get("max.connections.per.ip.overrides", "")):
        problem = f"max.connections.per.ip.overrides names {names[0]}; while the server runs it takes addresses alone"
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    try:
        check_per_ip(with_dynamic(config, configs))
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_keys(state: BrokerState, broker: str, keys: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Keys and certificates of listeners: try them. Raises Refused."""
    if bare := sorted(DYNAMIC_OF_LISTENERS & others.keys()):
        names = ", ".join(bare)
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"These security configs can be dynamically updated only per-listener using the listener prefix: [{names}]",
        )
    if fixed := sorted(name for name in keys if of_dynamic_listener(name) is None):
        names = ", ".join(fixed)
        raise Refused(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{names}]")
    if keys and not broker:
        names = ", ".join(sorted(keys))
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{names}]",
        )
    if not broker or keys == _of_listeners(state.catalog.broker_configs.get(broker, {})):
        return
    try:
        if state.listener_keys is None:
            raise ConfigError("no listener of this broker has TLS")
        state.listener_keys.check(int(broker), keys)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
