"""Ctrl-C and SIGTERM during a command: each case is a process that prints a line when it is ready for the signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

Begin = Callable[[str], "subprocess.Popen[str]"]

CAREFUL = """
with interrupts.careful():
    print("ready", flush=True)
    while not interrupts.wait(10):
        pass
    print("asked", flush=True)
"""
SLEEPING = """
print("ready", flush=True)
time.sleep(60)
"""
STUBBORN = """
with interrupts.careful():
    print("ready", flush=True)
    interrupts.wait(60)
    print("asked", flush=True)
    time.sleep(60)
"""
FINISHING = """
with interrupts.careful():
    interrupts.finish()
    print("ready", flush=True)
    sys.stdin.readline()
    print("cleaned up", flush=True)
"""
STARTING_THREADS = """
print("ready", flush=True)
while True:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""
CHECKING = """
with interrupts.careful():
    print("ready", flush=True)
    while True:
        interrupts.check()
        time.sleep(0.01)
"""


@pytest.fixture
def begin() -> Iterator[Begin]:
    started: list[subprocess.Popen[str]] = []

    def start(command: str) -> subprocess.Popen[str]:
        body = "".join(f"    {line}\n" for line in command.splitlines())
        program = f"import sys, threading, time\nfrom kohort.cli.interrupt import interrupts\ndef command():\n{body}\n"
        process = subprocess.Popen(
            [sys.executable, "-c", f"{program}interrupts.run(command)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("command", "number", "out", "code"),
    [
        (CAREFUL, signal.SIGINT, "asked\n", 0),
        (CAREFUL, signal.SIGTERM, "asked\n", 0),
        (CHECKING, signal.SIGINT, None, -signal.SIGINT),
        (CHECKING, signal.SIGTERM, None, 143),
        (SLEEPING, signal.SIGINT, "", 130),
        (SLEEPING, signal.SIGTERM, "", -signal.SIGTERM),
    ],
    ids=["careful", "careful", "checking", "checking", "other", "other"],
)
def test_how_a_command_ends(begin: Begin, command: str, number: signal.Signals, out: str | None, code: int) -> None:
    """A careful command sees the flag and ends by itself, a checking one raises, another ends at once."""
    process = begin(command)
    process.send_signal(number)
    told = process.communicate(timeout=20)
    assert out is None or told == (out, "")
    assert process.returncode == code


def test_an_interrupt_while_threads_start_raises_nothing(begin: Begin) -> None:
    for _ in range(5):
        process = begin(STARTING_THREADS)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 130


def test_a_second_signal_ends_a_command_that_does_not_end(begin: Begin) -> None:
    process = begin(STUBBORN)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130


def test_cleaning_up_is_not_interrupted(begin: Begin) -> None:
    process = begin(FINISHING)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.communicate("go on\n", timeout=20) == ("cleaned up\n", "")
    assert process.returncode == 0
