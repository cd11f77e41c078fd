"""The process of `kohort console`: the web server, until it is asked to end."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import sys
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from kohort.console.door import AT_ONCE, Door, Hears, save_memory

GRACE_S = 1
"""Open requests have this long at the end."""


SWITCH_S = 0.0005
"""The event loop waits so long for each thread that computes, after each wait for a socket. Python's default is ten
times as long: with two answers that are decoded, a page would wait longer for the interpreter than for all else."""
THRESHOLDS = (2_000, 10, 200)
"""A collection of all that lives stops all threads for a tenth of a second, if a group of 10,000 members is known. With
Python's thresholds there are several in each reading of the snapshot. Reference counts free almost everything."""


def keep_pauses_short() -> None:
    """For the life of the process: what the start has made is never looked at again."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


MOST_REQUESTS = 500
"""Under way, with those whose connection has ended; more are answered with 503."""


def serve(
    app: ASGIApp, listening: socket.socket, wait_for_end: Callable[[], None], tls: ssl.SSLContext | None = None
) -> None:
    """Serve until `wait_for_end`, which runs in a thread of its own, returns."""
    door = Door(listening)
    config = uvicorn.Config(
        Hears(app, door),
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=MOST_REQUESTS,
        backlog=AT_ONCE,
    )
    config.load()
    config.ssl = tls
    save_memory()
    server = uvicorn.Server(config)

    def end() -> None:
        wait_for_end()
        server.should_exit = True

    threading.Thread(target=end, name="end", daemon=True).start()
    asyncio.run(server.serve(sockets=[door]))
