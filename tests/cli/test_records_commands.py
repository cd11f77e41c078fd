"""`kohort produce` and `kohort consume` against a server, and what `consume` prints for one record."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from run_command import Kohort

from kohort.cli.records.consume import json_line, text_of
from kohort.client.records import FetchedRecord
from kohort.client.records.partitioner import partition_for_key

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def topic(kohort: Kohort, unique: str) -> str:
    kohort("topics", "create", unique, "--partitions", "3")
    return unique


def test_lines_come_back(kohort: Kohort, topic: str) -> None:
    ran = kohort("produce", topic, stdin="".join(f"line {n}\n" for n in range(100)))
    assert ran.out == ""
    assert ran.err.startswith("produced 100 records")
    ran = kohort("consume", topic, "--from-beginning", "--exit-at-end")
    assert sorted(ran.out.splitlines()) == sorted(f"line {n}" for n in range(100))
    assert ran.err == f"consumed 100 records from {topic}\n"


def test_records_without_a_key_go_to_every_partition(kohort: Kohort, topic: str) -> None:
    kohort("produce", topic, stdin="a\nb\nc\n")
    ran = kohort("consume", topic, "--from-beginning", "-e", "--format", "%p %v\\n")
    assert sorted(line.split()[0] for line in ran.out.splitlines()) == ["0", "1", "2"]


def test_keyed_records_go_where_java_puts_them(kohort: Kohort, topic: str) -> None:
    kohort("produce", topic, "--key-separator", ":", stdin="".join(f"k{n}:v{n}\n" for n in range(30)))
    ran = kohort("consume", topic, "--from-beginning", "-e", "--format", "%p %k %v\\n")
    lines = [line.split() for line in ran.out.splitlines()]
    assert len(lines) == 30
    for partition, key, value in lines:
        assert int(partition) == partition_for_key(key.encode(), 3)
        assert value == key.replace("k", "v")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_and_large_files(kohort: Kohort, topic: str, tmp_path: Path, compression: str) -> None:
    lines = [f"{n} {'x' * 200}" for n in range(6_000)]
    (tmp_path / "lines").write_text("\n".join(lines), encoding="utf-8")  # the last line has no end
    kohort("produce", topic, "--file", str(tmp_path / "lines"), "-z", compression, "-p", "2")
    ran = kohort("consume", topic, "-p", "2", "--offset", "0", "--exit-at-end")
    assert ran.out.splitlines() == lines


def test_nulls_and_empty_values(kohort: Kohort, topic: str) -> None:
    kohort("produce", topic, "-K", "\\t", "--null-marker", "NULL", "-p", "0", stdin="k\tNULL\nNULL\tv\nk\t\n")
    ran = kohort("consume", topic, "--from-beginning", "-e", "-o", "json")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [(row["key"], row["value"]) for row in found] == [("k", None), (None, "v"), ("k", "")]
    assert [row["offset"] for row in found] == [0, 1, 2]


def test_a_line_without_a_key_stops_and_is_named(kohort: Kohort, topic: str) -> None:
    ran = kohort("produce", topic, "-K", ":", stdin="a:1\nb:2\nnothing\nc:3\n", code=1)
    assert ran.err == "kohort: line 3 has no key separator; 2 records before it were sent\n"
    assert len(kohort("consume", topic, "--from-beginning", "-e").out.splitlines()) == 2


def test_a_record_larger_than_the_topic_takes(kohort: Kohort, unique: str) -> None:
    kohort("topics", "create", unique, "--config", "max.message.bytes=1000")
    ran = kohort("produce", unique, stdin="small\n" + "x" * 2_000 + "\n", code=1)
    assert "MESSAGE_TOO_LARGE" in ran.err
    assert "max.message.bytes" in ran.err


def test_acks(kohort: Kohort, topic: str) -> None:
    for acks in ("0", "1", "all", "-1"):
        assert "produced 1 record " in kohort("produce", topic, "--acks", acks, stdin="x\n").err
    assert len(kohort("consume", topic, "--from-beginning", "-n", "4").out.splitlines()) == 4


def test_a_missing_topic(kohort: Kohort, topic: str) -> None:
    assert "topic nope does not exist" in kohort("consume", "nope", code=1).err
    assert f"topic {topic} has no partition 7; it has 3 partitions" in kohort("consume", topic, "-p", "7", code=1).err
    assert "no partition 7" in kohort("produce", topic, "-p", "7", stdin="x\n", code=1).err
    assert "no space" in kohort("produce", "no space", stdin="x\n", code=1).err


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", "0123456789"), ("4", "456789"), ("-3", "789"), ("-99", "0123456789"), ("latest", "")],
)
def test_where_to_start(kohort: Kohort, topic: str, start: str, expected: str) -> None:
    kohort("produce", topic, "-p", "1", stdin="".join(f"{n}\n" for n in range(10)))
    assert kohort("consume", topic, "-p", "1", "-e", "--offset", start, "-F", "%v").out == expected


def test_a_position_beyond_the_end_is_said(kohort: Kohort, topic: str) -> None:
    ran = kohort("consume", topic, "-p", "0", "--offset", "5", "--timeout-ms", "50")
    assert f"{topic}-0 has no offset 5; continuing at 0" in ran.err


def test_limits(kohort: Kohort, topic: str) -> None:
    kohort("produce", topic, stdin="".join(f"{n}\n" for n in range(10)))
    assert len(kohort("consume", topic, "--from-beginning", "--max-messages", "4").out.splitlines()) == 4
    assert len(kohort("consume", topic, "--from-beginning", "--timeout-ms", "50").out.splitlines()) == 10


def test_a_group_goes_on_where_it_was(kohort: Kohort, topic: str) -> None:
    kohort("produce", topic, "-p", "0", stdin="0\n1\n2\n3\n4\n")
    first = kohort("consume", topic, "-g", topic, "--from-beginning", "-n", "2", "-F", "%v")
    assert first.out == "01"
    assert "total lag 3" in kohort("groups", "describe", topic).out
    rest = kohort("consume", topic, "-g", topic, "--from-beginning", "-e", "-F", "%v")
    assert rest.out == "234"
    assert kohort("consume", topic, "-g", topic, "--from-beginning", "-e").out == ""


def test_a_closed_pipe_is_no_failure(start: Start, kohort: Kohort, topic: str) -> None:
    kohort("produce", topic, stdin="".join(f"{n} {'x' * 100}\n" for n in range(5_000)))
    process = start("consume", topic, "--from-beginning")
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_commits_what_was_printed(
    start: Start, kohort: Kohort, topic: str, number: signal.Signals
) -> None:
    kohort("produce", topic, "-p", "0", stdin="a\nb\n")
    process = start("consume", topic, "--from-beginning", "--group", topic)
    assert [process.stdout.readline(), process.stdout.readline()] == [b"a\n", b"b\n"]
    process.send_signal(number)
    assert process.wait(timeout=20) == 0, process.stderr.read()
    assert process.stderr.read() == f"consumed 2 records from {topic}\n".encode()
    assert f"{topic}: Empty, 0 members, total lag 0" in kohort("groups", "describe", topic).out


def test_a_pipe_is_sent_as_it_comes(start: Start, topic: str) -> None:
    reader = start("consume", topic, "--from-beginning", "-n", "1")
    writer = start("produce", topic)
    writer.stdin.write(b"at once\n")
    writer.stdin.flush()  # and it stays open
    out, _ = reader.communicate(timeout=20)
    assert out == b"at once\n"


# -- what `kohort consume` prints


RECORD = FetchedRecord("orders", 3, 42, 1_700_000_000_000, 0, b"key", b"value", (("h", b"x"), ("n", None)))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%v\\n", b"value\n"),
        ("%s", b"value"),
        ("%t-%p@%o\\t%k=%v", b"orders-3@42\tkey=value"),
        ("%T %h", b"1700000000000 h=x,n="),
        ("100%%", b"100%"),
        ("a\\\\n", b"a\\n"),
        ("", b""),
        ("äöü %k", "äöü key".encode()),
    ],
)
def test_templates(template: str, expected: bytes) -> None:
    assert text_of(template)(RECORD) == expected


def test_null_prints_nothing_and_bytes_stay_bytes() -> None:
    record = RECORD._replace(key=None, value=b"\xff\x00")
    assert text_of("%k|%v")(record) == b"|\xff\x00"


def test_an_unknown_mark_is_named() -> None:
    with pytest.raises(typer.BadParameter, match="%x"):
        text_of("%v %x")


def test_json_has_everything_on_one_line() -> None:
    line = json_line(RECORD._replace(value=b"two\nlines"))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "CreateTime",
        "key": "key",
        "value": "two\nlines",
        "headers": [{"key": "h", "value": "x"}, {"key": "n", "value": None}],
    }


def test_json_tells_null_from_empty_and_carries_any_bytes() -> None:
    document = json.loads(json_line(RECORD._replace(key=None, value=b"\xff", timestamp_type=1)))
    assert document["key"] is None
    assert document["value"] == {"base64": "/w=="}
    assert document["timestamp_type"] == "LogAppendTime"
