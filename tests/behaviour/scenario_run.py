"""All scenarios against both servers, side by side, because they mostly wait.

Time is real, and a busy machine is late. A scenario with an unknown difference runs again, with fewer at a time, and
then in slower time, in which the same delay matters less. A difference is a finding only if it is there in the slowest
time, in a run in which nothing was late, or the same in every run. After all other runs, a scenario that was late in
each runs once more, alone. A known difference that no longer occurs is a finding, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import NamedTuple

from lanes import Lane
from scenario_files import NOTHING, SERVERS, Difference, Known, Scenario, differences
from servers import Pair, both

from kohort.conformance.play.profiles import FACTOR, SLOWEST
from kohort.conformance.play.pulse import pulse_of
from kohort.conformance.play.world import Patience, WireWorld

SHARED_TOPICS = dict.fromkeys(("t", "u", "v", "other"), 10)
CALM = Patience(parked=0.15, late=0.25, sweep=2.0, measured=True)
SLOW = Patience(parked=0.3, late=0.4, sweep=2.0, measured=True)
DRIFT_S = 0.5
"""In a run that counts, late answers may add up to this: a quarter of a scenario's second in the slowest time."""
STAGES = {FACTOR: (60, 20), 1: (8,), SLOWEST: (4, 4, 4)}
"""How many scenarios are played at a time, turn by turn, by how slow time goes in them."""

Say = Callable[[str], None]


class Played(NamedTuple):
    transcript: list[list[str]]
    late_s: float = math.inf
    """By how much the server or this process was late, at most; infinite where this was not measured."""
    is_sure: bool = False
    """True if time went as slowly as it can, and nothing was late."""
    failure: str = ""


class Compared(NamedTuple):
    """The same, of both servers."""

    differences: tuple[Difference, ...]
    late_s: float
    is_sure: bool


@dataclass(slots=True)
class Outcome:
    same: list[str] = field(default_factory=list)
    found: dict[str, tuple[Difference, ...]] = field(default_factory=dict)
    """Differences by the scenario's name, known or not."""
    findings: list[str] = field(default_factory=list)
    """Deviations from the known differences, as text."""
    too_late: list[str] = field(default_factory=list)
    """Scenarios that deviated from their known differences, in runs too late for a verdict."""


_runs = count()


def run(class_path: str, scenarios: Sequence[Scenario], known: Mapping[str, Known], say: Say, lane: Lane) -> Outcome:
    plays: defaultdict[str, list[Compared]] = defaultdict(list)
    open_ones = list(scenarios)
    for factor, turns in STAGES.items():
        profiles = {scenario.profile.name: scenario.profile.slower(factor) for scenario in open_ones}
        if not profiles:
            break
        with ExitStack() as stack, ThreadPoolExecutor(len(profiles)) as pool:
            started = pool.map(
                lambda profile: stack.enter_context(both(class_path, profile.settings, SHARED_TOPICS, lane=lane)),
                profiles.values(),
            )
            pairs = dict(zip(profiles, started, strict=True))
            say(f"servers of {len(pairs)} kinds have started, with time × {factor:.2g}: {', '.join(pairs)}")
            for at_a_time in turns:
                again = bool(plays)
                patience = (CALM if factor == FACTOR else SLOW) if again else Patience()
                played = [
                    pool.submit(
                        _compare,
                        pairs[name],
                        [scenario for scenario in open_ones if scenario.profile.name == name],
                        at_a_time,
                        partial(play, patience=patience, factor=factor),
                    )
                    for name in pairs
                ]
                for found in played:
                    for name, compared in found.result().items():
                        plays[name].append(compared)
                names = ", ".join(scenario.name for scenario in open_ones)
                say(f"scenarios that ran again: {names}" if again else f"{len(open_ones)} scenarios ran")
                open_ones = [scenario for scenario in open_ones if _is_open(scenario, plays[scenario.name][-1], known)]
                if not open_ones:
                    break
    for scenario in open_ones:
        say(f"alone, because all its runs were late: {scenario.name}")
        with both(class_path, scenario.profile.slower(SLOWEST).settings, SHARED_TOPICS, lane=lane) as pair:
            alone = _compare(pair, [scenario], 1, partial(play, patience=SLOW, factor=SLOWEST))
        plays[scenario.name].append(alone[scenario.name])
    outcome = Outcome()
    for scenario in scenarios:
        judge(scenario, plays[scenario.name], known.get(scenario.name, NOTHING), outcome)
    return outcome


def _is_open(scenario: Scenario, last: Compared, known: Mapping[str, Known]) -> bool:
    return not (last.is_sure or known.get(scenario.name, NOTHING).fits(last.differences))


def judge(scenario: Scenario, plays: Sequence[Compared], known: Known, outcome: Outcome) -> None:
    last, rows = plays[-1], plays[-1].differences
    steady = [row for row in rows if all(row in each.differences for each in plays)]
    varied = any(each.differences != rows for each in plays) and all(map(known.explains, steady))
    if varied and not last.is_sure and not known.fits(rows):
        outcome.too_late.append(f"{scenario.name}.txt ({last.late_s:.2f} s late)")
        return
    if rows:
        outcome.found[scenario.name] = rows
    else:
        outcome.same.append(scenario.name)
    if known.fits(rows):
        return
    lines = [f"{scenario.name}.txt:" + (" the difference is not as it is known" if known is not NOTHING else "")]
    for row in rows:
        lines += [f"  {row.command}", *(f"      {line}" for line in row.lines)]
    outcome.findings.append("\n".join(lines if rows else [f"{scenario.name}.txt: there is no difference any more"]))


def _compare(
    pair: Pair, scenarios: Sequence[Scenario], at_a_time: int, play: Callable[[Pair, str, Scenario], Played]
) -> dict[str, Compared]:
    with ThreadPoolExecutor(at_a_time) as pool:
        running = {
            scenario.name: {server: pool.submit(play, pair, server, scenario) for server in SERVERS}
            for scenario in sorted(scenarios, key=_length, reverse=True)
        }
        return {scenario.name: _compared(scenario, running[scenario.name]) for scenario in scenarios}


def _length(scenario: Scenario) -> float:
    return sum(scenario.hints.elapsed_ms) * scenario.profile.factor


def _compared(scenario: Scenario, running: Mapping[str, Future[Played]]) -> Compared:
    played = {server: future.result() for server, future in running.items()}
    failures = tuple(f"{server} failed: {each.failure}" for server, each in played.items() if each.failure)
    if failures:
        rows = (Difference("the run as a whole", failures),)
    else:
        rows = differences(scenario.commands, {server: each.transcript for server, each in played.items()})
    return Compared(rows, max(each.late_s for each in played.values()), all(each.is_sure for each in played.values()))


def play(pair: Pair, server: str, scenario: Scenario, patience: Patience = CALM, factor: float = FACTOR) -> Played:
    profile = scenario.profile.slower(factor)
    patience = replace(
        patience,
        answer=patience.answer * profile.factor / scenario.profile.factor,
        parked=max(patience.parked, profile.parked_s),
    )
    shared = None if scenario.makes_topics else pair.shared[server]
    transcript, failure, pulse = [], "", None
    with pair.alone[server] if scenario.is_alone else nullcontext(), ExitStack() as stack:
        if patience.measured:
            pulse = stack.enter_context(pulse_of(lambda: pair.addresses[server]))
        prefix, restart = f"{scenario.name}.{next(_runs)}.", partial(pair.restart, server)
        address, hints = pair.addresses[server], scenario.hints
        world = WireWorld(address, prefix, hints, profile.factor, shared, patience, restart=restart)
        try:
            with ExitStack() as after:
                if scenario.changes_settings:
                    after.callback(restart, {})
                if scenario.own_topics is not None:
                    world.do_topics(**scenario.own_topics)
                transcript = world.play(scenario.commands)
        except (AssertionError, OSError, KeyError) as error:
            failure = repr(error)
    late_s = math.inf if pulse is None else max(pulse.late_s, world.late_s)
    is_calm = pulse is not None and pulse.late_s <= patience.parked and world.late_s <= DRIFT_S
    is_sure = is_calm and profile == profile.slower(SLOWEST)
    return Played(transcript, late_s, is_sure, failure)
