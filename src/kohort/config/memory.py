"""The limits of requests, unread answers, members and tails of logs share one setting, `memory.max.bytes`.

Limits that are given keep their values; the others share the rest. `check_memory` refuses limits that exceed the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.config.declaration import ConfigError
from kohort.config.settings import SETTINGS, Config, property_name

SHARES = {
    "queued_max_request_bytes": 7,
    "queued_max_response_bytes": 4,
    "group_max_total_bytes": 4,
    "log_tail_max_bytes": 1,
}
"""The limits, by attribute, and their parts of the memory."""


def share_memory(values: Mapping[str, Any]) -> dict[str, Any]:
    """These settings, by attribute, with the limits that follow from `memory.max.bytes`."""
    memory = values.get("memory_max_bytes", SETTINGS["memory.max.bytes"].default)
    rest = memory - sum(values.get(name, 0) for name in SHARES)
    open_shares = {name: share for name, share in SHARES.items() if name not in values}
    parts = sum(open_shares.values())
    derived = {
        name: max(rest * share // parts, SETTINGS[property_name(name)].metadata["low"])
        for name, share in open_shares.items()
    }
    if "log_tail_max_bytes" in derived:  # it takes no room that other limits leave
        derived["log_tail_max_bytes"] = min(derived["log_tail_max_bytes"], memory // sum(SHARES.values()))
    return {**values, **derived}


def check_memory(config: Config) -> None:
    """Raises ConfigError if the limits exceed `memory.max.bytes`."""
    limits = {property_name(name): getattr(config, name) for name in SHARES}
    total = sum(limits.values())
    if total > config.memory_max_bytes:
        terms = " + ".join(f"{name} ({value})" for name, value in limits.items())
        raise ConfigError(
            f"{terms} are {total} bytes, more than memory.max.bytes ({config.memory_max_bytes}); "
            "raise memory.max.bytes or lower the others"
        )
