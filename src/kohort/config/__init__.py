"""Every limit and default. `Config` holds the typed values; `load` builds one from a file, the environment and flags.

An attribute's property name is the attribute with dots for underscores: `group_initial_rebalance_delay_ms` is
`group.initial.rebalance.delay.ms`.

settings       the table: name, default, meaning, bounds
compatibility  the strict mode: its preset of settings, and the deviations from Apache Kafka that it turns off
memory         the limits that follow from memory.max.bytes
checks         what must hold between several settings
dynamic        settings that change at run time
addresses      addresses of listeners
sources        settings from text: files, environment, flags
"""

from __future__ import annotations

from kohort.config.addresses import Address, addresses
from kohort.config.checks import (
    BOUNDED,
    GROUP_PROTOCOLS,
    OF_PACKAGES,
    assignor_names,
    check,
    consumer_bounds,
    with_values,
)
from kohort.config.compatibility import KAFKA, Deviations, preset
from kohort.config.dynamic import DYNAMIC, with_dynamic
from kohort.config.memory import share_memory
from kohort.config.settings import ALIASES, INT_MAX, LONG_MAX, SETTINGS, Config, ConfigError, property_name
from kohort.config.sources import load, parse_value

__all__ = [
    "ALIASES",
    "BOUNDED",
    "DYNAMIC",
    "GROUP_PROTOCOLS",
    "INT_MAX",
    "KAFKA",
    "LONG_MAX",
    "OF_PACKAGES",
    "SETTINGS",
    "Address",
    "Config",
    "ConfigError",
    "Deviations",
    "addresses",
    "assignor_names",
    "check",
    "consumer_bounds",
    "load",
    "parse_value",
    "preset",
    "property_name",
    "share_memory",
    "with_dynamic",
    "with_values",
]
