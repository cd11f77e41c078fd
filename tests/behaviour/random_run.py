"""Random sequences against both servers, many at a time, each in groups of its own.

A sequence whose answers differ is played again, each time with longer waits, and if each time was late, at last alone.
The difference is a finding only if it is there each time, and the last time nothing was late or all times showed the
same answers. Then the sequence is made as short as possible: commands are left out as long as the rest still differs.
The remaining sequence is printed as a scenario, with the seed.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import random_requests as requests
from bench import _kafka as apache
from departures import LOCAL, after, between, errors
from fuzz_shrink import fewer
from guide import Guide, Hints
from lanes import Lane, documented
from scenario_files import SERVERS
from servers import Pair, both

from kohort.conformance.play.pulse import pulse_of
from kohort.conformance.play.world import Patience, WireWorld

SETTINGS = {"group.consumer.max.session.timeout.ms": "600000"}
AT_A_TIME = 12
BRIEFLY = 1_000
"""Up to this number of sequences, Java's optimisation costs more time than it saves."""
SHOWN = 10
"""The number of findings that are shortened and printed."""
HASTY = Patience(answer=2.0, parked=0.02, late=0.05)
CALM = Patience(answer=4.0, parked=0.1, late=0.2, measured=True)
SLOW = Patience(answer=8.0, parked=0.4, late=0.4, measured=True)
AGAIN = (CALM, SLOW, SLOW, SLOW)
"""The plays of a sequence that differs. Two at least show a difference that is a finding."""
PREPARED = 2
"""The first commands make the world, and always stay."""

Say = Callable[[str], None]
_runs = count()


@dataclass(frozen=True)
class Result:
    commands: Sequence[str]
    compared: int
    ended_by: str = ""
    """The known difference after which the servers have different states."""
    at: int = -1
    """The command whose answers differ and should not."""
    kafka: Sequence[str] = ()
    kohort: Sequence[str] = ()
    local: tuple[str, ...] = ()
    is_late: bool = True
    """True if a server or this process was too late for the order of requests to be certain, or if nothing measured."""


def run(class_path: str, number: int, first_seed: int, say: Say, lane: Lane) -> tuple[list[str], list[str]]:
    """The findings as text, and the sequences that ran too late for a verdict."""
    seeds = range(first_seed, first_seed + number)
    ended: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    compared = 0
    differing: dict[int, list[Result]] = {}
    """The plays of each sequence, by its seed."""
    java_options = apache.USUAL if number > BRIEFLY else apache.BRIEF
    with both(class_path, SETTINGS, requests.TOPICS, java_options, lane) as pair:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for seed, result in zip(seeds, pool.map(lambda seed: of_seed(pair, seed), seeds), strict=True):
                compared += result.compared
                kinds[requests.KINDS[seed % len(requests.KINDS)]] += 1
                ended.update(filter(None, (result.ended_by, *result.local)))
                if result.at >= 0:
                    differing[seed] = [result]
        with ThreadPoolExecutor(AT_A_TIME // 4) as pool:
            again = pool.map(lambda seed: _played_again(pair, seed), differing)
            for plays, others in zip(differing.values(), again, strict=True):
                plays += others
        for seed, plays in differing.items():
            if plays[-1].at >= 0 and plays[-1].is_late:
                plays.append(_compare(pair, *requests.sequence(seed, lane=pair.lane), SLOW))
        last = {seed: plays[-1] for seed, plays in differing.items() if plays[-1].at >= 0}
        sure = [seed for seed in last if is_sure(differing[seed])]
        texts = {seed: text for seed in sure[:SHOWN] if (text := finding(pair, seed))}
    found = list(texts.values())
    if len(sure) > SHOWN:
        found.append(f"{len(sure) - SHOWN} more sequences differ, with the seeds {sure[SHOWN:]}")
    by_kind = ", ".join(f"{name} {times}" for name, times in sorted(kinds.items()))
    say(f"random sequences: {number} ran, with the seeds {seeds[0]} to {seeds[-1]} ({by_kind})")
    say(f"random sequences: {compared} commands compared, {len(found)} findings")
    if differing:
        hasty = [seed for seed in differing if seed not in last]
        say(f"random sequences: {len(differing)} differed in haste; not when played again: {hasty or 'none'}")
    say("known differences met: " + (", ".join(f"{name} {times}" for name, times in ended.most_common()) or "none"))
    unknown = sorted(ended.keys() - documented().keys())
    too_late = [f"the sequence of seed {seed}" for seed in last if last[seed].is_late and seed not in texts]
    return found + [f"{name} is not in docs/differences.md" for name in unknown], too_late


def is_sure(plays: Sequence[Result]) -> bool:
    last = plays[-1]
    same = all((each.at, each.kafka, each.kohort) == (last.at, last.kafka, last.kohort) for each in plays)
    return same or not last.is_late


def of_seed(pair: Pair, seed: int) -> Result:
    commands, hints, exact = requests.sequence(seed, lane=pair.lane)
    return _compare(pair, commands, hints, exact, HASTY)


def _compare(pair: Pair, commands: Sequence[str], hints: Hints, exact: bool, patience: Patience) -> Result:
    end = hints.departs_at if hints.departs_at >= 0 else len(commands)
    said = commands[:end]
    (kafka, is_late), (kohort, is_late_too) = (_play(pair, server, said, hints, exact, patience) for server in SERVERS)
    world = Guide(prompt=True, lane=pair.lane)
    local = []
    for number, command in enumerate(said):
        if kafka[number] == kohort[number]:
            world.play(command)
        else:
            answers = kafka[number], kohort[number]
            known = hints.local.get(number) or between(world, command, *answers, departed=world.departed)
            world.play(command)
            known = known or after(world, command, *answers)
            if known not in LOCAL:
                at = -1 if known else number
                late = is_late or is_late_too
                return Result(commands, number, known, at, kafka[number], kohort[number], tuple(local), late)
            local.append(known)
    return Result(commands, len(said), hints.departs_by, local=tuple(local))


def _play(
    pair: Pair, server: str, commands: Sequence[str], hints: Hints, exact: bool, patience: Patience
) -> tuple[list[list[str]], bool]:
    """The answers, and whether the run was late or not measured."""
    prefix = f"r{os.getpid()}.{next(_runs)}."
    world = WireWorld(pair.addresses[server], prefix, hints, 1.0, pair.shared[server], patience, exact)
    if not patience.measured:
        return world.play(commands), True
    with pulse_of(lambda: pair.addresses[server]) as pulse:
        answers = world.play(commands)
    return answers, pulse.late_s > patience.parked


# -- shorter


def _played_again(pair: Pair, seed: int) -> list[Result]:
    """The last play is the first without a difference, or one that is not late."""
    plays = []
    for patience in AGAIN:
        plays.append(_compare(pair, *requests.sequence(seed, lane=pair.lane), patience))
        if plays[-1].at < 0 or (patience is SLOW and not plays[-1].is_late):
            break
    return plays


def finding(pair: Pair, seed: int) -> str:
    """The shortest sequence with the difference, as text; "" if there is no difference any more."""
    commands, hints, exact = requests.sequence(seed, lane=pair.lane)
    result = _compare(pair, commands, hints, exact, CALM)
    if result.at < 0:
        return ""

    def differs(kept: list[str]) -> bool:
        nonlocal result
        shorter = _differs(pair, [*commands[:PREPARED], *kept], exact)
        if shorter is None or not _is_alike(shorter, result):
            return False
        result = shorter
        return True

    fewer(commands[PREPARED : result.at + 1], differs, math.inf)
    lines = [f"seed {seed} ({requests.KINDS[seed % len(requests.KINDS)]}): not explained; the shortest sequence:"]
    lines += [f"    {command}" for command in result.commands[: result.at + 1]]
    lines += [f"      kafka  {line}" for line in result.kafka or ("nothing",)]
    lines += [f"      kohort {line}" for line in result.kohort or ("nothing",)]
    return "\n".join(lines)


def _is_alike(one: Result, other: Result) -> bool:
    """True if the same command differs, with the same errors."""
    return one.commands[one.at] == other.commands[other.at] and all(
        errors(lines) == errors(others) for lines, others in ((one.kafka, other.kafka), (one.kohort, other.kohort))
    )


def _differs(pair: Pair, commands: Sequence[str], exact: bool) -> Result | None:
    try:
        hints = requests.replay(commands, pair.lane)
    except (AssertionError, KeyError, TypeError):
        return None  # the other commands make no sense without those that are left out
    result = _compare(pair, commands, hints, exact, CALM)
    return result if result.at >= 0 else None
