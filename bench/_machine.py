"""The facts beside every figure: the machine, the versions, the time of a sync of its disk, and its load."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from kohort import __version__

SYNCS, SYNC_BYTES = 400, 4_096
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def machine() -> dict[str, str]:
    return {
        "CPU": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{PAGE * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
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
        busy_s = _busy_s() - self._all - (_own_s() - self._own)
        return round(max(0.0, busy_s / max(1e-3, time.monotonic() - self._began)), 2)


def _busy_s() -> float:
    """User, nice, system, interrupts, and time stolen by the hypervisor."""
    with open("/proc/stat") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return (sum(times) - times[3] - times[4]) / TICKS


def _own_s() -> float:
    """CPU seconds of this process and its descendants; their parents' figures include ended ones."""
    return sum(sum(map(int, fields[12:16])) for fields in map(stat, descendants(os.getpid())) if fields) / TICKS


def descendants(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat(int(entry))):
            children.setdefault(int(fields[2]), []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def stat(pid: int) -> list[str]:
    """The process's name and the fields after it in its stat file; empty if the process has ended."""
    try:
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return []
    return [name, *fields.split()]


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads; 0 if the process has ended. Uses the process's CPU clock
    (clock_getcpuclockid), which counts in nanoseconds; /proc counts in hundredths of a second."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def largest_memory_mb(pid: int) -> float:
    """The largest resident memory so far; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1.024e-3
    return 0.0


def memory_mb(pid: int) -> float:
    """Resident memory."""
    fields = stat(pid)
    return int(fields[22]) * PAGE / 1e6 if fields else 0.0
