"""All scenarios against both servers, those of one profile side by side: they mostly wait.

What differs otherwise than it is known to is run again with fewer at a time, up to three times: clocks are real, and a
busy machine is late. What differs then too is a finding, and so is a known difference that is none any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count

from profiles import EXPIRING, Profile
from scenario_files import NOTHING, SERVERS, Difference, Known, Scenario, differences
from servers import Pair, both
from wire_world import Patience, WireWorld

SHARED_TOPICS = dict.fromkeys(("t", "u", "v", "other"), 10)
AT_A_TIME = 60
AGAIN = (20, 8, 2)
"""And how many when they are run again."""
CALM = Patience(answer=5.0, parked=0.08, late=0.15, sweep=1.5)

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    same: list[str] = field(default_factory=list)
    found: dict[str, tuple[Difference, ...]] = field(default_factory=dict)
    """Differences by the scenario's name, known or not."""
    findings: list[str] = field(default_factory=list)
    """What is not as it is known to be, in words."""


_runs = count()
_of_no_name = {server: threading.Lock() for server in SERVERS}


def run(class_path: str, scenarios: Sequence[Scenario], known: Mapping[str, Known], say: Say) -> Outcome:
    """Those that expire beside all others, for they take minutes."""
    outcome = Outcome()
    profiles: dict[str, Profile] = {}
    for scenario in scenarios:
        profiles.setdefault(scenario.profile.name, scenario.profile)
    with ThreadPoolExecutor(1) as beside:
        long = [scenario for scenario in scenarios if scenario.profile.name == EXPIRING.name]
        running = beside.submit(_run_profile, class_path, EXPIRING, long, known, outcome, say) if long else None
        for name, profile in profiles.items():
            if name != EXPIRING.name:
                chosen = [scenario for scenario in scenarios if scenario.profile.name == name]
                _run_profile(class_path, profile, chosen, known, outcome, say)
        if running is not None:
            running.result()
    return outcome


def _run_profile(
    class_path: str,
    profile: Profile,
    scenarios: Sequence[Scenario],
    known: Mapping[str, Known],
    outcome: Outcome,
    say: Say,
) -> None:
    with both(class_path, profile.settings, SHARED_TOPICS) as pair:
        rows = _played(pair, scenarios, AT_A_TIME, Patience())
        for at_a_time in AGAIN[:1] if profile.name == EXPIRING.name else AGAIN:  # those take minutes
            odd = [scenario for scenario in scenarios if not _is_known(scenario, rows[scenario.name], known)]
            rows |= _played(pair, odd, at_a_time, CALM)
    for scenario in scenarios:
        _judge(scenario, rows[scenario.name], known, outcome)
    say(f"scenarios of the servers {profile.name!r}: {len(scenarios)} ran")


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
            for scenario in scenarios
        }
        return {scenario.name: _differences(scenario, running[scenario.name]) for scenario in scenarios}


def _differences(scenario: Scenario, running: Mapping[str, Future[list[list[str]]]]) -> tuple[Difference, ...]:
    try:
        return differences(scenario.commands, {server: future.result() for server, future in running.items()})
    except (AssertionError, OSError, KeyError) as failure:
        return (Difference("the run as a whole", (f"failed: {failure!r}",)),)


def play(pair: Pair, server: str, scenario: Scenario, patience: Patience) -> list[list[str]]:
    shared = None if scenario.makes_topics else pair.shared[server]
    prefix = f"{scenario.name}.{next(_runs)}."
    world = WireWorld(pair.addresses[server], prefix, scenario.hints, scenario.profile.factor, shared, patience)
    with _of_no_name[server] if scenario.of_no_name else nullcontext():
        if scenario.own_topics is not None:
            world.prepare(**scenario.own_topics)
        return world.play(scenario.commands)
