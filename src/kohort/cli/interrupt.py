"""Ctrl-C and SIGTERM: a flag that commands look at in safe places, never an exception in the middle of anything.

`run` gives the command a thread of its own; the main thread only waits for the command's end or for a signal. In a
block of `careful` the command has something to bring to an end: the first signal sets the flag, the command calls
`check` or `asked` between its steps, waits with `wait`, and ends by itself. Elsewhere the process ends at once. A
second signal ends the process in any case, unless the command has begun to `finish`.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of a process that Ctrl-C ended, as shells have it."""
SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Windows has no SIGHUP."""
ENDED = 0
"""The command's own end, among the signal numbers."""


class Interrupts:
    """The signals that this process has received. There is one, `interrupts`."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._number = 0
        self._careful = 0
        self._finishing = False

    def asked(self) -> bool:
        """True once a signal has asked the command to end."""
        return self._asked.is_set()

    def check(self) -> None:
        """Raise KeyboardInterrupt, or SystemExit with the signal's exit code, once a signal has asked for the end."""
        if not self._asked.is_set():
            return
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._number)

    def wait(self, seconds: float) -> bool:
        """Sleep; True as soon as a signal asks for the end."""
        return self._asked.wait(seconds)

    @contextmanager
    def careful(self) -> Iterator[None]:
        """In this block the command checks the flag and ends in good order."""
        self._careful += 1
        try:
            yield
        finally:
            self._careful -= 1

    def finish(self) -> None:
        """From here on the command only cleans up, which takes a bounded time: further signals are ignored."""
        self._finishing = True

    def run(self, command: Callable[[], None]) -> None:
        """Run a command in a thread of its own, and raise its exception, if there is one. Needs the main thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        raised: list[BaseException] = []

        def work() -> None:
            try:
                command()
            except BaseException as error:
                raised.append(error)
            finally:
                writer.send(bytes([ENDED]))

        for watched in SIGNALS:
            if signal.getsignal(watched) is not signal.SIG_IGN:  # as nohup leaves SIGHUP
                signal.signal(watched, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=work, name="command", daemon=True).start()
        while (number := reader.recv(1)[0]) != ENDED:
            self._arrived(number)
        signal.set_wakeup_fd(-1)
        if raised:
            raise raised[0]

    def _arrived(self, number: int) -> None:
        if number not in SIGNALS or self._finishing:
            return
        if self._careful and not self._asked.is_set():
            self._number = number
            self._asked.set()
        else:
            _end(number)


def _end(number: int) -> NoReturn:
    """End the process as if the signal had, without waiting for any thread."""
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(INTERRUPTED)


interrupts = Interrupts()
