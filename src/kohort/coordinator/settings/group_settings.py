"""The settings in force for one consumer group: the server's, and the group's own over them.

A group's own settings are the configs of its GROUP resource (`GROUP_CONFIGS`); a config that overrides a server's
setting has the setting's name without "group.". Clients set them as text. `checked` refuses invalid values;
`SettingsOfGroups` holds what is in force. A server that restarts with narrower bounds or as an older version can find
texts that it would refuse now: a value beyond a bound counts as the bound, an unreadable one as not set, and an
interval that is longer than the session is cut to a third of it.

Source: GroupConfig.java for the names that Kafka has too; the others are kohort's.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import partial
from typing import Any

import msgspec

from kohort.config import (
    BOUNDED,
    BOUNDED_SHARES,
    INT_MAX,
    SETTINGS,
    Config,
    consumer_bounds,
    property_name,
    share_bounds,
)
from kohort.coordinator.events import Millis
from kohort.coordinator.settings import config_keys
from kohort.coordinator.settings.config_keys import (
    BOOLEAN,
    INT,
    STRING,
    ConfigKey,
    InvalidConfig,
    any_text,
    boolean,
    config_key,
    int_key,
    long_key,
    one_of,
    value_text,
    whole,
)
from kohort.coordinator.shares.settings import ShareSettings

NEVER = 0
"""An instant that is always in the past."""


LATEST, EARLIEST, BY_DURATION = "latest", "earliest", "by_duration:"
"""Where a share group begins to read a partition. An ISO 8601 duration follows the last one, as by_duration:P1D."""
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?(?:T(?:(?P<hours>\d{1,8})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def duration_ms(text: str) -> Millis:
    """Of a duration in ISO 8601, without years and months. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError("it takes a duration in ISO 8601, such as by_duration:P1DT12H")
    part = {name: float(value or 0) for name, value in found.groupdict().items()}
    hours = part["days"] * 24 + part["hours"]
    return int(((hours * 60 + part["minutes"]) * 60 + part["seconds"]) * 1000)


def _offset_reset(text: str) -> str:
    if text.startswith(BY_DURATION):
        duration_ms(text.removeprefix(BY_DURATION))
        return text
    return one_of((LATEST, EARLIEST, f"{BY_DURATION}DURATION"), text)


class GroupSettings(msgspec.Struct, frozen=True):
    """The values in force for a group, consumer or share. Each has the name of its config without "consumer."."""

    session_timeout_ms: Millis
    heartbeat_interval_ms: Millis
    assignment_interval_ms: Millis
    assignor: str
    """The assignor, whatever the members ask for; "": the members choose."""
    initial_rebalance_delay_ms: Millis
    heartbeat_hold_enable: bool
    handover_max_partitions: int
    """How many partitions may move at a time from old members to a new one; 0: all."""
    handover_interval_ms: Millis
    ownership_fencing_enable: bool
    hold_until_timestamp_ms: Millis = NEVER
    """Rollout hold: until then members join and leave without a rebalance."""
    hold_until_members: int = 0
    """A join that makes the group this large ends the hold; 0: only time ends it."""
    hold_dead_members: bool = False
    """Also keep the partitions of members whose session ended."""
    share_session_timeout_ms: Millis = 45_000
    share_heartbeat_interval_ms: Millis = 5_000
    share_assignment_interval_ms: Millis = 1_000
    share_record_lock_duration_ms: Millis = 30_000
    share_delivery_count_limit: int = 5
    share_partition_max_record_locks: int = 2_000
    share_auto_offset_reset: str = LATEST
    share_isolation_level: str = READ_UNCOMMITTED
    share_renew_acknowledge_enable: bool = True
    errors_deadletterqueue_topic_name: str = ""
    errors_deadletterqueue_copy_record_enable: bool = False


# -- the known configs


def _like_setting(attribute: str) -> tuple[str, ConfigKey]:
    """A config that overrides a setting of the server, with its type and bounds."""
    setting = SETTINGS[property_name(attribute)]
    name, doc = property_name(attribute).removeprefix("group."), setting.metadata["doc"]
    if isinstance(setting.default, bool):
        return config_key(name, BOOLEAN, setting.default, boolean, doc, attribute)
    high = setting.metadata["high"]
    parse = partial(whole, setting.metadata["low"], INT_MAX if high is None else high)
    return config_key(name, INT, setting.default, parse, doc, attribute)


SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNOR = "consumer.assignor"
HOLD_UNTIL = "consumer.hold.until.timestamp.ms"
HOLD_MEMBERS = "consumer.hold.until.members"
HOLD_DEAD = "consumer.hold.dead.members"
HOLD = frozenset((HOLD_UNTIL, HOLD_MEMBERS, HOLD_DEAD))
"""The configs of a rollout freeze."""

SHARE_SESSION, SHARE_INTERVAL = "share.session.timeout.ms", "share.heartbeat.interval.ms"
DEAD_LETTER_TOPIC, DEAD_LETTER_COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
DEAD_LETTER_CONFIGS = dict(
    (
        config_key(
            DEAD_LETTER_TOPIC,
            STRING,
            "",
            any_text,
            "The topic that gets a dead letter of each record that is rejected or delivered too often; empty: none",
        ),
        config_key(
            DEAD_LETTER_COPY,
            BOOLEAN,
            False,
            boolean,
            "Whether a dead letter has the key, the value and the headers of its record; else it says where that is",
        ),
    )
)
"""Those of share groups that Apache Kafka has since 4.4 (KIP-1191)."""

SHARE_CONFIGS: dict[str, ConfigKey] = dict(
    (
        _like_setting("group_share_session_timeout_ms"),
        _like_setting("group_share_heartbeat_interval_ms"),
        _like_setting("group_share_assignment_interval_ms"),
        _like_setting("group_share_record_lock_duration_ms"),
        _like_setting("group_share_delivery_count_limit"),
        _like_setting("group_share_partition_max_record_locks"),
        config_key(
            "share.auto.offset.reset",
            STRING,
            LATEST,
            _offset_reset,
            "Where the group begins to read a partition: latest, earliest, or by_duration: and a duration",
        ),
        config_key(
            "share.isolation.level",
            STRING,
            READ_UNCOMMITTED,
            partial(one_of, (READ_UNCOMMITTED, READ_COMMITTED)),
            "Whether records of transactions are delivered before they are committed",
        ),
        config_key(
            "share.renew.acknowledge.enable", BOOLEAN, True, boolean, "Whether members may renew the locks of records"
        ),
        *DEAD_LETTER_CONFIGS.items(),
    )
)
"""Those of share groups."""

GROUP_CONFIGS: dict[str, ConfigKey] = dict(
    sorted(
        (
            *SHARE_CONFIGS.items(),
            _like_setting("group_consumer_session_timeout_ms"),
            _like_setting("group_consumer_heartbeat_interval_ms"),
            _like_setting("group_consumer_assignment_interval_ms"),
            _like_setting("group_consumer_initial_rebalance_delay_ms"),
            _like_setting("group_consumer_heartbeat_hold_enable"),
            _like_setting("group_consumer_handover_max_partitions"),
            _like_setting("group_consumer_handover_interval_ms"),
            _like_setting("group_consumer_ownership_fencing_enable"),
            config_key(ASSIGNOR, STRING, "", any_text, "What divides the partitions; empty leaves that to the members"),
            config_key(
                "consumer.assignor.offload.enable",
                BOOLEAN,
                True,
                boolean,
                "No effect: assignments that take long are always made beside the requests",
            ),
            long_key(
                HOLD_UNTIL,
                0,
                NEVER,
                "Rollout hold: until this time, in ms since 1970, members come and go without a rebalance; 0 for none",
            ),
            int_key(HOLD_MEMBERS, 0, 0, "Rollout hold: number of members that ends it; 0: only time ends it"),
            config_key(
                HOLD_DEAD,
                BOOLEAN,
                False,
                boolean,
                "Rollout hold: keep partitions of members that died, too, instead of assigning them to others at once",
            ),
        )
    )
)
"""The key is the config's name; the names are sorted."""

KAFKAS_CONFIGS = {
    name: GROUP_CONFIGS[name]
    for name in (
        "consumer.assignment.interval.ms",
        "consumer.assignor.offload.enable",
        HEARTBEAT_INTERVAL,
        SESSION_TIMEOUT,
        *(name for name in SHARE_CONFIGS if name not in DEAD_LETTER_CONFIGS),
    )
}
"""Those that Apache Kafka 4.3 has too (GroupConfig.java)."""


def configs_of_groups(config: Config) -> dict[str, ConfigKey]:
    """The configs that a group may have on this server."""
    known = GROUP_CONFIGS if config.deviations.extensions else KAFKAS_CONFIGS
    if config.group_share_enable:
        return known
    return {name: key for name, key in known.items() if name not in SHARE_CONFIGS}


def checked(
    configs: Mapping[str, str], former: Mapping[str, str], config: Config, assignors: Container[str], now: Millis
) -> dict[str, str]:
    """The new configs of a group as they are to be kept; `now` in milliseconds since 1970. Raises InvalidConfig.

    Unchanged values are not checked again, so that they cannot prevent a change of another one. New values are kept in
    their normal form, without leading spaces and zeros."""
    kept = dict(configs)
    changed = {name for name, text in configs.items() if former.get(name) != text}
    for name in sorted(changed):
        value = config_keys.parse(configs_of_groups(config), "group", name, configs[name])
        if problem := _problem(name, value, config, assignors, now):
            raise InvalidConfig(f"{name} cannot be {configs[name]}: {problem}")
        kept[name] = value_text(value)
    if not {SHARE_SESSION, SHARE_INTERVAL}.isdisjoint(changed | (former.keys() - configs.keys())):
        settings = SettingsOfGroups(config).with_own(configs)
        if settings.share_session_timeout_ms <= settings.share_heartbeat_interval_ms:
            raise InvalidConfig(
                f"{SHARE_SESSION} ({settings.share_session_timeout_ms}) must be more than {SHARE_INTERVAL} "
                f"({settings.share_heartbeat_interval_ms})"
            )
    if not {SESSION_TIMEOUT, HEARTBEAT_INTERVAL}.isdisjoint(changed | (former.keys() - configs.keys())):
        settings = SettingsOfGroups(config).with_own(configs)
        if settings.session_timeout_ms <= settings.heartbeat_interval_ms:
            raise InvalidConfig(
                f"{SESSION_TIMEOUT} ({settings.session_timeout_ms}) must be more than {HEARTBEAT_INTERVAL} "
                f"({settings.heartbeat_interval_ms})"
            )
    return kept


def _problem(name: str, value: Any, config: Config, assignors: Container[str], now: Millis) -> str | None:
    """Why a value of the right type may not be set."""
    kind, _, short = name.partition(".")
    if (bounds := _bounds(config, name)) is not None:
        low, high = bounds
        if not low <= value <= high:
            return f"it must be between {low} and {high} (group.{kind}.min.{short}, group.{kind}.max.{short})"
    if name == ASSIGNOR and value and value not in assignors:
        return "the server has no such assignor"
    if name == HOLD_UNTIL and value != NEVER:
        if value <= now:
            return f"it is over; it takes a time to come, in milliseconds since 1970 (now {now}), or {NEVER} for none"
        if value > now + config.group_consumer_hold_max_ms:
            return f"a hold lasts at most {config.group_consumer_hold_max_ms // 1000} s (group.consumer.hold.max.ms)"
    return None


def _bounds(config: Config, name: str) -> tuple[int, int] | None:
    kind, _, short = name.partition(".")
    if kind == "share":
        return share_bounds(config, short) if short in BOUNDED_SHARES else None
    return consumer_bounds(config, short) if short in BOUNDED else None


# -- what is in force


class SettingsOfGroups:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._names = configs_of_groups(config).keys()
        self._default = GroupSettings(
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            assignor="",
            initial_rebalance_delay_ms=config.group_consumer_initial_rebalance_delay_ms,
            heartbeat_hold_enable=config.group_heartbeat_hold_enable
            and config.group_consumer_heartbeat_hold_enable
            and config.group_consumer_heartbeat_hold_max_ms > 0,
            handover_max_partitions=config.group_consumer_handover_max_partitions,
            handover_interval_ms=config.group_consumer_handover_interval_ms,
            ownership_fencing_enable=config.group_consumer_ownership_fencing_enable,
            share_session_timeout_ms=config.group_share_session_timeout_ms,
            share_heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
            share_assignment_interval_ms=config.group_share_assignment_interval_ms,
            share_record_lock_duration_ms=config.group_share_record_lock_duration_ms,
            share_delivery_count_limit=config.group_share_delivery_count_limit,
            share_partition_max_record_locks=config.group_share_partition_max_record_locks,
        )
        self._own: dict[str, GroupSettings] = {}

    def of(self, group_id: str) -> GroupSettings:
        return self._own.get(group_id, self._default)

    def of_shares(self, group_id: str) -> ShareSettings:
        """Those of a share group's share-partitions."""
        settings = self.of(group_id)
        return ShareSettings(
            settings.share_record_lock_duration_ms,
            settings.share_delivery_count_limit,
            settings.share_partition_max_record_locks,
            settings.share_renew_acknowledge_enable,
            bool(settings.errors_deadletterqueue_topic_name),
        )

    def put(self, group_id: str, overrides: Mapping[str, str]) -> GroupSettings:
        """Replace the group's own settings. Returns what was in force before."""
        former = self.of(group_id)
        settings = self.with_own(overrides)
        if settings.session_timeout_ms <= settings.heartbeat_interval_ms:  # a setting of the server has changed
            settings = msgspec.structs.replace(settings, heartbeat_interval_ms=max(settings.session_timeout_ms // 3, 1))
        if settings.share_session_timeout_ms <= settings.share_heartbeat_interval_ms:
            interval = max(settings.share_session_timeout_ms // 3, 1)
            settings = msgspec.structs.replace(settings, share_heartbeat_interval_ms=interval)
        if settings == self._default:
            self._own.pop(group_id, None)
        else:
            self._own[group_id] = settings
        return former

    def with_own(self, overrides: Mapping[str, str]) -> GroupSettings:
        """The server's settings, overridden by these."""
        values: dict[str, Any] = {}
        for name, text in overrides.items():
            field = name.removeprefix("consumer.").replace(".", "_")
            if not hasattr(self._default, field) or name not in self._names:
                continue
            try:
                values[field] = self._within_bounds(name, config_keys.parse(GROUP_CONFIGS, "group", name, text))
            except InvalidConfig:
                continue
        return msgspec.structs.replace(self._default, **values)

    def _within_bounds(self, name: str, value: Any) -> Any:
        bounds = _bounds(self._config, name)
        return value if bounds is None else min(max(value, bounds[0]), bounds[1])
