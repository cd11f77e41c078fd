"""The process in which assignors of other packages run: questions on its standard input, answers on its output.

A frame is four bytes of length and a msgpack body. An assignor's prints go to the standard error, because the
standard output carries the answers. The process ends with its input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import IO, TypeVar

import msgspec

from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.spec import GroupSpec
from kohort.server.assignor_plugins import plugin

T = TypeVar("T")


class Question(msgspec.Struct, frozen=True):
    assignor: str
    group: GroupSpec


class Answer(msgspec.Struct, frozen=True):
    why: str
    """Why there is no assignment; "" when there is one."""
    assignment: dict[str, dict[bytes, tuple[int, ...]]]


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(message)
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()


def read_frame(stream: IO[bytes], kind: type[T]) -> T | None:
    """None at the end of the stream. Raises msgspec.MsgspecError for an invalid message."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    body = stream.read(int.from_bytes(head, "big"))
    return msgspec.msgpack.decode(body, type=kind)


def end_with(parent: int) -> None:
    """An assignor that loops never comes to read the end of the input."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal's whole process group; the server ends this process
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (question := read_frame(sys.stdin.buffer, Question)) is not None:
        assignor = plugin(question.assignor)
        result = "it is not installed any more" if assignor is None else assigned(assignor, question.group)
        if isinstance(result, str):
            write_frame(answers, Answer(result, {}))
        else:
            write_frame(answers, Answer("", {member: dict(given) for member, given in result.items()}))


if __name__ == "__main__":
    main()
