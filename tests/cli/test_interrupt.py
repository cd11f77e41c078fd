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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_careful_command_sees_the_flag_and_ends_by_itself(begin: Begin, number: signal.Signals) -> None:
    process = begin(CAREFUL)
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("asked\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_another_command_ends_at_once(begin: Begin, number: signal.Signals, code: int) -> None:
    process = begin("print('ready', flush=True)\ntime.sleep(60)")
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("", "")
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_check_raises_what_ends_the_process(begin: Begin, number: signal.Signals, code: int) -> None:
    process = begin(CHECKING)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code
