"""`kohort groups configs` and `hold`, and the end of a hold: the settings of a single group.

They are the configs of the group's GROUP resource, so any admin client can read and change them. A rollout freeze
consists of three of these configs: until a time, or until the group has enough members, members come and go without a
rebalance. Only kohort has rollout freezes; Apache Kafka (since 4.0) has some of the other configs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, Group, connected, fail
from kohort.cli.groups.lookup import does_not_exist
from kohort.cli.groups.wording import duration, instant
from kohort.cli.option_objects import milliseconds
from kohort.cli.output import Format, Output, name, print_document, print_table
from kohort.client.admin.configs import ConfigEntry, ConfigSource
from kohort.client.admin.groups import DEAD, SHARE
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest

UNTIL = "consumer.hold.until.timestamp.ms"
MEMBERS = "consumer.hold.until.members"
DEAD_MEMBERS = "consumer.hold.dead.members"
HOLD = (UNTIL, MEMBERS, DEAD_MEMBERS)

NO_SUCH_SETTINGS = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION))
"""Errors with which a broker answers for a resource type that it does not know."""


# -- commands


def hold(
    group: Group,
    length: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Longest time, as 30s, 5m or 1h.", show_default=False)
    ],
    until_members: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End when a join makes it N members.", show_default=False),
    ] = None,
    dead_members: Annotated[
        bool, typer.Option("--dead-members/--no-dead-members", help="Keep a dead member's partitions unassigned, too.")
    ] = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Hold a group's rebalances during a rollout.

    Members come and go without a rebalance; one rebalance follows at the end.
    """
    length_ms = milliseconds("--for", length)
    with connected(where) as cluster:
        found = cluster.describe_groups([group])[group]
        if found.state == DEAD:
            fail(does_not_exist(cluster, group))
        if found.type == "classic":
            only = "only groups whose members use the consumer protocol (group.protocol=consumer) can be held"
            fail(f"group {group} is a classic group; {only}")
        if found.type == SHARE:
            fail(f"group {group} is a share group: its members come and go without a rebalance")
        if UNTIL not in (own := _texts(_settings(cluster, group))):
            fail(f"the cluster has no rollout holds: its groups have no config {UNTIL}")
        until_ms = int(time.time() * 1000) + length_ms
        changes = {
            UNTIL: str(until_ms),
            MEMBERS: str(until_members) if until_members else None,
            DEAD_MEMBERS: "true" if dead_members else None,
        }
        cluster.alter_group_configs(group, changes)
    again = " now" if _is_held(own) else ""
    typer.echo(f"{group}: rebalances are{again} held for {duration(length_ms)}, until {_end(until_ms, until_members)}")


def end_hold(cluster: Cluster, group: str) -> bool:
    """`kohort groups release` of a group that is no share group. Returns whether it was held."""
    entries = _settings(cluster, group)
    present = [entry.name for entry in entries if entry.name in HOLD and entry.set_on_group]
    cluster.alter_group_configs(group, dict.fromkeys(present))
    return _is_held(_texts(entries))


def configs(
    group: Group,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a config of the group; repeatable."),
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Remove a config; repeatable.")] = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Show or change the settings of one group. The group need not exist yet."""
    changes = _changes(assign or (), unset or ())
    with connected(where) as cluster:
        if changes:
            cluster.alter_group_configs(group, changes)
        entries = _settings(cluster, group)
    if output != Format.TABLE:
        print_document([{"name": e.name, "value": e.value, "source": _source(e)} for e in entries], output)
        return
    print_table([name("CONFIG"), name("VALUE"), name("SET BY")], [(e.name, e.value, _source(e)) for e in entries])


def _changes(assign: Sequence[str], unset: Sequence[str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for text in (*assign, *unset):
        key, equals, value = text.partition("=")
        if bool(equals) != (text in assign) or not key:
            raise typer.BadParameter(f"{text!r}: write --set NAME=VALUE or --unset NAME")
        if key in changes:
            raise typer.BadParameter(f"{key} is given twice")
        changes[key] = value if equals else None
    return changes


# -- for `groups describe`


def own_settings(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, dict[str, str]]:
    """The configs that are set on the groups themselves, by group; empty where the cluster does not report them.

    A broker without KIP-848 gets no such request: some versions crash on it.
    """
    asked = cluster.connection(min(cluster.nodes()))
    if not asked.serves(ConsumerGroupDescribeRequest):
        return {}
    try:
        described = cluster.group_configs(group_ids)
    except (UnsupportedVersion, ServerError):
        return {}
    return {
        group_id: {entry.name: entry.value or "" for entry in entries if entry.set_on_group}
        for group_id, entries in described.items()
    }


def settings_lines(own: dict[str, str]) -> list[str]:
    """The settings as lines for people, a freeze in words."""
    lines = []
    if others := [f"{key}={value}" for key, value in own.items() if key not in HOLD]:
        lines.append(f"settings of its own: {', '.join(others)}")
    if _is_held(own):
        until_ms = int(own[UNTIL])
        left = duration(max(until_ms - int(time.time() * 1000), 0))
        kept = "" if own.get(DEAD_MEMBERS) == "true" else "; partitions of members that die move at once"
        lines.append(f"rebalances are held for {left} more, until {_end(until_ms, _members(own))}{kept}")
    return lines


def hold_document(own: dict[str, str]) -> dict[str, Any] | None:
    """The freeze as JSON; None if there is no freeze."""
    if not _is_held(own):
        return None
    return {
        "until_ms": int(own[UNTIL]),
        "until_members": _members(own) or None,
        "dead_members": own.get(DEAD_MEMBERS) == "true",
    }


def _is_held(own: dict[str, str]) -> bool:
    return own.get(UNTIL, "").isdecimal() and int(own[UNTIL]) > time.time() * 1000


def _members(own: dict[str, str]) -> int:
    return int(own[MEMBERS]) if own.get(MEMBERS, "").isdecimal() else 0


def _end(until_ms: int, members: int | None) -> str:
    return instant(until_ms) + (f" or a join makes it {members} members" if members else "")


# -- reading


def _settings(cluster: Cluster, group: str) -> tuple[ConfigEntry, ...]:
    try:
        return cluster.group_configs([group])[group]
    except (UnsupportedVersion, ServerError) as error:
        if error.code in NO_SUCH_SETTINGS and group:
            fail(f"the cluster has no settings of single groups ({error.message})")
        raise


def _texts(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    return {entry.name: entry.value or "" for entry in entries}


def _source(entry: ConfigEntry) -> str:
    return {ConfigSource.GROUP_CONFIG: "group", ConfigSource.DEFAULT_CONFIG: "default"}.get(entry.source, "server")
