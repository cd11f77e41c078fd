"""TLS between a plain transport and a protocol: the transport's protocol, and the protocol's transport.

asyncio and uvloop have TLS transports. This one differs in what the server's limits need: all encrypted bytes that have
not left are in the plain transport's buffer, so `get_write_buffer_size` counts them all, and pausing works as without
TLS. A handshake waits for its share of the event loop (door.py). A connection takes no buffers of its own; those of
asyncio take 256 KiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from kohort.server.security.contexts import ListenerTls
from kohort.server.security.door import Door
from kohort.server.security.principals import subject_of

READ_BYTES = 16_384
"""A TLS record has no more."""
HANDSHAKE_BYTES = 65_536
"""Bytes that a client may send before its handshake is over: the longest chains of certificates have some 20 kB."""
HANDSHAKE_RECORD = 0x16
UNNAMED = ""

MEANINGS = {
    "NO_SHARED_CIPHER": "client and server have no cipher in common",
    "UNSUPPORTED_PROTOCOL": "the client speaks another version of TLS (ssl.enabled.protocols)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate (ssl.client.auth=required)",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is refused",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this server's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses this server's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses this server's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client finds that this server's certificate has expired",
}


class Inside(Protocol):
    """The protocol that gets decrypted bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsLink:
    """`inside` makes the protocol, when the handshake is over: it gets the name of the client by its certificate, or ""
    without one."""

    def __init__(self, tls: ListenerTls, door: Door, broker_id: int, inside: Callable[[str], Inside]) -> None:
        self.host = ""
        self.peer = "?"
        self.listener = tls.listener
        self._tls = tls
        self._door = door
        self._broker_id = broker_id
        self._make_inside = inside
        self._inside: Inside | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._received = 0
        """Bytes before the handshake is over."""
        self._is_queued = False
        self._transport: asyncio.Transport

    @property
    def held_bytes(self) -> int:
        """What a handshake holds has a small limit."""
        return 0

    # -- the protocol of the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host, self.peer = address_of(transport)
        if not self._door.enter(self, self._broker_id, self._tls.handshake_s, "the TLS handshake"):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._inside is not None:
            self._incoming.write(data)
            self._decrypt()
            return
        if not self._received and data[0] != HANDSHAKE_RECORD:
            self._refuse("a client without TLS: its security.protocol must be SSL or SASL_SSL")
            return
        self._received += len(data)
        self._incoming.write(data)
        if not self._is_queued:
            self._is_queued = True
            self._transport.pause_reading()
            self._door.queue(self)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The objects of the connection do not refer to each other any more, so they go at once: the garbage collector
        would find them after up to an hour (collector.py)."""
        self._door.leave(self)
        inside, self._inside = self._inside, None
        self._transport = cast(asyncio.Transport, GONE)
        self._make_inside = _nobody
        if inside is not None:
            inside.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inside is not None:
            self._inside.pause_writing()

    def resume_writing(self) -> None:
        if self._inside is not None:
            self._inside.resume_writing()

    # -- the handshake

    def go_on(self) -> None:
        """The next step of the handshake."""
        self._is_queued = False
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._received > HANDSHAKE_BYTES:
                self._refuse(f"more than {HANDSHAKE_BYTES} bytes before the end of the TLS handshake")
            return
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._refuse(_meaning(error))
            return
        self._flush()
        name = self._name()
        if name is None:
            self._refuse("no rule of ssl.principal.mapping.rules matches the client's certificate")
            return
        self._door.leave(self)
        self._inside = self._make_inside(name)
        self._inside.connection_made(cast(asyncio.BaseTransport, self))
        self._decrypt()

    def _name(self) -> str | None:
        certificate = self._ssl.getpeercert(binary_form=True) if self._tls.asks_certificate else None
        return UNNAMED if certificate is None else self._tls.rules.name(subject_of(certificate))

    def _refuse(self, reason: str) -> None:
        if not self._transport.is_closing():
            self._door.log.info("TLS connection closed", peer=self.peer, listener=self.listener, reason=reason)
            self._transport.close()

    def dismiss(self, reason: str) -> None:
        self._door.log.info("TLS connection closed", peer=self.peer, listener=self.listener, reason=reason)
        self._door.leave(self)
        self._transport.abort()

    # -- bytes

    def _decrypt(self) -> None:
        """Pass on all that has arrived, also to a protocol that is paused: it counts what it holds."""
        chunks = []
        ends = False
        try:
            while not ends:
                chunk = self._ssl.read(READ_BYTES)
                chunks.append(chunk)
                ends = not chunk
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ends = True
        except ssl.SSLError as error:
            self._refuse(_meaning(error))
        self._flush()
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if data and self._inside is not None:
            self._inside.data_received(data)
        if ends:
            self._transport.close()

    def _encrypt(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._ssl.write(rest) :]

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    # -- the transport of the protocol inside

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, pieces: Iterable[bytes]) -> None:
        if self._transport.is_closing():
            return
        try:
            for piece in pieces:
                self._encrypt(piece)
        except ssl.SSLError as error:
            self._refuse(_meaning(error))
            return
        self._flush()

    def set_protocol(self, protocol: Inside) -> None:
        self._inside = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        if self._transport.is_closing():
            return
        with contextlib.suppress(ssl.SSLError):  # the client's end is not waited for
            self._ssl.unwrap()
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


class _Gone:
    """The transport of a connection that is lost."""

    def is_closing(self) -> bool:
        return True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


GONE = _Gone()


def _nobody(name: str) -> Inside:
    raise AssertionError("the connection is lost")


def address_of(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """The client's host, and its address for the log."""
    peer = transport.get_extra_info("peername")
    if not peer:
        return "", "?"
    return peer[0], f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"


def _meaning(error: ssl.SSLError) -> str:
    reason = str(error.reason or error).upper()
    meaning = MEANINGS.get(reason, reason.lower().replace("_", " "))
    detail = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else ""
    return f"{meaning} ({detail})" if detail else meaning
