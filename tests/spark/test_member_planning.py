"""Plans and commits of a query that shares its group, after changes of the logs and the group: against logs and a
group made by hand."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from made_logs import Logs, over

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
from kohort.spark.source.member.sharing import BatchReader, Sharing
from kohort.spark.source.planner import DataLoss
from kohort.spark.source.positions import BATCH
from kohort.wire.errors import ErrorCode

P, Q = ("t", 0), ("t", 1)
OURS = GroupReader(query="q").metadata()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MISSING_S", 0.0)
    monkeypatch.setattr(pacing, "IDLE_S", 0.0)


def options(**more: str) -> Options:
    given = {"kafka.bootstrap.servers": "unused:1", "subscribe": "t", "group.id": "g", "groupMode": "member"}
    given |= {"fetchOffset.retryIntervalMs": "0"} | {name.replace("_", "."): value for name, value in more.items()}
    return parse(given)


def reader_of(logs: Logs, **more: str) -> KohortMemberReader:
    return over(logs, KohortMemberReader(options(**more)))


class Fences:
    """A broker that knows the owners: it answers fetches of the members of a group."""

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode], *, fenced: bool = True) -> None:
        self.errors = errors
        self.fenced = fenced
        self.readers: list[GroupMember | None] = []

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

    def close(self) -> None: ...


class Group:
    """The calls of a consumer that a membership makes; the group is made by hand."""

    failure = None

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

    def close(self) -> None: ...


class Made(Membership):
    """A member of a group that is made by hand."""

    def __init__(self, options: Options, last: Any = None) -> None:
        self.group = Group()
        super().__init__(options, last or {}, self.group)  # type: ignore[arg-type]


def with_a_batch(member: Made, **fence: Any) -> Any:
    """A batch in progress over both partitions, which its member believes to be its own. Returns its end."""
    member._refusals_cluster = Fences(**fence)  # type: ignore[assignment]
    member.group.mine = {P: 3, Q: 3}
    for place in (P, Q):
        member._sharing.begin(place, 3, 10, 10)
    return member._sharing.plan({P: 10, Q: 10}, {P: 15, Q: 25}, {}, BatchReader("m-1", 3, "consumer"))


# -- logs


def test_reading_continues_at_the_end_of_a_truncated_log(capsys: pytest.CaptureFixture[str]) -> None:
    sharing = Sharing()
    sharing.begin(P, 1, 100, 100)
    logs = Logs({P: 95})
    with pytest.raises(DataLoss, match="t-0 ends at offset 95, below 100, where the group is"):
        reader_of(logs)._ends(sharing, {P: 100})
    careless = reader_of(logs, failOnDataLoss="false")
    assert careless._ends(sharing, {P: 100}) == ({P: 95}, {P: 95})
    assert sharing.readable({P: 1}) == {P: 95}
    assert careless._ends(sharing, sharing.readable({P: 1})) == ({P: 95}, {P: 95})
    assert capsys.readouterr().err.count("data loss") == 1


def test_a_position_after_the_last_stable_offset_stays() -> None:
    sharing = Sharing()
    sharing.begin(P, 1, 95, 95)
    logs = Logs({P: 100}, stable={P: 90})
    stands = reader_of(logs, kafka_isolation_level="read_committed")
    assert stands._ends(sharing, {P: 95}) == ({P: 95}, {P: 95})


def test_a_topic_of_another_id_is_read_from_its_beginning() -> None:
    sharing = Sharing()
    sharing.begin(P, 1, 90, 90)
    logs = Logs({P: 100, Q: 100}, ids={"t": b"1"})
    strict, careless = reader_of(logs), reader_of(logs, failOnDataLoss="false")
    for each in (strict, careless):
        assert each._ends(sharing, {P: 90}) == ({P: 90}, {P: 100})
    logs.ids["t"] = b"2"
    sharing.begin(Q, 2, 7, 7)  # it came since, and whoever had it was in the new topic by then
    with pytest.raises(DataLoss, match="t was deleted and created again; the group had reached offset 90 of partition"):
        strict._ends(sharing, {P: 90, Q: 7})
    assert careless._ends(sharing, {P: 90, Q: 7}) == ({P: 0, Q: 7}, {P: 100, Q: 100})
    assert sharing.readable({P: 1, Q: 2}) == {P: 0, Q: 7}
    assert careless._ends(sharing, {P: 0, Q: 7}) == ({P: 0, Q: 7}, {P: 100, Q: 100})


def test_what_is_deleted_is_left_to_the_group() -> None:
    sharing = Sharing()
    logs = Logs({P: 100})
    for place in (P, ("gone", 0)):
        sharing.begin(place, 1, 5, 5)
    assert reader_of(logs, subscribe="t,gone")._ends(sharing, {P: 5, ("gone", 0): 5}) == ({P: 5}, {P: 100})


def test_a_deleted_topic_does_not_end_a_run_that_may_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet:
        def __init__(self, *_: Any) -> None: ...

        def join(self) -> None: ...

    monkeypatch.setattr(reader, "Membership", Quiet)
    logs = Logs({P: 100})
    done: Any = {"t": {"0": 3}, BATCH: {"number": 1}}
    for loss, start, ends in (("false", done, True), ("true", done, False), ("false", {}, False)):
        run = reader_of(logs, subscribe="t,gone", failOnDataLoss=loss)
        run.prepareForTriggerAvailableNow()
        if ends:
            assert run._joined(start) is run.membership
        else:
            with pytest.raises(OptionError, match="no such topic: gone"):
                run._joined(start)


# -- where it begins


def test_with_read_committed_latest_is_the_last_stable_offset() -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        member = Made(options(startingOffsets="latest", kafka_isolation_level=isolation))
        member.group.mine = {P: 1}
        member.on_assigned(frozenset({P}))
        assert member.group.asked_for == [("latest", isolation)]


def test_the_first_commit_is_marked_as_the_querys() -> None:
    """So that an operator's offset is known from it, even if it is the same."""
    member = Made(options())
    member.group.mine = {P: 1, Q: 1}
    member.group.there = {P: Committed(10, -1, ""), Q: Committed(20, -1, OURS)}
    member.on_assigned(frozenset({P, Q}))
    [made] = member.group.commits_made
    assert (set(made), made[P].offset) == ({P}, 10)
    assert '"by":"kohort-spark"' in made[P].metadata


@pytest.mark.parametrize(("metadata", "begins"), [("", 10), (OURS, 15)])
def test_a_rewind_by_one_batch_counts(metadata: str, begins: int) -> None:
    last = {"t": {"0": 15}, "@start": {"t": {"0": 10}}, BATCH: {"number": 1}}
    member = Made(options(), last)
    member.group.mine = {P: 1}
    member.group.there = {P: Committed(10, -1, metadata)}
    member.on_assigned(frozenset({P}))
    assert member._sharing.readable({P: 1}) == {P: begins}


# -- what tasks have left


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH])
def test_what_was_refused_to_tasks_is_not_committed(error: ErrorCode, capsys: pytest.CaptureFixture[str]) -> None:
    """They cannot report it, and their member may not have learned yet that the partition has another owner."""
    member = Made(options())
    end = with_a_batch(member, errors={P: error})
    member.batch_finished(end)
    assert [{place: entry.offset for place, entry in made.items()} for made in member.group.commits_made] == [{Q: 25}]
    assert set(member._refusals_cluster.readers) == {GroupMember("g", "m-1", 3)}  # type: ignore[union-attr]
    assert "has taken away t-0; its part of the batch is not committed" in capsys.readouterr().err
    held = member._sharing.readable(member.owned)
    assert held == {P: 10, Q: 25}  # if it should be this member's all the same, it reads it again
    assert member._refusals.without(held) == {Q: 25}
    member._refusals._refused_at[P] -= refusals.REFUSED_S
    assert member._refusals.without(held) == held


def test_a_cluster_that_refuses_nothing_is_asked_once() -> None:
    member = Made(options())
    end = with_a_batch(member, errors={}, fenced=False)
    member.batch_finished(end)
    assert {place: entry.offset for place, entry in member.group.there.items()} == {P: 15, Q: 25}
    again = member._sharing.plan({P: 15, Q: 25}, {P: 16, Q: 25}, end, BatchReader("m-1", 3, "consumer"))
    member.batch_finished(again)
    assert member.group.there[P].offset == 16
    assert len(member._refusals_cluster.readers) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(("error", "begins"), [(ErrorCode.FENCED_MEMBER_EPOCH, 10), (ErrorCode.UNKNOWN_MEMBER_ID, 15)])
def test_what_was_refused_is_not_committed_in_the_name_of_a_former_process(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode, begins: int
) -> None:
    committed: list[dict[TopicPartition, Committed]] = []

    class Cluster(Fences):
        def __enter__(self) -> Cluster:
            return self

        def __exit__(self, *_: object) -> None: ...

        def committed(self, group: str, places: Any) -> dict[TopicPartition, Committed]:
            return {place: Committed(10, -1, OURS) for place in places}

        def commit_as(self, group: str, offsets: Any, committer: Any) -> None:
            committed.append(offsets)

        def leave_as(self, *_: Any, classic: bool) -> None: ...

    monkeypatch.setattr(membership, "open_cluster", lambda options: Cluster({P: error}))
    former = BatchReader("m-1", 3, "consumer")
    batch = {"number": 1, **former._asdict()}
    member = Made(options(), {"t": {"0": 15, "1": 25}, "@start": {"t": {"0": 10, "1": 10}}, BATCH: batch})
    member._end_former_membership(former)
    [made] = committed
    expected = {Q: 25} if begins == 10 else {P: 15, Q: 25}
    assert {place: entry.offset for place, entry in made.items()} == expected
    member.group.mine, member.group.there = {P: 5}, {P: Committed(10, -1, OURS)}
    member.on_assigned(frozenset({P}))
    assert member._sharing.readable({P: 5}) == {P: begins}


# -- the hand-over


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading"), None])
def test_a_commit_before_a_hand_over_is_tried_again_with_pauses(
    monkeypatch: pytest.MonkeyPatch, error: KafkaError | None
) -> None:
    monkeypatch.setattr(membership, "COMMIT_RETRY_S", 0.05)
    member = Made(options())
    end = with_a_batch(member, errors={})
    member._sharing.finish()
    assert not member.has_planned(end)
    attempts: list[float] = []

    def refuse() -> None:
        attempts.append(time.monotonic())
        member._changed.set() if len(attempts) == 1 else None  # by Spark's call of latestOffset meanwhile
        if len(attempts) < 6:
            raise error or NotOwned(None, "on its way") if len(attempts) > 1 else KafkaError(None, "broken")

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


def test_a_location_without_a_checkpoint_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path of the cluster's file system, say, without its scheme: here it is one of this machine."""
    member = Made(options(checkpointLocation=str(tmp_path / "ckpt")))
    end = with_a_batch(member, errors={})
    member.batch_finished(end)
    member.end()
    told = capsys.readouterr().err
    assert told.count(f"checkpointLocation {tmp_path}/ckpt: on ") == 1
    assert "neither metadata nor offsets" in told
    (tmp_path / "ckpt" / "offsets").mkdir(parents=True)
    member = Made(options(checkpointLocation=str(tmp_path / "ckpt")))
    member.batch_finished(with_a_batch(member, errors={}))
    assert capsys.readouterr().err == ""


def test_nothing_is_asked_without_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    member = Made(options(checkpointLocation="nowhere"))
    member.batch_finished({})
    member.end()
    assert (member.group.commits_made, capsys.readouterr().err) == ([], "")
