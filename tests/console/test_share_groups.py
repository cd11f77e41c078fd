"""Share groups in the console: the list, the tabs of one group, and its changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_pages import ORIGIN, Pages
from share_member import ACCEPT, PATIENT, REJECT, RELEASE, ShareMember

from kohort.console.access import Access
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(brokers=2, **PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def pages(server: KohortServer) -> Iterator[Pages]:
    with Pages(server.bootstrap_servers, access=Access(allow_changes=True, actor="operator")) as made:
        yield made


@pytest.fixture
def worker(server: KohortServer, pages: Pages, unique: str) -> Iterator[ShareMember]:
    """3 of 10 records are in flight, one is rejected, and 6 are unfinished."""
    pages.cluster.create_topic(unique, 2)
    pages.cluster.alter_group_configs(unique, {"share.auto.offset.reset": "earliest"})
    for _ in range(10):
        pages.cluster.produce(unique, 0, [NewRecord(None, b"v", 1)])
    with ShareMember(server.bootstrap_servers, unique, unique, "worker") as member:
        assert member.take(0, 8) == [(0, 7, 1)]
        assert member.ack(0, (0, 2, ACCEPT), (3, 3, REJECT), (4, 4, RELEASE), (7, 7, RELEASE)) == 0
        assert member.take(0, 1) == [(4, 4, 2)]
        yield member


def test_the_list_and_the_partitions(pages: Pages, worker: ShareMember, unique: str) -> None:
    pages.read()
    [row] = [row for row in pages.get("/", q=unique).body() if row[0].startswith(unique)]
    assert "6" in row
    page = pages.get("/group", id=unique)
    assert [row[:2] for row in page.body()] == [[f"{unique} 0", "6"], [f"{unique} 1", "–"]]
    assert page.body()[0][2:] == ["4", "10", "worker holds 3"]
    assert "Unfinished" in page.text
    assert not [link for link in page.links if "tab=ownership" in link or "tab=what_if" in link]


def test_records_in_flight_and_archived(pages: Pages, worker: ShareMember, unique: str) -> None:
    pages.read()
    page = pages.get("/group", id=unique, tab="records")
    assert ["worker 127.0.0.1", f"{unique} 0", "3", "2 × 1, 1 × 2"] in [row[:4] for row in page.rows]
    assert [f"{unique} 0", "3", "rejected", "1", "worker"] in [row[:5] for row in page.rows]
    assert "Delivered 9" in page.text
    assert "worker on 127.0.0.1: 1 record rejected" in pages.get("/group", id=unique, tab="rebalances").text
    history = pages.get("/group", id=unique, tab="rebalances")
    assert history.rows[0] == ["Number", "What happened"], "nothing is rebalanced"
    assert pages.get("/group", id=unique, tab="members").body()[0][3:] == ["2", f"{unique}[0-1]"]
    assert "rejected 1 record within the last hour" not in pages.get("/doctor").text


def test_settings_are_those_of_share_groups(pages: Pages, worker: ShareMember, unique: str) -> None:
    pages.cluster.alter_group_configs(unique, {"consumer.session.timeout.ms": "45000"})
    names = [row[0] for row in pages.get("/group", id=unique, tab="settings").body()]
    assert "share.auto.offset.reset" in names
    others = [name for name in names if not name.startswith(("share.", "errors.deadletterqueue."))]
    assert others == ["consumer.session.timeout.ms"], "it is set"


def test_changes(pages: Pages, worker: ShareMember, unique: str) -> None:
    pages.read()
    page = pages.get("/group", id=unique)
    assert not [link for link in page.links if "restore-offsets" in link or "delete-offsets" in link]
    links = {link.partition("?")[0].removeprefix("/change/"): link for link in page.links if "/change/" in link}
    plan = pages.send(links["redeliver"])
    assert plan.body() == [[unique, "0", "3", "1", "rejected"]]
    done = pages.send(pages.address.removeprefix(ORIGIN))
    assert f"1 record of group {unique} is delivered again" in done.text
    assert "No archived records are known there." in pages.send(links["redeliver"], status=400).text
    plan = pages.send(links["release-records"], member="worker")
    assert [row[2:6] for row in plan.body()] == [[unique, "0", "3", "2 × 1, 1 × 2"]]
    done = pages.send(pages.address.removeprefix(ORIGIN))
    assert f"eleased 3 records of worker in group {unique}" in done.text
    assert "It holds no records." in pages.send(links["release-records"], status=400, member="worker").text
    assert "with 1 member: worker" in pages.send(links["reset-offsets"], status=400, to="earliest").text
    worker.leave()
    assert pages.send(links["reset-offsets"], to="earliest").body() == [[unique, "0", "3", "0", "-3"]]
    assert f"et 1 offset of group {unique}" in pages.send(pages.address.removeprefix(ORIGIN)).text
