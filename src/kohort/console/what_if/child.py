"""The process that plays a group's changes: `python -m kohort.console.what_if.child`. Only it loads the simulator.

It reads one JSON object from stdin, and writes a line for each way as soon as it is played. It has
a limited processor time: the system ends it after that. What it has written by then counts.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

from kohort.simulator.sizing import BadPoint, DidNotForm, Point
from kohort.simulator.sizing.replay import Change, replay

COMMIT_MS = 60_000
"""Rarer than clients commit: it hardly changes the pauses, and halves the time."""
POLITE = 5
"""Niceness: pages come first."""


def play(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What each way of `task` costs."""
    changes = [Change(*change) for change in task["changes"]]
    slow_ms = {int(number): took for number, took in task["slow_ms"].items()}
    for protocol, is_static in task["ways"]:
        point = Point(
            members=task["members"],
            partitions=task["partitions"],
            protocol=protocol,
            pattern="rolling-static" if is_static else "rolling",
            session_ms=task["session_ms"],
            shards=1,
            commit_ms=COMMIT_MS,
        )
        row: dict[str, Any] = {"protocol": protocol, "is_static": is_static}
        try:
            found = replay(point, changes, slow_ms)
        except (BadPoint, DidNotForm) as error:
            yield {**row, "problem": str(error)}
            continue
        yield {
            **row,
            "rebalances": found.rebalances,
            "paused_ms": found.paused_ms,
            "longest_ms": found.longest_pause_ms,
            "moves": found.moves,
            "settled": found.settled,
        }


def main() -> None:
    os.nice(POLITE)
    task = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (task["processor_s"], task["processor_s"] + 1))
    for row in play(task):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
