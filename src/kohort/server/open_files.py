"""The limit of open files (`ulimit -n`). Each connection is an open file.

At the limit a system call fails where no code expects it. So the last few files are kept for the server: a connection
that gets one of them is refused, with a line in the log. A new file gets the lowest number that is free, so its number
shows how many files are open.
"""

from __future__ import annotations

import contextlib
from importlib import import_module

RESERVED = 16
"""Files that no connection gets: for the database, a process of assignors, modules that are loaded late."""
OF_THE_SERVER = 100
"""Files that a server has open besides its connections, at most."""


def limit() -> int | None:
    """The number of files that this process may open; None if it is unknown or unlimited."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        resource = import_module("resource")
        soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if soft == resource.RLIM_INFINITY else soft
    return None


def raise_limit(connections: int) -> int:
    """Allow so many connections, as far as the hard limit permits; many systems allow 1024 files unless asked.

    Returns how many connections are possible."""
    wanted = connections + OF_THE_SERVER
    before = limit()
    if before is None or before >= wanted:
        return connections
    with contextlib.suppress(ImportError, ValueError, OSError):
        resource = import_module("resource")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    return min(connections, max(0, (limit() or wanted) - OF_THE_SERVER))


def refusal(number: int) -> str:
    """Why a connection with this file number is refused; "" if it is not."""
    most = limit()
    if most is None or number < most - RESERVED:
        return ""
    return f"{number} files are open, of {most} that the process may open (ulimit -n)"
