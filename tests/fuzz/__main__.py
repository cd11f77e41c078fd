"""`python tests/fuzz`: inputs that are nearly right, by the million; docs/fuzzing.md says what of them must hold.

python tests/fuzz --seconds 60                    every kind, for a minute, with a fresh seed that is printed
python tests/fuzz --kinds codec --inputs 1000000 --seed 7
python tests/fuzz --repeat FILE                   one vector, as a find is written
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import sys
import time
from pathlib import Path

import fuzz_repeat
from fuzz_build import RUNNING
from fuzz_checks import Find
from fuzz_run import KINDS, Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS), help="of inputs, comma separated")
    parser.add_argument("--inputs", type=int, default=0, help="how many in all; 0 for as many as there is time for")
    parser.add_argument("--seconds", type=float, default=0, help="how long; 0 for as long as the inputs take")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="of everything that is random")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tally", type=Path, help="a file to which a line for this run is added")
    parser.add_argument("--finds", type=Path, default=Path(), help="the folder in which finds are written")
    parser.add_argument("--repeat", type=Path, help="a find's file: run it alone")
    options = parser.parse_args()
    if options.repeat is not None:
        return repeat(options.repeat)
    kinds = [kind for kind in options.kinds.split(",") if kind]
    if not options.inputs and not options.seconds:
        options.seconds = 60.0
    print(f"seed {options.seed}, {options.processes} processes: {', '.join(kinds)}; {RUNNING}", flush=True)
    outcome = run(kinds, options.seed, options.processes, options.inputs, options.seconds, say=print)
    print(summary(outcome))
    for find in outcome.finds:
        print(written(find, options.finds))
    if options.tally is not None:
        with options.tally.open("a") as tally:
            counts = " ".join(f"{kind}={count}" for kind, count in sorted(outcome.inputs.items()))
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            how = f"{RUNNING} seed={options.seed} processes={options.processes}"
            tally.write(f"{when} {how} {counts} finds={len(outcome.finds)}\n")
    return 1 if outcome.finds else 0


def summary(outcome: Outcome) -> str:
    parts = [f"{kind} {count:,}" for kind, count in sorted(outcome.inputs.items())]
    total = outcome.inputs.total()
    return f"{total:,} inputs in {outcome.seconds:.0f} s ({', '.join(parts)}); {len(outcome.finds)} finds"


def written(find: Find, folder: Path) -> str:
    text = fuzz_repeat.written(find.kind, find.about, find.data, find.what.replace("\n", "\n# "))
    path = folder / f"fuzz-find-{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
    path.write_text(text)
    return f"{text if len(text) < 20_000 else text[:20_000] + '…'}\nrepeat with: python tests/fuzz --repeat {path}"


def repeat(path: Path) -> int:
    kind, about, data = fuzz_repeat.read(path)
    try:
        fuzz_repeat.repeated(kind, about, data)
    except Find as find:
        print(find)
        return 1
    print("nothing is wrong with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
