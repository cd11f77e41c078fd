"""What applies to one consumer group: the server's settings, and over them the group's own.

A group's own settings are the configs of its GROUP resource; their names are those of the server's settings without
"group.". They arrive as text, checked by whoever took them; what is no longer understood counts as not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kohort.config import Config
from kohort.coordinator.events import Millis

NEVER = 0
"""An instant that is always over."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    session_timeout_ms: Millis
    heartbeat_interval_ms: Millis
    assignment_interval_ms: Millis
    assignor: str
    """What divides the partitions, whatever the members ask for; "": they choose."""
    initial_rebalance_delay_ms: Millis
    heartbeat_hold_enable: bool
    handover_max_partitions: int
    """How many partitions may move at a time from members that are there to one that has just joined; 0: all."""
    handover_interval_ms: Millis
    ownership_fencing_enable: bool
    hold_until_timestamp_ms: Millis = NEVER
    """A rollout hold: until then members come and go without a rebalance."""
    hold_until_members: int = 0
    """The hold is over when a join makes the group this large; 0: only with time."""
    hold_dead_members: bool = False
    """Whether partitions of members whose session ended are held back too."""


class SettingsOfGroups:
    def __init__(self, config: Config) -> None:
        self._default = GroupSettings(
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            assignor="",
            initial_rebalance_delay_ms=config.group_consumer_initial_rebalance_delay_ms,
            heartbeat_hold_enable=config.group_heartbeat_hold_enable and config.group_consumer_heartbeat_hold_enable,
            handover_max_partitions=config.group_consumer_handover_max_partitions,
            handover_interval_ms=config.group_consumer_handover_interval_ms,
            ownership_fencing_enable=config.group_consumer_ownership_fencing_enable,
        )
        self._own: dict[str, GroupSettings] = {}

    def of(self, group_id: str) -> GroupSettings:
        return self._own.get(group_id, self._default)

    def put(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """The group's own settings are these, and no others."""
        values: dict[str, Any] = {}
        for name, text in overrides.items():
            field = name.removeprefix("consumer.").replace(".", "_")
            known = getattr(self._default, field, None)
            try:
                values[field] = _parsed(known, text)
            except ValueError:
                continue
        if values:
            self._own[group_id] = replace(self._default, **values)
        else:
            self._own.pop(group_id, None)


def _parsed(like: object, text: str) -> object:
    match like:
        case bool():
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        case int():
            return int(text)
        case str():
            return text
        case _:
            raise ValueError(text)
