"""What the server knows of itself and the broker does not: connections, memory, files, CPU."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from kohort import __version__, compiled
from kohort.broker.metrics import families as f
from kohort.broker.metrics.samples import Samples
from kohort.config import listeners_of
from kohort.server import open_files
from kohort.server.connections import Connections

LEAST_S = 1.0
"""The shortest time over which the idle share is measured."""


class LoopIdle:
    """The share of the time in which the event loop's thread used no CPU. Made and asked in that thread."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._cpu = time.thread_time()
        self._share = 1.0

    def share(self) -> float:
        """Between this call and the last one that was LEAST_S ago."""
        now, cpu = time.perf_counter(), time.thread_time()
        if now - self._since >= LEAST_S:
            self._share = min(max(1.0 - (cpu - self._cpu) / (now - self._since), 0.0), 1.0)
            self._since, self._cpu = now, cpu
        return self._share


def add_loop(samples: Samples, idle: LoopIdle) -> None:
    share = round(idle.share(), 4)
    samples.add(f.NETWORK_IDLE, share)
    samples.add(f.HANDLER_IDLE, share)
    samples.add(f.LOOP_CPU, time.thread_time())


def add_connections(samples: Samples, connections: Connections) -> None:
    by_listener = Counter(connection.listener for connection in connections.all_open())
    for listener in listeners_of(connections.config):
        samples.add(f.CONNECTIONS, by_listener[listener.name], listener.name)
    samples.add(f.CONNECTIONS_MAX, connections.most)
    samples.add(f.GUESTS, connections.at_door)
    samples.add(f.REQUEST_BYTES, connections.inflow.total)
    samples.add(f.REQUEST_BYTES_MAX, connections.inflow.limit)
    samples.add(f.RESPONSE_BYTES, connections.outflow.unsent)
    samples.add(f.RESPONSE_BYTES_MAX, connections.outflow.limit)


def add_failed_logins(samples: Samples, failures: Mapping[str, int]) -> None:
    for listener, count in sorted(failures.items()):
        samples.add(f.FAILED_LOGINS, count, listener)


def add_files(samples: Samples, data_dir: str) -> None:
    """Sizes of the database's files. They are not opened: a POSIX lock ends when any descriptor is closed."""
    directory = Path(data_dir).expanduser()
    for family, name in ((f.STORAGE_BYTES, "kohort.db"), (f.WAL_BYTES, "kohort.db-wal")):
        try:
            samples.add(family, (directory / name).stat().st_size)
        except OSError:
            continue
    try:
        samples.add(f.DISK_FREE, shutil.disk_usage(directory).free)
    except OSError:
        return


def add_process(samples: Samples) -> None:
    """Linux tells memory and files in /proc; elsewhere these are left out."""
    samples.add(f.BUILD_INFO, 1, __version__, compiled.running())
    samples.add(f.CPU, time.process_time())
    if (most := open_files.limit()) is not None:
        samples.add(f.MAX_FILES, most)
    try:
        with open("/proc/self/statm", "rb") as statm:
            samples.add(f.RESIDENT, int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        samples.add(f.OPEN_FILES, len(os.listdir("/proc/self/fd")) - 1)
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        samples.add(f.START_TIME, round(time.time() - age, 2))
    except (OSError, AttributeError, ValueError, IndexError):
        return
