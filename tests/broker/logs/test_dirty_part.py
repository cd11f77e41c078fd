"""Which part of a log is compacted: the newest part of a log of groups is kept, within limits of bytes and time."""

from __future__ import annotations

import pytest
from compacted import finish, looked_at, pairs
from hypothesis import given
from hypothesis import strategies as st
from logs import LOG, NOW, OneLog, batch
from msgspec.structs import replace

from kohort.broker.logs.compaction import Compaction
from kohort.broker.logs.dirty_part import MARKS, DirtyPart, Kept, even_share

SIZE = len(batch((b"a", b"1")))
HOUR = 3_600_000


def log_of(*times: int, ratio: float = 0) -> OneLog:
    """A batch of one record of the same key at each of these times."""
    log = OneLog(cleanup_policy="compact", min_cleanable_dirty_ratio=ratio)
    for at in times:
        log.produce(batch((b"a", b"1"), timestamp=at))
    return log


def due(log: OneLog, dirty: DirtyPart, kept: Kept, now: int = NOW) -> Compaction | None:
    return dirty.due(log.partition, log.storage, now, None, kept)


def offsets_after(log: OneLog, kept: Kept, now: int = NOW) -> list[int]:
    work = due(log, DirtyPart(0), kept, now)
    if work is not None:
        finish(log, work, now)
    return [offset for offset, _, _ in pairs(log)]


def test_the_newest_bytes_are_kept_as_they_were_written() -> None:
    assert offsets_after(log_of(*[NOW] * 10), Kept(SIZE * 4, HOUR)) == [5, 6, 7, 8, 9]
    assert offsets_after(log_of(*[NOW] * 10), Kept(SIZE * 40, HOUR)) == list(range(10))
    assert offsets_after(log_of(*[NOW] * 10), Kept(0, HOUR)) == [8, 9]


def test_what_is_older_than_the_limit_is_compacted_also_within_the_bytes() -> None:
    times = [NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW - HOUR // 2, NOW]
    assert offsets_after(log_of(*times), Kept(SIZE * 40, HOUR)) == [2, 3, 4]
    assert offsets_after(log_of(*times), Kept(SIZE * 40, 0)) == [3, 4], "the last batch stays, as ever"


def test_many_small_batches_are_few_marks_and_hardly_more_is_kept() -> None:
    log = log_of(*[NOW] * 1_000)
    dirty = DirtyPart(0)
    kept = Kept(SIZE * 320, HOUR)
    work = due(log, dirty, kept)
    assert work is not None
    assert 1_000 - 320 - 320 // MARKS <= work.clean_to <= 1_000 - 320
    assert len(dirty._marks) <= MARKS + 1


def test_a_mark_does_not_span_more_time_than_a_fraction_of_the_limit() -> None:
    """A log that gets little would otherwise never be compacted."""
    log = log_of(*[NOW - 2 * HOUR + minute * 60_000 for minute in range(120)])
    work = due(log, DirtyPart(0), Kept(1 << 30, HOUR))
    assert work is not None
    assert 60 - 60 // MARKS <= work.clean_to <= 61


def test_the_dirty_ratio_is_that_of_the_log_without_what_is_kept() -> None:
    log = log_of(*[NOW] * 100, ratio=0.5)
    kept = Kept(SIZE * 64, HOUR)
    dirty = DirtyPart(0)
    work = due(log, dirty, kept)
    assert work is not None, "36 of 36 batches, though of 100 in the log"
    finish(log, work)
    dirty = dirty.after(work)
    assert due(log, dirty, kept) is None
    for _ in range(8):
        log.produce(batch((b"a", b"1")))
    assert due(log, dirty, kept) is not None, "some are dirty, and one is clean"


def test_after_a_pass_what_is_kept_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(*[NOW] * 100)
    looked = looked_at(log, monkeypatch)
    dirty, kept = DirtyPart(0), Kept(SIZE * 50, HOUR)
    first = due(log, dirty, kept)
    assert first is not None
    finish(log, first)
    dirty = dirty.after(first)
    for _ in range(10):
        log.produce(batch((b"a", b"1")))
    second = due(log, dirty, kept)
    assert second is not None
    assert second.clean_to > first.clean_to
    assert looked == list(range(110)), "each once"


def test_a_pass_that_ends_early_is_gone_on_with() -> None:
    log = log_of(*[NOW] * 20)
    dirty, kept = DirtyPart(0), Kept(SIZE * 4, HOUR)
    work = due(log, dirty, kept)
    assert work is not None
    end, work.clean_to = work.clean_to, 7
    finish(log, work)
    again = due(log, dirty.after(work), kept)
    assert again is not None
    assert again.clean_to == end
    finish(log, again)
    assert [offset for offset, _, _ in pairs(log)] == list(range(end - 1, 20))


def test_a_batch_that_the_engine_has_joined_counts_with_its_new_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may join small batches after they were counted."""
    log = log_of(*[NOW] * 10)
    dirty, kept = DirtyPart(0), Kept(SIZE * 320, HOUR)
    due(log, dirty, kept)
    for _ in range(10):
        log.produce(batch((b"a", b"1")))
    joined = replace(next(iter(log.storage.batches(LOG))), last_offset=19, size=SIZE * 20)
    monkeypatch.setattr(log.storage, "batches", lambda key, offset=0: iter([joined]))
    due(log, dirty, kept)
    assert dirty._marked_bytes == SIZE * 20


@given(st.lists(st.integers(0, 1_000), max_size=20), st.integers(0, 5_000))
def test_an_even_share_is_the_largest_that_keeps_to_the_total(sizes: list[int], total: int) -> None:
    share = even_share(sizes, total)
    assert sum(min(size, share) for size in sizes) <= total
    if share < max(sizes, default=0):
        assert sum(min(size, share + 1) for size in sizes) > total
