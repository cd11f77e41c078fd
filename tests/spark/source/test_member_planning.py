"""Plans and commits of a query that shares its group, after changes of the logs and the group: against artificial logs
and groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from made_logs import Logs, over
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed
from kohort.client.consumer.options import wanted
from kohort.client.errors import KafkaError, NotOwned
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember
from kohort.spark.options.source import Options, parse
from kohort.spark.options.values import OptionError
from kohort.spark.source import pacing, planner
from kohort.spark.source.member import membership, reader, refusals
from kohort.spark.source.member.consumer import unanchored
from kohort.spark.source.member.membership import Membership
from kohort.spark.source.member.reader import KohortMemberReader
from kohort.spark.source.member.sharing import BatchReader, ranges_of
from kohort.spark.source.planner import DataLoss
from kohort.spark.source.positions import BATCH
from kohort.wire.errors import ErrorCode

P, Q = ("t", 0), ("t", 1)
OURS = GroupReader(query="q").metadata()
ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MISSING_S", 0.0)
    monkeypatch.setattr(pacing, "IDLE_S", 0.0)


def options(**more: str) -> Options:
    given = {"kafka.bootstrap.servers": "unused:1", "subscribe": "t", "group.id": "g", "groupMode": "member"}
    given |= {"fetchOffset.retryIntervalMs": "0"} | {name.replace("_", "."): value for name, value in more.items()}
    return parse(given)


class Fences:
    """A broker that knows the owners: it answers fetches of the members of a group, and a former process's commit."""

    def __init__(self) -> None:
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.fenced = True
        self.readers: list[GroupMember | None] = []
        self.commits_made: list[dict[TopicPartition, Committed]] = []

    def __enter__(self) -> Fences:
        return self

    def __exit__(self, *_: object) -> None: ...

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        max_wait_ms: int,
        partition_max_bytes: int,
        as_member: GroupMember | None,
    ) -> list[FetchedPartition]:
        self.readers.append(as_member)
        some = list(positions)[:1]  # the others' leaders are moving
        none = ErrorCode.NONE
        return [FetchedPartition(*p, self.errors.get(p, none), 99, 99, 0, b"", fenced=self.fenced) for p in some]

    def committed(self, group: str, places: Any) -> dict[TopicPartition, Committed]:
        return {place: Committed(10, -1, OURS) for place in places}

    def commit_as(self, group: str, offsets: Any, committer: Any) -> None:
        self.commits_made.append(offsets)

    def leave_as(self, *_: Any, classic: bool) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def fences(monkeypatch: pytest.MonkeyPatch) -> Fences:
    made = Fences()
    monkeypatch.setattr(membership, "open_cluster", lambda _: made)
    return made


class Group:
    """The calls of a consumer that a membership makes, with an artificial group."""

    failure = None
    member_id, epoch, protocol = "m-1", 3, "consumer"

    def __init__(self) -> None:
        self.mine: dict[TopicPartition, int] = {}
        self.there: dict[TopicPartition, Committed] = {}
        self.commits_made: list[dict[TopicPartition, Committed]] = []
        self.asked_for: list[tuple[Any, str]] = []
        self.refuse: Callable[[], None] = lambda: None

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        return self.mine

    def committed(self, partitions: Any = None) -> dict[TopicPartition, Committed]:
        return {place: self.there[place] for place in partitions if place in self.there}

    def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        self.refuse()
        self.commits_made.append(dict(offsets))
        self.there |= offsets

    def offsets(self, partitions: Any, at: Any = "latest", *, isolation: Any = "read_uncommitted") -> Any:
        self.asked_for.append((at, isolation))
        return dict.fromkeys(partitions, 90)

    def __enter__(self) -> None: ...

    def subscribe(self, topics: Any) -> None: ...

    def close(self) -> None: ...


class Made(Membership):
    """A member of an artificial group."""

    def __init__(self, options: Options, last: Any = None, without: Any = ()) -> None:
        self.group = Group()
        super().__init__(options, last or {}, self.group, without)  # type: ignore[arg-type]

    def is_settled(self, planner: Any) -> bool:
        return True

    def gets(self, metadata: str = OURS, **offsets: int) -> None:
        """The group assigns partitions, by topic and number, at their committed offsets."""
        places = {(name[:-1], int(name[-1])): offset for name, offset in offsets.items()}
        self.group.mine |= dict.fromkeys(places, 3)
        self.group.there |= {place: Committed(offset, -1, metadata) for place, offset in places.items()}
        self.on_assigned(frozenset(places))

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the next batch begins."""
        with self.locked() as sharing:
            return self.readable(sharing)


def reader_of(logs: Logs, offsets: Mapping[str, int] | None = None, **more: str) -> Any:
    """A query over these logs; with `offsets`, as a member that has these partitions."""
    made = over(logs, KohortMemberReader(options(**more)))
    if offsets is not None:
        made.membership = Made(options(**more))
        made.membership.gets(**offsets)
    return made


def with_a_batch(member: Made) -> Any:
    """A batch in progress over both partitions, which its member believes to be its own. Returns its end."""
    member.gets(t0=10, t1=10)
    member.group.commits_made.clear()
    with member.locked() as sharing:
        return sharing.plan({P: 10, Q: 10}, {P: 15, Q: 25}, {}, member.reader)


# -- logs


def test_reading_continues_at_the_end_of_a_truncated_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs = Logs({P: 95})
    with pytest.raises(DataLoss, match="t-0 ends at offset 95, below 100, where the group is"):
        reader_of(logs, {"t0": 100}).latestOffset({}, ALL)
    careless = reader_of(logs, {"t0": 100}, failOnDataLoss="false")
    for _ in range(2):
        assert careless.latestOffset({}, ALL) == {}
        assert careless.membership.positions == {P: 95}
    logs.ends[P] = 97
    assert ranges_of(careless.latestOffset({}, ALL)) == {P: (95, 97)}
    assert capsys.readouterr().err.count("data loss") == 1


def test_a_position_after_the_last_stable_offset_stays() -> None:
    stands = reader_of(Logs({P: 100}, stable={P: 90}), {"t0": 95}, kafka_isolation_level="read_committed")
    assert stands.latestOffset({}, ALL) == {}
    assert stands.membership.positions == {P: 95}


def test_a_topic_of_another_id_is_read_from_its_beginning(fences: Fences) -> None:
    logs = Logs({P: 90, Q: 90}, ids={"t": b"1"})
    strict, careless = (reader_of(logs, {"t0": 90}, failOnDataLoss=loss) for loss in ("true", "false"))
    for each in (strict, careless):
        assert each.latestOffset({}, ALL) == {}
        each.membership.gets(t1=7)  # created since; its last owner already read the new topic
    logs.ids["t"] = b"2"
    logs.ends |= {P: 100, Q: 100}
    with pytest.raises(DataLoss, match="t was deleted and created again; the group had reached offset 90 of partition"):
        strict.latestOffset({}, ALL)
    end = careless.latestOffset({}, ALL)
    assert ranges_of(end) == {P: (0, 100), Q: (7, 100)}
    careless.commit(end)
    assert careless.latestOffset(end, ALL) is end
    assert careless.membership.positions == {P: 100, Q: 100}


def test_a_topic_recreated_between_two_runs_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Made, "join", lambda _: None)
    monkeypatch.setattr(reader, "Membership", Made)
    logs = Logs({P: 100, Q: 100}, ids={"t": b"1"})
    start: Any = {BATCH: {"number": 1}}
    end = reader_of(logs, {"t0": 10}).latestOffset(start, ALL)
    assert end["t@MQ"] == {}
    logs.ids["t"] = b"2"
    for _ in range(2):
        with pytest.raises(DataLoss, match="t was deleted and created again before the query had read what it had"):
            reader_of(logs).partitions(start, end)
        with pytest.raises(DataLoss, match="t was deleted and created again since the query's last batch"):
            reader_of(logs).latestOffset(end, ALL)
    careless = reader_of(logs, failOnDataLoss="false")
    assert list(careless.partitions(start, end)) == []
    assert careless.latestOffset(end, ALL) is end
    careless.membership.group.mine = {P: 3}  # without an offset: the group's are gone with the topic
    careless.membership.on_assigned(frozenset({P}))
    assert careless.membership.positions == {P: 90}
    assert capsys.readouterr().err.count("data loss: t was deleted and created again") == 2


def test_offsets_of_deleted_topics_are_left_to_the_group() -> None:
    reader = reader_of(Logs({P: 100}), {"t0": 5, "gone0": 5}, subscribe="t,gone")
    assert ranges_of(reader.latestOffset({}, ALL)) == {P: (5, 100)}


def test_a_deleted_topic_does_not_end_a_run_that_may_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Made, "join", lambda _: None)
    monkeypatch.setattr(reader, "Membership", Made)
    done: Any = {"t": {"0": 3}, BATCH: {"number": 1}}
    for loss, start, ends in (("false", done, True), ("true", done, False), ("false", {}, False)):
        run = reader_of(Logs({P: 100}), subscribe="t,gone", failOnDataLoss=loss)
        run.prepareForTriggerAvailableNow()
        if ends:
            assert run.latestOffset(start, ALL) is start
        else:
            with pytest.raises(OptionError, match="no such topic: gone"):
                run.latestOffset(start, ALL)


# -- where it begins


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_with_read_committed_latest_is_the_last_stable_offset(isolation: str) -> None:
    member = Made(options(startingOffsets="latest", kafka_isolation_level=isolation))
    member.group.mine = {P: 1}
    member.on_assigned(frozenset({P}))
    assert member.group.asked_for == [("latest", isolation)]


def test_the_first_commit_is_marked_as_the_querys() -> None:
    """So that an operator's offset is known from it, even if it is the same."""
    member = Made(options())
    member.group.there = {Q: Committed(20, -1, OURS)}
    member.group.mine = {Q: 3}
    member.gets("", t0=10)
    [made] = member.group.commits_made
    assert (set(made), made[P].offset) == ({P}, 10)
    assert '"by":"kohort-spark"' in made[P].metadata


@pytest.mark.parametrize(("metadata", "begins"), [("", 10), (OURS, 15)])
def test_a_rewind_by_one_batch_counts(metadata: str, begins: int) -> None:
    member = Made(options(), {"t": {"0": 15}, "@start": {"t": {"0": 10}}, BATCH: {"number": 1}})
    member.gets(metadata, t0=10)
    assert member.positions == {P: begins}


# -- what tasks have left


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH])
def test_partitions_refused_to_tasks_are_not_committed(
    fences: Fences, monkeypatch: pytest.MonkeyPatch, error: ErrorCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """They cannot report it, and their member may not have learned yet that the partition has another owner."""
    fences.errors = {P: error}
    member = Made(options())
    member.batch_finished(with_a_batch(member))
    assert [{place: entry.offset for place, entry in made.items()} for made in member.group.commits_made] == [{Q: 25}]
    assert set(fences.readers) == {GroupMember("g", "m-1", 3)}
    assert "has taken away t-0; its part of the batch is not committed" in capsys.readouterr().err
    assert member.positions == {Q: 25}
    monkeypatch.setattr(refusals, "REFUSED_S", -1.0)
    assert member.positions == {P: 10, Q: 25}  # if this member owns it nevertheless, it reads it again


def test_a_cluster_that_refuses_nothing_is_asked_once(fences: Fences) -> None:
    fences.fenced = False
    member = Made(options())
    end = with_a_batch(member)
    member.batch_finished(end)
    assert {place: entry.offset for place, entry in member.group.there.items()} == {P: 15, Q: 25}
    with member.locked() as sharing:
        again = sharing.plan({P: 15, Q: 25}, {P: 16, Q: 25}, end, member.reader)
    member.batch_finished(again)
    assert member.group.there[P].offset == 16
    assert len(fences.readers) == 1


@pytest.mark.parametrize(("error", "begins"), [(ErrorCode.FENCED_MEMBER_EPOCH, 10), (ErrorCode.UNKNOWN_MEMBER_ID, 15)])
def test_refused_partitions_are_not_committed_for_an_earlier_process(
    fences: Fences, monkeypatch: pytest.MonkeyPatch, error: ErrorCode, begins: int
) -> None:
    monkeypatch.setattr(membership, "call_at_sigterm", lambda *_: None)
    fences.errors = {P: error}
    batch = {"number": 1, **BatchReader("m-1", 3, "consumer")._asdict()}
    member = Made(options(), {"t": {"0": 15, "1": 25}, "@start": {"t": {"0": 10, "1": 10}}, BATCH: batch})
    member.join()
    [made] = fences.commits_made
    assert {place: entry.offset for place, entry in made.items()} == ({P: 15, Q: 25} if begins == 15 else {Q: 25})
    member.gets(t0=10)
    assert member.positions == {P: begins}


# -- the hand-over


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading"), None])
def test_a_commit_before_a_hand_over_is_tried_again_with_pauses(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None
) -> None:
    monkeypatch.setattr(membership, "COMMIT_RETRY_S", 0.05)
    member = Made(options())
    end = with_a_batch(member)
    with member.locked() as sharing:
        sharing.finish()
    assert not member.has_planned(end)
    attempts: list[float] = []

    def refuse() -> None:
        attempts.append(time.monotonic())
        if len(attempts) == 1:
            member.on_lost(frozenset())  # meanwhile
            raise KafkaError(None, "broken")
        if len(attempts) < 6:
            raise error or NotOwned(None, "on its way")

    member.group.refuse = refuse
    member.on_revoked(frozenset({P}))
    assert member.group.there[P].offset == 15
    assert len(attempts) == 6
    if error is not None:
        assert attempts[-1] - attempts[0] > 3 * 0.05


# -- the options


def test_a_pattern_keeps_its_flags() -> None:
    cases = {
        "orders": ["orders", "my-orders-2"],
        "(?i)ORDERS-.*": ["orders-", "my-orders-eu"],
        "(?i)(?x) orders  # all of them": ["orders", "x-orders"],
        "^(?:a|b)$|orders": ["orders"],
        "(?a)order": ["orders"],
        "(?i:ORD)ers": ["orders"],
    }
    for pattern, matched in cases.items():
        joined = unanchored(pattern)
        assert wanted((), joined).pattern == joined
        assert all(re.fullmatch(joined, name) for name in matched), joined
        assert all(re.search(pattern, name, re.ASCII) for name in matched)
        assert not re.fullmatch(joined, "payments")
    assert unanchored("orders") == ".*(?:orders).*"
    assert unanchored("(?i)orders") == ".*(?i:orders).*"


def test_a_location_without_a_checkpoint_is_reported_once(
    fences: Fences, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path of the cluster's file system, say, without its scheme: here it is one of this machine."""
    member = Made(options(checkpointLocation=str(tmp_path / "ckpt")))
    member.batch_finished(with_a_batch(member))
    member.end()
    told = capsys.readouterr().err
    assert told.count(f"checkpointLocation {tmp_path}/ckpt: on ") == 1
    assert "neither metadata nor offsets" in told
    (tmp_path / "ckpt" / "offsets").mkdir(parents=True)
    member = Made(options(checkpointLocation=str(tmp_path / "ckpt")))
    member.batch_finished(with_a_batch(member))
    assert capsys.readouterr().err == ""


def test_nothing_is_asked_without_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    member = Made(options(checkpointLocation="nowhere"))
    member.batch_finished({})
    member.end()
    assert (member.group.commits_made, capsys.readouterr().err) == ([], "")
