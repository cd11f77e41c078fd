"""All figures beside the peers', in one run, one subject after the other.

    python -m bench compare [--subjects NAME,...] [--quick] [--only SERVER,...] [--json FILE] [--docs]

Subjects are heartbeats, commits, records, joins, startup, many members, rebalances with real clients, and Spark's
sources. Each is a benchmark by itself too (`python -m bench heartbeats`) and says there what it measures. Tables are
printed; `--json` keeps every round; `--docs` writes docs/performance.json, the tables and the targets between their
marks in docs/performance.md, and docs/performance.svg, and leaves alone there what was not measured now.

Takes an hour and a quarter; `--quick` ten minutes, with smaller sizes, which are no figures to keep.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench import _docs, commits, heartbeats, joins, many, rebalance, records, spark, startup
from bench._peers import TITLES
from bench._run import Figures, lines, taken

SUBJECTS = {
    subject.name: subject
    for subject in (
        heartbeats.SUBJECT,
        commits.SUBJECT,
        records.SUBJECT,
        joins.SUBJECT,
        startup.SUBJECT,
        many.SUBJECT,
        rebalance.SUBJECT,
        spark.SUBJECT,
    )
}


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    found: list[Figures] = []
    for name in options.subjects or SUBJECTS:
        print(f"-- {name}", flush=True)
        found.append(taken(SUBJECTS[name], quick=options.quick, only=options.only))
        print("\n" + "\n".join(lines(found[-1], SUBJECTS[name])), flush=True)
        if options.json:
            Path(options.json).write_text(_docs.as_json(found))
        if options.docs:
            _docs.write(found, SUBJECTS)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench compare")
    parser.add_argument("--subjects", default="", help=f"some of them, with commas: {', '.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter ones, smaller sizes")
    parser.add_argument("--only", default="", help=f"servers, with commas: {', '.join(TITLES)}")
    parser.add_argument("--json", default="", help="keep every round in this file")
    parser.add_argument("--docs", action="store_true", help="write what was measured into docs/")
    options = parser.parse_args(words)
    options.only = tuple(word for word in options.only.split(",") if word)
    options.subjects = [word for word in options.subjects.split(",") if word]
    if unknown := set(options.subjects) - set(SUBJECTS):
        parser.error(f"no subject {', '.join(sorted(unknown))}")
    if options.docs and (options.quick or options.only):
        parser.error("--docs wants the whole of what it writes: neither --quick nor --only")
    return options
