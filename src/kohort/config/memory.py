"""The limits of requests, unread answers, members and tails of logs share three quarters of `memory.max.bytes`.

The last quarter is for what has no limit in bytes: code, topics, connections, requests that wait, freed memory that the
C library keeps (server/memory/process.py). Limits that are given keep their values; the others share the rest.
`check_memory` refuses limits that exceed the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.config.declaration import ConfigError
from kohort.config.settings import SETTINGS, Config, property_name

SHARES = {
    "queued_max_request_bytes": 5,
    "queued_max_response_bytes": 3,
    "group_max_total_bytes": 3,
    "log_tail_max_bytes": 1,
}
"""The limits, by attribute, and their parts of the memory."""
PARTS = 16


def share_memory(values: Mapping[str, Any]) -> dict[str, Any]:
    """These settings, by attribute, with the limits that follow from `memory.max.bytes`."""
    memory = values.get("memory_max_bytes", SETTINGS["memory.max.bytes"].default)
    rest = memory * sum(SHARES.values()) // PARTS - sum(values.get(name, 0) for name in SHARES)
    open_shares = {name: share for name, share in SHARES.items() if name not in values}
    parts = sum(open_shares.values())
    derived = {
        name: max(rest * share // parts, SETTINGS[property_name(name)].metadata["low"])
        for name, share in open_shares.items()
    }
    if "log_tail_max_bytes" in derived:  # it takes no room that other limits leave
        derived["log_tail_max_bytes"] = min(derived["log_tail_max_bytes"], memory // PARTS)
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
