"""The room of requests in memory: promises, shares, stallers. The test advances the clock; readers have no sockets."""

from __future__ import annotations

import pytest

from kohort.server.inflow import LONG_WAIT_S, MIN_RATE, SMALL_BYTES, STALLED_S, Inflow

MIB = 1 << 20
LIMIT = 16 * MIB


class FakeReader:
    """Sends one frame, as far as the inflow lets it."""

    def __init__(self, world: World, name: str, frame: int) -> None:
        self.world = world
        self.peer = name
        self.held_bytes = 0
        self.in_turn = 0
        self.missing = frame
        self.parked = False
        self.paused = False
        self.aborted = False
        world.readers[self] = None

    @property
    def is_awaited(self) -> bool:
        return self.parked or (self.missing > 0 and not self.paused)

    def send(self, size: int) -> None:
        """Nothing arrives from a paused reader."""
        size = min(size, self.missing)
        if self.paused or self.aborted or not size:
            return
        self.held_bytes += size
        self.missing -= size
        if not self.missing and not self.parked:
            self.in_turn, self.held_bytes = self.held_bytes, 0
        self.world.inflow.grew(self, size, finished=not self.missing)

    def handled(self) -> None:
        """The frame's turn is over."""
        assert not self.missing
        size, self.in_turn = self.in_turn, 0
        self.world.inflow.shrank(size)

    def pause_reading(self, why: str) -> None:
        self.paused = True

    def resume_reading(self, why: str) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted = True
        self.world.closing.append(self)


class World:
    def __init__(self, limit: int = LIMIT) -> None:
        self.now = 0.0
        self.readers: dict[FakeReader, None] = {}
        self.closing: list[FakeReader] = []
        self.told: list[tuple[str, list[str], int]] = []
        self.inflow = Inflow(limit, lambda: self.now, lambda: self.readers, lambda *line: self.told.append(line))

    def reader(self, name: str, frame: int, sent: int = 0, *, parked: bool = False) -> FakeReader:
        reader = FakeReader(self, name, frame)
        reader.parked = parked
        while sent > 0 and not reader.paused and not reader.aborted:
            reader.send(min(sent, 256 * 1024))  # the event loop's reads
            sent -= 256 * 1024
        return reader

    def close_aborted(self) -> None:
        """What the event loop does in its next iteration."""
        closing, self.closing = self.closing, []
        for reader in closing:
            del self.readers[reader]
            self.inflow.forget(reader, reader.held_bytes)

    def pass_seconds(self, seconds: int, *, trickling: tuple[FakeReader, ...] = ()) -> None:
        for _ in range(seconds):
            for reader in trickling:
                reader.send(1)
            self.now += 1
            self.inflow.sweep()
            self.close_aborted()


def test_a_frame_is_read_only_if_there_is_room_for_all_of_it() -> None:
    world = World()
    first = world.reader("first", 8 * MIB, sent=MIB)
    second = world.reader("second", 8 * MIB, sent=MIB)
    third = world.reader("third", 2 * MIB, sent=MIB)
    assert (first.paused, second.paused, third.paused) == (False, True, False)
    assert second.held_bytes <= 256 * 1024
    first.send(8 * MIB)
    first.handled()
    assert not second.paused


def test_clients_that_stall_together_are_closed_together_and_small_requests_never_wait() -> None:
    """The first three send most of a frame and then a byte a second; a fourth produces."""
    world = World()
    stallers = tuple(world.reader(f"staller {i}", 5 * MIB, sent=5 * MIB - 1000) for i in range(3))
    produce = world.reader("produce", 4 * MIB, sent=4 * MIB)
    assert produce.paused
    for second in range(3):
        small = world.reader("heartbeat", 200, sent=200)
        assert not small.missing, f"in second {second} a small request waits"
        small.handled()
        world.pass_seconds(1, trickling=stallers)
    assert [reader.aborted for reader in stallers] == [True, True, False]
    assert stallers[2].held_bytes <= 256 * 1024 + 3, "it had no room, and was paused"
    assert not produce.paused
    assert world.told == [
        (
            "stalled in the middle of a request while memory is short (queued.max.request.bytes)",
            ["staller 0", "staller 1"],
            2,
        )
    ]


def test_hundreds_of_half_frames_stop_a_request_for_one_window() -> None:
    world = World(limit=256 * MIB)
    for i in range(400):
        world.reader(f"half {i}", 700_000, sent=350_000)
    produce = world.reader("produce", MIB, sent=MIB)
    world.pass_seconds(int(STALLED_S) + 1)
    assert not produce.paused
    produce.send(MIB)
    assert not produce.missing
    assert len(world.told) == 1
    assert len(world.told[0][1]) == 5


def test_a_slow_client_is_left_alone_while_nobody_waits() -> None:
    world = World()
    slow = world.reader("slow", 5 * MIB, sent=4 * MIB)
    world.pass_seconds(60, trickling=(slow,))
    assert not slow.aborted
    other = world.reader("other", 10 * MIB, sent=MIB)
    assert other.paused
    world.pass_seconds(1)
    assert slow.aborted, "it was slow before, so no other window is measured"
    assert not other.paused


def test_a_client_at_the_minimum_rate_is_not_closed() -> None:
    world = World()
    steady = world.reader("steady", 10 * MIB, sent=MIB)
    waiting = world.reader("waiting", 10 * MIB, sent=MIB)
    for _ in range(30):
        steady.send(MIN_RATE)
        world.pass_seconds(1)
    assert not steady.aborted
    assert not waiting.aborted


def test_a_pause_of_the_server_does_not_count_as_a_stall() -> None:
    world = World()
    reader = world.reader("reader", 10 * MIB, sent=MIB)
    world.reader("waiting", 10 * MIB, sent=MIB)
    world.now += 60
    world.pass_seconds(1)
    assert not reader.aborted


def test_frames_larger_than_the_room_are_read_one_by_one() -> None:
    world = World()
    giants = [world.reader(f"giant {i}", 20 * MIB, sent=MIB) for i in range(4)]
    assert [giant.paused for giant in giants] == [False, True, True, True]
    for _ in giants:
        reading: list[FakeReader] = []
        while not reading:
            world.pass_seconds(1)
            assert world.now < 60
            reading = [giant for giant in giants if not giant.paused and giant.missing]
        [giant] = reading
        assert world.inflow.total < LIMIT
        giant.send(20 * MIB)
        assert not giant.missing
        giant.handled()
    assert not any(giant.aborted for giant in giants)
    assert world.inflow.total == world.inflow.promised == 0


def test_half_frames_too_small_to_be_promised_are_closed_when_they_fill_the_limit() -> None:
    """Each of them holds less than a small request; the largest go."""
    world = World(limit=MIB)
    halves = [world.reader(f"half {i}", SMALL_BYTES, sent=SMALL_BYTES - 1) for i in range(17)]
    small = world.reader("small", 100, sent=50)
    assert small.paused
    world.pass_seconds(int(LONG_WAIT_S) + 1)
    assert not small.paused
    assert 8 <= sum(half.aborted for half in halves) <= 10
    assert world.inflow.total <= MIB // 2 + SMALL_BYTES


def test_single_reads_of_many_connections_do_not_pass_the_limit_by_more_than_a_quarter() -> None:
    world = World(limit=4 * MIB)
    for i in range(200):
        world.reader(f"reader {i}", 50 * MIB, sent=MIB)
        assert world.inflow.total - sum(reader.held_bytes for reader in world.closing) <= 5 * MIB
    world.close_aborted()
    assert world.inflow.total <= 5 * MIB


def test_requests_behind_a_parked_one_do_not_keep_the_room() -> None:
    world = World()
    parked = [world.reader(f"parked {i}", 4 * MIB, sent=4 * MIB, parked=True) for i in range(3)]
    produce = world.reader("produce", MIB, sent=MIB)
    assert produce.paused
    world.pass_seconds(int(STALLED_S) + 1)
    assert all(reader.aborted for reader in parked)
    assert not produce.paused


@pytest.mark.parametrize("frame", [100, MIB])
def test_a_reader_that_closes_gives_its_room_back(frame: int) -> None:
    world = World()
    first = world.reader("first", 10 * MIB, sent=MIB)
    second = world.reader("second", 10 * MIB, sent=MIB)
    small = world.reader("third", frame, sent=frame // 2)
    del world.readers[first]
    world.inflow.forget(first, first.held_bytes)
    assert not second.paused
    for reader in (second, small):
        world.inflow.forget(reader, reader.held_bytes)
    assert world.inflow.total == world.inflow.promised == 0


def test_with_less_room_large_frames_wait_and_small_ones_do_not() -> None:
    world = World()
    frames = [FakeReader(world, f"large-{n}", 3 * MIB) for n in range(4)]
    for reader in frames[:2]:
        reader.send(MIB)
    world.inflow.narrow(LIMIT // 2)
    assert not any(reader.paused for reader in frames)
    frames[2].send(MIB)
    assert frames[2].paused, "4 MB are left, and promised to the first two"
    small = FakeReader(world, "small", 1_000)
    small.send(1_000)
    assert not small.paused
    world.inflow.narrow(LIMIT)
    assert not frames[2].paused


def test_a_frame_that_exceeds_the_room_waits_while_memory_is_short() -> None:
    """16 MB may be held, and 12 MB by large readers: these two do not fit in there."""
    world = World()
    on_its_way = world.reader("first", 14 * MIB, sent=10 * MIB)
    world.inflow.narrow(LIMIT // 2)
    assert on_its_way.aborted
    assert world.told[0][:2] == (
        "its request is larger than the memory that is left (queued.max.request.bytes)", ["first"],
    )  # fmt: skip
    world.close_aborted()
    new = world.reader("second", 14 * MIB, sent=MIB)
    world.pass_seconds(int(2 * LONG_WAIT_S))
    assert new.paused
    assert not new.aborted
    small = world.reader("third", 7 * MIB, sent=7 * MIB)
    assert small.in_turn == 7 * MIB, "more than the room of 4 MB, and less than the 8 MB that are left"
    small.handled()
    assert new.paused
    world.inflow.narrow(LIMIT)
    assert not new.paused
    new.send(14 * MIB)
    world.inflow.narrow(LIMIT // 2)
    assert not new.aborted, "it is in a turn"
