"""The load of `bench security` over connections without TLS, with TLS, or with TLS and SASL (PLAIN).

python -m bench._secured_load rounds HOST PORT WAY SECONDS ERROR_AT FILE
    every connection sends a request, then the answers are read, again and again; FILE has the format of native/load.c
python -m bench._secured_load open HOST PORT WAY COUNT
    opens connections one after the other; they stay
python -m bench._secured_load storm HOST PORT WAY COUNT
    opens connections with TLS all at once; each asks for the versions of the APIs

It says when it is connected, begins at a line on its input, prints what it has done, and ends at the next line. The
client trusts every certificate, because verifying them is the client's cost.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import sys
import time
from pathlib import Path

from kohort.wire.codec import encode_request
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest

PLAIN, TLS, SASL = "plain", "tls", "sasl"
USER, PASSWORD = "alice", "wonderland"
TIMEOUT_S = 60.0


def main(words: list[str]) -> None:
    what, host, port, way = words[:4]
    address = host, int(port)
    if what == "rounds":
        seconds, error_at, path = words[4:]
        frames = _read(Path(path))
        connections = [opened(address, way) for _ in frames]
        _waits_for("ready")
        done = _rounds(connections, frames, float(seconds), int(error_at))
    elif what == "storm":
        _waits_for("ready")
        began = time.monotonic()
        asyncio.run(_storm(address, int(words[4])))
        done = {"answered": int(words[4]), "seconds": time.monotonic() - began}
    else:
        _waits_for("ready")
        began = time.monotonic()
        connections = [opened(address, way) for _ in range(int(words[4]))]
        done = {"answered": len(connections), "seconds": time.monotonic() - began}
    _waits_for(json.dumps(done))


def _waits_for(said: str) -> None:
    print(said, flush=True)
    sys.stdin.readline()


def _read(path: Path) -> list[list[bytes]]:
    data, at = path.read_bytes(), 4
    found = []
    for _ in range(struct.unpack_from(">I", data)[0]):
        end = at + 4 + struct.unpack_from(">I", data, at)[0]
        at += 4
        frames = []
        while at < end:
            size = 4 + struct.unpack_from(">I", data, at)[0]
            frames.append(data[at : at + size])
            at += size
        found.append(frames)
    return found


async def _storm(address: tuple[str, int], count: int) -> None:
    asked = encode_request(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3, 1, "bench")
    context = _trusting()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(*address, ssl=context, ssl_handshake_timeout=TIMEOUT_S)
        writer.write(asked)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.close()

    await asyncio.gather(*(one() for _ in range(count)))


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def opened(address: tuple[str, int], way: str) -> socket.socket:
    connection = socket.create_connection(address, TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if way == PLAIN:
        return connection
    secured = _trusting().wrap_socket(connection)
    if way == SASL:
        token = f"\0{USER}\0{PASSWORD}".encode()
        for request, version in (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=token), 1),
        ):
            secured.sendall(encode_request(request, version, 1, "bench"))
            assert answer(secured)[4:6] == b"\0\0", "not let in"
    return secured


def answer(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    assert data, "the server has closed the connection"
    size = 4 + int.from_bytes(data[:4], "big")
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data[4:]


def _rounds(
    connections: list[socket.socket], frames: list[list[bytes]], seconds: float, error_at: int
) -> dict[str, float]:
    answered, turn, began = 0, 0, time.monotonic()
    while time.monotonic() - began < seconds:
        for connection, some in zip(connections, frames, strict=True):
            connection.sendall(some[turn % len(some)])
        for connection in connections:
            error = answer(connection)[error_at:][:2]
            assert error == b"\0\0", f"error {int.from_bytes(error, 'big', signed=True)}"
        turn += 1
        answered += len(connections)
    return {"answered": answered, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    main(sys.argv[1:])
