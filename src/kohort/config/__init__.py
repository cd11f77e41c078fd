"""Every limit and default. `Config` holds the typed values; `load` builds one from a file, the environment and flags.

An attribute's property name is the attribute with dots for underscores: `group_initial_rebalance_delay_ms` is
`group.initial.rebalance.delay.ms`.

settings       the table: name, default, meaning, bounds
listening      the part of the table about listeners, TLS and SASL
sharing        the part of the table about share groups
declaration    how a setting is declared, and the error of a bad one
compatibility  the strict mode: its preset of settings, and the deviations from Apache Kafka that it turns off
memory         the limits that follow from memory.max.bytes
checks         what must hold between several settings
parsing        one setting: its text to its value, its bounds
dynamic        settings that change at run time
addresses      addresses of listeners
hosts          limits of single addresses
listeners      listeners: names, protocols, addresses
bearer         OAUTHBEARER of a listener: how tokens are verified
sources        settings from text: files, environment, flags
"""

from __future__ import annotations

from kohort.config.addresses import ANYWHERE, PLAINTEXT, Address, addresses, spelled_out
from kohort.config.bearer import URL as JWKS_URL
from kohort.config.bearer import BearerTerms, bearer_at
from kohort.config.checks import (
    BOUNDED,
    BOUNDED_SHARES,
    GROUP_PROTOCOLS,
    OF_PACKAGES,
    assignor_names,
    check,
    check_per_ip,
    consumer_bounds,
    http_address,
    is_everybody_anonymous,
    share_bounds,
    super_users_of,
    with_values,
)
from kohort.config.compatibility import KAFKA, Deviations, preset
from kohort.config.declaration import INT_MAX, LONG_MAX, ConfigError
from kohort.config.dynamic import DYNAMIC, DYNAMIC_OF_LISTENERS, of_dynamic_listener, with_dynamic
from kohort.config.hosts import names_of, per_host, with_addresses
from kohort.config.listeners import (
    BEARER,
    OF_LISTENERS,
    PREFIX,
    Listener,
    listeners_of,
    mechanisms_at,
    plain_users,
    value_at,
)
from kohort.config.memory import share_memory
from kohort.config.parsing import check_type, parse_value
from kohort.config.settings import ALL, AUTHORIZER, SETTINGS, Config, property_name
from kohort.config.sources import ALIASES, load

__all__ = [
    "ALIASES",
    "ALL",
    "ANYWHERE",
    "AUTHORIZER",
    "BEARER",
    "BOUNDED",
    "BOUNDED_SHARES",
    "DYNAMIC",
    "DYNAMIC_OF_LISTENERS",
    "GROUP_PROTOCOLS",
    "INT_MAX",
    "JWKS_URL",
    "KAFKA",
    "LONG_MAX",
    "OF_LISTENERS",
    "OF_PACKAGES",
    "PLAINTEXT",
    "PREFIX",
    "SETTINGS",
    "Address",
    "BearerTerms",
    "Config",
    "ConfigError",
    "Deviations",
    "Listener",
    "addresses",
    "assignor_names",
    "bearer_at",
    "check",
    "check_per_ip",
    "check_type",
    "consumer_bounds",
    "http_address",
    "is_everybody_anonymous",
    "listeners_of",
    "load",
    "mechanisms_at",
    "names_of",
    "of_dynamic_listener",
    "parse_value",
    "per_host",
    "plain_users",
    "preset",
    "property_name",
    "share_bounds",
    "share_memory",
    "spelled_out",
    "super_users_of",
    "value_at",
    "with_addresses",
    "with_dynamic",
    "with_values",
]
