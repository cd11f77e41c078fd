"""The plans of a query: the offsets of a micro-batch, its tasks, and artificial logs that have changed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_logs import Logs, over
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from kohort.spark.options.source import for_batch, parse
from kohort.spark.options.values import OptionError
from kohort.spark.source import commits, pacing, planner
from kohort.spark.source.data_source import KohortReader
from kohort.spark.source.planner import DataLoss
from kohort.spark.source.positions import START, Positions, admit, cut, from_json, ids_in, to_json, with_ids
from kohort.spark.source.stream_reader import KohortStreamReader

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MISSING_S", 0.0)
    monkeypatch.setattr(pacing, "IDLE_S", 0.0)


def reader(logs: Logs, **options: str) -> KohortStreamReader:
    """A reader without state, as in a new process."""
    given = {"kafka.bootstrap.servers": "unused:1", "fetchOffset.retryIntervalMs": "0"}
    given |= {} if {"subscribePattern", "assign"} & set(options) else {"subscribe": "t"}
    return over(logs, KohortStreamReader(parse(given | {n.replace("_", "."): value for n, value in options.items()})))


def ranges(tasks: Iterable[Any]) -> list[tuple[str, int, int, int]]:
    return [(task.topic, task.partition, task.start, task.end) for task in tasks]


def json(**topics: int) -> dict[str, dict[str, int]]:
    """Offsets of partition 0 of topics."""
    return {topic: {"0": offset} for topic, offset in topics.items()}


@pytest.mark.parametrize("new", [0, 5])
def test_a_first_batch_is_repeated_as_it_was(new: int) -> None:
    """Spark runs a first batch even if there is nothing in it. When it is repeated, "latest" means something else."""
    logs = Logs({("t", 0): 1000})
    first = reader(logs)
    start = first.initialOffset()
    assert start == first.initialOffset() == json(t=1000)
    logs.ends["t", 0] += new
    end = first.latestOffset(start, ALL)
    assert end == {**json(t=1000 + new), START: json(t=1000)}
    batch = [("t", 0, 1000, 1005)] if new else []
    assert ranges(first.partitions(start, end)) == batch
    assert first.latestOffset(end, ALL) is end
    logs.ends["t", 0] = 1010
    again = reader(logs)
    assert again.initialOffset() == json(t=1010)
    assert ranges(again.partitions(again.initialOffset(), end)) == batch
    assert again.reportLatestOffset() == json(t=1010)
    following = again.latestOffset(end, ALL)
    assert following == json(t=1010)
    again.commit(end)
    assert ranges(again.partitions(end, following)) == [("t", 0, 1000 + new, 1010)]


def test_an_end_without_a_stored_start_is_not_used_as_a_start() -> None:
    """Spark's Kafka source and earlier versions of this one have written such ends."""
    again = reader(Logs({("t", 0): 1010}))
    assert ranges(again.partitions(again.initialOffset(), json(t=1000))) == []
    assert again.latestOffset(json(t=1000), ALL) == json(t=1010)


def test_reading_continues_at_the_end_of_a_truncated_log_with_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """An unclean election has truncated the log. Reading from the beginning would read everything twice."""
    logs = Logs({("t", 0): 95})
    with pytest.raises(DataLoss, match="t-0 ends at offset 95, below 100, which the query has reached"):
        reader(logs).latestOffset(json(t=100), ALL)
    careless = reader(logs, failOnDataLoss="false", minOffsetsPerTrigger="50")
    end = careless.latestOffset(json(t=100), ReadMinRows(50))
    assert end == {**json(t=95), START: json(t=95)}
    careless.commit(json(t=100))
    assert ranges(careless.partitions(json(t=100), end)) == []
    assert ranges(reader(logs, failOnDataLoss="false").partitions(json(t=100), end)) == []
    assert careless.latestOffset(end, ReadMinRows(50)) is end
    logs.ends["t", 0] = 150
    assert careless.latestOffset(end, ReadMinRows(50)) == json(t=150)
    assert capsys.readouterr().err.count("data loss") == 1


def test_losses_are_not_reported_while_a_batch_waits_for_more(capsys: pytest.CaptureFixture[str]) -> None:
    logs = Logs({("t", 0): 100, ("u", 0): 100})
    careless = reader(logs, subscribePattern=".", failOnDataLoss="false", minOffsetsPerTrigger="50")
    end = careless.latestOffset(json(t=0, u=0), ReadMinRows(50))
    del logs.ends["u", 0]
    logs.ends["v", 0] = logs.begin["v", 0] = 7
    end = careless.latestOffset(end, ReadMinRows(50))
    for _ in range(3):
        assert careless.latestOffset(end, ReadMinRows(50)) is end
    assert capsys.readouterr().err.count("data loss") == 2


def test_a_topic_of_another_id_is_read_from_its_beginning() -> None:
    logs = Logs({("t", 0): 100}, ids={"t": b"1"})
    careless = reader(logs, failOnDataLoss="false")
    end = careless.latestOffset(json(t=90), ALL)
    assert end == {**json(t=100), "t@MQ": {}}
    logs.ends["t", 0], logs.ids["t"] = 30, b"2"
    assert careless.latestOffset(end, ALL) == {**json(t=30), START: json(t=0), "t@Mg": {}}


def test_ids_of_topics_in_the_end_of_a_batch() -> None:
    """As empty maps, which Spark's own source does not see."""
    ids = {"a": bytes(range(240, 256)), "b": bytes(16), "c": b""}
    end = with_ids({**json(a=3, b=5, d=7), START: json(a=1)}, ids)
    assert end == {
        **json(a=3, b=5, d=7),
        START: json(a=1),
        "a@8PHy8_T19vf4-fr7_P3-_w": {},
        "b@AAAAAAAAAAAAAAAAAAAAAA": {},
    }
    assert ids_in(end) == {"a": ids["a"], "b": ids["b"]}
    assert from_json(end) == {("a", 0): 3, ("b", 0): 5, ("d", 0): 7}


# -- read_committed


COMMITTED = {"kafka_isolation_level": "read_committed"}


def test_a_position_after_the_last_stable_offset_stays() -> None:
    logs = Logs({("t", 0): 100}, stable={("t", 0): 90})
    stands = reader(logs, **COMMITTED, fetchOffset_retryIntervalMs="3600000")  # nor is it waited for
    start = json(t=95)
    assert stands.latestOffset(start, ALL) is start
    logs.stable["t", 0] = 99
    assert stands.latestOffset(start, ALL) == json(t=99)
    logs.ends["t", 0] = logs.stable["t", 0] = 94
    with pytest.raises(DataLoss, match="t-0 ends at offset 94, below 95"):
        reader(logs, **COMMITTED).latestOffset(start, ALL)


def test_an_offset_after_the_last_stable_one_is_in_the_log() -> None:
    logs = Logs({("t", 0): 100}, stable={("t", 0): 90})
    begins = reader(logs, startingOffsets='{"t":{"0":95}}', **COMMITTED)
    assert begins.initialOffset() == json(t=95)
    with pytest.raises(DataLoss, match="offset 101 of t-0, but its log holds 0 to 100"):
        reader(logs, startingOffsets='{"t":{"0":101}}', **COMMITTED).initialOffset()


@pytest.mark.parametrize("end", [{}, {"endingOffsets": '{"t":{"0":-1}}'}])
def test_a_batch_read_from_there_is_empty(monkeypatch: pytest.MonkeyPatch, end: dict[str, str]) -> None:
    logs = Logs({("t", 0): 100}, stable={("t", 0): 90})
    monkeypatch.setattr(planner, "open_cluster", lambda options: logs)
    given = {"kafka.bootstrap.servers": "unused:1", "subscribe": "t", "kafka.isolation.level": "read_committed"}
    given["startingOffsets"] = '{"t":{"0":95}}'
    assert KohortReader(for_batch(given | end)).partitions() == []


# -- partitions that are gone, or not meant any more


def test_a_narrowed_pattern_excludes_other_topics(capsys: pytest.CaptureFixture[str]) -> None:
    logs = Logs({("orders-eu", 0): 10, ("orders-us", 0): 10})
    start = {"orders-eu": {"0": 1}, "orders-us": {"0": 2}}
    narrowed = {"subscribePattern": "^orders-eu$"}
    with pytest.raises(DataLoss, match=r"orders-us-0 is not selected by the options any more; .* reached its offset 2"):
        reader(logs, **narrowed).latestOffset(start, ALL)
    careless = reader(logs, **narrowed, failOnDataLoss="false")
    assert careless.latestOffset(start, ALL) == {"orders-eu": {"0": 10}}
    assert capsys.readouterr().err.count("data loss: orders-us-0") == 1


@pytest.mark.parametrize("available_now", [True, False])
def test_a_deleted_topic_does_not_end_a_query_that_may_lose_it(
    capsys: pytest.CaptureFixture[str], available_now: bool
) -> None:
    start = json(t=3, gone=7)
    strict, run = (reader(Logs({("t", 0): 10}), subscribe="t,gone", failOnDataLoss=loss) for loss in ("true", "false"))
    if available_now:
        strict.prepareForTriggerAvailableNow()
        run.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="gone-0 is gone; the query had reached its offset 7"):
        strict.latestOffset(start, ALL)
    end = run.latestOffset(start, ALL)
    assert end == json(t=10)
    if available_now:
        assert run.latestOffset(end, ALL) == end
    run.commit(start)
    assert ranges(run.partitions(start, end)) == [("t", 0, 3, 10)]
    assert capsys.readouterr().err.count("data loss: gone-0 is gone; the query had reached its offset 7") == 1


@pytest.mark.parametrize("start", [None, {"t": {"0": 3}}])
def test_a_topic_that_never_was_is_an_error_also_in_a_run_that_ends(start: Any) -> None:
    run = reader(Logs({("t", 0): 10}), subscribe="t,typo", failOnDataLoss="false")
    run.prepareForTriggerAvailableNow()
    with pytest.raises(OptionError, match="no such topic: typo"):
        run.latestOffset(run.initialOffset() if start is None else start, ALL)


def test_a_batch_is_repeated_without_what_was_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    """Deleted since, and new to the query in that very batch."""
    end = {"t": {"0": 10}, "gone": {"0": 7}}
    again = reader(Logs({("t", 0): 12}), subscribe="t,gone", failOnDataLoss="false")
    assert ranges(again.partitions(json(t=3), end)) == [("t", 0, 3, 10)]
    assert again.reportLatestOffset() == json(t=12)
    assert "data loss: gone-0 is gone, and with it its offsets up to 7" in capsys.readouterr().err
    with pytest.raises(DataLoss, match="gone-0 is gone"):
        reader(Logs({("t", 0): 12}), subscribe="t,gone").partitions(json(t=3), end)


def test_a_deletion_before_a_repeated_batch_is_reported() -> None:
    """A partition that was new in the batch: its start is not stored anywhere."""
    logs = Logs({("t", 0): 10, ("t", 1): 100})
    end = {"t": {"0": 10, "1": 100}}
    planned = reader(logs)
    assert planned.latestOffset(json(t=10), ALL) == end
    planned.commit(json(t=10))
    assert ranges(planned.partitions(json(t=10), end)) == [("t", 1, 0, 100)]
    logs.begin["t", 1] = 50
    for ask in (lambda: reader(logs).partitions(json(t=10), end), lambda: reader(logs).latestOffset(json(t=10), ALL)):
        with pytest.raises(DataLoss, match="t-1 is new to the query and begins at offset 50"):
            ask()
    careless = reader(logs, failOnDataLoss="false")
    assert ranges(careless.partitions(json(t=10), end)) == [("t", 1, 50, 100)]
    assert planned.partitions(json(t=10), end)[0].start == 0  # the task says what is gone


def test_a_run_that_ends_looks_again_at_a_log_that_seems_too_short() -> None:
    """A broker with old metadata answers the first question."""
    logs = Logs({("t", 0): 40})
    run = reader(logs)
    run.prepareForTriggerAvailableNow()
    logs.ends["t", 0] = 100
    assert run.latestOffset(json(t=90), ALL) == json(t=100)
    assert run.reportLatestOffset() == json(t=100)


# -- the checkpoint's place


@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_location_without_a_checkpoint_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at_the_end: bool
) -> None:
    monkeypatch.setattr(commits, "_open", lambda *_: Logs({}))
    monkeypatch.setattr(commits, "_commit", lambda *_: {})
    for there in (False, True):
        query = reader(Logs({("t", 0): 10}), kafka_group_id="g", checkpointLocation=str(tmp_path / "ckpt"))
        query._commits.planned = json(t=10)
        if at_the_end:
            query._commits.finish()
        else:
            query.commit(json(t=10))
        query.commit(json(t=11))
        told = capsys.readouterr().err
        assert told.count(f"checkpointLocation {tmp_path}/ckpt: on ") == (0 if there else 1), told
        (tmp_path / "ckpt" / "metadata").mkdir(parents=True, exist_ok=True)


# -- offsets and tasks

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
STARTS = st.dictionaries(PLACES, st.integers(0, 1_000), min_size=1)
MORE = st.lists(st.integers(0, 5_000), min_size=8, max_size=8)


@given(STARTS, MORE, st.integers(1, 10_000))
def test_admission_takes_the_limit_and_one_of_each_that_waits(start: Positions, more: list[int], limit: int) -> None:
    end = {place: offset + more[n] for n, (place, offset) in enumerate(start.items())}
    admitted = admit(start, end, limit)
    taken = {place: admitted[place] - start[place] for place in start}
    waiting = {place: end[place] - start[place] for place in start}
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[place] <= waiting[place] for place in start)
    if limit >= sum(map(bool, waiting.values())):
        assert all(taken[place] for place in start if waiting[place])


@given(STARTS, MORE, st.none() | st.integers(1, 20), st.none() | st.integers(1, 2_000))
def test_tasks_cover_every_range_once_and_none_has_more_than_it_may(
    start: Positions, more: list[int], pieces: int | None, most: int | None
) -> None:
    ranges = {place: (offset, offset + more[n]) for n, (place, offset) in enumerate(start.items())}
    tasks = cut(ranges, pieces, most)
    assert most is None or all(last - first <= most for _, first, last in tasks)
    for place, (first, last) in ranges.items():
        mine = sorted((a, b) for p, a, b in tasks if p == place)
        assert sum(b - a for a, b in mine) == last - first
        assert all(b == c for (_, b), (c, _) in pairwise(mine))
        if mine:
            assert (mine[0][0], mine[-1][1]) == (first, last)


def test_small_partitions_are_left_whole_and_large_ones_share_the_other_tasks() -> None:
    ranges = {("t", 0): (0, 900), ("t", 1): (0, 10), ("t", 2): (0, 10), ("t", 3): (5, 5)}
    tasks = cut(ranges, 10)
    assert [place for place, _, _ in tasks].count(("t", 0)) == 8
    assert len(tasks) == 10
    assert len(cut(ranges, 3)) == 3


def test_offsets_are_kept_as_sparks_kafka_source_keeps_them() -> None:
    assert to_json({("t", 1): 5, ("t", 0): 3}) == {"t": {"0": 3, "1": 5}}
    assert from_json({"t": {"0": 3, "1": 5}}) == {("t", 0): 3, ("t", 1): 5}
