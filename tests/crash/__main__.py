"""`python tests/crash [--cycles 200] [--seed N]`: kill -9 under load, as `crash_run.py` says. About 3 s a cycle."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from crash_run import Run, Violation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/crash", description=__doc__)
    parser.add_argument("--cycles", type=int, default=200, help="how often the server is killed and checked")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the kill moments")
    parser.add_argument("--rate", type=float, default=8_000, help="commits a second that the workers attempt in all")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="kohort-crash-"))
    run = Run(directory, options.cycles, options.seed, options.rate, say=lambda line: print(line, flush=True))
    print(f"seed {options.seed}, in {directory}", flush=True)
    try:
        run.run()
    except Violation as violation:
        print(f"VIOLATION: {violation}", file=sys.stderr)
        return 1
    print(run.told())
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
