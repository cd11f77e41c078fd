"""One connection of the HTTP listener: one request, one answer, and its end.

A request has at most HEAD_BYTES and READ_S, an answer MAKE_S to be made and SEND_S to be read. An answer is handed to
the transport piece by piece, as the client reads; its bytes are shared by all that asked for the same page meanwhile.
Bytes after the request are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple, cast

from kohort.server import log
from kohort.server.http.request import END, HEAD_BYTES, Refused, Request, read_request

READ_S = 5.0
MAKE_S = 5.0
SEND_S = 10.0
PIECE_BYTES = 65_536
"""What the transport gets at once."""


class Answer(NamedTuple):
    status: int
    content_type: str
    body: Sequence[bytes]


TEXT = "text/plain; charset=utf-8"


def text_answer(status: int, text: str) -> Answer:
    return Answer(status, TEXT, (text.encode() + b"\n",))


class HttpConnection:
    """An asyncio.Protocol by its methods."""

    def __init__(
        self,
        answer: Callable[[Request], Awaitable[Answer]],
        hosts: frozenset[str] | None,
        opened: Callable[[HttpConnection], bool],
        closed: Callable[[HttpConnection], None],
    ) -> None:
        """`opened` returns False if the connection is one too many."""
        self._answer_to = answer
        self._hosts = hosts
        self._opened = opened
        self._closed = closed
        self._transport: asyncio.Transport
        self._received = b""
        self.is_reading = True
        """The request is not whole yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    @property
    def is_unread(self) -> bool:
        """The rest of the answer waits for the client."""
        return not self._may_write.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=PIECE_BYTES)
        if not self._opened(self):
            self.abort()
            return
        self._limit(READ_S)

    def _limit(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self.is_reading:
            return
        self._received += data
        head, end, _ = self._received.partition(END)
        if not end and len(self._received) <= HEAD_BYTES:
            return
        self.is_reading = False
        self._received = b""
        self._transport.pause_reading()
        self._limit(MAKE_S + SEND_S)
        self._task = asyncio.get_running_loop().create_task(self._serve(head if end else None))

    async def _serve(self, head: bytes | None) -> None:
        with_body = True
        try:
            if head is None or len(head) > HEAD_BYTES:
                raise Refused(431, f"the request's header has more than {HEAD_BYTES} bytes")
            request = read_request(head, self._hosts)
            with_body = request.method == "GET"
            answer = await asyncio.wait_for(self._answer_to(request), MAKE_S)
        except Refused as refused:
            answer = text_answer(refused.status, refused.text)
        except TimeoutError:
            answer = text_answer(503, f"the server has not answered within {MAKE_S:.0f} s: a turn takes longer")
        except Exception as error:  # reading numbers changes nothing, so the server goes on
            log.error("a page over HTTP failed", error=repr(error))
            answer = text_answer(500, "the page failed; the server's log says why")
        await self._send(answer, with_body=with_body)

    async def _send(self, answer: Answer, *, with_body: bool) -> None:
        self._limit(SEND_S)
        status = HTTPStatus(answer.status)
        size = sum(map(len, answer.body))
        allow = "Allow: GET, HEAD\r\n" if status == HTTPStatus.METHOD_NOT_ALLOWED else ""
        self._transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {size}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            f"{allow}Connection: close\r\n\r\n".encode("latin-1")
        )
        for part in answer.body if with_body else ():
            for start in range(0, len(part), PIECE_BYTES):
                await self._may_write.wait()
                if self._transport.is_closing():
                    return
                self._transport.write(part[start : start + PIECE_BYTES])
        self._transport.close()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def eof_received(self) -> bool:
        """A client that closes its half still gets the answer to a whole request."""
        return not self.is_reading

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
