"""The process of `kohort console`: the web server, until it is asked to end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

GRACE_S = 1
"""Open requests have this long at the end."""


def serve(app: ASGIApp, listening: socket.socket, wait_for_end: Callable[[], None]) -> None:
    """Serve until `wait_for_end`, which runs in a thread of its own, returns."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)

    def end() -> None:
        wait_for_end()
        server.should_exit = True

    threading.Thread(target=end, name="end", daemon=True).start()
    asyncio.run(server.serve(sockets=[listening]))
