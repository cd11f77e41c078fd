"""The ends of logs in memory: what they have is what storage has, within a limit over all logs."""

from __future__ import annotations

import gc
import random

import pytest
from storage_batches import make_batch

from kohort.broker.logs.tails import NOWHERE, OVERHEAD, UNUSED, Tail, Tails
from kohort.storage.protocol import StoredBatch

SIZE = 100
COST = SIZE + OVERHEAD


def filled(tails: Tails, count: int = 5, records: int = 2) -> Tail:
    tail = Tail(tails)
    for n in range(count):
        tail.append(make_batch(n * records, records, size=SIZE))
    return tail


def bases(tail: Tail, offset: int, max_bytes: int = 1 << 30) -> list[int]:
    return [batch.base_offset for batch in tail.read(offset, max_bytes)]


def test_a_tail_begins_with_the_first_append_and_reads_from_the_batch_that_holds_an_offset() -> None:
    tail = Tail(Tails(1 << 20))
    assert tail.start == NOWHERE
    for base in (10, 12, 14):
        tail.append(make_batch(base, 2, size=SIZE))
    assert tail.start == 10
    assert [bases(tail, offset) for offset in (10, 11, 12, 15)] == [[10, 12, 14], [10, 12, 14], [12, 14], [14]]
    assert [len(bases(tail, 10, most)) for most in (0, 1, SIZE, 2 * SIZE - 1, 2 * SIZE)] == [1, 1, 1, 1, 2]


def test_the_oldest_batch_of_all_logs_leaves_first() -> None:
    tails = Tails(4 * COST)
    first, second = Tail(tails), Tail(tails)
    for base in range(3):
        first.append(make_batch(base, size=SIZE))
        second.append(make_batch(base, size=SIZE))
    assert (first.start, second.start, tails.size) == (1, 1, 4 * COST)
    first.append(make_batch(3, size=SIZE))
    assert (first.start, second.start) == (2, 1)
    first.append(make_batch(4, size=5 * COST))
    assert (first.start, second.start, tails.size) == (NOWHERE, NOWHERE, 0), "it alone is above the limit"


def test_a_log_without_a_tail_stays_empty() -> None:
    tail = Tail(None)
    tail.append(make_batch(0))
    tail.trim(5)
    tail.drop_up_to(NOWHERE)
    assert tail.start == NOWHERE


def test_deleted_and_replaced_batches_leave() -> None:
    tails = Tails(1 << 20)
    tail = filled(tails)
    tail.trim(3)
    assert (tail.start, tails.size) == (2, 4 * COST), "the batch that the log begins in stays"
    tail.drop_up_to(4)
    assert (tail.start, bases(tail, 6), tails.size) == (6, [6, 8], 2 * COST)
    tail.drop_up_to(NOWHERE)
    assert (tail.start, tails.size) == (NOWHERE, 0)
    tail.append(make_batch(10, size=SIZE))
    assert (tail.start, tails.size) == (10, COST)


def test_many_batches_leave_at_once() -> None:
    tails = Tails(1 << 30)
    tail, other = filled(tails, 10 * UNUSED), filled(tails)
    kept = 2 * (9 * UNUSED)
    tail.trim(kept + 1)
    assert (tail.start, tails.size) == (kept, (UNUSED + 5) * COST)
    assert len(tails._order) == UNUSED + 5
    assert len(tail._batches) == UNUSED
    tail.drop_up_to(NOWHERE)
    assert (tail.start, other.start, tails.size) == (NOWHERE, 0, 5 * COST)


def test_a_batch_that_has_left_is_freed() -> None:
    class Marked(bytes):
        """Bytes that the garbage collector lists."""

    tail = Tail(Tails(3 * COST))
    tail.append(StoredBatch(0, 0, 0, Marked(SIZE)))
    for base in range(1, 4):
        assert any(type(one) is Marked for one in gc.get_objects())
        tail.append(make_batch(base, size=SIZE))
    assert not any(type(one) is Marked for one in gc.get_objects())
    assert len(tail.read(1, 1 << 20)) == 3


@pytest.mark.parametrize("seed", range(20))
def test_tails_are_what_storage_has(seed: int) -> None:
    chance = random.Random(seed)
    tails = Tails(chance.choice((0, COST, 10 * COST, 100 * COST)))
    logs: list[list[StoredBatch]] = [[] for _ in range(3)]
    held = [Tail(tails) for _ in logs]
    for _ in range(600):
        index = chance.randrange(3)
        log, tail = logs[index], held[index]
        end = log[-1].last_offset + 1 if log else 0
        match chance.randrange(30):
            case 0 if log:
                start = chance.randrange(log[0].base_offset, end + 1)
                tail.trim(start)
                log[:] = [batch for batch in log if batch.last_offset >= start]
                if not log:
                    logs[index], held[index] = [make_batch(start)], tail
                    tail.append(logs[index][0])
            case 1:
                upto = chance.choice((end // 2, end))
                tail.drop_up_to(upto)
            case 2:
                tail.drop_up_to(NOWHERE)
                logs[index], held[index] = [], Tail(tails)
            case _:
                batch = make_batch(end, chance.randrange(1, 4), size=SIZE + chance.randrange(30))
                tail.append(batch)
                log.append(batch)
        assert tails.size <= max(tails._most_bytes, 0)
        there = [[b for b in logs[n] if b.base_offset >= held[n].start] for n in range(3)]
        assert tails.size == sum(len(b.data) + OVERHEAD for of_log in there for b in of_log)
        for of_log, each in zip(there, held, strict=True):
            if of_log:
                at = chance.choice(of_log)
                assert each.read(at.last_offset, 1 << 30) == of_log[of_log.index(at) :]
    assert len(tails._order) <= 2 * sum(map(len, there)) + UNUSED + 1
