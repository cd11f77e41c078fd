"""The facts beside every figure: the machine, the versions, the time of a sync of its disk, and its load."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from kohort import __version__

SYNCS = 400
SYNC_BYTES = 4_096


def machine() -> dict[str, str]:
    return {
        "CPU": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def versions() -> dict[str, str]:
    """Versions of the programs that are always there; the peers add theirs when they start."""
    import confluent_kafka

    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        revision = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        revision = ""
    return {
        "kohort": f"{__version__}{f' ({revision})' if revision else ''}",
        "Python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def sync_probe(folder: str | None = None) -> tuple[float, float]:
    """fdatasync after each 4 KiB appended: median and 99th percentile in ms. The time includes the disk's
    cache; whether that cache survives a power failure cannot be checked by a program."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            os.write(file.fileno(), bytes(SYNC_BYTES))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


class Others:
    """Cores that other processes keep busy from now on, without the processes of this run."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._all, self._own = _busy_s(), _own_s()

    @property
    def cores(self) -> float:
        return max(0.0, (_busy_s() - self._all - (_own_s() - self._own)) / max(1e-3, time.monotonic() - self._began))


def _busy_s() -> float:
    """User, nice, system, interrupts, and time stolen by the hypervisor."""
    with open("/proc/stat") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """CPU seconds of this process and its descendants; their parents' figures include ended ones."""
    return sum(_ticks(pid) for pid in descendants(os.getpid())) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return sum(int(field) for field in fields[11:15]) if fields else 0


def _stat(pid: int) -> list[str]:
    """The fields after the name in the process's stat file; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
