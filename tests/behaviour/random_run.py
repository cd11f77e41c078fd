"""Random sequences against both servers, many at a time, each in groups of its own.

A sequence whose answers differ is played again, calmly, and then made as short as possible: commands are left out as
long as the rest still differs. What remains is printed as a scenario, with the seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import random_requests as requests
from bench import _kafka as apache
from departures import LOCAL, after, between, errors
from guide import Guide, Hints
from scenario_files import SERVERS, documented
from servers import Pair, both
from wire_world import Patience, WireWorld

SETTINGS = {"group.consumer.max.session.timeout.ms": "600000"}
AT_A_TIME = 12
BRIEFLY = 1_000
"""Up to so many sequences, what Java does to be fast later costs more than it brings."""
SHOWN = 10
"""Findings that are made shorter and printed; of the others the number."""
HASTY = Patience(answer=2.0, parked=0.02, late=0.05)
CALM = Patience(answer=4.0, parked=0.1, late=0.2)
PREPARED = 2
"""Commands at the beginning that make the world, and stay."""

Say = Callable[[str], None]
_runs = count()


@dataclass(frozen=True)
class Result:
    """What came of a sequence."""

    commands: Sequence[str]
    compared: int
    ended_by: str = ""
    """The known difference behind which the servers' states are different."""
    at: int = -1
    """The command whose answers differ and should not."""
    kafka: Sequence[str] = ()
    kohort: Sequence[str] = ()
    local: tuple[str, ...] = ()


def run(class_path: str, number: int, first_seed: int, say: Say) -> list[str]:
    """What is found, in words."""
    seeds = range(first_seed, first_seed + number)
    ended: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    compared = 0
    differing: list[int] = []
    java_options = (*apache.HEAP, *apache.COLLECTOR) if number > BRIEFLY else apache.BRIEF
    with both(class_path, SETTINGS, requests.TOPICS, java_options) as pair:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for seed, result in zip(seeds, pool.map(lambda seed: of_seed(pair, seed), seeds), strict=True):
                compared += result.compared
                kinds[requests.KINDS[seed % len(requests.KINDS)]] += 1
                ended.update(filter(None, (result.ended_by, *result.local)))
                if result.at >= 0:
                    differing.append(seed)
        with ThreadPoolExecutor(AT_A_TIME // 4) as pool:
            again = zip(differing, pool.map(lambda seed: _differs_again(pair, seed), differing), strict=True)
            sure = [seed for seed, differs in again if differs]
        found = [text for seed in sure[:SHOWN] if (text := finding(pair, seed))]
    if len(sure) > SHOWN:
        found.append(f"{len(sure) - SHOWN} more sequences differ, with the seeds {sure[SHOWN:]}")
    by_kind = ", ".join(f"{name} {times}" for name, times in sorted(kinds.items()))
    say(f"random sequences: {number} ran, with the seeds {seeds[0]} to {seeds[-1]} ({by_kind})")
    say(f"random sequences: {compared} commands compared, {len(found)} findings")
    if differing:
        late = [seed for seed in differing if seed not in sure]
        say(f"random sequences: {len(differing)} differed in haste; not again, played calmly twice: {late or 'none'}")
    say("known differences met: " + (", ".join(f"{name} {times}" for name, times in ended.most_common()) or "none"))
    unknown = sorted(ended.keys() - documented())
    return found + [f"{name} is not in docs/differences.md" for name in unknown]


def of_seed(pair: Pair, seed: int) -> Result:
    commands, hints, exact = requests.sequence(seed)
    return _compare(pair, commands, hints, exact, HASTY)


def _compare(pair: Pair, commands: Sequence[str], hints: Hints, exact: bool, patience: Patience) -> Result:
    end = hints.departs_at if hints.departs_at >= 0 else len(commands)
    said = commands[:end]
    kafka, kohort = (_play(pair, server, said, hints, exact, patience) for server in SERVERS)
    world = Guide(prompt=True)
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
                return Result(commands, number, known, at, kafka[number], kohort[number], tuple(local))
            local.append(known)
    return Result(commands, len(said), hints.departs_by, local=tuple(local))


def _play(
    pair: Pair, server: str, commands: Sequence[str], hints: Hints, exact: bool, patience: Patience
) -> list[list[str]]:
    prefix = f"r{os.getpid()}.{next(_runs)}."
    world = WireWorld(pair.addresses[server], prefix, hints, 1.0, pair.shared[server], patience, exact)
    return world.play(commands)


# -- shorter


def _differs_again(pair: Pair, seed: int) -> bool:
    """Run alone, because a busy machine answers late."""
    commands, hints, exact = requests.sequence(seed)
    return all(_compare(pair, commands, hints, exact, CALM).at >= 0 for _ in range(2))


def finding(pair: Pair, seed: int) -> str:
    """ "" when the difference is none any more."""
    commands, hints, exact = requests.sequence(seed)
    result = _compare(pair, commands, hints, exact, CALM)
    if result.at < 0:
        return ""
    kept = list(commands[: result.at + 1])
    size = max(1, (len(kept) - PREPARED) // 2)
    while size:
        start = PREPARED
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            shorter = _differs(pair, fewer, exact)
            if shorter is not None and _is_alike(shorter, result):
                kept, result = fewer[: shorter.at + 1], shorter
            else:
                start += size
        size //= 2
    lines = [f"seed {seed} ({requests.KINDS[seed % len(requests.KINDS)]}): not explained; the shortest sequence:"]
    lines += [f"    {command}" for command in kept]
    lines += [f"      kafka  {line}" for line in result.kafka or ("nothing",)]
    lines += [f"      kohort {line}" for line in result.kohort or ("nothing",)]
    return "\n".join(lines)


def _is_alike(one: Result, other: Result) -> bool:
    """Whether it is the same difference: of the same command, with the same errors."""
    return one.commands[one.at] == other.commands[other.at] and all(
        errors(lines) == errors(others) for lines, others in ((one.kafka, other.kafka), (one.kohort, other.kohort))
    )


def _differs(pair: Pair, commands: Sequence[str], exact: bool) -> Result | None:
    try:
        hints = requests.replay(commands)
    except (AssertionError, KeyError, TypeError):
        return None  # the rest makes no sense without what was left out
    result = _compare(pair, commands, hints, exact, CALM)
    return result if result.at >= 0 else None
