"""How late a machine is: a request every 20 ms, beside a run, on a connection of its own.

A run in real time keeps the order of events only while every delay is shorter than the time to the next event. The
pulse measures the delay of all threads here and in the server: its request waits for the CPU on both sides, and for the
server's coordinator.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from kohort.client.errors import KafkaError
from kohort.conformance.play.broker import Address, NotServed, broker_of
from kohort.conformance.play.raw_socket import Wire
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest

EVERY_S = 0.02


class Pulse:
    def __init__(self, address: Callable[[], Address]) -> None:
        self.late_s = 0.0
        """The longest time from when a request was due to its answer."""
        self._address = address
        self._ended = Event()

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            try:
                wire = Wire(self._address(), "pulse")
                self._ask(wire)  # not measured: a server that has just started takes long to answer for the first time
                self._beat(wire)
                wire.close()
            except TimeoutError:
                self.late_s = math.inf
            except NotServed:
                return
            except (KafkaError, OSError, ProtocolError):
                pass  # the run has stopped the server, and starts it again

    def _beat(self, wire: Wire) -> None:
        due = time.monotonic() + EVERY_S
        while not self._ended.wait(due - time.monotonic()):
            self._ask(wire)
            now = time.monotonic()
            self.late_s, due = max(self.late_s, now - due), now + EVERY_S

    def _ask(self, wire: Wire) -> None:
        version = broker_of(self._address()).version(DescribeGroupsRequest, 6)
        wire.call(DescribeGroupsRequest(groups=("pulse",)), version)


@contextmanager
def pulse_of(address: Callable[[], Address]) -> Iterator[Pulse]:
    """`address`: the server's present one, because a server that starts again may have another."""
    pulse = Pulse(address)
    thread = Thread(target=pulse.run, daemon=True)
    thread.start()
    try:
        yield pulse
    finally:
        pulse.end()
        thread.join()
