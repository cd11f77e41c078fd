"""The newest records of a partition: which ones, how they are shown, how large a page is."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from console_pages import Pages

from kohort.console.payload import cut, shown
from kohort.testing import KohortServer
from kohort.wire.records import NewRecord


def test_text_and_bytes() -> None:
    assert (shown(None, 99).kind, shown(None, 99).html) == ("null", "null")
    assert shown(b"", 99).kind == "empty"
    text = shown('{"a": "é"}\n\tb\x7f‮'.encode(), 99)
    assert (text.kind, text.html, text.is_cut) == ("text", "{&#34;a&#34;: &#34;é&#34;}\n    b��", False)
    binary = shown(b"\x00\x01\x02\x03\x04\xff", 99)
    assert (binary.kind, binary.html, binary.is_cut) == ("hex", "00010203 04ff", False)
    assert shown(b"\xff\xfe", 99).kind == "hex", "no UTF-8"
    assert shown(b"a\x1b[31m", 99).kind == "hex", "an escape"


@pytest.mark.parametrize(
    "data", [b"'" * 5_000, "é‮".encode() * 2_000, b"\x00" * 5_000, b"<script>" * 900, b"x\n" * 3_000]
)
@pytest.mark.parametrize("room", [1, 10, 500])
def test_what_is_shown_is_bounded(data: bytes, room: int) -> None:
    found = shown(data, room)
    assert len(found.html.encode()) <= room
    assert found.is_cut
    assert "<" not in found.html


def test_what_is_cut() -> None:
    assert cut("abc", 3) == ("abc", False)
    assert cut("a" * 100, 60) == ("a" * 60, True)


def test_the_newest_come_first(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 2)
    headers = (("trace", b"abc"), ("<b>", None))
    records = [NewRecord(b"key-%d" % number, b"value %d" % number, 1_700_000_000_000, headers) for number in range(130)]
    pages.cluster.produce(unique, 1, records)
    pages.read()
    page = pages.get("/messages", topic=unique, partition=1)
    rows = page.body()
    assert [row[0] for row in rows] == [str(offset) for offset in range(129, 29, -1)]
    assert rows[0][1].endswith(".000")
    assert rows[0][2:] == ["key-129", "value 129 trace: abc <b>: null"]
    assert "The newest 100 records" in page.text
    assert "The partition has no records" in pages.get("/messages", topic=unique).text
    assert "130" in page.text
    [one] = pages.get(next(link for link in page.links if "offset=129" in link)).body()
    assert one == rows[0]
    assert "has no record with the offset 500" in pages.get("/messages", topic=unique, partition=1, offset=500).text


def test_large_records_are_few(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 1)
    for number in range(12):
        pages.cluster.produce(unique, 0, [NewRecord(None, b"%d" % (number % 10) * 200_000, 0)])
    pages.read()
    page = pages.get("/messages", topic=unique)
    assert [row[0] for row in page.body()] == ["11", "10", "9", "8"]
    assert "fewer than 100 because they are large" in page.text
    for row in page.body():
        assert row[3].endswith("…")
    single = pages.get("/messages", topic=unique, offset=11)
    assert single.body()[0][3].count("1") > 50_000


def test_records_of_hostile_producers(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 1)
    hostile = b"<script>alert(1)</script>\"'&" * 2
    headers = tuple((f"{number}<script>", hostile) for number in range(100))
    pages.cluster.produce(unique, 0, [NewRecord(hostile, hostile, -1, headers)] * 100)
    pages.read()
    page = pages.get("/messages", topic=unique)
    assert len(page.body()) == 100
    assert "and 98 more headers" in page.text
    assert "<script>alert(1)</script>" in page.text


def test_records_of_transactions(server: KohortServer, pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 1)
    settings = {"bootstrap.servers": server.bootstrap_servers, "transactional.id": unique}
    producer = Producer(settings)
    producer.init_transactions()
    for value, ends in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(unique, value)
        producer.flush()
        ends()
    producer.begin_transaction()
    producer.produce(unique, "open")
    producer.flush()
    pages.read()
    page = pages.get("/messages", topic=unique)
    assert [(row[0], row[3]) for row in page.body()] == [
        ("4 not committed yet", "open"),
        ("2 aborted", "dropped"),
        ("0", "kept"),
    ]
    assert "Committed up to 4" in page.text
    committed = pages.get("/messages", topic=unique, isolation="read_committed")
    assert [(row[0], row[3]) for row in committed.body()] == [("0", "kept")]
    assert "not committed yet" in pages.get("/messages", topic=unique, offset=4).body()[0][0]
    producer.abort_transaction()


def test_what_is_not_there(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 1)
    pages.read()
    assert "does not exist" in pages.get("/messages", topic="nothing", status=404).text
    assert "has no partition 1: it has 1" in pages.get("/messages", topic=unique, partition=1, status=404).text
    for wrong in ("-1", "x", "²", "9" * 30):
        assert f"{wrong!r} is no partition" in pages.get("/messages", topic=unique, partition=wrong, status=404).text
    assert "is no offset" in pages.get("/messages", topic=unique, offset="x", status=404).text
