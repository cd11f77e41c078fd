"""A table on a real (pseudo) terminal of 80 and of 60 columns, and into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

SCRIPT = """
from kohort.cli.output import Column, name, number, print_table
columns = [Column("GROUP", shrinks=True, repeats=True), name("TOPIC"), number("PARTITION"), number("CURRENT-OFFSET"),
           number("LOG-END-OFFSET"), number("LAG"), name("CONSUMER-ID"), name("HOST"), name("CLIENT-ID")]
print_table(columns, [("orders", "flights", 0, 56129, None, 71, "rdkafka-7f0c7c1e-6a5b-4b0a", "/127.0.0.1", "rdkafka")])
"""


def on_a_terminal(columns: int) -> list[str]:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=child, env=environment)
    os.close(child)
    output = b""
    try:
        while data := os.read(parent, 4096):
            output += data
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(parent)
    assert process.wait(timeout=20) == 0
    text = re.sub(r"\x1b\[\d*m", "", output.decode())  # bold headings
    assert "\x1b" not in text
    return text.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_table_fits_the_terminal(columns: int) -> None:
    lines = on_a_terminal(columns)
    assert max(map(len, lines)) <= columns
    assert any("56129" in line for line in lines)
    assert ("orders" in "".join(lines)) == (columns > 80)


def test_a_pipe_gets_the_whole_table_and_nothing_else() -> None:
    out = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=20).stdout
    heading, row = out.splitlines()
    assert heading.split()[3] == "CURRENT-OFFSET"
    assert row.split() == [
        "orders",
        "flights",
        "0",
        "56129",
        "-",
        "71",
        "rdkafka-7f0c7c1e-6a5b-4b0a",
        "/127.0.0.1",
        "rdkafka",
    ]
    assert "\x1b" not in out
