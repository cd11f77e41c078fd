"""`kohort groups delete` and `delete-offsets`: groups with all their offsets, and single offsets of a group."""

from __future__ import annotations

from typing import Annotated

import typer

from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    FAILED,
    ClusterOptions,
    Group,
    complain,
    complete_groups,
    complete_topics,
    connected,
    fail,
)
from kohort.cli.groups.lookup import UNDELETED, Offsets, does_not_exist, why_not
from kohort.cli.groups.shares.deleting import delete_share_offsets
from kohort.cli.groups.shares.resetting import is_share_group
from kohort.cli.groups.undo import restore_command
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import and_so, near_word
from kohort.cli.output import Format, Output, plural, print_document
from kohort.cli.places import TOPIC_PARTITIONS, Scope, in_scope, scope_of, words_of
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.client.metadata import TopicPartition
from kohort.wire.errors import ErrorCode


def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", autocompletion=complete_groups)],
    yes: Yes = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete groups with their committed offsets.

    Asks first; without a terminal it needs --yes. The groups must have no members. kohort groups export saves the
    offsets before.
    """
    names = list(dict.fromkeys(names))
    what = f"group {names[0]} and its" if len(names) == 1 else f"{len(names)} groups and their"
    confirm(f"Delete {what} committed offsets?", yes=yes, declined=UNDELETED, err=output != Format.TABLE)
    failures: dict[str, str] = {}
    with connected(where) as cluster:
        for group_id in names:
            restore = restore_command(cluster, group_id)
            try:
                cluster.delete_group(group_id)
            except ServerError as error:
                failures[group_id] = why_not(cluster, group_id, error)
                complain(failures[group_id])
            else:
                if output == Format.TABLE:
                    typer.echo(f"deleted group {group_id}")
                    show([Line(f"to undo: {restore}", whole=True)] if restore else [])
    if output != Format.TABLE:
        rows = [{"group": one, "deleted": one not in failures, "error": failures.get(one)} for one in names]
        print_document(rows, output)
    if failures:
        raise typer.Exit(FAILED)


def delete_offsets(
    group: Group,
    topic: Annotated[
        list[str],
        typer.Option(
            metavar=TOPIC_PARTITIONS,
            help="This topic, or these partitions of it; repeatable.",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ],
    yes: Yes = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete committed offsets of a group.

    Of a share group, all that it has of a topic. Asks first; without a terminal it needs --yes. No member of the group
    may subscribe to the topic; a share group must have no members.
    """
    scope = scope_of("--topic", topic)
    with connected(where) as cluster:
        if is_share_group(cluster, group):
            delete_share_offsets(cluster, group, scope, yes=yes, output=output)
            return
        places = places_to_delete(cluster, group, cluster.committed(group), scope)
        what = f"{plural(len(places), 'offset')} of group {group}: {words_of(places)}"
        confirm(f"Delete {what}?", yes=yes, declined=UNDELETED, err=output != Format.TABLE)
        restore = restore_command(cluster, group)
        try:
            refused = cluster.delete_offsets(group, places)
        except ServerError as error:
            fail(and_so(why_not(cluster, group, error), UNDELETED))
    done = [place for place in places if place not in refused]
    if output != Format.TABLE:
        rows = [
            {"topic": place[0], "partition": place[1], "deleted": place in done, "error": _name(refused.get(place))}
            for place in places
        ]
        print_document({"group": group, "offsets": rows}, output)
    elif done:
        show([Line(f"deleted {plural(len(done), 'offset')} of group {group}: {words_of(done)}")])
        show([Line(f"to undo: {restore}", whole=True)] if restore else [])
    for code in dict.fromkeys(refused.values()):
        where_refused = words_of(place for place in places if refused.get(place) == code)
        complain(f"{refused_words(group, code)}: {where_refused}")
    if refused:
        raise typer.Exit(FAILED)


def places_to_delete(cluster: Cluster, group: str, committed: Offsets, scope: Scope) -> list[TopicPartition]:
    """The partitions of the scope that have a committed offset. Fails unless all that are named have one."""
    if not committed:
        known = any(one.group_id == group for one in cluster.list_groups())
        why = f"group {group} has no committed offsets" if known else does_not_exist(cluster, group)
        fail(and_so(why, UNDELETED))
    for name, indexes in scope.items():
        missing = words_of((name, index) for index in sorted(indexes or ()) if (name, index) not in committed)
        if missing or all(name != place[0] for place in committed):
            near = near_word(name, {place[0] for place in committed})
            hint = f"; did you mean {near}?" if near and near != name else ""
            why = f"group {group} has no committed offset of {missing or f'topic {name}'}{hint}"
            fail(and_so(why, UNDELETED))
    return sorted(place for place in committed if in_scope(place, scope))


def refused_words(group: str, code: ErrorCode) -> str:
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return f"not deleted, because members of group {group} subscribe to the topic; stop them first"
    return f"not deleted, because of {code.name}: {code.message}"


def _name(code: ErrorCode | None) -> str | None:
    return code.name if code else None
