"""All tables of one log partition, and the findings in it.

All records of a group are in one partition of `__consumer_offsets`. So one task analyses each; nothing is shuffled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.client.admin.commit_metadata import MARK
from kohort.spark.history.coverage import coverage_table
from kohort.spark.history.decoding.columns import TIME, Numbers
from kohort.spark.history.decoding.decode import KINDS, STATUS
from kohort.spark.history.decoding.kernels import NOTHING
from kohort.spark.history.ends import Ends
from kohort.spark.history.limits import Limits
from kohort.spark.history.report import findings, incidents
from kohort.spark.history.report.findings import Finding
from kohort.spark.history.report.incidents import Owners
from kohort.spark.history.report.journal_findings import of_stories, without_repeats
from kohort.spark.history.report.names import described
from kohort.spark.history.report.standing import Lags, of_lag
from kohort.spark.history.stories import Document
from kohort.spark.history.tables.clients import clients_of
from kohort.spark.history.tables.columns import encoded, instants, log_places, microseconds, milliseconds
from kohort.spark.history.tables.commits import (
    Commits,
    commits_of,
    commits_table,
    committed_at,
    rates,
    sawteeth,
    sawteeth_table,
)
from kohort.spark.history.tables.group_records import GroupRecords
from kohort.spark.history.tables.group_state import GroupState, group_states
from kohort.spark.history.tables.groups import generations_table, group_events, members_table
from kohort.spark.history.tables.lag import turning_points
from kohort.spark.history.tables.ownership import PROTOCOLS, ownership_of, ownership_table
from kohort.spark.history.tables.rebalances import (
    measured,
    rebalances_of,
    rebalances_table,
    rejoining,
    storms,
    storms_table,
)

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
    "coverage",
)
"""The tables that `analyse` makes; `findings`, `log_ends` and `stories` are written beside them."""


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a task besides the records. Times in milliseconds."""

    edges: Numbers
    """The edges of the intervals of `rates`, and the instants of `lag`."""
    now: int
    """The end of the history."""
    ends: Ends = field(default_factory=lambda: Ends({}))
    topic_names: dict[bytes, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    stories: Mapping[str, Sequence[Document]] = field(default_factory=dict)
    """Of kohort's journal, by group."""


def analyse(commits_in: pa.Table, groups_in: pa.Table, context: Context) -> tuple[dict[str, pa.Table], list[Finding]]:
    """The tables of whole log partitions by name, and their findings.

    The arguments are log records as decode=consumer_offsets yields them: those of commits, and the others.
    """
    limits = context.limits
    commits = commits_of(commits_in)
    records = GroupRecords.of(groups_in, _names(commits_in) | context.topic_names)
    group_names = records.group_names.to_pylist()
    events, ownership, members = group_events(records), ownership_of(records), members_table(records)
    states = {group_names[number]: one for number, one in group_states(events).items()}
    by_name = {name: number for number, name in enumerate(group_names)}
    rebalances = measured(rebalances_of(events), ownership, commits, by_name)
    clients = clients_of(records)
    stormy = storms(rebalances, limits.storm_rebalances, limits.storm_gap_ms, clients)
    rejoined = rejoining(rebalances, limits.rejoin_gap_ms, clients)
    queries = _queries(commits_in)[commits.rows]
    rewinds = incidents.rewinds(commits, states, encoded(commits_in.column("topic_id"))[0][commits.rows], queries)
    saws = sawteeth(commits, limits.saw_teeth, limits.saw_gap_ms)
    lag = _Lag(commits, context)
    owners = Owners(ownership, records.group_names, commits.places)
    zombies = [
        *incidents.non_members(commits, states, queries, limits),
        *incidents.former_owners(commits, owners, limits),
        *incidents.idle(commits, owners, lag.end_then, lag.end_now, context.now, limits),
    ]
    places = commits.places.names()
    due = incidents.expiries(
        commits,
        places,
        milliseconds(commits_in.column("commit_time"))[commits.rows],
        milliseconds(commits_in.column("expire_time"))[commits.rows],
        states,
        incidents.subscriptions(members),
        limits,
    )
    standing = of_lag(Lags(context.edges, lag.lag, lag.ends, context.now), commits, places, states, limits)
    stuck = {finding.group for finding in standing if finding.kind == "stuck"}
    told = [one for one in zombies if one.kind != incidents.IDLE or places[one.place][0] not in stuck]
    found = [
        *findings.of_storms(stormy, group_names),
        *findings.of_rejoining(rejoined, group_names, stormy),
        *findings.of_zombies(told, places, described(members)),
        *findings.of_sawteeth(saws, places, zombies),
        *findings.of_rewinds(rewinds, commits, places),
        *findings.of_expiries(due, commits, places, context.now, limits),
        *standing,
    ]
    here = {name for name in (*states, *commits.places.group_names.to_pylist()) if name is not None}
    of_journal = of_stories({group: context.stories[group] for group in sorted(here & context.stories.keys())}, limits)
    found = [*without_repeats(found, of_journal), *of_journal]
    tables = {
        "commits": commits_table(commits, commits_in),
        "generations": generations_table(records),
        "members": members,
        "ownership": ownership_table(ownership, records.group_names),
        "rebalances": rebalances_table(rebalances, records.group_names),
        "storms": storms_table(stormy, records.group_names),
        "rewinds": incidents.rewinds_table(rewinds, commits),
        "sawteeth": sawteeth_table(saws, commits.places),
        "zombies": incidents.zombies_table(zombies, commits.places),
        "expiring": incidents.expiries_table(commits, due, context.now, limits),
        "rates": rates(commits, context.edges),
        "lag": lag.table(),
        "groups": _groups_table(commits, states, lag, found, Counter(group_names[one.group] for one in rebalances)),
        "records": _records_table(commits_in, groups_in),
        "coverage": coverage_table([commits_in, groups_in]),
    }
    return tables, found


def _names(commits_in: pa.Table) -> dict[bytes, str]:
    """Topic names by the topic ids in commits."""
    rows = commits_in.select(["topic_id", "commit_topic"]).filter(pc.is_valid(commits_in.column("topic_id")))
    pairs = rows.group_by(["topic_id", "commit_topic"]).aggregate([]).to_pylist()
    return {pair["topic_id"]: pair["commit_topic"] for pair in pairs}


def _queries(commits_in: pa.Table) -> Numbers:
    """For each commit, True if its metadata names the Spark query that wrote it."""
    texts = commits_in.column("metadata").cast(pa.string())
    found: Numbers = pc.fill_null(pc.starts_with(texts, f'{{"by":"{MARK}"'), False).to_numpy()
    return found


class _Lag:
    """The records written and not yet committed, by place and edge; NOTHING if not known."""

    def __init__(self, commits: Commits, context: Context) -> None:
        self._commits = commits
        self._edges = context.edges
        committed = committed_at(commits, context.edges)
        self.ends = context.ends.at(commits.places, context.edges)
        known = (committed >= 0) & (self.ends >= 0)
        self.lag = np.where(known, np.maximum(self.ends - committed, 0), NOTHING)
        self._committed = committed
        around = np.array([context.now - context.limits.standstill_ms, context.now])
        then = context.ends.at(commits.places, around)
        self.end_then, self.end_now = then[:, 0], then[:, 1]

    def table(self) -> pa.Table:
        place, instant = turning_points(self._committed, self.ends, self.lag >= 0)
        return pa.table(
            {
                **self._commits.places.columns(place),
                "at": instants(self._edges).take(pa.array(instant)),
                **{
                    name: pa.array(of[place, instant])
                    for name, of in (("committed", self._committed), ("end", self.ends), ("lag", self.lag))
                },
            }
        )

    def now(self) -> Numbers:
        """For each place the last known lag."""
        known = self.lag >= 0
        if not known.size:
            return np.full(len(self.lag), NOTHING)
        last = known.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
        found: Numbers = np.where(known.any(axis=1), self.lag[np.arange(len(last)), last], NOTHING)
        return found


def _groups_table(
    commits: Commits, states: dict[str, GroupState], lag: _Lag, found: list[Finding], rebalances: Counter[str]
) -> pa.Table:
    with_places, first_place = np.unique(commits.places.groups, return_index=True)
    names = commits.places.group_names.to_pylist()
    sums = _sums(commits, lag.now(), first_place)
    of_places = {names[number]: ones for number, ones in zip(with_places.tolist(), sums, strict=True)}
    by_group: dict[str, list[Finding]] = defaultdict(list)
    for finding in found:
        by_group[finding.group].append(finding)
    rows = []
    for name in sorted({name for name in (*names, *states) if name is not None}):
        state = states.get(name)
        rows.append(
            {
                "group": name,
                "protocol": "none" if state is None else PROTOCOLS[state.protocol],
                "members": 0 if state is None else len(state.members),
                "deserted_since": None if state is None else microseconds(state.deserted_since),
                **of_places.get(name, {"partitions": 0, "commits": 0}),
                "rebalances": rebalances[name],
                "findings": len(by_group[name]),
                "in_trouble": any(finding.severity == findings.BAD for finding in by_group[name]),
            }
        )
    return pa.Table.from_pylist(rows, schema=_GROUPS)


def _sums(commits: Commits, lag: Numbers, first_place: Numbers) -> list[dict[str, int | None]]:
    """The columns of the table `groups` that follow from a group's places; `first_place` is the first of each group,
    `lag` the last known lag of each place."""
    if not len(first_place):
        return []
    first, last = commits.at[commits.first[:-1]], commits.at[commits.last()]
    known = np.logical_or.reduceat(lag >= 0, first_place)
    columns = {
        "partitions": np.diff(first_place, append=len(lag)),
        "commits": np.diff(commits.first[first_place], append=len(commits.at)),
        "first_commit": np.minimum.reduceat(first, first_place) * 1000,
        "last_commit": np.maximum.reduceat(last, first_place) * 1000,
        "lag": np.where(known, np.add.reduceat(np.maximum(lag, 0), first_place), NOTHING),
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [{**dict(zip(columns, row, strict=True)), "lag": row[-1] if row[-1] >= 0 else None} for row in rows]


_GROUPS = pa.schema(
    [
        ("group", pa.string()),
        ("protocol", pa.string()),
        ("members", pa.int32()),
        ("deserted_since", TIME),
        ("partitions", pa.int32()),
        ("commits", pa.int64()),
        ("first_commit", TIME),
        ("last_commit", TIME),
        ("lag", pa.int64()),
        ("rebalances", pa.int32()),
        ("findings", pa.int32()),
        ("in_trouble", pa.bool_()),
    ]
)


def _records_table(commits_in: pa.Table, groups_in: pa.Table) -> pa.Table:
    """The table `records`: the number of records by type, version and status; a repeated record counts once."""
    columns = ["log_partition", "kind", "status", "version"]
    both = pa.concat_tables([table.select([*columns, "log_offset"]) for table in (commits_in, groups_in)])
    each = np.unique(log_places(both), return_index=True)[1]
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
