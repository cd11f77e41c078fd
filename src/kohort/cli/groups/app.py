"""`kohort groups`: list, describe, explain, configure and change groups over the public protocol.

`describe` shows one of three views: offsets and lag (the default), members, or state, with the columns of Kafka's own
tool. It lists each partition with a committed offset or an owner. For a partition without an owner, the offset's
metadata may name a Spark query that reads it (`kohort.client.admin.commit_metadata`). Where an open transaction holds
back readers of committed records, it names the transaction (`kohort.cli.stable_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, FAILED, ClusterOptions, complain, complete_groups, connected
from kohort.cli.groups.assign import assign
from kohort.cli.groups.delete import delete, delete_offsets
from kohort.cli.groups.doctor.app import EPILOG, doctor
from kohort.cli.groups.explain import explain, rebalance_lines
from kohort.cli.groups.last_owners import last_owners_of, lines_of
from kohort.cli.groups.lookup import OTHER_TYPES, is_pattern, listed_instead, matching, not_found
from kohort.cli.groups.remove_member import remove_member
from kohort.cli.groups.reset import reset_offsets
from kohort.cli.groups.restore import restore
from kohort.cli.groups.settings import configs, hold, hold_document, own_settings, settings_lines
from kohort.cli.groups.shares.describing import log_ends, print_share_group, share_document, share_offsets_of
from kohort.cli.groups.shares.redelivery import redeliver
from kohort.cli.groups.shares.releasing import release
from kohort.cli.groups.subjects import ITEM_COLUMNS, Subject, subject_of, unreadable_bytes
from kohort.cli.groups.timeline import REBALANCING
from kohort.cli.groups.transfer import export, import_offsets
from kohort.cli.groups.watch.app import watch
from kohort.cli.groups.wording import LAG_TIME, Line, brief, plain, show
from kohort.cli.option_objects import App, choice
from kohort.cli.output import (
    Cell,
    Column,
    Format,
    Output,
    name,
    number,
    plural,
    print_document,
    print_table,
    print_table_of,
)
from kohort.cli.places import words_of
from kohort.cli.stable_offsets import StableEnd, document_of, stable_ends
from kohort.client.admin.commit_metadata import MARK, GroupReader, group_reader_of
from kohort.client.admin.explanations import NoJournal
from kohort.client.admin.groups import DEAD, SHARE, Committed, GroupDescription, GroupMember, ListedGroup
from kohort.client.admin.lag import GroupLag
from kohort.client.admin.survey import Surveyor
from kohort.client.cluster import Cluster
from kohort.client.metadata import Node, TopicPartition
from kohort.wire.embedded import CONSUMER_PROTOCOL

STATES = ("Stable", "Empty", *REBALANCING, "Dead", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")
"""Kafka's, also those that kohort's groups never have: the command works with any cluster."""

STORIES = 50
"""Read to find the beginning of a leader's term."""
STREAMS = "streams"

app = App(epilog=EXIT_CODES, no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One line of the offsets view. None is unknown: no committed offset, or the partition is gone."""

    topic: str
    partition: int
    committed: Committed | None
    end: int | None
    member: GroupMember | None
    stable: StableEnd | None = None
    """Where a reader of committed records has to stop before the end."""
    lag_ms: int | None = None
    """The age of the first record that is not committed; only kohort tells it."""
    burrow: str | None = None
    """Burrow's status of the partition; only kohort tells it."""

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(self.end - self.committed.offset, 0)

    @property
    def holder(self) -> GroupReader | None:
        return None if self.member or self.committed is None else group_reader_of(self.committed.metadata)


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE", help="Only groups in this state, such as Stable or Empty; repeatable.", **choice(STATES)
        ),
    ] = None,
    type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE", help="Only groups of this type: classic, consumer or share; repeatable.", **choice(TYPES)
        ),
    ] = None,
    lag: Annotated[
        bool,
        typer.Option("--lag", help="Members and total lag, too, and how old it is (kohort only)."),
    ] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List groups."""
    with connected(where) as cluster:
        listed = cluster.list_groups(state or (), type or ())
        sizes = _sizes(cluster, listed) if lag else {}
    names: tuple[str, ...] = ("group", "state", "type", "protocol_type", "coordinator")
    names += ("members", "total_lag", "max_lag_ms") if lag else ()
    rows: list[tuple[Any, ...]] = [
        (one.group_id, one.state or None, one.type or None, one.protocol_type, one.coordinator)
        + sizes.get(one.group_id, ())
        for one in listed
    ]
    if output != Format.TABLE:
        print_document([dict(zip(names, row, strict=True)) for row in rows], output)
        return
    columns = [name("GROUP"), name("STATE"), name("TYPE"), name("PROTOCOL"), number("COORDINATOR")]
    if not lag:
        print_table(columns, rows)
    elif any(row[-1] is not None for row in rows):
        rows = [(*row[:-1], brief(row[-1])) for row in rows]
        print_table([*columns, *map(number, ("MEMBERS", "LAG", LAG_TIME))], rows)
    else:
        print_table([*columns, *map(number, ("MEMBERS", "LAG"))], [row[:-1] for row in rows])


def _sizes(cluster: Cluster, listed: list[ListedGroup]) -> dict[str, tuple[int | None, int | None, int | None]]:
    """Members, total lag and largest age of a lag by group; None is unknown: a streams group, or no committed offset.
    The lag of a share group are its unfinished records."""
    found: dict[str, tuple[int | None, int | None, int | None]] = {one.group_id: (None, None, None) for one in listed}
    asked = [one for one in listed if one.type.lower() not in OTHER_TYPES]
    survey = Surveyor(cluster, with_lag=True).survey(asked)
    for group_id, one in survey.groups.items():
        if one.error:
            complain(f"members and lag of group {group_id} are not known, because of {one.error}")
        lag, is_known = survey.lag_of(one), one.group.state != DEAD and not one.error
        found[group_id] = (len(one.group.members) if is_known else None, lag.total, lag.worst_ms)
    if shared := [one.group_id for one in listed if one.type.lower() == SHARE]:
        offsets = cluster.share_groups.offsets(shared)
        for group_id, group in cluster.describe_groups(shared).items():
            found[group_id] = (len(group.members) if group.state != DEAD else None, offsets[group_id].lag, None)
    return found


@app.command("describe")
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP|PATTERN", autocompletion=complete_groups)] = None,
    every: Annotated[bool, typer.Option("--all", help="All groups but streams groups.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Committed offsets and lag (the default view).")] = False,
    members: Annotated[bool, typer.Option("--members", help="Members instead of offsets.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State and coordinator instead of offsets.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --members: their partitions too.")] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Describe groups: offsets and lag, members, or state.

    Of a share group: unfinished records, what is in flight by whom, and what was archived and why. A PATTERN is as in
    'billing-*'; quote it.
    """
    if bool(names) == every:
        raise typer.BadParameter("name one or more groups or patterns, or --all")
    if offsets + members + state > 1:
        raise typer.BadParameter("choose one of --offsets, --members and --state")
    if verbose and not members:
        raise typer.BadParameter("--verbose goes with --members")
    shows_offsets = not (members or state)
    documents: list[dict[str, Any]] = []
    missing = []
    printed = False
    with connected(where) as cluster:
        chosen = list(names or ())
        if every or any(map(is_pattern, chosen)):
            known = (group.group_id for group in cluster.list_groups() if group.type.lower() != STREAMS)
            chosen = matching(chosen or "*", known)
        own = own_settings(cluster, chosen)
        for group_id, found in cluster.describe_groups(chosen).items():
            group = _found(cluster, found)
            if group is None:
                missing.append(_missing(cluster, group_id))
                continue
            shares = share_offsets_of(cluster, group_id) if group.type == SHARE and shows_offsets else None
            ends = log_ends(cluster, shares) if shares is not None else {}
            rows, lag = _lags(cluster, group) if shows_offsets and shares is None else NO_LAGS
            last = last_owners_of(cluster, group, [(row.topic, row.partition) for row in rows if _is_unread(row)])
            subject = _subject(cluster, group)
            if printed:
                typer.echo("")
            printed = output == Format.TABLE
            if output != Format.TABLE:
                document = _document(group, cluster.nodes())
                if shares is not None:
                    document |= share_document(shares, ends)
                elif shows_offsets:
                    document |= _lag_document(rows, lag) | {"last_owners": [one.document for one in last]}
                document["rebalance"] = _rebalance_status(cluster, group)
                document["about"] = subject.document if subject is not None else None
                document["configs"] = own.get(group_id, {})
                document["hold"] = hold_document(own.get(group_id, {}))
                documents.append(document)
            elif members:
                _print_members(group, subject, verbose=verbose)
            elif state:
                _print_state(group, cluster.nodes())
            elif shares is not None:
                print_share_group(group, shares, ends)
            else:
                _print_offsets(group, rows, has_lag=subject is None, has_time=lag.as_of_ms is not None)
                show(lines_of(last, f"{group_id}: "))
            if output == Format.TABLE:
                _print_subject(subject, items=shows_offsets)
                show(map(Line, settings_lines(own.get(group_id, {}))))
                show(rebalance_lines(_rebalance_status(cluster, group)))
    if output != Format.TABLE:
        print_document(documents, output)
    for message in missing:
        complain(message)
    if missing:
        raise typer.Exit(FAILED)


def _missing(cluster: Cluster, name: str) -> str:
    """That there is no such group, and how to see its history if the journal still has stories of it."""
    try:
        stories = cluster.explain_group(name, last=1).stories
    except NoJournal:
        stories = ()
    if stories:
        return f"group {name} does not exist; its history: kohort groups explain {name}"
    return not_found(cluster, name)


def _subject(cluster: Cluster, group: GroupDescription) -> Subject | None:
    """For a group of other members than consumers. The journal, if there is one, has the terms and the sessions."""
    if group.protocol_type in (CONSUMER_PROTOCOL, SHARE) or not group.members:
        return None
    try:
        explanation = cluster.explain_group(group.group_id, last=STORIES)
    except NoJournal:
        return subject_of(group, None)
    return subject_of(explanation.group, explanation)


def _print_subject(subject: Subject | None, *, items: bool) -> None:
    if subject is None:
        return
    show(Line(line, 4) for line in subject.lines)
    if items and subject.items:
        print_table(ITEM_COLUMNS, [[_plain(cell) for cell in row] for row in subject.items])


def _rebalance_status(cluster: Cluster, group: GroupDescription) -> dict[str, Any] | None:
    """For whom a running rebalance waits and how long, where the coordinator keeps a journal.

    None if the group does not rebalance. A consumer group can be Stable while a gradual hand-over is under way.
    """
    if group.state not in REBALANCING and group.type != "consumer":
        return None
    try:
        status = cluster.explain_group(group.group_id, last=0).status
    except NoJournal:
        return None
    return status if status and (status["phase"] in REBALANCING or status.get("held_partitions")) else None


def _found(cluster: Cluster, group: GroupDescription) -> GroupDescription | None:
    """The group, or None if it does not exist.

    DescribeGroups does not find groups of other types than classic; ListGroups does.
    """
    if group.state != DEAD:
        return group
    if (listed := listed_instead(cluster, group)) is not None:
        complain(f"group {group.group_id} is of type {listed.type or 'unknown'}; its members are not shown")
        return listed
    return group if cluster.committed(group.group_id) else None


Lags = tuple[list[PartitionLag], GroupLag]
"""The rows of a group, and its lag."""
NO_LAGS: Lags = ([], GroupLag({}, None))


def _lags(cluster: Cluster, group: GroupDescription) -> Lags:
    owners = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assigned.items()
        for partition in partitions
    }
    [lag] = cluster.group_lags([group.group_id], also=owners).values()
    found = lag.partitions
    ends = {place: one.end for place, one in found.items() if one.end is not None}
    known = {place: one.stable_end for place, one in found.items() if one.stable_end is not None and place in ends}
    stable = stable_ends(cluster, ends, known)
    rows = [
        PartitionLag(*place, one.committed, one.end, owners.get(place), stable.get(place), one.lag_ms, one.burrow)
        for place, one in found.items()
    ]
    return rows, lag


def _is_unread(row: PartitionLag) -> bool:
    return row.member is None and row.holder is None and bool(row.lag)


def _total(lags: list[PartitionLag]) -> int:
    return sum(row.lag for row in lags if row.lag is not None)


def _print_offsets(group: GroupDescription, lags: list[PartitionLag], *, has_lag: bool, has_time: bool) -> None:
    if lags:
        numbers = map(
            number, ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", *([LAG_TIME] if has_time else []))
        )
        owner = (name("CONSUMER-ID"), Column("HOST", shrinks=True, spare=True), name("CLIENT-ID"))
        rows: list[tuple[Cell, ...]] = []
        for row in lags:
            offset = row.committed.offset if row.committed else None
            time = (brief(row.lag_ms),) if has_time else ()
            rows.append((group.group_id, row.topic, row.partition, offset, row.end, row.lag, *time, *_who(row)))
        print_table([Column("GROUP", shrinks=True, repeats=True), name("TOPIC"), *numbers, *owner], rows)
    total = f", total lag {_total(lags)}" if has_lag or lags else ""
    if unread := sum(row.committed is None and bool(row.end) for row in lags):
        total += (
            f"; {plural(unread, 'partition')} without a committed offset {'is' if unread == 1 else 'are'} not in it"
        )
    show([Line(f"{group.group_id}: {group.state}, {plural(len(group.members), 'member')}{total}")])
    show(Line(f"{group.group_id}: {_waiting(row.stable, row.committed)}") for row in lags if row.stable)
    holders = sorted({str(row.holder) for row in lags if row.holder})
    show(Line(f"{group.group_id}: held by {holder}") for holder in holders)
    if words := _burrow_words(lags):
        show([Line(f"{group.group_id}: by Burrow's rules {words}")])


def _burrow_words(rows: list[PartitionLag]) -> str:
    """`STOP in orders[0-1], WARN in refunds[0]`; empty if no partition is worse than OK."""
    bad: dict[str, list[TopicPartition]] = {}
    for row in rows:
        if row.burrow not in (None, "OK"):
            bad.setdefault(str(row.burrow), []).append((row.topic, row.partition))
    return ", ".join(f"{status} in {words_of(places)}" for status, places in bad.items())


def _waiting(stable: StableEnd, committed: Committed | None) -> str:
    """Why a reader of committed records has lag that it cannot read."""
    if committed is None:
        return stable.line
    return f"{stable.line}; their lag up to there is {max(stable.offset - committed.offset, 0)}"


def _who(row: PartitionLag) -> tuple[str | None, str | None, str | None]:
    """Consumer id, host and client id of the partition's owner: a member, else the one in the offset's metadata."""
    if row.member is not None:
        return row.member.member_id, row.member.host, row.member.client_id
    if row.holder is not None:
        return row.holder.name or row.holder.query, row.holder.host, MARK
    return None, None, None


def _print_members(group: GroupDescription, subject: Subject | None, *, verbose: bool) -> None:
    columns: dict[Column, Callable[[GroupMember], Cell]] = {
        Column("GROUP", shrinks=True, repeats=True): lambda _: group.group_id,
        name("CONSUMER-ID"): lambda member: member.member_id,
        **({} if group.type == SHARE else {name("GROUP-INSTANCE-ID"): lambda member: member.group_instance_id}),
        name("HOST"): lambda member: member.host,
        name("CLIENT-ID"): lambda member: member.client_id,
    }
    if subject is None:
        columns[number("#PARTITIONS")] = lambda member: sum(map(len, member.assigned.values()))
    if any(member.pattern for member in group.members):
        columns[name("PATTERN")] = lambda member: member.pattern
    if any(member.protocol == "classic" for member in group.members):
        columns[Column("PROTOCOL")] = lambda member: member.protocol
    for index, column in enumerate(subject.columns if subject is not None else ()):
        columns[column] = _cells_of(subject, index)
    if any(unreadable_bytes(member) for member in group.members) and subject is None:
        columns[Column("SUBSCRIPTION")] = lambda member: _subscription(member)
    if verbose:
        columns[Column("ASSIGNMENT")] = lambda member: _assignment(member.assigned)
    if group.members:
        print_table_of(group.members, columns)
    typer.echo(f"{group.group_id}: {group.state}, {plural(len(group.members), 'member')}")


def _cells_of(subject: Subject | None, index: int) -> Callable[[GroupMember], Cell]:
    cells = subject.cells if subject is not None else {}
    return lambda member: _plain(cells[member.member_id][index]) if member.member_id in cells else None


def _plain(cell: Cell) -> Cell:
    return plain(cell) if isinstance(cell, str) else cell


def _subscription(member: GroupMember) -> str:
    size = unreadable_bytes(member)
    return f"{size} bytes, unreadable" if size is not None else ",".join(member.subscribed)


def _assignment(assigned: Mapping[str, tuple[int, ...]]) -> str:
    return ",".join(f"{topic}({','.join(map(str, partitions))})" for topic, partitions in sorted(assigned.items()))


def _print_state(group: GroupDescription, nodes: dict[int, Node]) -> None:
    node = nodes.get(group.coordinator)
    coordinator = f"{node.address if node else 'unknown'} ({group.coordinator})"
    print_table(
        [name("GROUP"), name("COORDINATOR (ID)"), name("ASSIGNMENT-STRATEGY"), name("STATE"), number("#MEMBERS")],
        [(group.group_id, coordinator, group.protocol, group.state, len(group.members))],
    )


def _document(group: GroupDescription, nodes: dict[int, Node]) -> dict[str, Any]:
    node = nodes.get(group.coordinator)
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignment_strategy": group.protocol or None,
        "coordinator": {"id": group.coordinator, "address": node.address if node else None},
        "members": [
            {
                "consumer_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "assignment": {topic: list(partitions) for topic, partitions in member.assigned.items()},
                **({"pattern": member.pattern} if member.pattern else {}),
                **({"protocol": member.protocol} if member.protocol else {}),
            }
            for member in group.members
        ],
    }


def _lag_document(rows: list[PartitionLag], lag: GroupLag) -> dict[str, Any]:
    return {
        "total_lag": _total(rows),
        "max_lag_ms": lag.worst_ms,
        "lag_as_of_ms": lag.as_of_ms,
        "burrow_status": lag.burrow,
        "offsets": [_offset_document(row) for row in rows],
    }


def _offset_document(row: PartitionLag) -> dict[str, Any]:
    consumer_id, host, client_id = _who(row)
    return {
        "topic": row.topic,
        "partition": row.partition,
        "current_offset": row.committed.offset if row.committed else None,
        "metadata": row.committed.metadata if row.committed else None,
        "log_end_offset": row.end,
        "lag": row.lag,
        "lag_ms": row.lag_ms,
        "burrow_status": row.burrow,
        **document_of(row.stable, row.end),
        "consumer_id": consumer_id,
        "host": host,
        "client_id": client_id,
        **({"holder": asdict(row.holder)} if row.holder else {}),
    }


app.command("explain")(explain)
app.command("watch")(watch)
app.command("doctor", epilog=EPILOG)(doctor)
app.command("assign")(assign)
app.command("reset-offsets")(reset_offsets)
app.command("restore")(restore)
app.command("delete")(delete)
app.command("delete-offsets")(delete_offsets)
app.command("remove-member")(remove_member)
app.command("export")(export)
app.command("import")(import_offsets)
app.command("configs")(configs)
app.command("hold")(hold)
app.command("release")(release)
app.command("redeliver")(redeliver)
