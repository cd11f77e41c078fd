"""Finished records that are delivered again: the cells, beside a model by offset; locks stay; replay gives the same."""

from __future__ import annotations

import random

import pytest

from kohort.coordinator.shares.cells import ACKNOWLEDGED, ARCHIVED, AVAILABLE, Cell, is_terminal, put
from kohort.coordinator.shares.events import (
    AckBatch,
    Acknowledge,
    Acquire,
    Delete,
    Initialize,
    Load,
    Redeliver,
    ShareKey,
    Span,
)
from kohort.coordinator.shares.redelivery import again
from kohort.coordinator.shares.settings import ShareSettings
from kohort.coordinator.shares.shard import ShareShard
from kohort.coordinator.shares.state import ShareState
from kohort.coordinator.shares.tally import KEPT, MOST_KEPT

KEY = ShareKey("g", b"0123456789abcdef", 0)
END = 40


@pytest.mark.parametrize("seed", range(200))
def test_cells_are_those_of_a_model(seed: int) -> None:
    chance = random.Random(seed)
    start = chance.randrange(0, 20)
    kinds = dict.fromkeys(range(start), (ACKNOWLEDGED, 0))
    cells: list[Cell] = []
    for offset in range(start, END):
        if chance.random() < 0.8:
            kinds[offset] = chance.choice(((AVAILABLE, 1), (ACKNOWLEDGED, 2), (ARCHIVED, 5)))
            put(cells, (offset, offset, *kinds[offset]))
    wanted = [(first, first + chance.randrange(0, 6)) for first in chance.choices(range(END + 5), k=4)]
    new_start, found, count = again(ShareState(start=start, cells=cells), wanted, END)
    named = {offset for first, last in wanted for offset in range(first, last + 1) if offset < END}
    freed = {offset for offset in named if offset in kinds and is_terminal(kinds[offset][0])}
    assert count == len(freed)
    if not freed:
        return
    assert new_start == min([start, *named])
    expected = {offset: kind for offset, kind in kinds.items() if offset >= new_start}
    expected |= dict.fromkeys(freed, (AVAILABLE, 0))
    assert {at: (kind, times) for first, last, kind, times in found for at in range(first, last + 1)} == expected


def test_locks_stay_and_replay_gives_the_same() -> None:
    shard, copy = (ShareShard(0, lambda _: ShareSettings(), 500) for _ in range(2))

    def step(event: object) -> None:
        for record in shard.step(event, 1_000).records:  # type: ignore[arg-type]
            shard.apply(record, 1_000)
            copy.apply(record, 1_000)
        shard.validate()

    step(Initialize((KEY,), 1, 0))
    step(Load(KEY, 0, 0, 0))
    step(Acquire(KEY, "a", 0, (Span(0, 9),), 10, 10))
    step(Acknowledge(KEY, "a", (AckBatch(0, 5, (1,)),)))
    step(Redeliver(KEY, ((1, 2), (7, 8)), 0))
    served = shard.served[KEY]
    assert (served.state.start, served.fetch_offset()) == (1, 1)
    assert [lock[:3] for lock in served.locks] == [(6, 9, "a")], "7 and 8 are not finished"
    step(Acquire(KEY, "b", 1, (Span(0, 9),), 10, 10))
    assert [lock[:4] for lock in served.locks] == [(1, 2, "b", 1), (6, 9, "a", 1)]
    step(Acknowledge(KEY, "b", (AckBatch(1, 2, (1,)),)))
    step(Acknowledge(KEY, "a", (AckBatch(6, 9, (1,)),)))
    assert shard.states[KEY].start == 10
    assert shard.states == copy.states


def test_the_archived_ranges_of_all_share_partitions_have_a_limit() -> None:
    """One share-partition keeps the newest ranges; of many, those that archived last keep theirs."""
    shard = ShareShard(0, lambda _: ShareSettings(), 500)

    def step(event: object) -> None:
        for record in shard.step(event, 1_000).records:  # type: ignore[arg-type]
            shard.apply(record, 1_000)

    keys = [ShareKey("g", KEY.topic_id, index) for index in range(2 * MOST_KEPT // KEPT)]
    for key in keys:
        step(Initialize((key,), 1, 0))
        step(Load(key, 0, 0, 0))
        step(Acquire(key, "a", 0, (Span(0, 119),), 120, 120))
        step(Acknowledge(key, "a", (AckBatch(0, 119, (1, 3) * 60),)))
        shard.validate()
    kept = [key for key in keys if shard.tallies[key].archived]
    assert kept == keys[-MOST_KEPT // KEPT :]
    assert all(len(shard.tallies[key].archived or ()) == KEPT for key in kept)
    assert all(shard.tallies[key].counts["rejected"] == 60 for key in keys), "counts stay"
    step(Redeliver(kept[0], ((0, 119),), 0))
    step(Delete((kept[1],)))
    shard.validate()
    assert not shard.tallies[kept[0]].archived
    assert kept[1] not in shard.tallies
