"""`compatibility=kafka`, the strict mode: answers as Apache Kafka does, also where kohort differs on purpose.

The mode is a preset of settings (`STRICT`), and turns off deviations without a setting (`Deviations`). All other parts
of kohort read the settings, or `Config.deviations`. What is acknowledged is as durable in this mode as in the other.
docs/differences.md says for each difference whether this mode has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

KOHORT, KAFKA = "kohort", "kafka"


class Deviations(msgspec.Struct, frozen=True):
    """Where kohort's answers differ from Apache Kafka's on purpose. The attributes are the ids of docs/differences.md,
    with underscores, and `OF_NO_GROUP`."""

    client_of_member: bool = True
    commit_instance: bool = True
    config_of_none: bool = True
    departure_target: bool = True
    downgrade_assignment: bool = True
    empty_group: bool = True
    endless_retention: bool = True
    first_epoch: bool = True
    former_group: bool = True
    full_group: bool = True
    instant_aborts: bool = True
    join_acknowledges: bool = True
    lost_to_timeout: bool = True
    new_member_commits: bool = True
    no_member_id: bool = True
    negative_timeout: bool = True
    numbers_go_on: bool = True
    older_connection: bool = True
    pending_alone: bool = True
    pending_leaves: bool = True
    pending_static: bool = True
    refused_join_founds: bool = True
    rejoin_keeps_session: bool = True
    rejoin_tells_all: bool = True
    stale_commit: bool = True
    stale_epoch: bool = True
    static_rejoin: bool = True
    subscribed_in_rebalance: bool = True
    swept_while_joining: bool = True
    unreadable_join: bool = True
    vanished_connection: bool = True
    vote_tie: bool = True
    who_assigned: bool = True
    zombie_init: bool = True
    # -- outside of groups
    any_broker: bool = True
    """The configs of a broker are described and changed through any broker."""
    early_fetches: bool = True
    """A waiting Fetch is answered early if another request is queued behind it."""
    instant_topics: bool = True
    """The request that creates a topic is answered with the topic."""
    extensions: bool = True
    """docs/wire-extensions.md, and configs of groups that Kafka lacks."""
    short_mutes: bool = True
    """A connection on which a member sends heartbeats is muted for at most a second at a time."""
    soon_again: bool = True
    """Members that wait for partitions are asked to heartbeat sooner than the interval; groups other
    than those of consumers and of Connect do not wait for the initial rebalance delay, and have shorter sessions."""
    upgrade_advice: bool = True
    """The message of a refused upgrade also names the setting or the member at fault."""


OF_NO_GROUP = (
    "any_broker",
    "early_fetches",
    "instant_topics",
    "extensions",
    "short_mutes",
    "soon_again",
    "upgrade_advice",
)
"""Deviations that are no rows with an id."""

DEVIATIONS = {
    KOHORT: Deviations(),
    KAFKA: Deviations(**dict.fromkeys(Deviations.__struct_fields__, False)),
}

STRICT: dict[str, Any] = {
    "group_heartbeat_hold_enable": False,
    "group_consumer_heartbeat_hold_enable": False,
    "group_storm_rebalance_delay_ms": 0,
    "group_consumer_initial_rebalance_delay_ms": 0,
    "group_consumer_handover_max_partitions": 0,
    "group_consumer_ownership_fencing_enable": False,
    "group_consumer_assignors": "uniform,range",
    "journal_enable": False,
}
"""The settings of the strict mode, by attribute. They cannot be set otherwise in it."""


def preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """These settings, by attribute, with what the compatibility that they name sets besides them."""
    return {**STRICT, **values} if values.get("compatibility") == KAFKA else dict(values)
