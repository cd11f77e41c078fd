"""Transactional requests by chance, against both servers: a seed makes a sequence, in the words of tests/peers.

The actors: a producer with new epochs for each transaction (x), one of older clients (y), and zombies of both (z, w).
They mostly do what a client would do next, and otherwise ask for what is late, wrong or out of order: epochs and
producer ids of nobody, of somebody else or of the past, partitions that were not added, sequence numbers with a gap,
ends of nothing and ends twice, and each request in any of its versions. Readers, offsets and tools are asked in
between. No transaction times out: what a server does by its clock is for the recorded sequences.

Sequences of the usual lane leave out most of what is a known difference there; strict ones have it. Some are met and
recognized in the answers (`explained`). Those in LOCAL change only an answer; another one ends the sequence.

A sequence that differs is played again. It is a finding only if it differs each time, in the same command. Then
commands are left out as long as the rest still differs.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench import _kafka as apache
from fuzz_shrink import fewer
from lanes import STRICT, Lane
from scenario_files import SERVERS
from servers import Pair, both

from kohort.conformance.play.stage import Stage

OPENING = ("topic t=2 u=1", "init x", "init y tv=1")
"""The first commands of each sequence. They always stay."""
AT_A_TIME = 8
PLAYS = 3
SHOWN = 10
SHORTER_S = 60.0
"""The time for making one finding shorter."""
LOCAL = ("repeat-timestamp", "empty-group")

Say = Callable[[str], None]
_runs = itertools.count()


@dataclass(frozen=True)
class Result:
    commands: Sequence[str]
    compared: int
    known: tuple[str, ...] = ()
    """The known differences."""
    at: int = -1
    """The command whose answers differ and should not; -1 if there is none."""
    kafka: Sequence[str] = ()
    kohort: Sequence[str] = ()


# -- the commands of a seed


class _Making:
    def __init__(self, seed: int, lane: Lane) -> None:
        self.random = random.Random(f"transactions/{seed}")
        self.is_strict = lane is STRICT
        self.producers = ["x", "y"]
        self.older = {"y"}
        """Those that send what clients sent before KIP-890."""

    def maybe(self, chance: float, *options: str) -> str:
        return f" {self.random.choice(options)}" if self.random.random() < chance else ""

    def place(self) -> str:
        return self.random.choice(("t:0", "t:0", "t:1", "u:0"))

    def places(self) -> str:
        return " ".join(sorted({self.place() for _ in range(self.random.choice((1, 1, 2)))}))


def sequence(seed: int, lane: Lane) -> list[str]:
    made = _Making(seed, lane)
    count = made.random.randrange(12, 32)
    return [*OPENING, *(_command(made) for _ in range(count))]


def _command(made: _Making) -> str:
    chance = made.random
    if made.is_strict and len(made.producers) < 4 and chance.random() < 0.08:
        return _copy(made)
    kind = chance.choices((_usual, _odd, _looked_at), (6, 3, 3))[0]
    return kind(made)


def _copy(made: _Making) -> str:
    old, name = made.random.choice("xy"), "zw"[len(made.producers) - 2]
    made.producers.append(name)
    if old in made.older:
        made.older.add(name)
    return f"copy {old} {name}"


def _usual(made: _Making) -> str:
    """What the client of a producer sends."""
    chance, who = made.random, made.random.choice(made.producers[:2])
    if who in made.older and chance.random() < 0.45:
        return f"add {who} {made.places()}" if chance.random() < 0.7 else f"add-offsets {who}"
    return chance.choice(
        (
            f"send {who} {made.places()}",
            f"send {who} {made.places()}",
            f"txn-commit {who} t:{chance.randrange(2)} offset={chance.randrange(100)}",
            f"end {who} commit",
            f"end {who} commit",
            f"end {who} abort",
            f"init {who}",
        )
    )


def _odd(made: _Making) -> str:
    chance, who = made.random, made.random.choice(made.producers)
    other = chance.choice(made.producers)
    epoch = made.maybe(0.4, "epoch=~1", "epoch=+1", "epoch=~2", "epoch=-1", "epoch=32767")
    pid = made.maybe(0.2, f"pid={other}", "pid=~1", "pid=+7", "pid=-1")
    named = made.maybe(0.15, f"id={other}", "id=nobody", "id=''")
    outcome = chance.choice(("commit", "abort"))
    ends = range(1, 6) if made.is_strict else (1, 2, 3, 4) if who in made.older else (5,)
    # Batches of no producer, and plain ones of other epochs, are left out (docs/differences.md).
    sender = pid.replace("pid=-1", "pid=+1")
    sends = (9, 10, 11, 11, 12) if made.is_strict or who in made.older else (12, 11)
    commits = (0, 1, 2, 3, 4, 5)
    return chance.choice(
        (
            lambda: f"add {who} {made.places()} v={chance.randrange(4)}{epoch}{pid}{named}",
            lambda: f"add {who} {made.place()} {chance.choice(('t:7', 'nowhere:0', '__consumer_offsets:0'))}",
            lambda: f"ask {who} {made.places()} v={chance.choice((4, 5))}{epoch}{pid}",
            lambda: f"ask {who} {other} {made.places()} v=5",
            lambda: f"add-offsets {who} v={chance.randrange(4)}{epoch}{pid}{named}{made.maybe(0.2, 'group=h')}",
            lambda: f"send {who} {made.places()} v={chance.choice(sends)}{epoch}{sender}{named}",
            lambda: f"send {who} {made.place()} v={chance.choice(sends)} seq={chance.choice(('+1', '+2', '0', '5'))}",
            lambda: f"send {who} {made.place()} plain=yes",
            lambda: f"send {who} {made.place()} id=null{made.maybe(0.5, 'plain=yes')}",
            lambda: (
                f"txn-commit {who} t:0 u:0 v={chance.choice(commits)}{epoch.replace('epoch', 'producer-epoch')}"
                f"{pid}{named}{made.maybe(0.3, 'group=h')}"
            ),
            lambda: f"txn-commit {who} t:0 t:9 nowhere:0 v={chance.choice(commits)}",
            lambda: f"txn-commit {who} t:1 member=stranger epoch={chance.choice((-1, 0, 3))} v={chance.choice((3, 5))}",
            lambda: f"end {who} {outcome} v={chance.choice(ends)}{epoch}{pid}{named}",
            lambda: f"end {who} {outcome} v={chance.choice(ends)}{epoch}",
            lambda: _odd_init(made, who),
        )
    )()


def _odd_init(made: _Making, who: str) -> str:
    chance = made.random
    wrong = made.maybe(0.3, "timeout=0", "timeout=-1", "timeout=900001", "id=''")
    if not made.is_strict:
        return f"init {who} v={chance.randrange(2, 6)}{wrong}"
    named = made.maybe(0.7, "again=yes", "pid=+0 epoch=~1", "pid=+0 epoch=+1", "pid=~1 epoch=0", "pid=+0", "epoch=+0")
    return f"init {who} v={chance.choice((3, 4, 5)) if named else chance.randrange(2, 6)}{named}{wrong}"


def _looked_at(made: _Making) -> str:
    chance, who = made.random, made.random.choice(made.producers)
    committed = made.maybe(0.7, "committed=yes")
    return chance.choice(
        (
            f"read {made.place()}{committed}",
            f"read {made.place()} from={chance.randrange(3)}{committed}",
            f"ends {made.place()}{committed}",
            f"ends {made.place()} time={chance.choice(('earliest', 'max', '1000', '2000'))}{committed}",
            f"producers {made.place()}",
            f"transaction {who}",
            "transactions",
            "transactions states=Ongoing",
            f"transactions producers={who}",
            "fetch t:0 t:1 u:0 v=9 stable=yes",
            "fetch t:0 t:1 u:0 v=9",
            "fetch v=9",
            f"commit nobody t:{chance.randrange(2)} offset={chance.randrange(100)}",
            f"delete-offsets t:{chance.randrange(2)}",
            f"trim {made.place()} {chance.randrange(3)}",
        )
    )


# -- both servers


def run(class_path: str, number: int, first_seed: int, say: Say, lane: Lane) -> list[str]:
    """The findings as text."""
    with both(class_path, {}, {}, apache.BRIEF, lane) as pair:
        return compared(pair, range(first_seed, first_seed + number), say)


def compared(pair: Pair, seeds: range, say: Say) -> list[str]:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda seed: compare(pair, sequence(seed, pair.lane)), seeds))
    differing = [seed for seed, result in zip(seeds, results, strict=True) if result.at >= 0]
    found = {seed: shortest for seed in differing if (shortest := finding(pair, seed)) is not None}
    known = Counter(name for result in results for name in result.known)
    commands = sum(result.compared for result in results)
    say(f"transactions: {len(seeds)} sequences ran, with the seeds {seeds[0]} to {seeds[-1]}")
    say(f"transactions: {commands} commands compared, {len(found)} findings")
    if hasty := [seed for seed in differing if seed not in found]:
        say(f"transactions: seeds that differed once, and not when played again: {hasty}")
    say("known differences met: " + (", ".join(f"{name} {times}" for name, times in known.most_common()) or "none"))
    texts = [_text(seed, result) for seed, result in found.items()]
    more = [f"{len(texts) - SHOWN} more sequences of transactions differ, with the seeds {list(found)[SHOWN:]}"]
    return texts[:SHOWN] + (more if len(texts) > SHOWN else [])


def compare(pair: Pair, commands: Sequence[str]) -> Result:
    name = f"x{os.getpid()}-{next(_runs)}"
    kafka, kohort = (_play(pair, server, name, commands) for server in SERVERS)
    known: list[str] = []
    refused: set[str] = set()
    """Who sent what was refused by both servers."""
    answers = itertools.zip_longest(kafka, kohort, fillvalue=["nothing"])
    for number, (command, (theirs, ours)) in enumerate(zip(commands, answers, strict=False)):
        if theirs != ours:
            why = explained(command, theirs, ours, refused)
            known.append(why if why in pair.lane.ids else "")
            if not known[-1]:
                return Result(commands, number, tuple(known[:-1]), number, theirs, ours)
            if known[-1] not in LOCAL:
                return Result(commands, number, tuple(known))
        elif command.startswith("send ") and any("error=" in line for line in ours):
            refused.add(command.split()[1])
    return Result(commands, len(commands), tuple(known))


def explained(command: str, kafka: Sequence[str], kohort: Sequence[str], refused: Collection[str]) -> str:
    """The known difference between two answers; "" if there is none. `refused`: the producers of refused batches."""
    theirs, ours = " ".join(kafka), " ".join(kohort)
    if command.startswith("delete-offsets ") and "error=" not in theirs and "error=69" in ours:
        return "empty-group"
    if (
        command.startswith("txn-commit ")
        and "error=25" in theirs
        and theirs.replace("25 UNKNOWN_MEMBER_ID", "") == (ours.replace("22 ILLEGAL_GENERATION", ""))
    ):
        return "empty-group"
    if not command.startswith("send "):
        return ""
    if [line.replace("log_append_time_ms=set ", "") for line in kafka] == list(kohort):
        return "repeat-timestamp"
    is_late = "error=45" in theirs and "error=" not in ours
    return "refused-first" if is_late and refused else ""


def _play(pair: Pair, server: str, name: str, commands: Sequence[str]) -> list[list[str]]:
    """The answers. A command that fails, because an answer does not come or makes no sense, is the last."""
    stage = Stage(pair.addresses[server], name)
    answers: list[list[str]] = []
    try:
        for command in commands:
            answers.append(stage.run(command))
    except AssertionError as error:
        answers.append([str(error).partition("failed: ")[2]])
    finally:
        stage.close()
    return answers


def finding(pair: Pair, seed: int) -> Result | None:
    """The shortest sequence that differs as this one; None if it does not differ again."""
    commands = sequence(seed, pair.lane)
    plays = [compare(pair, commands) for _ in range(PLAYS - 1)]
    result = plays[-1]
    if result.at < 0 or any(play.at != result.at for play in plays):
        return None
    last = commands[result.at]

    def differs(kept: list[str]) -> bool:
        nonlocal result
        shorter = compare(pair, [*OPENING, *kept])
        if shorter.at < 0 or shorter.commands[shorter.at] != last:
            return False
        result = shorter
        return True

    fewer(commands[len(OPENING) : result.at + 1], differs, time.monotonic() + SHORTER_S)
    return result


def _text(seed: int, result: Result) -> str:
    lines = [f"transactions, seed {seed}: not explained; the shortest sequence:"]
    lines += [f"    {command}" for command in result.commands[: result.at + 1]]
    lines += [f"      kafka  {line}" for line in result.kafka or ("nothing",)]
    lines += [f"      kohort {line}" for line in result.kohort or ("nothing",)]
    return "\n".join(lines)
