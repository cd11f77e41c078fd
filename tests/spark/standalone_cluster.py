"""A standalone Spark cluster from the PyPI package: a master, a worker, executors in processes of their own.

Its Python has kohort's dependencies, but not kohort: `python -S` with the packages' folder on the path, where the link
to a checkout (`pip install -e`) does not count. So the job must bring kohort along, as on a real cluster.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pyspark
from micro_batches import until

from kohort.spark.runtime.java import find_java

SPARK_HOME = Path(pyspark.__file__).parent
PACKAGES = SPARK_HOME.parent
SOURCES = Path(__file__).parents[2] / "src"
START_S = 60.0


def zip_of_kohort(path: Path) -> Path:
    """An archive for `--py-files`, with the layout of kohort's wheel."""
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted(SOURCES.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                archive.write(source, source.relative_to(SOURCES))
    return path


class StandaloneCluster:
    """A context manager. Its processes write into `folder` and are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python = folder / "python"
        self._python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        self._python.chmod(0o755)
        self._kohort = zip_of_kohort(folder / "kohort.zip")
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._drivers: list[subprocess.Popen[str]] = []
        self._url = ""

    def __enter__(self) -> StandaloneCluster:
        try:
            local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            master = self._daemon("master.Master", *local)
            found = until(lambda: re.search(r"Starting Spark master at (\S+)", master.read_text()), "a master", START_S)
            self._url = found[1]
            worker = self._daemon("worker.Worker", *local, "-c", "2", "-m", "2g", "-d", str(self._folder), self._url)
            until(lambda: "Successfully registered with master" in worker.read_text(), "a worker", START_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        started = [process for process in (*self._drivers, *self._daemons) if process.poll() is None]
        below = [pid for process in started for pid, _ in processes_below(process.pid)]
        for pid in (*(process.pid for process in started), *below):
            kill(pid)
        for process in started:
            process.wait()

    def _environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return environment | {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._python),
            "PYTHONPATH": str(PACKAGES),
        }

    def _daemon(self, name: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
            self._daemons.append(
                subprocess.Popen(command, env=self._environment(), stdout=output, stderr=subprocess.STDOUT)
            )
        return log

    def submit(self, job: Path, *arguments: str) -> subprocess.Popen[str]:
        """A driver in a process group of its own, on two executors of one core each; its output is in `log_of`."""
        settings = {
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.executorEnv.PYTHONPATH": str(PACKAGES),
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [SPARK_HOME / "bin" / "spark-submit", "--master", self._url, "--py-files", self._kohort, *words, job]
        with (self._folder / f"driver-{len(self._drivers)}.err").open("w") as errors:
            driver = subprocess.Popen(
                [*command, *arguments],
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def errors_of(self, driver: subprocess.Popen[str]) -> str:
        """The end of what a driver wrote to stderr."""
        text = (self._folder / f"driver-{self._drivers.index(driver)}.err").read_text()
        return "\n".join(line for line in text.splitlines() if " INFO " not in line)[-6000:]

    def executors(self) -> list[int]:
        """Process ids of the executors' JVMs."""
        below = [found for daemon in self._daemons for found in processes_below(daemon.pid)]
        return [pid for pid, command in below if "CoarseGrainedExecutorBackend" in command]

    def python_workers(self) -> list[int]:
        """Process ids of the Python processes in which the executors' tasks run."""
        daemons = [pid for executor in self.executors() for pid, _ in processes_below(executor)]
        return [pid for daemon in daemons for pid, _ in processes_below(daemon)]

    def kill_driver(self, driver: subprocess.Popen[str]) -> None:
        """SIGKILL to the driver's JVM and to its Python processes."""
        below = [pid for pid, _ in processes_below(driver.pid)]
        os.killpg(driver.pid, signal.SIGKILL)
        for pid in below:
            kill(pid)
        driver.wait()


def processes_below(ancestor: int) -> list[tuple[int, str]]:
    """Children, their children and so on: process ids and command lines."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    children: dict[int, list[tuple[int, str]]] = {}
    for line in listed.splitlines():
        pid, parent, *command = line.split(None, 2)
        children.setdefault(int(parent), []).append((int(pid), "".join(command)))
    found: list[tuple[int, str]] = []
    waiting = [ancestor]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found += mine
        waiting += [pid for pid, _ in mine]
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
