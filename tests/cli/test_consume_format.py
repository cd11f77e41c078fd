"""What `kohort consume` prints for one record."""

from __future__ import annotations

import json

import pytest
import typer

from kohort.cli.consume import json_line, text_of
from kohort.client.records import FetchedRecord

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
