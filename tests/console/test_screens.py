"""Each screen, of a real server."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest
from console_pages import Pages
from group_member import GroupMember

from kohort.client.admin.survey import Surveyor
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

TIME_LAG = r"\d+ s|< 1 s|\d+ min \d+ s"
"""As the server tells it: it passes while the test runs."""


def without_time(row: list[str], place: int) -> list[str]:
    """`some` in place of a lag in time."""
    return [*row[:place], "some" if re.fullmatch(TIME_LAG, row[place]) else row[place], *row[place + 1 :]]


@pytest.fixture
def member(server: KohortServer, pages: Pages, unique: str) -> Iterator[GroupMember]:
    """It owns two of three partitions, with 5 and 2 records that are not read."""
    pages.cluster.create_topic(unique, 3)
    for partition, count in ((0, 5), (1, 3)):
        server.produce(unique, *["a record"] * count, partition=partition)
    pages.cluster.commit(unique, {(unique, 0): 0, (unique, 1): 1})
    member = GroupMember(pages.bootstrap, unique, {unique: (0, 1)})
    yield member
    member.leave()


# -- groups


def test_groups_have_the_worst_lag_first(pages: Pages, member: GroupMember, unique: str) -> None:
    pages.cluster.commit(f"{unique}-behind", {(unique, 0): 0, (unique, 1): 0})
    pages.cluster.commit(f"{unique}-done", {(unique, 0): 5, (unique, 1): 3})
    new = GroupMember(pages.bootstrap, f"{unique}-new", {unique: (2,)})
    pages.read()
    new.leave()
    page = pages.get("/", q=unique)
    assert [without_time(row, 4) for row in page.body()] == [
        [f"{unique}-behind", "Empty", "8", "", "some", "0", "2", "classic"],
        [unique, "Stable", "7", "", "some", "1", "2", "classic · range"],
        [f"{unique}-done", "Empty", "0", "", "some", "0", "2", "classic"],
        [f"{unique}-new", "Stable", "–", "", "–", "1", "0", "classic · range"],
    ]
    upwards = [row[0] for row in pages.get("/", q=unique, sort="lag").body()]
    assert upwards == [f"{unique}-done", unique, f"{unique}-behind", f"{unique}-new"]
    assert [row[0] for row in pages.get("/", q=unique.upper(), state="Stable").body()] == [unique, f"{unique}-new"]
    cells = pages.live("groups", q=unique)["rows"][unique]
    assert re.fullmatch(TIME_LAG, cells.pop("time"))
    assert cells == {
        "state": ["Stable", "ok"], "members": "1", "protocol": "classic · range", "partitions": "2", "lag": "7",
    }  # fmt: skip


def test_the_first_page_waits_for_the_first_reading(
    server: KohortServer, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.console.shared.FIRST_S", 90.0)
    with Pages(server.bootstrap_servers) as pages:
        pages.cluster.create_topic(unique, 1)
        pages.cluster.commit(unique, {(unique, 0): 0})
        pages.refresher.start()
        try:
            assert [row[0] for row in pages.get("/", q=unique).body()] == [unique]
        finally:
            pages.refresher.stop()


def test_groups_are_paged_on_the_server(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 1)
    for number in range(103):
        pages.cluster.commit(f"{unique}-{number:03}", {(unique, 0): 0})
    pages.read()
    first = pages.get("/", q=unique, sort="group")
    assert [row[0] for row in first.body()] == [f"{unique}-{number:03}" for number in range(50)]
    assert "1–50 of 103 groups" in first.text
    assert "101–103 of 103 groups" in pages.get("/", q=unique, sort="group", page="3").text
    assert "101–103 of 103 groups" in pages.get("/", q=unique, sort="group", page="4").text
    assert "1–50 of 103 groups" in pages.get("/", q=unique, sort="group", page="-1").text
    next_page = next(link for link in first.links if "page=2" in link)
    assert "51–100 of 103 groups" in pages.get(next_page).text
    assert "No groups" in pages.get("/", q="nobody has this name").text


def test_lag_in_time_is_the_servers(pages: Pages, member: GroupMember, unique: str) -> None:
    pages.read()
    for path, key in (("groups", unique), ("group", f"{unique}/0")):
        assert re.fullmatch(TIME_LAG, pages.live(path, q=unique, id=unique)["rows"][key]["time"])
    assert re.fullmatch(TIME_LAG, pages.live("group", id=unique)["rows"][""]["time"])


def test_lag_in_time_is_estimated_elsewhere(unique: str) -> None:
    with KohortServer(compatibility="kafka") as server, Pages(server.bootstrap_servers) as pages:
        pages.cluster.create_topic(unique, 1)
        pages.cluster.commit(unique, {(unique, 0): 0})
        pages.read()
        assert pages.live("groups", q=unique)["rows"][unique]["time"] == "0 s"
        server.produce(unique, *["a record"] * 4)
        pages.read()
        for path, key in (("groups", unique), ("group", f"{unique}/0")):
            shown = pages.live(path, q=unique, id=unique)["rows"][key]["time"]
            assert re.fullmatch(r"≈ \d+ s", shown), shown


def test_the_course_of_lag(server: KohortServer, pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 1)
    pages.cluster.commit(unique, {(unique, 0): 0})
    pages.read()
    before = pages.get("/group", id=unique)
    server.produce(unique, *["a record"] * 4)
    pages.read()
    page = pages.get("/", q=unique)
    [line] = [found["aria-label"] for found in page.attributes("svg") if found.get("class") == "course"]
    assert re.fullmatch(r"lag in .*: from 0 to 4, highest 4", line)
    assert "polyline" in pages.live("groups", q=unique)["regions"][f"course/{unique}"]
    assert "highest 4" in pages.get("/group", id=unique).text
    assert "highest" not in before.text, "one point is no line"
    assert "polygon" in pages.live("group", id=unique)["regions"]["course"]


# -- one group


def test_partitions(pages: Pages, member: GroupMember, unique: str) -> None:
    page = pages.get("/group", id=unique)
    assert [without_time(row, 2) for row in page.body()] == [
        [f"{unique} 0", "5", "some", "0", "5", "by-hand on 127.0.0.1"],
        [f"{unique} 1", "2", "some", "1", "3", "by-hand on 127.0.0.1"],
    ]
    head = rf"State Stable Lag 7 Time lag ({TIME_LAG}) Written [–\d/s.]+ Committed [–\d/s.]+ Members 1 Protocol"
    assert re.search(head, page.text)
    assert [row[0] for row in pages.get("/group", id=unique, sort="lag").body()] == [f"{unique} 1", f"{unique} 0"]
    live = pages.live("group", id=unique)["rows"]
    assert live[f"{unique}/0"]["lag"] == "5"
    assert live[""]["lag"] == "7"


def test_partitions_that_nobody_reads(server: KohortServer, pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique)
    GroupMember(pages.bootstrap, unique, {unique: (0,)}).leave()
    server.produce(unique, "a record", partition=0)
    pages.cluster.commit(unique, {(unique, 0): 0})
    said = pages.get("/group", id=unique).text
    assert f"nobody has {unique}[0] since" in said
    assert "by-hand on 127.0.0.1 left" in said


def test_members(pages: Pages, member: GroupMember, unique: str) -> None:
    [row] = pages.get("/group", id=unique, tab="members").body()
    assert row == [f"by-hand 127.0.0.1 {member.member_id}", "127.0.0.1", "–", "2", f"{unique}[0-1]"]
    assert pages.get("/group", id=unique, tab="members", q="127.0.0").body() == [row]
    assert pages.get("/group", id=unique, tab="members", q="nobody").body() == []


def test_rebalances_and_one_of_them(pages: Pages, member: GroupMember, unique: str) -> None:
    page = pages.get("/group", id=unique, tab="rebalances")
    row, changed = page.body()
    assert row[0] == "2"
    assert row[1].startswith("by-hand on 127.0.0.1 joined 20")
    assert "stable after" in row[1]
    assert row[3] == "Stable"
    assert changed[1].startswith("kohort on 127.0.0.1 set 2 committed offsets without being a member")
    one = pages.get(next(link for link in page.links if link.startswith("/rebalance")))
    assert "by-hand on 127.0.0.1 joined" in one.text
    [member_row] = one.body()
    assert member_row[0] == "by-hand 127.0.0.1"
    assert member_row[4:6] == ["2", f"+ {unique}[0-1]"]
    assert one.count("circle") == 2, "the cause, and the legend's"
    assert "data-live" not in one.html, "it is over"


def test_a_rebalance_that_runs(pages: Pages, member: GroupMember, unique: str) -> None:
    joining = threading.Thread(
        target=lambda: GroupMember(pages.bootstrap, unique, {unique: (2,)}, "late").connection.close(), daemon=True
    )
    joining.start()
    while pages.cluster.describe_groups([unique])[unique].state != "PreparingRebalance":
        time.sleep(0.01)
    page = pages.get("/group", id=unique, tab="settings")
    assert "awaited: by-hand on 127.0.0.1; to join" in page.text
    one = pages.get(next(link for link in page.links if link.startswith("/rebalance")))
    assert "late on 127.0.0.1 joined" in one.text
    rows = {row[0].split()[0]: row for row in one.body()}
    assert rows["by-hand"][0] == "by-hand 127.0.0.1"
    assert rows["by-hand"][1].endswith("s awaited to join")
    assert "awaited: by-hand on 127.0.0.1; to join" in one.text
    assert rows["late"][0] == "late 127.0.0.1 joined"
    assert "data-live" in one.html
    live = pages.live("rebalance", group=unique, number=3)
    assert live["rows"][""]["outcome"] == ["running", "busy"]
    assert "<svg" in live["regions"]["chart"]
    member.rejoin()
    joining.join(timeout=60)


def test_settings(pages: Pages, member: GroupMember, unique: str) -> None:
    pages.cluster.alter_group_configs(unique, {"consumer.session.timeout.ms": "50000"})
    rows = {row[0]: row[1:] for row in pages.get("/group", id=unique, tab="settings").body()}
    assert rows["consumer.session.timeout.ms"] == ["50000", "this group"]
    assert rows["consumer.heartbeat.interval.ms"][1] != "this group"


def test_a_group_that_is_gone_and_one_that_never_was(pages: Pages, unique: str) -> None:
    GroupMember(pages.bootstrap, unique, {unique: (0,)}).leave()
    pages.cluster.delete_group(unique)
    pages.read()
    assert "does not exist any more" in pages.get("/group", id=unique).text
    assert "by-hand on 127.0.0.1 left" in pages.get("/group", id=unique, tab="rebalances").text
    assert "group nobody does not exist" in pages.get("/group", id="nobody", status=404).text
    assert "has no rebalance 77" in pages.get("/rebalance", group=unique, number=77, status=404).text
    assert "is not the number" in pages.get("/rebalance", group=unique, number="x", status=404).text


def test_a_cluster_without_a_journal(unique: str) -> None:
    with KohortServer(compatibility="kafka") as server, Pages(server.bootstrap_servers) as pages:
        pages.cluster.describe_groups([unique])  # until there is a coordinator
        member = GroupMember(pages.bootstrap, unique, {unique: (0,)})
        text = pages.get("/group", id=unique, tab="rebalances").text
        assert "No rebalances are shown: the coordinator at" in text
        assert "it is not kohort" in text
        assert pages.get("/group", id=unique).body()[0][0] == f"{unique} 0"
        member.leave()


# -- topics and nodes


def test_topics_with_their_groups(pages: Pages, member: GroupMember, unique: str) -> None:
    pages.cluster.commit(f"{unique}-other", {(unique, 0): 4})
    pages.read()
    page = pages.get("/topics", q=unique)
    assert page.body() == [[unique, "3", "2", "7", "in sync, 1 replica"]]
    one = pages.get("/topic", name=unique)
    assert one.body() == [[unique, "Stable", "7", "1"], [f"{unique}-other", "Empty", "1", "0"]]
    assert pages.live("topic", name=unique)["rows"][unique]["lag"] == "7"
    assert pages.live("topics", q=unique)["rows"][unique]["groups"] == "2"
    assert "does not exist" in pages.get("/topic", name="nothing", status=404).text
    assert "__consumer_offsets" not in pages.get("/topics").text
    assert "__consumer_offsets" in pages.get("/topics", internal="1").text


def test_nodes(pages: Pages) -> None:
    pages.read()
    rows = pages.get("/nodes").body()
    assert [row[0] for row in rows] == ["1", "2"]
    assert [row[5] for row in rows].count("controller") == 1
    assert pages.live("nodes")["rows"]["1"]["leads"] == rows[0][2]


# -- the state of the cluster


def test_what_was_read_when(pages: Pages) -> None:
    pages.read()
    assert re.search(r"read \d\d:\d\d:\d\d", pages.get("/").text)


def test_before_anything_is_read_and_without_a_cluster() -> None:
    with KohortServer() as server:
        pages = Pages(server.bootstrap_servers)
    with pages:
        assert "reading" in pages.get("/").text
        with Cluster(pages.bootstrap, bootstrap_timeout_ms=1) as nobody:
            pages.refresher.read(nobody, Surveyor(nobody))
        for path in ("/", "/topics", "/nodes"):
            assert "The cluster could not be read yet: cannot reach the cluster" in pages.get(path).text


def test_a_cluster_that_comes_back(unique: str) -> None:
    with KohortServer() as server, Pages(server.bootstrap_servers) as pages:
        server.create_topic(unique)
        pages.cluster.commit(unique, {(unique, 0): 0})
        pages.read()
        server.kill()
        with Cluster(pages.bootstrap, bootstrap_timeout_ms=1) as nobody:
            pages.refresher.read(nobody, Surveyor(nobody))
        page = pages.get("/")
        assert "The cluster could not be read since 20" in page.text
        assert page.body()[0][0] == unique, "as it was"
        assert pages.live("groups")["rows"][""]["read"] == "not connected"
        server.start()
        pages.read()
        assert "could not be read" not in pages.get("/").text
        assert pages.live("groups")["rows"][""]["failure"] == ""


def test_pages_that_do_not_exist(pages: Pages) -> None:
    assert "there is no such page" in pages.get("/nothing", status=404).text
    assert "there is no such file" in pages.get("/static/console.py", status=404).text


def test_static_files_are_of_the_package(pages: Pages) -> None:
    page = pages.get("/")
    files = [found["href"] for found in page.attributes("link")] + [found["src"] for found in page.attributes("script")]
    assert len(files) == 3
    for file in files:
        answer = pages.client.get(file)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff")
        assert "immutable" in answer.headers["cache-control"]
        assert "https:" not in answer.text


def test_the_chosen_colour_scheme(pages: Pages) -> None:
    for theme, attribute in (("dark", 'data-theme="dark"'), ("<script>", "")):
        answer = pages.client.get("/", headers={"cookie": f"kohort-theme={theme}"})
        assert ("data-theme" in answer.text) == bool(attribute)
        assert attribute in answer.text


# -- names are hostile


def test_names_are_escaped(pages: Pages, unique: str) -> None:
    group, client = f"{unique}<script>alert(1)</script>", "\"'><img src=x onerror=alert(2)>‮"
    pages.cluster.create_topic(unique, 1)
    member = GroupMember(pages.bootstrap, group, {unique: (0,)}, client)
    pages.read()
    assert [row[0] for row in pages.get("/", q=group).body()] == [group]
    for tab in ("partitions", "members", "rebalances", "ownership", "what_if", "settings"):
        assert group in pages.get("/group", id=group, tab=tab).text
    page = pages.get("/rebalance", group=group, number=1)
    shown = client.replace("‮", "�")
    assert f"{shown} on 127.0.0.1 joined" in page.text
    assert all("img" not in (tag, *found) for tag, found in page.tags)
    assert shown in pages.get("/group", id=group, tab="members").text
    assert pages.live("group", id=group)["rows"][f"{unique}/0"]["owner"] == f"{shown} on 127.0.0.1"
    member.leave()


def test_a_search_is_escaped_too(pages: Pages) -> None:
    hostile = '"><script>alert(1)</script>'
    page = pages.get("/", q=hostile, state=hostile, sort=hostile)
    assert next(found for found in page.attributes("input") if found["name"] == "q")["value"] == hostile
