"""All tables of one log partition. Everything of a group stands in one partition of `__consumer_offsets`, so partitions
are analysed by themselves, each by one task, and nothing has to be shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.client.admin.commit_metadata import MARK
from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.decode import KINDS, STATUS
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.ends import Ends
from kohort.spark.history.report import findings, incidents
from kohort.spark.history.report.findings import Finding
from kohort.spark.history.report.incidents import Limits, Owners
from kohort.spark.history.tables import commits as series
from kohort.spark.history.tables.commits import (
    Commits,
    commits_of,
    commits_table,
    dense,
    encoded,
    instants,
    milliseconds,
)
from kohort.spark.history.tables.groups import Groups, groups_of, ownership_table
from kohort.spark.history.tables.rebalances import (
    Rebalance,
    rebalances_of,
    rebalances_table,
    storms,
    storms_table,
    with_moves,
    with_pauses,
)
from kohort.spark.history.tables.state import Standing, standings

TABLES = (
    "commits",
    "generations",
    "members",
    "ownership",
    "rebalances",
    "storms",
    "rewinds",
    "sawteeth",
    "zombies",
    "expiring",
    "rates",
    "lag",
    "groups",
    "records",
)
"""What `analyse` makes; `findings` and `log_ends` are written beside them."""

CHUNK = 4096
"""Places whose lag is computed at once."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a task is told besides the records. Times in milliseconds."""

    edges: Numbers
    """Of the intervals of `rates`; lag is told at each."""
    now: int
    """The end of the history."""
    ends: Ends = field(default_factory=lambda: Ends({}))
    topic_names: dict[bytes, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


def analyse(commits_in: pa.Table, groups_in: pa.Table, context: Context) -> tuple[dict[str, pa.Table], list[Finding]]:
    """The tables of one log partition by name, and what is to be told.

    In: log records as the source yields them with decode=consumer_offsets, those of commits and the others.
    """
    limits = context.limits
    names = _names(commits_in) | context.topic_names
    commits, groups = commits_of(commits_in), groups_of(groups_in, names)
    group_names = groups.names.to_pylist()
    standing = {group_names[number]: one for number, one in standings(groups.events).items()}
    numbers = {name: number for number, name in enumerate(group_names)}
    rebalanced = with_moves(rebalances_of(groups.events), groups.ownership)
    rebalanced = with_pauses(rebalanced, commits, numbers)
    stormy = storms(rebalanced, limits.storm_rebalances, limits.storm_gap_ms)
    queries = _queries(commits_in)[commits.rows]
    jumped = incidents.jumps(commits, standing, encoded(commits_in.column("topic_id"))[0][commits.rows], queries)
    sawn = series.sawteeth(commits, limits.saw_teeth, limits.saw_gap_ms)
    lag = _Lag(commits, context)
    owners = Owners(groups.ownership, groups.names, commits.places)
    undead = [
        *incidents.strangers(commits, standing, queries, limits),
        *incidents.former_owners(commits, owners, limits),
        *incidents.idle(commits, owners, lag.end_then, lag.end_now, context.now, limits),
    ]
    due = incidents.expiries(
        commits,
        milliseconds(commits_in.column("commit_time"))[commits.rows],
        milliseconds(commits_in.column("expire_time"))[commits.rows],
        standing,
        incidents.subscriptions(groups.members),
        limits,
    )
    places = commits.places.names()
    told = [
        *findings.of_storms(stormy, group_names),
        *findings.of_zombies(undead, places),
        *findings.of_saws(sawn, places, undead),
        *findings.of_jumps(jumped, commits, places),
        *findings.of_expiries(due, commits, places, context.now, limits),
        *findings.of_lag(context.edges, lag.lag, lag.ends, commits, places, standing, limits),
    ]
    tables = {
        "commits": commits_table(commits, commits_in),
        "generations": groups.generations,
        "members": groups.members,
        "ownership": ownership_table(groups.ownership, groups.names),
        "rebalances": rebalances_table(rebalanced, groups.names),
        "storms": storms_table(stormy, groups.names),
        "rewinds": incidents.jumps_table(jumped, commits),
        "sawteeth": incidents.saws_table(sawn, commits.places),
        "zombies": incidents.zombies_table(undead, commits.places),
        "expiring": incidents.expiries_table(commits, due, context.now, limits),
        "rates": series.rates(commits, context.edges),
        "lag": lag.table(),
        "groups": _groups_table(commits, groups, standing, lag, told, _count(rebalanced, group_names)),
        "records": _records_table(commits_in, groups_in),
    }
    return tables, told


def _names(commits_in: pa.Table) -> dict[bytes, str]:
    """Topics by the ids that stand in commits."""
    rows = commits_in.select(["topic_id", "commit_topic"]).filter(pc.is_valid(commits_in.column("topic_id")))
    pairs = rows.group_by(["topic_id", "commit_topic"]).aggregate([]).to_pylist()
    return {pair["topic_id"]: pair["commit_topic"] for pair in pairs}


def _queries(commits_in: pa.Table) -> Numbers:
    """Of each commit whether its metadata names the Spark query that wrote it."""
    texts = commits_in.column("metadata").cast(pa.string())
    named: Numbers = pc.fill_null(pc.starts_with(texts, f'{{"by":"{MARK}"'), False).to_numpy()
    return named


class _Lag:
    """What was written and not yet committed, by place and instant of the edges; NOTHING where not known."""

    def __init__(self, commits: Commits, context: Context) -> None:
        self._commits = commits
        self._edges = context.edges
        committed = series.committed_at(commits, context.edges)
        self.ends = context.ends.at(commits.places, context.edges)
        known = (committed >= 0) & (self.ends >= 0)
        self.lag = np.where(known, np.maximum(self.ends - committed, 0), NOTHING)
        self._committed = committed
        around = np.array([context.now - context.limits.standstill_ms, context.now])
        then = context.ends.at(commits.places, around)
        self.end_then, self.end_now = then[:, 0], then[:, 1]

    def table(self) -> pa.Table:
        """The table `lag`."""
        place, instant = np.nonzero(self.lag >= 0)
        return pa.table(
            {
                **self._commits.places.columns(place),
                "at": instants(self._edges[instant]),
                "committed": pa.array(self._committed[place, instant]),
                "end": pa.array(self.ends[place, instant]),
                "lag": pa.array(self.lag[place, instant]),
            }
        )

    def now(self) -> Numbers:
        """Of each place the last that is known."""
        known = self.lag >= 0
        if not known.size:
            return np.full(len(self.lag), NOTHING)
        last = known.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
        found: Numbers = np.where(known.any(axis=1), self.lag[np.arange(len(last)), last], NOTHING)
        return found


def _count(rebalanced: list[Rebalance], names: list[str]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for one in rebalanced:
        counted[names[one.group]] = counted.get(names[one.group], 0) + 1
    return counted


def _groups_table(
    commits: Commits,
    groups: Groups,
    standing: dict[str, Standing],
    lag: _Lag,
    told: list[Finding],
    rebalanced_of: dict[str, int],
) -> pa.Table:
    """The table `groups`: a row each."""
    owner = commits.places.groups
    by_name = {name: number for number, name in enumerate(commits.places.group_names.to_pylist())}
    written = np.bincount(owner[commits.place], minlength=len(by_name)) if len(commits.at) else np.zeros(len(by_name))
    waiting = lag.now()
    by_group: dict[str, list[Finding]] = {}
    for finding in told:
        by_group.setdefault(finding.group, []).append(finding)
    rows = []
    for name in sorted({name for name in (*by_name, *standing) if name is not None}):
        number = by_name.get(name, NOTHING)
        places = np.arange(*np.searchsorted(owner, [number, number + 1])) if number >= 0 else np.zeros(0, np.int64)
        first, last = commits.at[commits.first[places]], commits.at[commits.first[places + 1] - 1]
        known = waiting[places][waiting[places] >= 0] if len(places) else np.zeros(0, np.int64)
        one = standing.get(name)
        mine = by_group.get(name, [])
        rows.append(
            {
                "group": name,
                "protocol": "none" if one is None else ("classic", "consumer")[one.protocol],
                "members": len(one.members) if one is not None else 0,
                "deserted_since": one.deserted_since if one is not None else NOTHING,
                "partitions": len(places),
                "commits": int(written[number]) if number >= 0 else 0,
                "first_commit": int(first.min()) if len(places) else NOTHING,
                "last_commit": int(last.max()) if len(places) else NOTHING,
                "lag": int(known.sum()) if len(known) else None,
                "rebalances": rebalanced_of.get(name, 0),
                "findings": len(mine),
                "in_trouble": any(finding.severity == findings.BAD for finding in mine),
            }
        )
    table = pa.Table.from_pylist(rows, schema=_GROUPS)
    for name in ("deserted_since", "first_commit", "last_commit"):
        at = dense(table.column(name))
        table = table.set_column(table.column_names.index(name), name, instants(at))
    return table


_GROUPS = pa.schema(
    [
        ("group", pa.string()),
        ("protocol", pa.string()),
        ("members", pa.int32()),
        ("deserted_since", pa.int64()),
        ("partitions", pa.int32()),
        ("commits", pa.int64()),
        ("first_commit", pa.int64()),
        ("last_commit", pa.int64()),
        ("lag", pa.int64()),
        ("rebalances", pa.int32()),
        ("findings", pa.int32()),
        ("in_trouble", pa.bool_()),
    ]
)


def _records_table(commits_in: pa.Table, groups_in: pa.Table) -> pa.Table:
    """The table `records`: how many there were of each type, each once, and what became of them."""
    columns = ["log_partition", "kind", "status", "version"]
    both = pa.concat_tables([table.select([*columns, "log_offset"]) for table in (commits_in, groups_in)])
    each = np.unique(dense(both.column("log_offset")), return_index=True)[1]
    counted = both.take(pa.array(each)).group_by(columns).aggregate([([], "count_all")])
    kinds = [KINDS.get(kind, "unknown") for kind in counted.column("kind").to_pylist()]
    states = [STATUS[status] for status in counted.column("status").to_pylist()]
    return pa.table(
        {
            "log_partition": counted.column("log_partition"),
            "kind": counted.column("kind"),
            "record": pa.array(kinds, pa.string()),
            "version": counted.column("version"),
            "status": pa.array(states, pa.string()),
            "records": counted.column("count_all"),
        }
    )
