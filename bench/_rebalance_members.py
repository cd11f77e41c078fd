"""librdkafka's consumers for `bench rebalance`, each in a thread, in a process that can be killed.

java/RebalanceMembers.java is the same for Java's. The arguments are the address and the topic. Commands come on stdin,
reports go to stdout, a line each, with times in nanoseconds of the machine's monotonic clock:

    warm GROUP       →  warm                           joined, read a record, left: code is loaded
    join GROUP NAME  →  subscribed NAME TIME           taken just before subscribe()
                        assigned NAME TIME 1,2         in the callback, and so are the next two
                        revoked NAME TIME 1,2
                        lost NAME TIME 1,2
                        read NAME TIME 1               a record of that partition came out of poll()

Reports are written together, every 20 ms. The end of stdin ends the process at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

POLL_S = 0.1
TELL_EVERY_S = 0.02
_said: deque[str] = deque()


def main() -> None:
    address, topic = sys.argv[1:3]
    threading.Thread(target=_tell_all, daemon=True).start()
    for line in sys.stdin:
        match line.split():
            case ["warm", group]:
                read = threading.Event()
                member = _Member(address, topic, group, "", lambda what, *_, read=read: what == "read" and read.set())
                read.wait()
                member.ends.set()
                member.join()
                _say("warm")
            case ["join", group, name]:
                _Member(address, topic, group, name, _say)
    os._exit(0)


def _say(*words: object) -> None:
    _said.append(" ".join(map(str, words)) + "\n")


def _tell_all() -> None:
    while True:
        time.sleep(TELL_EVERY_S)
        lines = "".join(_said.popleft() for _ in range(len(_said)))
        if lines:
            os.write(1, lines.encode())


class _Member(threading.Thread):
    def __init__(self, address: str, topic: str, group: str, name: str, say: Callable[..., object]) -> None:
        super().__init__(daemon=True)
        self._settings = {"bootstrap.servers": address, "group.id": group, "group.protocol": "consumer"}
        self._topic = topic
        self._name = name
        self._say = say
        self.ends = threading.Event()
        self.start()

    def run(self) -> None:
        from confluent_kafka import Consumer

        def told(what: str) -> Callable[[Any, Any], None]:
            return lambda _, partitions: self._tell(what, [found.partition for found in partitions])

        consumer = Consumer(self._settings)
        self._tell("subscribed")
        consumer.subscribe([self._topic], on_assign=told("assigned"), on_revoke=told("revoked"), on_lost=told("lost"))
        while not self.ends.is_set():
            message = consumer.poll(POLL_S)
            if message is not None:
                assert message.error() is None, message.error()
                self._tell("read", [message.partition()])
        consumer.close()

    def _tell(self, what: str, partitions: list[int] | None = None) -> None:
        listed = [",".join(map(str, partitions))] if partitions else []
        self._say(what, self._name, time.monotonic_ns(), *listed)


if __name__ == "__main__":
    main()
