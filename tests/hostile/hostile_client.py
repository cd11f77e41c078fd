"""What a hostile client is: what it sends, how it reads, and how it goes; and the process's part that plays it.

A client is a row of the catalogue. Each of its connections sends the pieces of `send`, reads as `reads` says, and ends
as `ends` says. It is opened again when it ended or the server closed it, until the time is over.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import Enum

from hostile_preparation import Preparation

SMALL_BUFFER = 4_096
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST."""
AGAIN_S = 0.05
LOOK_EVERY_S = 0.1


class End(Enum):
    CLOSE = "close"
    RESET = "reset"
    HALF = "half"
    """After the last piece the client closes its direction only."""


def nothing(preparation: Preparation) -> None:
    """The client needs nothing that is not there."""


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    what: str
    send: Callable[[int], Iterable[bytes]]
    """The pieces that the connection with this number sends, perhaps without an end."""
    _: KW_ONLY
    prepare: Callable[[Preparation], None] = nothing
    connections: int = 1
    pace_s: float = 0.0
    """Between two pieces."""
    reads: int | None = None
    """Bytes at a time; None: everything, 0: nothing."""
    reads_every_s: float = 0.0
    stays_s: float | None = None
    """A connection ends this long after it was opened; None: when the time is over."""
    ends: End = End.CLOSE
    short: bool = False
    """It represents its kind in the short form."""
    unmet: str = ""
    """Why the server does not keep the lenient limits beside this client yet; "" if it keeps them. Such a client is
    measured and reported, but is not in the short form or in mixes."""


@dataclass(slots=True)
class Done:
    """What all clients of a process did."""

    connections: int = 0
    refused: int = 0
    closed: int = 0
    """By the server."""
    sent: int = 0
    read: int = 0


async def play(client: Client, address: tuple[str, int], until: float, done: Done) -> None:
    await asyncio.gather(*(_again(client, number, address, until, done) for number in range(client.connections)))


async def _again(client: Client, number: int, address: tuple[str, int], until: float, done: Done) -> None:
    while (left := until - time.monotonic()) > 0:
        try:
            opened = await _open(client, address)
        except OSError:
            done.refused += 1
            await asyncio.sleep(AGAIN_S)
            continue
        done.connections += 1
        stays = left if client.stays_s is None else min(left, client.stays_s)
        closed = False
        try:
            async with asyncio.timeout(stays):
                await _converse(client, number, opened, done)
                closed = True
        except TimeoutError:
            pass
        except OSError:
            closed = True
        done.closed += closed
        if client.ends is End.RESET:
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        opened.close()
        if closed:
            await asyncio.sleep(AGAIN_S)


async def _open(client: Client, address: tuple[str, int]) -> socket.socket:
    opened = socket.socket()
    opened.setblocking(False)
    if client.reads is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    try:
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened


async def _converse(client: Client, number: int, opened: socket.socket, done: Done) -> None:
    """Returns when the server has closed the connection, if its end shows."""
    sending = asyncio.create_task(_send(client, number, opened, done))
    try:
        await (_watch(opened) if client.reads == 0 else _read(client, opened, done))
    finally:
        sending.cancel()
        await asyncio.wait([sending])


async def _send(client: Client, number: int, opened: socket.socket, done: Done) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # the reader sees it, too
        for piece in client.send(number):
            await loop.sock_sendall(opened, piece)
            done.sent += len(piece)
            await asyncio.sleep(client.pace_s)
        if client.ends is End.HALF:
            opened.shutdown(socket.SHUT_WR)


async def _read(client: Client, opened: socket.socket, done: Done) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(opened, client.reads or 1 << 20):
        done.read += len(data)
        if client.reads_every_s:
            await asyncio.sleep(client.reads_every_s)


async def _watch(opened: socket.socket) -> None:
    """Wait for the end of the connection without reading."""
    poll = select.poll()
    poll.register(opened, select.POLLRDHUP)
    while not poll.poll(0):
        await asyncio.sleep(LOOK_EVERY_S)
