"""The tables and findings of made-up logs: each planted trouble is found, and healthy groups have no findings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from analysed_logs import analysed, at, kinds, only, rows_of
from offsets_log import HOUR, MINUTE, SECOND, START, Log, shares

from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.metadata import Partition, Topic
from kohort.coordinator import records
from kohort.coordinator.events import Record
from kohort.spark.history.analysis import TABLES
from kohort.spark.history.cluster import ends_over_time
from kohort.spark.history.ends import Ends, read_ends
from kohort.spark.history.extent import interval_edges
from kohort.spark.history.limits import DAY
from kohort.spark.history.report.findings import count, duration, findings_table
from kohort.spark.history.store import HistoryFailed
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataValue


@pytest.fixture(scope="module")
def healthy() -> Log:
    """Three groups at work, one of them behind but steady, and one without members that only commits."""
    log = Log(60)
    orders, clicks = log.topic("orders", 6, 50.0), log.topic("clicks", 4, 200.0)
    log.healthy("billing", orders)
    log.modern("search", clicks, behind=20 * SECOND)
    log.healthy("audit", clicks, 2, behind=90 * SECOND)
    for partition in range(6):
        log.consume("spark-job", orders, partition, START + MINUTE, log.stop, every=30 * SECOND, leader_epoch=1)
    return log


@pytest.fixture(scope="module")
def tables(healthy: Log) -> dict[str, pa.Table]:
    return analysed(healthy)[0]


@pytest.mark.parametrize("ends", [True, False])
def test_healthy_groups_give_no_finding(healthy: Log, ends: bool) -> None:
    tables, findings = analysed(healthy, ends=ends)
    assert findings == []
    for name in ("storms", "rewinds", "sawteeth", "zombies", "expiring"):
        assert tables[name].num_rows == 0, name
    groups = {row["group"]: row for row in tables["groups"].to_pylist()}
    assert {name: (row["protocol"], row["members"], row["rebalances"]) for name, row in groups.items()} == {
        "audit": ("classic", 2, 2),
        "billing": ("classic", 3, 3),
        "search": ("consumer", 4, 2),
        "spark-job": ("none", 0, 0),
    }
    assert (groups["audit"]["lag"] is not None) == ends


def commit_times(log: Log) -> list[int]:
    return [at for at, record in log.written if record.key[:2] == b"\0\1"]


def test_commits_are_all_there_in_order(healthy: Log, tables: dict[str, pa.Table]) -> None:
    commits = tables["commits"]
    assert commits.num_rows == len(commit_times(healthy))
    epochs = {(row["group"] == "spark-job", row["leader_epoch"]) for row in commits.to_pylist()}
    assert epochs == {(True, 1), (False, None)}
    mine = only(commits, group="billing", topic="orders", partition=3)
    offsets = [row["offset"] for row in mine]
    assert [row["previous"] for row in mine] == [None, *offsets[:-1]]
    assert [row["step"] for row in mine][:2] == ["first", "forward"]
    assert [row["log_offset"] for row in mine] == sorted(row["log_offset"] for row in mine)


def test_a_partition_has_one_owner_at_a_time(tables: dict[str, pa.Table]) -> None:
    owned = tables["ownership"]
    final = {"billing": shares([f"billing-client-{n}-1{n}" for n in range(3)], 6), "search": {}}
    final["search"] = shares([f"search-{n}" for n in range(4)], 4)
    for group, members in final.items():
        for partition in {p for held in members.values() for p in held}:
            spans = sorted(only(owned, group=group, partition=partition), key=lambda row: row["since"])
            assert all(a["until"] is not None and a["until"] <= b["since"] for a, b in itertools.pairwise(spans))
            assert spans[-1]["until"] is None
            assert partition in members[spans[-1]["member_id"]]
            assert [row["moved_from"] for row in spans] == [None, *(row["member_id"] for row in spans[:-1])]
    assert {row["topic"] for row in only(owned, group="search")} == {"clicks"}


def test_members_and_rebalances_have_their_times(healthy: Log, tables: dict[str, pa.Table]) -> None:
    joined = [at(row, "since") for row in only(tables["members"], group="billing")]
    assert joined == [START + 2 * SECOND + n * 20 * SECOND for n in range(3)]
    [second] = only(tables["rebalances"], group="search", epoch=2)
    middle = (START + healthy.stop) // 2
    # Four members reach the epoch, the last of them 500 + 3 * 200 ms after it was raised.
    assert (at(second, "started"), second["length_ms"]) == (middle, 1100)
    assert (second["members_before"], second["members_after"], second["joined"]) == (3, 4, ["search-3"])
    moved = [row for row in only(tables["ownership"], group="search") if row["moved_from"] is not None]
    assert second["moved"] == len(moved) > 0
    [grown] = only(tables["rebalances"], group="billing", epoch=3)
    assert (grown["length_ms"], grown["joined"], grown["moved"]) == (400, ["billing-client-2-12"], 3)
    assert 0 < grown["pause_ms"] < 10_000


def test_lag_and_rates_equal_those_of_a_plain_loop(healthy: Log, tables: dict[str, pa.Table]) -> None:
    mine = only(tables["commits"], group="audit", partition=1)
    topic = healthy.topics["clicks"]
    for row in only(tables["lag"], group="audit", partition=1)[::7]:
        instant = at(row, "at") or 0
        committed = [one["offset"] for one in mine if (at(one, "at") or 0) <= instant][-1]
        assert row["committed"] == committed
        assert abs(row["end"] - int(topic.end(instant))) <= 1
        assert row["lag"] == row["end"] - committed
    read = sum(row["records"] for row in only(tables["rates"], group="audit", partition=1))
    assert read == mine[-1]["offset"] - mine[0]["offset"]
    assert sum(row["commits"] for row in only(tables["rates"], group="audit", partition=1)) == len(mine)


def test_a_commit_in_the_last_instant_counts(healthy: Log) -> None:
    last = max(commit_times(healthy))
    tables, _ = analysed(healthy, now=last)
    assert sum(row["commits"] for row in tables["rates"].to_pylist()) == tables["commits"].num_rows
    assert {at(row, "until") for row in tables["rates"].to_pylist() if at(row, "until") > last - SECOND} == {last}


def test_order_and_repetition_of_records_do_not_matter(healthy: Log, tables: dict[str, pa.Table]) -> None:
    rows = rows_of(healthy)
    mixed = pa.concat_tables([rows, rows.slice(0, 500)])
    mixed = mixed.take(pa.array(np.random.default_rng(3).permutation(mixed.num_rows)))
    again = analysed(healthy, rows=mixed)[0]
    for name in TABLES:
        assert again[name].to_pylist() == tables[name].to_pylist(), name


@pytest.fixture(scope="module")
def troubled() -> Log:
    """A group for each trouble, and some that only seem to be in trouble."""
    log = Log(60)
    orders = log.topic("orders", 6, 50.0)
    log.storm("shipping", orders, START + 20 * MINUTE, 30)
    log.zombie("invoices", orders, START + 30 * MINUTE)
    log.sawtooth("sink", orders, 2, START + 20 * MINUTE)
    owned = log.healthy_until("stuck", orders, START + 20 * MINUTE)
    awake = {member: owned[member] for member in list(owned)[1:]}
    log.working("stuck", orders, awake, START + 20 * MINUTE, log.stop)
    log.healthy_until("idle", log.topic("silent", 6, 0.0), START + 20 * MINUTE)
    log.healthy("wide", log.topic("wide", 30, 5.0), 20)
    # A query commits without being a member, and names itself in the metadata.
    log.healthy_until("handed", orders, START + 20 * MINUTE)
    log.leave("handed", orders, START + 20 * MINUTE)
    times = START + np.arange(21, 60) * MINUTE
    for partition in range(6):
        log.commit("handed", "orders", partition, times, orders.end(times - 1000), by=GroupReader("q").metadata())
    return log


def test_each_trouble_is_found(troubled: Log) -> None:
    tables, findings = analysed(troubled)
    assert kinds(findings) == [
        ("invoices", "zombie"),
        ("shipping", "storm"),
        ("sink", "sawtooth"),
        ("stuck", "falling behind"),
        ("stuck", "standstill"),
    ]
    told = {finding.group: finding for finding in findings}
    [storm] = tables["storms"].to_pylist()
    assert (storm["rebalances"], storm["newcomers"], storm["members"]) == (31, 1, 3)
    since = START + 20 * MINUTE
    assert (at(storm, "since"), at(storm, "until")) == (since - 400, since + 30 * 15 * SECOND)
    assert storm["moved"] == sum(row["moved"] for row in only(tables["rebalances"], group="shipping"))
    assert (storm["clients"], storm["looping"], storm["loops"]) == (1, "shipping-client-2 on 10.0.0.1", 15)
    assert told["shipping"].details.startswith("shipping-client-2 on 10.0.0.1 joined again and again, 15 times: ")
    assert len(only(tables["rebalances"], group="wide")) == 20, "a group that grows is no storm"

    [zombie] = only(tables["zombies"], group="invoices")
    assert (zombie["member_id"], zombie["partition"], zombie["commits"]) == ("invoices-client-2-12", 4, 8)
    assert zombie["kind"] == "former owner commits"
    assert at(zombie, "since") == START + 30 * MINUTE + 7 * SECOND
    assert "invoices-client-2-12 on 10.0.0.1 continues" in told["invoices"].headline

    [saw] = only(tables["sawteeth"], group="sink")
    assert (saw["partition"], saw["teeth"]) == (2, 10)
    assert tables["rewinds"].num_rows == 0

    idle = [(row["member_id"], row["partition"]) for row in only(tables["zombies"], group="stuck")]
    assert sorted(idle) == [("stuck-client-0-10", partition) for partition in (0, 1)]
    assert {row["group"] for row in tables["zombies"].to_pylist()} == {"invoices", "stuck"}


def test_a_group_that_falls_behind_and_a_deserted_group() -> None:
    log = Log(90)
    topic = log.topic("orders", 6, 50.0)
    log.healthy("warehouse", topic, speed=0.6)
    log.healthy_until("gone", topic, START + 30 * MINUTE)
    log.leave("gone", topic, START + 30 * MINUTE)
    findings = analysed(log)[1]
    assert kinds(findings) == [("gone", "deserted"), ("warehouse", "falling behind")]
    deserted = next(one for one in findings if one.kind == "deserted")
    assert deserted.headline == "gone has no members, and its lag grows"
    lag, more = re.findall(r"[\d,]+(?= records?| more)", deserted.details)
    assert 1_000_000 < int(more.replace(",", "")) <= int(lag.replace(",", "")), deserted.details
    assert analysed(log, ends=False)[1] == []


def test_a_deserted_group_of_the_consumer_protocol_whose_members_are_compacted_away() -> None:
    """The epoch above 0 shows that it had some."""
    log = Log(30)
    topic = log.topic("orders", 2, 50.0)
    log.note(START + MINUTE, records.consumer_group_record("gone", ConsumerGroupMetadataValue(epoch=7)))
    for partition in range(2):
        log.commit("gone", "orders", partition, START + MINUTE - 5, topic.end(START + MINUTE - 5))
    tables, findings = analysed(log)
    assert kinds(findings) == [("gone", "deserted")]
    assert [at(row, "deserted_since") for row in tables["groups"].to_pylist()] == [START + MINUTE]


def test_a_stuck_group() -> None:
    """Nothing new is committed while records come in. A group that has read all of a silent topic is not stuck."""
    log = Log(40)
    topic, silent = log.topic("orders", 6, 50.0), log.topic("silent", 6, 0.0)
    log.healthy_until("stuck", topic, START + 20 * MINUTE)
    log.healthy_until("done", silent, START + 20 * MINUTE)
    log.consume("job", topic, 0, START + MINUTE, START + 20 * MINUTE)
    log.consume("hourly", topic, 1, START + MINUTE, log.stop, every=10 * MINUTE)
    tables, findings = analysed(log)
    assert kinds(findings) == [("job", "stuck"), ("stuck", "stuck")]
    told = {finding.group: finding for finding in findings}
    assert told["stuck"].severity == "bad"
    assert told["stuck"].headline == "stuck is stuck: its 3 members commit nothing new"
    assert re.match(r"no offset has moved for 20 min, .* more since$", told["stuck"].details), told["stuck"].details
    assert told["job"].severity == "warn"
    assert told["job"].headline == "Nobody commits for job any more, and its lag grows"
    assert {row["group"] for row in tables["zombies"].to_pylist()} == {"stuck"}, "the table names the members"


def test_a_reset_and_a_rewind() -> None:
    log = Log(60)
    topic = log.topic("orders", 3, 50.0)
    owned = log.healthy_until("reset", topic, START + 30 * MINUTE)
    log.leave("reset", topic, START + 30 * MINUTE, 5)
    for partition in range(3):
        log.commit("reset", "orders", partition, START + 31 * MINUTE, 100_000)
    log.generation(START + 32 * MINUTE, "reset", 6, topic, owned)
    for partition in range(3):
        at_ = START + 32 * MINUTE + np.arange(300) * 5 * SECOND
        log.commit("reset", "orders", partition, at_, 100_000 + np.arange(300) * 1000)
    log.healthy_until("rewind", topic, START + 30 * MINUTE)
    for partition in range(3):
        at_ = START + 30 * MINUTE + np.arange(360) * 5 * SECOND
        log.commit("rewind", "orders", partition, at_, 110_000 + np.arange(360) * 500)
    tables, findings = analysed(log, ends=False)
    assert kinds(findings) == [("reset", "reset"), ("rewind", "rewind")]
    for group, to in (("reset", 100_000), ("rewind", 110_000)):
        steps = only(tables["rewinds"], group=group)
        assert [(row["partition"], row["to"], row["cause"]) for row in steps] == [(n, to, group) for n in range(3)]
        assert all(row["back"] == row["from"] - row["to"] > 50_000 for row in steps)


@pytest.mark.parametrize("deserted", [True, False])
def test_a_reset_to_0_is_a_finding_however_small_it_is(deserted: bool) -> None:
    log = Log(30)
    topic = log.topic("orders", 1, 1.0)
    log.generation(START + SECOND, "g", 1, topic, {"g-client-1-1": [0]})
    log.commit("g", "orders", 0, START + np.arange(1, 5) * MINUTE, np.arange(1, 5) * 100)
    if deserted:
        log.leave("g", topic, START + 5 * MINUTE)
    log.commit("g", "orders", 0, START + 6 * MINUTE, 0)
    [finding] = analysed(log, ends=False)[1]
    how = ("reset", "g was reset to offset 0 while it had no members")
    assert (finding.kind, finding.headline) == (how if deserted else ("rewind", "g went back to offset 0"))
    assert finding.details == "400 records to be read again on 1 partition"


def members_of(number: int, lives: dict[int, str]) -> dict[str, list[int]]:
    """Members with a partition each; a member id has the letter of its life at its end."""
    return {f"app-{n}-{lives.get(n, 'a')}": [n] for n in range(number)}


def test_a_rolling_deployment_is_told_from_a_client_that_loops() -> None:
    """Both rebalance as often, and each time a member with a new id joins."""
    log = Log(60)
    topic = log.topic("orders", 10, 0.0)
    for group in ("deployed", "looping"):
        log.generation(START + SECOND, group, 1, topic, members_of(10, {}))
        lives: dict[int, str] = {}
        for turn in range(10):
            at_ = START + 20 * MINUTE + turn * 40 * SECOND
            who = turn if group == "deployed" else 3
            gone = {name: held for name, held in members_of(10, lives).items() if not name.startswith(f"app-{who}-")}
            log.generation(at_, group, 2 + 2 * turn, topic, gone)
            lives[who] = chr(ord("b") + turn)
            log.generation(at_ + 20 * SECOND, group, 3 + 2 * turn, topic, members_of(10, lives))
    findings = analysed(log, ends=False)[1]
    assert kinds(findings) == [("deployed", "rolling deployment"), ("looping", "storm")]
    told = {finding.group: finding for finding in findings}
    assert (told["deployed"].severity, told["looping"].severity) == ("warn", "bad")
    assert "10 different members joined: restarts, or a rolling deployment" in told["deployed"].details
    assert told["looping"].details.startswith("app-3 on 10.0.0.1 joined again and again, 10 times: ")


def test_a_client_that_exceeds_max_poll_each_time_is_no_storm_but_a_finding() -> None:
    log = Log(60)
    topic = log.topic("orders", 3, 0.0)
    log.generation(START + SECOND, "slow", 1, topic, members_of(3, {}))
    for turn in range(5):
        at_ = START + (turn + 1) * 6 * MINUTE
        others = {name: held for name, held in members_of(3, {}).items() if name != "app-1-a"}
        log.generation(at_, "slow", 2 + 2 * turn, topic, others)
        log.generation(at_ + SECOND, "slow", 3 + 2 * turn, topic, members_of(3, {1: chr(ord("b") + turn)}))
    [finding] = analysed(log, ends=False)[1]
    assert (finding.severity, finding.kind) == ("bad", "loop")
    assert finding.headline == "app-1 on 10.0.0.1 joined slow again and again: 6 times in 30 min"


def test_a_reset_of_a_group_whose_members_are_compacted_away() -> None:
    """Its generation shows that it had members."""
    log = Log(60)
    topic = log.topic("orders", 1, 50.0)
    log.leave("reset", topic, START + SECOND, 9)
    log.leave("young", topic, START + SECOND, 0)
    for group in ("reset", "young"):
        log.commit(group, "orders", 0, np.array([START + 2 * SECOND, START + 30 * MINUTE]), np.array([100_000, 10]))
    tables, _ = analysed(log, ends=False)
    assert [(row["group"], row["cause"]) for row in tables["rewinds"].to_pylist()] == [
        ("reset", "reset"),
        ("young", "rewind"),
    ]
    since = {row["group"]: at(row, "deserted_since") for row in tables["groups"].to_pylist()}
    assert since == {"reset": START + SECOND, "young": None}


def test_a_restarted_static_member_keeps_its_partitions() -> None:
    log = Log(60)
    topic = log.topic("orders", 4, 50.0)

    def comes(at_: float, member: str) -> None:
        value = ConsumerGroupMemberMetadataValue(
            instance_id="pod-0", client_id=f"{member}-client", client_host="/10.0.0.2", rebalance_timeout_ms=300_000,
            subscribed_topic_names=("orders",), classic_member_metadata=None,
        )  # fmt: skip
        log.note(at_, records.member_record("modern", member, value))

    def has(at_: float, member: str) -> None:
        log.current(at_, "modern", member, 1, topic, (0, 1, 2, 3), (), state=0)

    comes(START + SECOND, "first")
    log.note(START + SECOND, records.consumer_group_record("modern", ConsumerGroupMetadataValue(epoch=1)))
    has(START + SECOND, "first")
    log.note(START + MINUTE, records.current_record("modern", "first", None))
    log.note(START + MINUTE, records.member_record("modern", "first", None))
    comes(START + MINUTE, "second")
    has(START + MINUTE, "second")
    # The ids of the third member come later in the log, those of the last one never.
    log.note(START + 2 * MINUTE, records.current_record("modern", "second", None))
    has(START + 2 * MINUTE, "third")
    comes(START + 3 * MINUTE, "third")
    log.note(START + 4 * MINUTE, records.current_record("modern", "third", None))
    has(START + 4 * MINUTE, "last")
    spans = only(analysed(log, ends=False)[0]["ownership"], partition=2)
    assert [(row["member_id"], row["client_id"], row["moved_from"]) for row in spans] == [
        ("first", "first-client", None),
        ("second", "second-client", None),
        ("third", "third-client", None),
        ("last", None, "third"),
    ]


def test_commits_to_a_group_without_members_are_a_zombie() -> None:
    log = Log(60)
    topic = log.topic("orders", 6, 50.0)
    owned = log.healthy_until("left", topic, START + 20 * MINUTE)
    log.leave("left", topic, START + 20 * MINUTE)
    first = owned[next(iter(owned))][0]
    log.consume("left", topic, first, START + 25 * MINUTE, log.stop)
    tables, findings = analysed(log, ends=False)
    assert kinds(findings) == [("left", "zombie")]
    [zombie] = tables["zombies"].to_pylist()
    assert (zombie["partition"], zombie["kind"]) == (first, "commits without being a member")


def test_offsets_that_expire() -> None:
    log = Log(60)
    topic = log.topic("orders", 3, 50.0)
    log.healthy("alive", topic)
    log.healthy_until("gone", topic, START + 10 * MINUTE)
    log.leave("gone", topic, START + 20 * MINUTE)
    log.note(START + 21 * MINUTE, records.offset_record("gone", "orders", 2, None))
    log.commit("simple", "orders", 0, START + 10 * MINUTE, 7)
    log.commit("stated", "orders", 1, START + 10 * MINUTE, 7, expires=START + 2 * HOUR)
    soon = START + 6 * DAY
    tables, findings = analysed(log, ends=False, now=soon)
    assert kinds(findings) == [("gone", "expiring"), ("simple", "expiring"), ("stated", "expiring")]
    expected = {
        ("gone", 0): START + 20 * MINUTE + 7 * DAY,
        ("gone", 1): START + 20 * MINUTE + 7 * DAY,
        ("simple", 0): START + 10 * MINUTE + 7 * DAY,
        ("stated", 1): START + 2 * HOUR,
    }
    found = {(row["group"], row["partition"]): at(row, "expires") for row in tables["expiring"].to_pylist()}
    assert found == expected
    assert kinds(analysed(log, ends=False, now=START + 2 * DAY)[1]) == [("stated", "expiring")]


def test_records_that_cannot_be_read_are_counted() -> None:
    log = Log(1)
    log.note(START, records.consumer_group_record("g", ConsumerGroupMetadataValue(epoch=3)))
    for key, value in [
        (b"\0\x0a\0\1s\0\1m", b"\0\0anything"),
        (b"\0\x13\0\1s\0\1m", b"\0\1anything"),
        (b"\0\x63what", b"ever"),
        (b"\0\3\0\1g", b"\0\x09"),
        (b"\0\3\0\1g", None),
        (b"\0\1\0", b""),
    ]:
        log.note(START, Record(key, value))
    counted = {
        (row["kind"], row["status"]): row["records"] for row in analysed(log, ends=False)[0]["records"].to_pylist()
    }
    assert counted == {
        (3, "read"): 1,
        (10, "recognised"): 1,
        (19, "recognised"): 1,
        (99, "unknown type"): 1,
        (3, "unknown version"): 1,
        (3, "tombstone"): 1,
        (1, "malformed"): 1,
    }


def test_an_empty_log_has_empty_tables() -> None:
    tables, findings = analysed(Log(1), ends=False)
    assert findings == []
    assert {table.num_rows for table in tables.values()} == {0}
    assert findings_table([]).num_rows == 0


def test_a_log_of_one_instant_has_an_interval() -> None:
    assert interval_edges(59_999, 59_999, 60).tolist() == [0, 59_999]
    assert interval_edges(60_000, 60_000, 60).tolist() == [60_000, 60_001]


def test_durations_and_counts_in_words() -> None:
    assert [duration(ms) for ms in (40, 1000, 12_500, 420_000, 3 * HOUR, 2 * DAY)] == [
        "40 ms", "1 s", "12 s", "7 min", "3 h", "2 days",
    ]  # fmt: skip
    assert (count(1, "partition"), count(1200, "partition")) == ("1 partition", "1,200 partitions")


# -- where the logs of topics ended: in files, and in a cluster whose logs grow meanwhile

NOON, ONE = 1_714_564_800_000, 1_714_568_400_000
"""Instants of 1 May 2024."""


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_instants_may_be_of_any_unit(tmp_path: Path, unit: str, zone: str | None) -> None:
    at = pa.array([NOON * 1000], pa.timestamp("us")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, tz=zone))
    table = pa.table({"topic": ["t"], "partition": [0], "at": at, "end": [7]})
    pq.write_table(table, tmp_path / "ends.parquet")
    for ends in (Ends.of(table), read_ends(str(tmp_path / "ends.parquet"))):
        assert [(times.tolist(), end.tolist()) for times, end in ends.series.values()] == [([NOON], [7])]


@pytest.mark.parametrize(
    ("noon", "one"),
    [
        ("2024-05-01T12:00:00Z", "2024-05-01T13:00:00Z"),
        ("2024-05-01 12:00:00", "2024-05-01 13:00:00"),
        ("2024-05-01 12:00:00.000", "2024-05-01 13:00:00.000"),
        (str(NOON), str(ONE)),
    ],
)
def test_instants_in_csv_may_be_text_or_milliseconds(tmp_path: Path, noon: str, one: str) -> None:
    place = tmp_path / "ends.csv"
    place.write_text(f"topic,partition,at,end\nt,0,{noon},100\nt,0,{one},200\n")
    [(at, end)] = read_ends(str(place)).series.values()
    assert (at.tolist(), end.tolist()) == ([NOON, ONE], [100, 200])


def test_a_file_that_is_no_table_of_ends_is_named(tmp_path: Path) -> None:
    place = tmp_path / "ends.csv"
    for text, said in (("topic,at,end\nt,1,2\n", "lack partition"), ("topic,partition,at,end\nt,0,noon,2\n", "noon")):
        place.write_text(text)
        with pytest.raises(HistoryFailed, match=rf"ends\.csv: .*{said}"):
            read_ends(str(place))


class Growing:
    """A cluster at the instant 150,000. Partition 0 has a record for every millisecond, partition 1 only old ones."""

    def __init__(self) -> None:
        self.searched: list[tuple[int, int]] = []
        """Partitions and instants."""

    def topics(self, _: object = None) -> dict[str, Topic]:
        return {"t": Topic("t", tuple(Partition("t", number, 0, 0, (), ()) for number in range(2)))}

    def offsets(
        self, asked: Iterable[tuple[str, int]], at: str | Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        if isinstance(at, str):
            return dict.fromkeys(asked, 0 if at == "earliest" else 150000)
        self.searched += [(place[1], at[place]) for place in asked]
        return {place: -1 if place[1] else at[place] for place in asked}


def test_the_last_end_is_that_of_its_instant() -> None:
    cluster: Any = Growing()
    ends = ends_over_time(cluster, [("t", 0), ("t", 1)], np.array([0, 30_000, 60_000]))
    assert ends.series["t", 0][1].tolist() == [0, 30_000, 60_000]
    assert ends.series["t", 1][1].tolist() == [150_000] * 3


def test_idle_partitions_are_searched_twice() -> None:
    """A search by time is expensive for a broker."""
    cluster: Any = Growing()
    times = np.arange(0, 60_000, 1000)
    ends = ends_over_time(cluster, [("t", 0), ("t", 1)], times)
    assert ends.series["t", 0][1].tolist() == times.tolist()
    assert sorted(at for partition, at in cluster.searched if not partition) == times.tolist()
    assert [at for partition, at in cluster.searched if partition] == [0, 59_000]
