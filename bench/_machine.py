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
    """fdatasync after each 4 KiB appended: median and 99th percentile in ms. The sum of what the disk and its cache do;
    a cache that loses power loses nothing only if the disk says so, which no program can check."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            os.write(file.fileno(), bytes(SYNC_BYTES))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


class Others:
    """How many cores the processes of others keep busy, from here on. What this run started is not among them."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._all, self._own = _busy_s(), _own_s()

    @property
    def cores(self) -> float:
        return max(0.0, (_busy_s() - self._all - (_own_s() - self._own)) / max(1e-3, time.monotonic() - self._began))


def _busy_s() -> float:
    """User, nice, system, interrupts, and what the hypervisor took away."""
    with open("/proc/stat") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """This process and all that came of it; those that ended and were waited for are in their parents' figures."""
    return sum(_ticks(pid) for pid in descendants(os.getpid())) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """With itself."""
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
    """What follows the name in its stat file; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
