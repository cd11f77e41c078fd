"""What the workloads of the crash harness have in common: kinds of cycles, kills during a start, violations."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crash_server import CrashServer

from kohort.client.errors import KafkaError


class Violation(AssertionError):
    pass


@contextmanager
def repeatable(options: str, cycles: int, seed: int, directory: Path) -> Iterator[None]:
    """Turns a failed check into a Violation whose message says how to repeat the run. `options`: of its workload."""
    try:
        yield
    except (AssertionError, KafkaError) as error:
        words = " ".join(filter(None, ("python tests/crash", options, f"--cycles {cycles} --seed {seed}")))
        raise Violation(
            f"{error}\n  repeat the kill moments: {words}\n  the data directory and the logs are kept: {directory}"
        ) from error


def kinds_of(block: Sequence[str], cycles: int, seed: int) -> list[str]:
    """The kind of each cycle: `block` again and again, in an order that the seed chooses."""
    kinds: list[str] = []
    while len(kinds) < cycles:
        kinds += random.Random(f"{seed} kinds {len(kinds)}").sample(block, len(block))
    return kinds[:cycles]


def kill_while_starting(
    server: CrashServer, chance: random.Random, start_s: float, before: Callable[[], str] = str
) -> int:
    """One to three kills at any moment of a start, its end with the replay and the first turns more often than its
    beginning. `before`: code that the process runs first. Returns how many kills came before the server was ready."""
    early = 0
    for _ in range(chance.randint(1, 3)):
        server.spawn(before())
        time.sleep(start_s * (chance.uniform(0, 1.3) if chance.random() < 0.3 else chance.uniform(0.6, 1.1)))
        early += not server.is_ready
        server.kill()
    return early
