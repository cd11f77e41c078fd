"""`kohort groups release`: give back what members of a share group hold, or end the hold of a group's rebalances.

A member that hangs keeps its records locked until the locks end, or for as long as it renews them. A release ends its
share session in its name, so that the broker gives back its records at once, which works on any cluster. A member that
is alive opens another session; its acknowledgements of these records are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kohort.cli.confirmation import DRY_RUN, YesToExecute, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, FAILED, ClusterOptions, Group, complain, connected, fail
from kohort.cli.groups.lookup import does_not_exist
from kohort.cli.groups.settings import end_hold
from kohort.cli.groups.shares.describing import HOLDER_COLUMNS, deliveries_words, member_words, share_offsets_of
from kohort.cli.groups.shares.targets import chosen, described
from kohort.cli.groups.wording import Document, Line, Names, as_document, brief, plain, show
from kohort.cli.option_objects import and_so, near_word
from kohort.cli.output import Cell, Format, Output, plural, print_document, print_table
from kohort.cli.places import TOPIC_PARTITIONS, scope_of, words_of
from kohort.client.admin.groups import DEAD, SHARE, GroupDescription
from kohort.client.admin.share_groups import ShareOffsets
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.wire.errors import ErrorCode

UNCHANGED = "nothing was released"
COUNTS = "they count as delivered, so those that have reached the group's limit are archived"


def release(
    group: Group,
    members: Annotated[
        list[str] | None,
        typer.Argument(metavar="MEMBER", help="Of a share group: a member id, or a client id that one member has."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Of a share group: what all members hold.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar=TOPIC_PARTITIONS, help="Of a share group: only in these partitions; repeatable."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Of a share group: do it, or only show what would be done.")
    ] = False,
    yes: YesToExecute = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """End a hold, or give back records of a share group.

    After a hold, the pending rebalance starts at once. Records of a share group go to other members at once, and
    acknowledgements of the member that had them are refused: --execute does it, and asks first.
    """
    scope = scope_of("--topic", topic or ())
    with connected(where) as cluster:
        found = described(cluster, group)
        if found.type != SHARE:
            if members or every or topic or execute:
                if found.state == DEAD:
                    fail(and_so(does_not_exist(cluster, group), UNCHANGED))
                raise typer.BadParameter(f"group {group} is no share group: give release its name and nothing else")
            was_held = end_hold(cluster, group)
            if not was_held and found.state == DEAD:
                fail(does_not_exist(cluster, group))
            typer.echo(f"{group}: rebalances {'are not held any more' if was_held else 'were not held'}")
            return
        if every == bool(members):
            raise typer.BadParameter("whose records? Name members, or add --all")
        offsets = share_offsets_of(cluster, group)
        places = chosen(group, offsets.partitions, scope, UNCHANGED)
        held = holdings(offsets, places)
        wanted = members_to_release(found, held, members or ())
        rows = rows_of(found, held, wanted)
        if output == Format.TABLE:
            _print(rows, offsets, wanted)
        refused: dict[tuple[str, TopicPartition], ErrorCode] = {}
        if offsets.tells_records and not rows:
            who = "the members hold" if every or len(wanted) > 1 else "the member holds"
            fail(f"{who} no records there; {UNCHANGED}")
        if execute:
            confirm(question(group, rows, wanted), yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            refused = give_back(cluster, group, held if offsets.tells_records else None, wanted, places)
    if output != Format.TABLE:
        print_document(document(group, held, wanted, refused, executed=execute), output)
    elif not execute:
        show([Line(f"{UNCHANGED}: {DRY_RUN}")])
    elif not refused:
        show([Line(released_words(found, rows, wanted))])
    for (member_id, place), code in refused.items():
        complain(f"not released: {words_of([place])} of {plain(member_id)}, because of {code.name}: {code.message}")
    if refused:
        raise typer.Exit(FAILED)


Holdings = dict[str, dict[TopicPartition, Document]]
"""What each member holds in each partition, where the server tells it."""


def holdings(offsets: ShareOffsets, places: Sequence[TopicPartition]) -> Holdings:
    found: Holdings = {}
    for place in places:
        for member_id, held in (offsets.partitions[place].records or {}).get("holders", {}).items():
            found.setdefault(member_id, {})[place] = held
    return found


def members_to_release(group: GroupDescription, held: Holdings, names: Sequence[str]) -> list[str]:
    """Member ids. A member that is not in the group may hold records too. Fails unless there is one for each name."""
    by_id = {member.member_id: member.client_id for member in group.members}
    if not names:
        return sorted(held or by_id)
    found = []
    for one in names:
        same = [one] if one in by_id or one in held else [key for key, client in by_id.items() if client == one]
        if len(same) > 1:
            ids = ", ".join(same[:5])
            fail(f"group {group.group_id} has {len(same)} members with the client id {one}: {ids}; {UNCHANGED}")
        if not same:
            near = near_word(one, [*by_id, *by_id.values(), *held])
            hint = f"; did you mean {plain(near)}?" if near else ""
            fail(and_so(f"group {group.group_id} has no member {one}{hint}", UNCHANGED))
        found += same
    return list(dict.fromkeys(found))


def rows_of(group: GroupDescription, held: Holdings, wanted: Sequence[str]) -> list[tuple[Cell, ...]]:
    names, by_id = names_of(group)
    return [
        (
            member_words(member_id, names, by_id),
            str(by_id.get(member_id, {}).get("host", "")),
            *place,
            one["records"],
            deliveries_words(one["deliveries"]),
            brief(one["next_end_ms"]),
        )
        for member_id in wanted
        for place, one in sorted(held.get(member_id, {}).items())
    ]


def names_of(group: GroupDescription) -> tuple[Names, dict[str, Document]]:
    by_id: dict[str, Document] = {member.member_id: as_document(member) for member in group.members}
    return Names(by_id.values()), by_id


def _print(rows: Sequence[tuple[Cell, ...]], offsets: ShareOffsets, wanted: Sequence[str]) -> None:
    if rows:
        print_table(HOLDER_COLUMNS, rows)
    elif not offsets.tells_records:
        show([Line(f"{what_they_hold(wanted)} is not known: the coordinator is not kohort")])


def what_they_hold(wanted: Sequence[str]) -> str:
    return f"what {plural(len(wanted), 'member')} {'holds' if len(wanted) == 1 else 'hold'}"


def question(group: str, rows: Sequence[tuple[Cell, ...]], wanted: Sequence[str]) -> str:
    what = plural(record_count(rows), "record") if rows else what_they_hold(wanted)
    return f"Release {what} of group {group}? A member that works on them goes on, and {COUNTS}."


def record_count(rows: Sequence[tuple[Cell, ...]]) -> int:
    return sum(int(row[4] or 0) for row in rows)


def released_words(group: GroupDescription, rows: Sequence[tuple[Cell, ...]], wanted: Sequence[str]) -> str:
    names, by_id = names_of(group)
    whose = ", ".join(member_words(member_id, names, by_id) for member_id in wanted[:5])
    more = f" and {len(wanted) - 5} more" if len(wanted) > 5 else ""
    what = f"{plural(record_count(rows), 'record')} of {whose}{more}" if rows else f"what {whose}{more} held"
    return f"released {what} in group {group.group_id}"


def give_back(
    cluster: Cluster, group: str, held: Holdings | None, wanted: Sequence[str], places: Sequence[TopicPartition]
) -> dict[tuple[str, TopicPartition], ErrorCode]:
    """`held`: None if it is not known. Returns what was refused."""
    refused = {}
    for member_id in wanted:
        mine = places if held is None else list(held.get(member_id, ()))
        for place, code in cluster.share_groups.release(group, member_id, mine).items():
            refused[member_id, place] = code
    return refused


def document(
    group: str,
    held: Holdings,
    wanted: Sequence[str],
    refused: Mapping[tuple[str, TopicPartition], ErrorCode],
    *,
    executed: bool,
) -> dict[str, Any]:
    return {
        "group": group,
        "executed": executed,
        "members": [
            {
                "member": member_id,
                "held": [
                    {
                        "topic": place[0],
                        "partition": place[1],
                        "records": one["records"],
                        "error": refused[member_id, place].name if (member_id, place) in refused else None,
                    }
                    for place, one in sorted(held.get(member_id, {}).items())
                ],
            }
            for member_id in wanted
        ],
    }
