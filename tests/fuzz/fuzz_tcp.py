"""Kind `tcp`: a server in a process of its own, and mutated streams over its sockets.

The inputs of the other kinds go through the real edge here: frames with a wrong length, frames in pieces, several
frames in a piece, a client that stops reading or disconnects. After every few streams the server must still run,
answer a sane request at once, and not have grown.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from fuzz_broker import APIS_BY_WEIGHT
from fuzz_checks import Find, Stream
from fuzz_grammar import Words, draw
from fuzz_mutations import Mutations
from fuzz_words import BrokerWords

COMMAND = [
    *(sys.executable, "-c", "from kohort.cli.main import main; main()"),
    *("serve", "--in-memory", "--listeners", "127.0.0.1:0"),
]
GROWTH_BYTES = 300_000_000
STREAMS_A_CHECK = 20
ANSWERS_WITHIN_S = 5.0


class TcpFuzz(Stream[bytes]):
    kind = "tcp"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._words = BrokerWords(chance)
        self._blind = Words(chance)
        self._server: subprocess.Popen[str] | None = None
        self._address = ("", 0)
        self._memory = 0
        self._sent: list[bytes] = []
        self._said: deque[str] = deque(maxlen=200)
        """The last lines of the server's log."""

    def some(self, most: int) -> int:
        if self._server is None:
            self._start()
        self._sent.clear()
        done = sum(self._stream() for _ in range(STREAMS_A_CHECK))
        self._check()
        return done

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._listener.join()
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None

    def _start(self) -> None:
        self._server = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._server.stdout is not None
        for line in self._server.stdout:
            self._said.append(line)
            if "kohort is ready" in line:
                host, _, port = line.split("listeners=")[1].split()[0].rpartition(":")
                self._address = (host, int(port))
                break
        self._listener = threading.Thread(target=self._said.extend, args=(self._server.stdout,), daemon=True)
        self._listener.start()
        self._sane()
        self._memory = self._resident()

    def _stream(self) -> int:
        """The frames of one connection. Returns how many."""
        chance = self.chance
        frames = [self._frame() for _ in range(chance.choice((1, 2, 5, 10)))]
        data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        if chance.random() < 0.2:
            place = chance.randrange(len(data))
            data = data[:place] + chance.randbytes(4) + data[place + 4 :]
        self._sent.append(data)
        with contextlib.suppress(OSError), socket.create_connection(self._address, timeout=ANSWERS_WITHIN_S) as client:
            cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3))))
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                client.sendall(data[start:end])
            pick = chance.random()
            if pick < 0.5:
                client.shutdown(socket.SHUT_WR)
                client.settimeout(0.05)
                while client.recv(65536):
                    pass
            elif pick < 0.6:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return len(frames)

    def _frame(self) -> bytes:
        chance = self.chance
        api = chance.choice(APIS_BY_WEIGHT)
        version = chance.randint(api.first, api.last)
        drawn = draw(api.request, version, self._words if chance.random() < 0.8 else self._blind)
        body = drawn.data if chance.random() < 0.3 else Mutations(drawn.data, drawn.marks, chance).one()
        header = struct.pack(">hhih", api.key, version, chance.randrange(1000), 1) + b"c"
        if version >= api.flexible_from:
            header += b"\0"
        return header + body if chance.random() < 0.97 else Mutations(header + body, drawn.marks[:1], chance).one()

    # -- how the server does

    def _check(self) -> None:
        assert self._server is not None
        try:
            took = self._sane()
        except (OSError, struct.error) as error:
            ended = self._server.poll()
            told = "".join(self._said)[-3000:]
            raise self._find(f"no answer to a sane request: {error}; its process: {ended}; {told}") from error
        if took > ANSWERS_WITHIN_S:
            raise self._find(f"a sane request took {took:.1f} s")
        grown = self._resident() - self._memory
        if grown > GROWTH_BYTES:
            raise self._find(f"the server has grown by {grown} bytes")

    def _find(self, what: str) -> Find:
        return Find(self.kind, "streams", b"\n".join(data.hex().encode() for data in self._sent), what)

    def _sane(self) -> float:
        """Connect and ask for ApiVersions, without kohort's client. Returns the seconds that this takes."""
        started = time.monotonic()
        with socket.create_connection(self._address, timeout=2 * ANSWERS_WITHIN_S) as client:
            client.sendall(struct.pack(">ihhih", 10, 18, 0, 77, -1))
            head = client.makefile("rb").read(10)
        if struct.unpack_from(">4xih", head) != (77, 0):
            raise ConnectionError(f"an answer of {head.hex()}")
        return time.monotonic() - started

    def _resident(self) -> int:
        assert self._server is not None
        status = Path(f"/proc/{self._server.pid}/statm")
        return int(status.read_text().split()[1]) * 4096 if status.exists() else 0
