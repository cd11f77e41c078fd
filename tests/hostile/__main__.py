"""`python tests/hostile [--short] [--clients NAME…] [--mixes N] [--lenient] [--steps] …`: one client, and all others.

Measures heartbeats, commits and newcomers alone, then beside each hostile client of the catalogue, and then beside
random mixes of them. Prints a row for each, and fails for a limit that is exceeded.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "crash"))

from hostile_catalogue import BY_NAME, CATALOGUE  # noqa: E402
from hostile_run import KINDS, LENIENT, STRICT, Figures, Limits, Round  # noqa: E402

BASE_S = 3.0
CLIENT_S = 4.0
"""Longer than the lenient limits, so that a stall is seen."""
MIX_S = 3.0
"""Some 300 heartbeats: of fewer, the 99th percentile is the slowest one."""
MIXES_OF_A_SERVER = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/hostile", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one client of each kind, lenient limits, no mixes")
    parser.add_argument("--clients", nargs="*", help="of the catalogue, by name")
    parser.add_argument("--mixes", type=int, help="random mixes of two to four clients; 100 unless told")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the mixes")
    parser.add_argument("--seconds", type=float, default=CLIENT_S, help="that each client is at work")
    parser.add_argument("--lenient", action="store_true", help="limits of time for a machine that does other work")
    parser.add_argument("--verbose", action="store_true", help="say what each client did")
    parser.add_argument("--steps", action="store_true", help="say what took the server how long")
    options = parser.parse_args()
    if options.clients is not None:
        if unknown := [name for name in options.clients if name not in BY_NAME]:
            parser.error(f"no such client: {unknown[0]}. Names are separated by spaces: {', '.join(sorted(BY_NAME))}")
        chosen = [BY_NAME[name] for name in options.clients]
    else:
        chosen = [client for client in CATALOGUE if not options.short or (client.short and not client.unmet)]
    mixes = options.mixes if options.mixes is not None else 0 if options.short or options.clients is not None else 100
    report = Report(LENIENT if options.short or options.lenient else STRICT, options.verbose)
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    report.base()
    for client in chosen:
        with Round(steps=options.steps) as server:
            figures = server.attack([client.name], options.seconds)
            server.end(figures)
            report.add(figures, client.unmet)
    report.mixes(random.Random(options.seed), mixes)
    for client in CATALOGUE:
        if client.unmet:
            print(f"not met: {client.name}: {client.unmet}")
    print(f"{report.rows} rows in {time.monotonic() - began:.0f} s, {len(report.failed)} beyond the limits")
    for failure in report.failed:
        print(f"FAILED {failure}")
    return 1 if report.failed else 0


class Report:
    def __init__(self, limits: Limits, verbose: bool) -> None:
        self.rows = 0
        self.failed: list[str] = []
        self._limits = limits
        self._verbose = verbose
        self._base: Figures

    def base(self) -> None:
        with Round() as server:
            self._base = server.base(BASE_S)
            server.end(self._base)
        kinds = " ".join(f"{kind:>15}" for kind in KINDS)
        print(f"{'milliseconds: p99 (slowest) of':32} {kinds} {'MB':>6} {'exit s':>6}")
        self._print(self._base, "")
        self.failed += self._base.violations

    def add(self, figures: Figures, unmet: str = "") -> None:
        self.rows += 1
        wrong = figures.exceeds(self._limits, self._base)
        if not wrong:
            verdict = "met now" if unmet else ""
        elif unmet:
            verdict = "not met: " + "; ".join(wrong)
        else:
            verdict = "FAILED: " + "; ".join(wrong)
            self.failed.append(f"{figures.name}: {'; '.join(wrong)}")
        self._print(figures, verdict)
        if self._verbose:
            print(f"{'':32} {figures.did}", flush=True)
        for line in figures.steps:
            print(line, flush=True)

    def _print(self, figures: Figures, verdict: str) -> None:
        times = " ".join(f"{figures.p99[kind]:7.0f} ({figures.slowest[kind]:5.0f})" for kind in KINDS)
        left = "" if figures.exit_s is None else f"{figures.exit_s:.1f}"
        print(f"{figures.name:32} {times} {figures.memory_mb:6.0f} {left:>6} {verdict}".rstrip(), flush=True)

    def mixes(self, chance: random.Random, count: int) -> None:
        """Ten mixes to a server: what the first left there meets the last."""
        names = [client.name for client in CATALOGUE if not client.unmet]
        while count > 0:
            of_this_server = min(count, MIXES_OF_A_SERVER)
            count -= of_this_server
            with Round() as server:
                drawn = [chance.sample(names, chance.randint(2, 4)) for _ in range(of_this_server)]
                later = [name for mix in drawn for name in mix]
                for left, mix in zip(reversed(range(of_this_server)), drawn, strict=True):
                    figures = server.attack(mix, MIX_S, later)
                    if left:
                        server.rest(figures)
                    else:
                        server.end(figures)
                    self.add(figures)


if __name__ == "__main__":
    sys.exit(main())
