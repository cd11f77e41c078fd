"""Several processes, each with its own streams of inputs, until there are enough of them or the time is over.

Every process has a random generator for each kind, from the seed, the kind and the process's number. So the inputs of
one kind do not depend on the other kinds. Kinds take turns of about a second. The memory of a process is limited, so
that an allocation out of all proportion fails instead of being made; a turn that hangs is ended.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from fuzz_batches import BatchFuzz
from fuzz_broker import BrokerFuzz
from fuzz_checks import Find
from fuzz_codec import CodecFuzz
from fuzz_framing import FramingFuzz
from fuzz_guest import GuestFuzz
from fuzz_repeat import shows
from fuzz_shrink import shrunk, shrunk_story
from fuzz_tcp import TcpFuzz

KINDS: dict[str, Any] = {
    "codec": CodecFuzz,
    "framing": FramingFuzz,
    "batches": BatchFuzz,
    "broker": BrokerFuzz,
    "guest": GuestFuzz,
    "tcp": TcpFuzz,
}
CHUNK = {"codec": 5140, "framing": 990, "batches": 490, "broker": 600, "guest": 650, "tcp": 400}
TURN_S = 1.0
STUCK_S = 120
ROOM_BYTES = 512 * 1024 * 1024
"""The memory that a process may take beyond its memory at the beginning."""


@dataclass
class Outcome:
    inputs: Counter[str] = field(default_factory=Counter)
    finds: list[Find] = field(default_factory=list)
    seconds: float = 0.0


class Stuck(BaseException):
    """An input that takes longer than anything may."""


def run(
    kinds: list[str], seed: int, processes: int, inputs: int, seconds: float, say: Callable[[str], None]
) -> Outcome:
    """`inputs` over all kinds and processes; 0 for as many as there is time for."""
    started = time.monotonic()
    results: Any = multiprocessing.get_context("fork").Queue()
    share = -(-inputs // processes) if inputs else 0
    workers = [
        multiprocessing.get_context("fork").Process(
            target=_work, args=(kinds, seed, number, share, seconds, results), daemon=False
        )
        for number in range(processes)
    ]
    outcome = Outcome()
    for worker in workers:
        worker.start()
    left = processes
    while left:
        try:
            message, *values = results.get(timeout=5)
        except Empty:
            if not any(worker.is_alive() for worker in workers):
                raise RuntimeError("a worker has ended without a word: its memory or a crash") from None
            continue
        if message == "done":
            left -= 1
            outcome.inputs.update(*values)
        else:
            kind, about, data, what = values
            outcome.finds.append(Find(kind, about, data, what))
            say(f"find: {kind} {about}: {what}")
    for worker in workers:
        worker.join()
    outcome.seconds = time.monotonic() - started
    return outcome


def _work(kinds: list[str], seed: int, number: int, inputs: int, seconds: float, results: Any) -> None:
    signal.signal(signal.SIGALRM, _stuck)
    counts: Counter[str] = Counter()
    streams = {kind: KINDS[kind](random.Random(f"{seed} {kind} {number}")) for kind in kinds}
    _limit_memory()
    deadline = time.monotonic() + seconds if seconds else float("inf")
    try:
        while streams and time.monotonic() < deadline:
            for kind, stream in list(streams.items()):
                until = min(time.monotonic() + TURN_S, deadline)
                while time.monotonic() < until and not (inputs and counts.total() >= inputs):
                    signal.alarm(STUCK_S)
                    try:
                        counts[kind] += stream.run(CHUNK[kind])
                    except Find as find:
                        signal.alarm(0)
                        what = find.what
                        if find.__cause__ is not None:
                            what += "\n" + "".join(traceback.format_exception(find.__cause__)[-6:])
                        results.put(("find", find.kind, find.about, smaller(find), what))
                        streams.pop(kind).close()
                        break
                    signal.alarm(0)
            if inputs and counts.total() >= inputs:
                break
    finally:
        signal.alarm(0)
        for stream in streams.values():
            stream.close()
        results.put(("done", counts))


def smaller(find: Find) -> bytes:
    """The find's input, as small as it can be made in a minute or two."""
    if find.kind == "tcp":
        return find.data
    shown = shows(find.kind, find.about, find.data)
    if shown is None:
        return find.data  # it does not show itself alone

    def same(data: bytes) -> bool:
        return shows(find.kind, find.about, data) == shown

    return shrunk_story(find.data, same) if find.kind == "broker" else shrunk(find.data, same)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * os.sysconf("SC_PAGE_SIZE") + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _stuck(number: int, frame: Any) -> None:
    raise Stuck(f"no end after {STUCK_S} s")
