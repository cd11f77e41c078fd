"""`python -m bench [SUBJECT...]`: measure kohort beside its peers, one subject after the other.

Without names it measures every subject of docs/performance.md, which takes an hour and a half (`--quick`: a quarter of
an hour, with smaller sizes; those figures are not for keeping). It prints the tables. `--json` keeps every round;
`--docs` writes docs/performance.json, the tables and targets between their marks in docs/performance.md, and
docs/performance.svg, and keeps there the subjects that this run did not measure.

SIGTERM and Ctrl-C stop every process that the run has started.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import (
    _docs,
    commits,
    gateway,
    gateway_rebalance,
    heartbeats,
    joins,
    many,
    queues,
    rebalance,
    records,
    security,
    spark,
    startup,
    transactions,
)
from bench._machine import descendants
from bench._run import Figures, lines, taken

SUBJECTS = {
    module.SUBJECT.name: module.SUBJECT
    for module in (heartbeats, commits, transactions, records, joins, startup, many, rebalance, spark)
}

ON_REQUEST = {module.SUBJECT.name: module.SUBJECT for module in (gateway, gateway_rebalance, queues, security)}
"""Measured where they are named; docs/performance.md does not have them."""


def main(words: Sequence[str]) -> None:
    options = _options(words)
    known = SUBJECTS | ON_REQUEST
    found: list[Figures] = []
    with _children_end_with_this():
        for name in options.subjects or SUBJECTS:
            print(f"-- {name}", flush=True)
            found.append(taken(known[name], quick=options.quick, only=options.only, rounds=options.rounds))
            print("\n" + "\n".join(lines(found[-1], known[name])), flush=True)
            if options.json:
                Path(options.json).write_text(_docs.as_json(found))
            if options.docs:
                _docs.write(found, SUBJECTS)


@contextmanager
def _children_end_with_this() -> Iterator[None]:
    """On SIGTERM, pass the signal on and unwind; at the end of any run, kill the processes that are left.

    Servers end first, so that threads that measure them fail at once instead of finishing their rounds.
    """

    def end(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _signal_children(signal.SIGTERM)
        sys.exit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        _signal_children(signal.SIGKILL)
        signal.signal(signal.SIGTERM, former)


def _signal_children(number: int) -> None:
    for pid in descendants(os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "subjects",
        nargs="*",
        metavar="SUBJECT",
        help=f"by default {', '.join(SUBJECTS)}; also: {', '.join(ON_REQUEST)}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter ones, smaller sizes")
    parser.add_argument("--only", default="", help="servers, or what else a subject compares, with commas")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each row; 0 for the subject's own number")
    parser.add_argument("--json", default="", help="keep every round in this file")
    parser.add_argument("--docs", action="store_true", help="write the result into docs/")
    options = parser.parse_args(words)
    options.only = tuple(word for word in options.only.split(",") if word)
    if unknown := set(options.subjects) - set(SUBJECTS) - set(ON_REQUEST):
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are: {', '.join(SUBJECTS | ON_REQUEST)}")
    if options.docs and set(options.subjects) & set(ON_REQUEST):
        parser.error(f"--docs has no place for {', '.join(ON_REQUEST)}")
    if options.docs and (options.quick or options.only or options.rounds):
        parser.error("--docs takes full runs only: neither --quick nor --only nor --rounds")
    return options


if __name__ == "__main__":
    main(sys.argv[1:])
