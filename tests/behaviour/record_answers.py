"""`python tests/behaviour/record_answers.py [NAME…]`: what Apache Kafka 4.3 answers to the scenarios of the package.

Every scenario that a client can show is played three times against servers with its settings. One whose plays are not
all the same is played again in slower time, few at once; commands whose answers still vary are recorded with the errors
that came, and so are those that tests/behaviour/differences.txt marks: hashes or the clock decide them. Scenarios in
which offsets expire take long, and are recorded only by name; those that start the server
again are not played by the kit.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(path)
    for path in (
        TESTS.parent,
        TESTS / "behaviour",
        TESTS / "coordinator",
        TESTS / "fuzz",
        TESTS / "java",
        TESTS / "peers",
    )
]

import java_libraries  # noqa: E402
import scenario_files as files  # noqa: E402
from bench import _kafka as apache  # noqa: E402
from guide import hints_for  # noqa: E402
from lanes import STRICT, USUAL  # noqa: E402
from peer_servers import OF_KAFKA  # noqa: E402
from scenario_run import CALM, SHARED_TOPICS, SLOW, play  # noqa: E402
from servers import USUAL as SETTINGS  # noqa: E402
from servers import Pair, started, starting_kafka  # noqa: E402

from kohort.conformance.files import Scenario  # noqa: E402
from kohort.conformance.play.hints import as_json  # noqa: E402
from kohort.conformance.play.profiles import EXPIRING, FACTOR  # noqa: E402
from kohort.conformance.play.world import Patience  # noqa: E402
from kohort.conformance.reference import ANSWERS, errors_of  # noqa: E402

PLAYS = 3
AT_ONCE = {FACTOR: 16, 1: 8}

Transcript = list[list[str]]


def main(names: Sequence[str]) -> int:
    class_path = java_libraries.kafka()
    version = apache.version(class_path)
    scenarios = [
        replace(scenario, hints=replace(hints_for(scenario.commands, STRICT), exact_epochs=False))
        for scenario in files.scenarios(STRICT)
        if not any(command.startswith("restart") for command in scenario.commands)
        if scenario.name in names or (not names and scenario.profile.name != EXPIRING.name)
    ]
    ANSWERS.mkdir(exist_ok=True)
    failed: list[str] = []
    by_profile = defaultdict(list)
    for scenario in scenarios:
        by_profile[scenario.profile.name].append(scenario)
    for profile, chosen in by_profile.items():
        open_ones, plays = chosen, {}
        for factor, at_once in AT_ONCE.items():
            plays = _played(class_path, open_ones, factor, at_once)
            open_ones = [each for each in open_ones if not _agree(plays[each.name])]
            for scenario in chosen:
                if scenario.name in plays and (scenario not in open_ones or factor == 1):
                    if not plays[scenario.name]:
                        failed.append(scenario.name)
                        continue
                    _write(scenario, plays[scenario.name], version)
            if not open_ones:
                break
        print(
            f"{profile}: {len(chosen)} scenarios; these vary: {' '.join(each.name for each in open_ones)}", flush=True
        )
    print("not recorded:", *failed)
    return 1 if failed else 0


def _played(class_path: str, scenarios: Sequence[Scenario], factor: float, at_once: int) -> dict[str, list[Transcript]]:
    """The transcripts of all plays that came to their end."""
    settings = SETTINGS | scenarios[0].profile.slower(factor).settings | OF_KAFKA
    found: dict[str, list[Transcript]] = {scenario.name: [] for scenario in scenarios}
    with starting_kafka(class_path, settings, apache.BRIEF) as start:
        pair = started({"kafka": start}, SHARED_TOPICS)
        for _ in range(PLAYS):
            patience = replace(CALM if factor == FACTOR else SLOW, measured=False)
            with ThreadPoolExecutor(at_once) as pool:
                longest = sorted(scenarios, key=lambda each: -sum(each.hints.elapsed_ms))
                plays = {each.name: pool.submit(_play, pair, each, patience, factor) for each in longest}
            for name, played in plays.items():
                if (transcript := played.result()) is not None:
                    found[name].append(transcript)
    return found


def _play(pair: Pair, scenario: Scenario, patience: Patience, factor: float) -> Transcript | None:
    played = play(pair, "kafka", scenario, patience, factor)
    if played.failure:
        print(f"{scenario.name}: {played.failure}", flush=True)
    return None if played.failure else played.transcript


def _agree(plays: Sequence[Transcript]) -> bool:
    return len(plays) > 1 and all(play == plays[0] for play in plays)


def _write(scenario: Scenario, plays: Sequence[Transcript], version: str) -> None:
    varies = _varying(scenario, plays)
    found: Mapping[str, object] = {
        "kafka": version,
        "hints": as_json(scenario.hints),
        "varies": {str(number): sorted(errors) for number, errors in sorted(varies.items())},
        "answers": plays[-1],
    }
    rows = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in found.items()]
    answers = ",\n".join(f"    {json.dumps(lines, ensure_ascii=False)}" for lines in plays[-1])
    rows[-1] = f'  "answers": [\n{answers}\n  ]'
    (ANSWERS / f"{scenario.name}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def _varying(scenario: Scenario, plays: Sequence[Transcript]) -> dict[int, set[str]]:
    """The commands whose answers vary, and the errors that Kafka has answered to each."""
    known: defaultdict[str, set[str]] = defaultdict(set)
    for lane in (USUAL, STRICT):
        entry = files.known(lane).get(scenario.name, files.NOTHING)
        for row in entry.differences if entry.varies else ():
            known[row.command].add(errors_of([line for line in row.lines if line.startswith("kafka")]))
    found = {}
    for number, command in enumerate(scenario.commands):
        if command in known or any(play[number] != plays[0][number] for play in plays):
            found[number] = {errors_of(play[number]) for play in plays} | known[command]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
