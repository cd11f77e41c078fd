"""Tables on wide, narrow and very narrow terminals, and in pipes."""

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

from kohort.cli.output import Column, format_table, name, number, plural, shorten

LAG = [
    Column("GROUP", shrinks=True, repeats=True),
    name("TOPIC"),
    number("PARTITION"),
    number("CURRENT-OFFSET"),
    number("LOG-END-OFFSET"),
    number("LAG"),
    name("CONSUMER-ID"),
    name("HOST"),
    name("CLIENT-ID"),
]
ROW = ["orders", "flights", "0", "56129", "56200", "71", "rdkafka-7f0c7c1e-6a5b-4b0a-8a52", "/127.0.0.1", "rdkafka"]


def lines(width: int | None) -> list[str]:
    return [line for _, line in format_table(LAG, [ROW, ROW], width)]


def test_without_a_limit_everything_is_there_once_and_aligned() -> None:
    heading, first, second = lines(None)
    assert first == second
    assert heading.split() == [column.name for column in LAG]
    assert first.split() == ROW
    assert heading.index("LAG") + 3 == first.index("71") + 2
    assert heading.index("TOPIC") == first.index("flights")


@pytest.mark.parametrize("width", [100, 90, 80, 74])
def test_a_narrow_terminal_breaks_headings_and_shortens_names(width: int) -> None:
    table = lines(width)
    assert max(map(len, table)) <= width
    assert table[0].split() == ["CURRENT-", "LOG-END-", "CONSUMER-", "CLIENT-"]
    assert table[1].split() == ["TOPIC", "PARTITION", "OFFSET", "OFFSET", "LAG", "ID", "HOST", "ID"]
    assert "56129" in table[2]
    assert ("…" in table[2]) == (width < 95)


def test_what_can_be_spared_goes_before_a_row_becomes_a_block() -> None:
    columns = [*LAG[:6], number("LAG-TIME"), LAG[6], Column("HOST", shrinks=True, spare=True), LAG[8]]
    row = [*ROW[:6], "23h59m", *ROW[6:]]
    wide, narrow = ([line for _, line in format_table(columns, [row], width)] for width in (100, 80))
    assert "HOST" in wide[1]
    assert wide[1].split()[-3:] == ["ID", "HOST", "ID"]
    assert max(map(len, narrow)) <= 80
    assert narrow[1].split() == ["TOPIC", "PARTITION", "OFFSET", "OFFSET", "LAG", "TIME", "ID", "ID"]


@pytest.mark.parametrize("width", [40, 60, 69])
def test_a_very_narrow_one_gets_a_block_a_row(width: int) -> None:
    table = lines(width)
    assert f"{'CURRENT-OFFSET'}  56129" in table
    assert f"{'LAG'.ljust(14)}  71" in table
    assert table.count("") == 1


def test_no_rows_are_a_heading() -> None:
    assert lines(None)[0].startswith("GROUP")
    assert [line for _, line in format_table(LAG[:2], [], 80)] == ["GROUP  TOPIC"]


@pytest.mark.parametrize(("width", "expected"), [(10, "consumer"), (8, "consumer"), (7, "con…mer"), (4, "c…er")])
def test_the_ends_of_a_long_name_stay(width: int, expected: str) -> None:
    assert shorten("consumer", width) == expected


def test_plural() -> None:
    assert (plural(1, "record"), plural(0, "record"), plural(2, "record")) == ("1 record", "0 records", "2 records")


# -- on a real (pseudo) terminal, and into a pipe

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
    assert row.split() == [*ROW[:4], "-", "71", "rdkafka-7f0c7c1e-6a5b-4b0a", "/127.0.0.1", "rdkafka"]
    assert "\x1b" not in out
