"""`python tests/behaviour [--sequences N] [--seed N] [--quick] [--strict] [--record] [--only NAME…]`: compared servers.

Runs random sequences of requests, and then every scenario of tests/coordinator/scenarios that a client can show,
against Apache Kafka and against kohort, over plain sockets. Says what ran, what is the same and what differs, and
fails for a difference that docs/differences.md does not explain, and for an explained difference that no longer occurs.
A scenario that a busy machine delayed, with varying results, is named at the end and is no failure.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(path) for path in (TESTS.parent, TESTS / "coordinator", TESTS / "fuzz", TESTS / "java", TESTS / "peers")
]

import java_libraries  # noqa: E402
import random_run  # noqa: E402
import random_transactions  # noqa: E402
import scenario_files as files  # noqa: E402
import scenario_run  # noqa: E402
from bench import _kafka as apache  # noqa: E402
from lanes import GATEWAY, STRICT, USUAL  # noqa: E402

from kohort.conformance.play.profiles import EXPIRING, PROMPT  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/behaviour", description=__doc__)
    parser.add_argument("--sequences", type=int, default=2_000, help="how many random sequences")
    parser.add_argument(
        "--transactions", type=int, help="how many of transactions; a quarter of the others if not given"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**8), help="of the first of them")
    parser.add_argument("--quick", action="store_true", help="leave out the scenarios that take minutes")
    parser.add_argument("--record", action="store_true", help="write the differences of scenarios that there are now")
    parser.add_argument("--strict", action="store_true", help="kohort with compatibility=kafka")
    parser.add_argument("--gateway", action="store_true", help="a gateway before a kohort, instead of Apache Kafka")
    parser.add_argument("--only", nargs="*", help="scenarios by name")
    options = parser.parse_args()
    if options.gateway:
        return _compare("", options)
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None and not os.environ.get("KAFKA_LIB")]
    if missing:
        print(f"peers-behaviour needs Maven and Java 17: no {' and no '.join(missing)} on the path", file=sys.stderr)
        return 1
    return _compare(java_libraries.kafka(), options)


def _compare(class_path: str, options: argparse.Namespace) -> int:
    began = time.monotonic()
    lane = GATEWAY if options.gateway else STRICT if options.strict else USUAL
    known = files.known(lane)
    chosen = [scenario for scenario in files.scenarios(lane) if not options.only or scenario.name in options.only]
    if lane.is_gateway:  # it follows topics, and learns of deletions later
        chosen = [scenario for scenario in chosen if scenario.own_topics is None]
    if options.quick and lane.is_gateway:
        chosen = [scenario for scenario in chosen if scenario.profile.name == PROMPT.name]
    elif options.quick:
        chosen = [scenario for scenario in chosen if scenario.profile.name != EXPIRING.name]
    kohort = "a strict kohort" if options.strict else "kohort"
    other = "a gateway" if options.gateway else f"Apache Kafka {apache.version(class_path)}"
    _say(f"{other} and {kohort}; seed {options.seed}")
    found, too_late = [], []
    if options.sequences:
        found, too_late = random_run.run(class_path, options.sequences, options.seed, _say, lane)
    transactions = options.sequences // 4 if options.transactions is None else options.transactions
    if transactions:
        found += random_transactions.run(class_path, transactions, options.seed, _say, lane)
    outcome = scenario_run.run(class_path, chosen, known, _say, lane)
    if options.record:
        files.record(outcome.found, [*outcome.found, *outcome.same], lane)
        known = files.known(lane)
    forbidden = [
        f"{name}.txt: docs/differences.md says that {known_id} does not show here"
        for name in outcome.found
        for known_id in (known[name].ids if name in known else ())
        if known_id not in lane.ids
    ]
    unnamed = [f"{name}.txt: no id says why" for name in outcome.found if not known.get(name) or not known[name].ids]
    findings = ([] if options.record else outcome.findings) + unnamed + forbidden
    _say(
        f"scenarios: {len(chosen)} ran, {len(outcome.same)} the same, {len(outcome.found)} different, "
        f"{len(findings)} not explained; {len(files.reasons(files.NOT_RUN))} are not for the wire"
    )
    for name in sorted(outcome.found):
        _say(f"  {name}.txt: {', '.join(known[name].ids) if name in known else 'unknown'}")
    findings += found
    for finding in findings:
        print(f"\n{finding}", file=sys.stderr)
    too_late += outcome.too_late
    end = f"; the machine was too busy to tell: {', '.join(too_late)}" if too_late else ""
    _say(f"{len(findings)} findings in {time.monotonic() - began:.0f} s{end}")
    return 1 if findings else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
