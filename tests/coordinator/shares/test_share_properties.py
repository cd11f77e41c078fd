"""Random histories of a share-partition, beside a model with one entry for each offset (share_model.py).

After each event the shard's own invariants hold, and the state is the replay of its log (`World.ask`, `check_replay`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from share_model import KEY, World

from kohort.coordinator.shares.cells import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, Cell, in_order, merge
from kohort.coordinator.shares.events import ACCEPT, GAP, RECORD_LIMIT, REJECT, RELEASE, RENEW, DeadLettered
from kohort.coordinator.shares.settings import ShareSettings

LIMIT, LOCK_MS, MOST_LOCKS = 4, 1_000, 20
MEMBERS = ("a", "b", "c")
QUICK = settings(
    max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@dataclass
class Entry:
    state: int = AVAILABLE
    count: int = 0
    holder: str = ""
    until: int = 0


@dataclass
class Model:
    """What must be true of each offset."""

    aborted: set[int] = field(default_factory=set)
    dead_letters: bool = False
    entries: dict[int, Entry] = field(default_factory=dict)

    def entry(self, offset: int) -> Entry:
        return self.entries.setdefault(offset, Entry())

    def give(self, offset: int, member: str, count: int, now: int) -> None:
        entry = self.entry(offset)
        assert entry.state == AVAILABLE, f"{offset} is finished, and delivered again"
        assert not entry.holder, f"{offset} is held by {entry.holder}, and delivered to {member}"
        assert count == entry.count + 1, f"{offset} was delivered {entry.count} times, and now has {count}"
        assert offset not in self.aborted, f"{offset} is of an aborted transaction"
        entry.count, entry.holder, entry.until = count, member, now + LOCK_MS

    def end(self, offset: int, kind: int) -> None:
        entry = self.entry(offset)
        entry.holder = ""
        if kind == ACCEPT:
            entry.state = ACKNOWLEDGED
        elif kind in (REJECT, GAP) or entry.count >= LIMIT:
            entry.state = ARCHIVING if self.dead_letters and kind != GAP else ARCHIVED

    def expire(self, now: int) -> None:
        for offset, entry in self.entries.items():
            if entry.holder and entry.until <= now:
                self.end(offset, RELEASE)

    def crash(self, stored: World) -> None:
        """What was delivered and not ended is forgotten."""
        counts = {at: cell[3] for cell in stored.cells for at in range(cell[0], cell[1] + 1)}
        for offset, entry in self.entries.items():
            if entry.holder:
                assert counts.get(offset, 0) <= entry.count
                entry.holder, entry.count = "", counts.get(offset, 0)


class Play:
    def __init__(self, sizes: list[int], aborted: set[int], per_snapshot: int, dead_letters: bool) -> None:
        rules = ShareSettings(LOCK_MS, LIMIT, MOST_LOCKS, dead_letters=dead_letters)
        self.world = World(rules, per_snapshot=per_snapshot)
        self.world.begin()
        self.model = Model(dead_letters=dead_letters)
        self.spans = []
        at = 0
        for index, size in enumerate(sizes):
            is_aborted = index in aborted
            self.spans.append((at, at + size - 1, is_aborted))
            if is_aborted:
                self.model.aborted.update(range(at, at + size))
            at += size
        self.end = at

    def acquire(self, member: str, most: int, mode: int) -> None:
        world = self.world
        window = world.shard.served[KEY].end - world.start
        ranges = world.acquire(member, self.spans, most, 5, mode)
        taken = 0
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                self.model.give(offset, member, count, world.now)
                taken += 1
        if mode == RECORD_LIMIT:
            assert taken <= most
        served = world.shard.served[KEY]
        longest = max(last - first + 1 for first, last, _ in self.spans)
        assert served.end - world.start <= max(MOST_LOCKS + longest, window)

    def ack(self, member: str, batches: list[tuple[int, int, int]]) -> None:
        """Batches: first offset, size, type."""
        world, wanted, covered, at = self.world, [], [], -1
        for first, size, kind in batches:
            first = max(first, at + 1)
            last = first + size - 1
            at = last
            wanted.append((first, last, kind))
            covered += [(offset, kind) for offset in range(first, last + 1) if offset >= world.start]
        held = all(self.model.entry(offset).holder == member for offset, _ in covered)
        before = list(world.cells)
        error = world.ack(member, *wanted)
        assert (error == 0) == held, f"{wanted} of {member}: {error}"
        if error:
            assert world.cells == before
            return
        for offset, kind in covered:
            if kind == RENEW:
                self.model.entry(offset).until = world.now + LOCK_MS
            else:
                self.model.end(offset, kind)

    def ack_held(self, member: str, kind: int, most: int) -> None:
        held = sorted(offset for offset, entry in self.model.entries.items() if entry.holder == member)[:most]
        if held:
            self.ack(member, [(offset, 1, kind) for offset in held])

    def release(self, member: str) -> None:
        self.world.release(member)
        for offset, entry in self.model.entries.items():
            if entry.holder == member:
                self.model.end(offset, RELEASE)

    def dead_lettered(self, first: int, size: int) -> None:
        self.world.ask(DeadLettered(KEY, ((first, first + size - 1),), "dlq.t"))
        for offset, entry in self.model.entries.items():
            if first <= offset < first + size and entry.state == ARCHIVING:
                entry.state = ARCHIVED

    def redeliver(self, member: str, times: int) -> None:
        for _ in range(times):
            self.acquire(member, 12, 0)
            self.release(member)

    def wait(self, by: int) -> None:
        self.world.pass_time(by)
        self.model.expire(self.world.now)

    def crash(self) -> None:
        self.model.crash(self.world)
        self.world.restart()

    def check(self) -> None:
        """The stored state says what the model knows."""
        start = self.world.start
        stored = {at: cell[2:] for cell in self.world.cells for at in range(cell[0], cell[1] + 1)}
        locks = {at: lock[2:] for lock in self.world.shard.served[KEY].locks for at in range(lock[0], lock[1] + 1)}
        for offset, entry in self.model.entries.items():
            if offset < start:
                assert entry.state in (ACKNOWLEDGED, ARCHIVED), f"{offset} is not finished, and below {start}"
                continue
            held = (entry.holder, entry.count, entry.until) if entry.holder else None
            assert locks.pop(offset, None) == held, f"{offset}: {entry}"
            if entry.state != AVAILABLE:
                assert stored[offset] == (entry.state, entry.count), f"{offset}: {entry}"
            elif not entry.holder and entry.count:
                assert stored[offset] == (AVAILABLE, entry.count), f"{offset}: {entry}"
        assert not locks, f"locks of what nobody got: {locks}"
        assert self.world.replayed().states == self.world.shard.states

    def drain(self) -> None:
        """Everybody accepts; then everything is finished (invariants 1, 10, 14)."""
        for member in MEMBERS:
            self.release(member)
        self.dead_lettered(0, self.end)
        for _ in range(4 * self.end + 10):
            self.acquire("a", 10, 0)
            self.ack_held("a", ACCEPT, self.end)
            self.dead_lettered(0, self.end)
            if self.world.start == self.end:
                break
        assert self.world.start == self.end, f"{self.world.start} of {self.end}: {self.world.cells}"
        assert self.world.shard.states[KEY].complete == 0
        visible = set(range(self.end)) - self.model.aborted
        assert {offset for offset, entry in self.model.entries.items() if entry.state != AVAILABLE} >= visible


members = st.sampled_from(MEMBERS)
steps = st.one_of(
    st.tuples(st.just("acquire"), members, st.integers(1, 12), st.integers(0, 1)),
    st.tuples(st.just("acquire"), members, st.integers(1, 12), st.integers(0, 1)),
    st.tuples(st.just("ack_held"), members, st.integers(0, 4), st.integers(1, 8)),
    st.tuples(st.just("ack_held"), members, st.integers(0, 4), st.integers(1, 8)),
    st.tuples(
        st.just("ack"),
        members,
        st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5), st.integers(0, 4)), max_size=3),
    ),
    st.tuples(st.just("release"), members),
    st.tuples(st.just("redeliver"), members, st.integers(1, 8)),
    st.tuples(st.just("dead_lettered"), st.integers(0, 40), st.integers(1, 10)),
    st.tuples(st.just("wait"), st.sampled_from((1, 400, 1_000))),
    st.tuples(st.just("crash")),
)


@pytest.mark.conformance("SH41", "SH49", "SH65")
@QUICK
@given(
    sizes=st.lists(st.integers(1, 7), min_size=3, max_size=12),
    aborted=st.sets(st.integers(0, 11), max_size=5),
    per_snapshot=st.sampled_from((0, 3, 500)),
    dead_letters=st.booleans(),
    history=st.lists(steps, min_size=10, max_size=40),
)
def test_histories(
    sizes: list[int], aborted: set[int], per_snapshot: int, dead_letters: bool, history: list[tuple]
) -> None:
    play = Play(sizes, aborted, per_snapshot, dead_letters)
    for name, *values in history:
        getattr(play, name)(*values)
        play.check()
    play.drain()
    # The replay of each prefix of the log is a state that holds (invariant 7).
    for length in range(len(play.world.log)):
        play.world.replayed(play.world.log[:length]).validate()


cells = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6), st.sampled_from((0, 2, 3, 4)), st.integers(0, 3)), max_size=8
)


def by_offset(known: list[Cell], found: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    for first, last, state, count in known:
        for offset in range(first, last + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (count, state))
    return found


@pytest.mark.conformance("SH64")
@QUICK
@given(cells, cells)
def test_merged_cells(known: list[tuple[int, int, int, int]], more: list[tuple[int, int, int, int]]) -> None:
    before = [(first, first + size, state, count) for first, size, state, count in known]
    changes = [(first, first + size, state, count) for first, size, state, count in more]
    merged = in_order(before)
    expected = by_offset(changes, by_offset(before, {}))
    merge(merged, in_order(changes))
    assert by_offset(merged, {}) == expected
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    assert all(a[1] + 1 < b[0] or a[2:] != b[2:] for a, b in pairwise(merged)), "neighbours joined"
