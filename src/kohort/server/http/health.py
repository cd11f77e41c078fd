"""The checks of /livez and /readyz.

/livez asks whether a restart would help: the event loop runs, or there would be no answer; a turn ends within
LONGEST_TURN_S; the thread that commits is there. It never asks the disk, because a restart does not heal one.
/readyz asks whether clients are served: the server is not stopping, each broker listens, the logs of the groups are
loaded, turns end, and the volume of the data has room. What ends the process, as a failed write, needs no check.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from kohort.broker.state import BrokerState

LONGEST_TURN_S = 10.0
LEAST_FREE = 0.01
"""Share of the volume that must be free."""


class Check(NamedTuple):
    name: str
    good: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok' if self.good else 'failed'} {self.name}: {self.text}"


def as_text(checks: Sequence[Check]) -> str:
    """A line for each check, the failed ones first."""
    return "\n".join(map(str, sorted(checks, key=lambda check: check.good)))


def turn_check(under_way_s: float) -> Check:
    if under_way_s > LONGEST_TURN_S:
        return Check("turns", False, f"a turn has been under way for {under_way_s:.0f} s; a commit may hang")
    return Check("turns", True, f"none takes longer than {LONGEST_TURN_S:.0f} s")


def writer_check(*, runs: bool) -> Check:
    return Check("storage", runs, "its thread runs" if runs else "the thread that commits has ended")


def running_check(*, stopping: bool) -> Check:
    return Check("running", not stopping, "the server stops" if stopping else "yes")


def standby_check() -> Check:
    return Check("data", False, "this node is a stand-by, or waits for the database")


def listening_check(down: Sequence[int], brokers: int) -> Check:
    """`down`: the ids of the brokers whose listeners are down."""
    if down:
        names = ", ".join(map(str, sorted(set(down))))
        return Check("listening", False, f"the listeners of broker {names} are down")
    return Check("listening", True, f"{brokers} of {brokers} brokers")


def groups_check(state: BrokerState) -> Check:
    loaded = sum(not shard.unavailable for shard in state.shards)
    return Check("groups", loaded == len(state.shards), f"{loaded} of {len(state.shards)} shards are loaded")


def disk_check(data_dir: str) -> Check:
    try:
        found = shutil.disk_usage(os.path.expanduser(data_dir))
    except OSError as error:
        return Check("disk", False, f"{data_dir}: {error.strerror}")
    share = found.free / max(found.total, 1)
    return Check("disk", share > LEAST_FREE, f"{share:.1%} of the volume of {data_dir} is free")
