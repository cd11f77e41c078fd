"""All scenarios against both servers, side by side, because they mostly wait.

What differs otherwise than it is known to is run again with fewer at a time, up to three times: clocks are real, and a
busy machine is late. What differs then too is a finding, and so is a known difference that is none any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from profiles import EXPIRING, Profile
from scenario_files import NOTHING, SERVERS, Difference, Known, Scenario, differences
from servers import Pair, both
from wire_world import Patience, WireWorld

SHARED_TOPICS = dict.fromkeys(("t", "u", "v", "other"), 10)
AT_A_TIME = 60
AGAIN = (20, 8, 2)
"""And how many when they are run again."""
LONG_AGAIN = 1
"""How often those are run again that take minutes."""
CALM = Patience(parked=0.15, late=0.25, sweep=2.0)

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    same: list[str] = field(default_factory=list)
    found: dict[str, tuple[Difference, ...]] = field(default_factory=dict)
    """Differences by the scenario's name, known or not."""
    findings: list[str] = field(default_factory=list)
    """What is not as it is known to be, in words."""


_runs = count()


def run(class_path: str, scenarios: Sequence[Scenario], known: Mapping[str, Known], say: Say) -> Outcome:
    outcome = Outcome()
    profiles: dict[str, Profile] = {scenario.profile.name: scenario.profile for scenario in scenarios}
    rows: dict[str, tuple[Difference, ...]] = {}
    with ExitStack() as stack, ThreadPoolExecutor(max(1, len(profiles))) as pool:
        started = pool.map(lambda name: stack.enter_context(_servers(class_path, profiles[name])), profiles)
        pairs = dict(zip(profiles, started, strict=True))
        say(f"servers of {len(pairs)} kinds have started: {', '.join(pairs)}")
        for turn, at_a_time in enumerate((AT_A_TIME, *AGAIN)):
            odd: dict[str, list[Scenario]] = {name: [] for name in pairs}
            for scenario in scenarios:
                if scenario.name not in rows or not _is_known(scenario, rows[scenario.name], known):
                    odd[scenario.profile.name].append(scenario)
            if turn > LONG_AGAIN:
                odd.pop(EXPIRING.name, None)
            if not any(odd.values()):
                break
            how = at_a_time, CALM if turn else Patience()
            for played in pool.map(lambda name: _played(pairs[name], odd[name], *how), odd):  # noqa: B023
                rows |= played
            names = [scenario.name for chosen in odd.values() for scenario in chosen]
            say(f"scenarios that ran again: {', '.join(names)}" if turn else f"{len(names)} scenarios ran")
    for scenario in scenarios:
        _judge(scenario, rows[scenario.name], known, outcome)
    return outcome


def _servers(class_path: str, profile: Profile) -> AbstractContextManager[Pair]:
    return both(class_path, profile.settings, SHARED_TOPICS)


def _is_known(scenario: Scenario, rows: Sequence[Difference], known: Mapping[str, Known]) -> bool:
    return known.get(scenario.name, NOTHING).fits(rows)


def _judge(scenario: Scenario, rows: tuple[Difference, ...], known: Mapping[str, Known], outcome: Outcome) -> None:
    if rows:
        outcome.found[scenario.name] = rows
    else:
        outcome.same.append(scenario.name)
    if _is_known(scenario, rows, known):
        return
    lines = [f"{scenario.name}.txt:" + (" the difference is not as it is known" if scenario.name in known else "")]
    for row in rows:
        lines += [f"  {row.command}", *(f"      {line}" for line in row.lines)]
    outcome.findings.append("\n".join(lines if rows else [f"{scenario.name}.txt: there is no difference any more"]))


def _played(
    pair: Pair, scenarios: Sequence[Scenario], at_a_time: int, patience: Patience
) -> dict[str, tuple[Difference, ...]]:
    """The differences of each."""
    with ThreadPoolExecutor(at_a_time) as pool:
        running = {
            scenario.name: {server: pool.submit(play, pair, server, scenario, patience) for server in SERVERS}
            for scenario in sorted(scenarios, key=_length, reverse=True)
        }
        return {scenario.name: _differences(scenario, running[scenario.name]) for scenario in scenarios}


def _length(scenario: Scenario) -> float:
    return sum(scenario.hints.elapsed_ms) * scenario.profile.factor


def _differences(scenario: Scenario, running: Mapping[str, Future[list[list[str]]]]) -> tuple[Difference, ...]:
    try:
        return differences(scenario.commands, {server: future.result() for server, future in running.items()})
    except (AssertionError, OSError, KeyError) as failure:
        return (Difference("the run as a whole", (f"failed: {failure!r}",)),)


def play(pair: Pair, server: str, scenario: Scenario, patience: Patience) -> list[list[str]]:
    shared = None if scenario.makes_topics else pair.shared[server]
    prefix = f"{scenario.name}.{next(_runs)}."
    profile = scenario.profile
    patience = replace(patience, parked=max(patience.parked, profile.parked_s))
    with pair.alone[server] if scenario.is_alone else nullcontext():
        restart = partial(pair.restart, server)
        address, hints = pair.addresses[server], scenario.hints
        world = WireWorld(address, prefix, hints, profile.factor, shared, patience, restart=restart)
        try:
            if scenario.own_topics is not None:
                world.prepare(**scenario.own_topics)
            return world.play(scenario.commands)
        finally:
            if scenario.changes_settings:
                restart({})
