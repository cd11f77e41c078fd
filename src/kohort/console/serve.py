"""The process of `kohort console`: the web server, until it is asked to end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from kohort.console.door import AT_ONCE, Door, Hears, save_memory

GRACE_S = 1
"""Open requests have this long at the end."""


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
