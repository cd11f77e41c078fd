"""Changes of groups and topics: forms, plans, confirmations; of a console that users need not log in to."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from console_pages import ORIGIN, Page, Pages
from group_member import GroupMember

from kohort.client.admin.configs import ConfigEntry, ConfigSource
from kohort.client.metadata import TopicPartition
from kohort.console.access import Access
from kohort.console.changes.plan import KEPT_S, MOST, Shelf
from kohort.console.changes.topics import may_delete
from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def pages(server: KohortServer) -> Iterator[Pages]:
    with Pages(server.bootstrap_servers, access=Access(allow_changes=True, actor="operator")) as made:
        yield made


@pytest.fixture
def group(server: KohortServer, pages: Pages, unique: str) -> str:
    """With three of five records read in one partition, and nothing committed in the other one."""
    pages.cluster.create_topic(unique, 2)
    server.produce(unique, *["a record"] * 5, partition=0)
    pages.cluster.commit(unique, {(unique, 0): 3})
    return unique


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "kohort.console")
    return caplog


def offsets(pages: Pages, group: str) -> dict[TopicPartition, int]:
    return {place: found.offset for place, found in pages.cluster.committed(group).items()}


def confirm(pages: Pages, **fields: str) -> Page:
    """Confirm the plan that the form sent last has made."""
    return pages.send(pages.address.removeprefix(ORIGIN), **fields)


# -- offsets


def test_reset_and_undo(pages: Pages, group: str, lines: pytest.LogCaptureFixture) -> None:
    pages.read()
    [link] = [link for link in pages.get("/group", id=group).links if link.startswith("/change/reset-offsets")]
    plan = pages.send(link, to="earliest", preview="1")
    [(where, *numbers, record)] = plan.body()
    assert numbers == ["0", "3", "0", "-3"]
    assert re.fullmatch(r"0 at [\d: -]+: a record", record)
    assert where == f"{group} {record}", "the record is below the topic on a phone"
    assert f"Set 1 offset of group {group}?" in plan.text
    assert offsets(pages, group) == {(group, 0): 3}, "it is only shown"
    done = confirm(pages)
    assert f"Set 1 offset of group {group}." in done.text
    assert offsets(pages, group) == {(group, 0): 0}
    [line] = lines.messages
    assert line == (
        f'event="offsets reset" group={group} offsets="{group}-0: 3 -> 0" '
        "by_user=operator by_host=testclient outcome=done"
    )
    assert pages.get("/group", id=group).body()[0][3] == "0", "no page has the old answer"
    [undo] = [link for link in done.links if link.startswith("/change/restore-offsets")]
    before = next(found["value"] for found in pages.get(undo).attributes("input") if found["name"] == "before")
    plan = pages.send(undo, before=before)
    assert plan.body() == [[group, "0", "0", "3", "+3"]]
    assert "undoes #" in plan.text
    assert f"Set 1 offset of group {group}." in confirm(pages).text
    assert offsets(pages, group) == {(group, 0): 3}


@pytest.mark.parametrize(
    ("fields", "new"),
    [
        ({"to": "latest"}, {0: "5"}),
        ({"to": "offset", "offset": "4"}, {0: "4"}),
        ({"to": "offset", "offset": "9"}, {0: "5"}),
        ({"to": "shift", "shift": "-2"}, {0: "1"}),
        ({"to": "time", "time": "2026-01-01T00:00Z"}, {0: "0"}),
        ({"to": "duration", "duration": "2d"}, {0: "0"}),
        ({"to": "latest", "which": "some", "topics": "TOPIC"}, {0: "5", 1: "0"}),
        ({"to": "latest", "which": "some", "topics": "TOPIC:1"}, {1: "0"}),
    ],
)
def test_where_offsets_go(pages: Pages, group: str, fields: dict[str, str], new: dict[int, str]) -> None:
    fields = {key: value.replace("TOPIC", group) for key, value in fields.items()}
    plan = pages.send(f"/change/reset-offsets?group={group}", **fields)
    assert {int(row[1]): row[3] for row in plan.body()} == new


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "to", "Choose where the offsets go."),
        ({"to": "offset", "offset": "x"}, "offset", "Write a whole number of 0 or more."),
        ({"to": "offset", "offset": "-1"}, "offset", "Write a whole number of 0 or more."),
        ({"to": "offset", "offset": "99999999999999999999"}, "offset", "Write a whole number of 0 or more."),
        ({"to": "shift", "shift": ""}, "shift", "Write a whole number."),
        ({"to": "time", "time": "tomorrow"}, "time", "'tomorrow' is no time; write 2026-11-21T12:00"),
        ({"to": "time"}, "time", "Which time?"),
        ({"to": "duration", "duration": "5 parsecs"}, "duration", "'5 parsecs' is not a duration; write 30s"),
        ({"to": "latest", "which": "some"}, "topics", "Name the topics"),
        ({"to": "latest", "which": "some", "topics": "a:b"}, "topics", "'a:b' is not TOPIC or TOPIC:0,2-5."),
        (
            {"to": "latest", "which": "some", "topics": "no-such"},
            "",
            "Topic no-such does not exist; nothing was changed.",
        ),
    ],
)
def test_wrong_input_is_told_in_its_place(
    pages: Pages, group: str, fields: dict[str, str], field: str, message: str
) -> None:
    page = pages.send(f"/change/reset-offsets?group={group}", status=400, **fields)
    assert message in page.text
    assert "Error: Reset offsets" in page.text
    if field and field != "to":
        [marked] = [found for found in page.attributes("input") if found.get("aria-invalid")]
        assert (marked["name"], marked["aria-describedby"]) == (field, f"{field}-wrong")
    for key, value in fields.items():  # what was written stays
        inputs = [found for found in page.attributes("input") if found["name"] == key]
        assert any(found["value"] == value and (found.get("type") != "radio" or "checked" in found) for found in inputs)
    assert offsets(pages, group) == {(group, 0): 3}


def test_a_group_with_members_is_left_alone(pages: Pages, group: str) -> None:
    member = GroupMember(pages.bootstrap, group, {group: (0,)})
    page = pages.send(f"/change/reset-offsets?group={group}", status=400, to="latest")
    assert "it is Stable with 1 member: by-hand on 127.0.0.1; stop them first" in page.text
    page = pages.send(f"/change/delete-group?group={group}", status=400)
    assert "is not empty, it has 1 member: by-hand on 127.0.0.1; stop them first" in page.text
    member.leave()


def test_a_plan_is_carried_out_as_it_was_shown_or_not_at_all(
    server: KohortServer, pages: Pages, group: str, lines: pytest.LogCaptureFixture
) -> None:
    pages.send(f"/change/reset-offsets?group={group}", to="latest")
    first = pages.address
    server.produce(group, "one more", partition=0)
    confirm(pages)
    assert offsets(pages, group) == {(group, 0): 5}, "the end that was shown"
    page = pages.get(first.removeprefix(ORIGIN), status=404)
    assert "this plan was carried out already, or is too old" in page.text
    pages.send(f"/change/reset-offsets?group={group}", to="earliest")
    pages.cluster.commit(group, {(group, 0): 2})
    done = confirm(pages)
    assert f"The committed offsets of group {group} have changed meanwhile; nothing was changed." in done.text
    assert "<h1>Not done</h1>" in done.html
    assert offsets(pages, group) == {(group, 0): 2}
    assert [line.partition("outcome=")[2].partition(" ")[0] for line in lines.messages] == ["done", "refused"]


def test_the_list_of_rebalances_leads_to_the_undoing_of_a_change(pages: Pages, group: str) -> None:
    pages.send(f"/change/reset-offsets?group={group}", to="earliest")
    confirm(pages)
    listed = pages.get("/group", id=group, tab="rebalances")
    newest, _ = [link for link in listed.links if "before=" in link]
    [field] = [found for found in pages.get(newest).attributes("input") if found.get("name") == "before"]
    assert pages.send(newest, before=field["value"]).body() == [[group, "0", "0", "3", "+3"]]


def test_deletions_need_the_name(pages: Pages, group: str, lines: pytest.LogCaptureFixture) -> None:
    pages.send(f"/change/delete-offsets?group={group}", topics=f"{group}:0")
    page = pages.send(pages.address.removeprefix(ORIGIN), status=400, typed=group.upper())
    assert f"Type {group} to confirm. Nothing was changed." in page.text
    assert offsets(pages, group) == {(group, 0): 3}
    done = pages.send(page.html, typed=group)
    assert f"Deleted 1 offset of group {group}: {group}[0]." in done.text
    assert offsets(pages, group) == {}
    assert f"kohort groups restore {group} --before 20" in done.text
    pages.cluster.commit(group, {(group, 1): 0})
    plan = pages.send(f"/change/delete-group?group={group}")
    assert plan.body() == [[group, "1", "0"]]
    done = confirm(pages, typed=group)
    assert f"Deleted group {group}." in done.text
    assert "restore-offsets" in "".join(done.links)
    assert group not in {one.group_id for one in pages.cluster.list_groups()}
    events = [line.partition(" group=")[0] for line in lines.messages]
    assert events == ['event="offsets deleted"', 'event="group deleted"']
    gone = pages.send(f"/change/delete-group?group={group}", status=400)
    assert f"Group {group} does not exist" in gone.text
    refused = pages.send(f"/change/delete-offsets?group={group}", status=400, topics=group)
    assert "nothing was deleted" in refused.text


def test_a_restore_says_what_it_cannot_do(pages: Pages, group: str) -> None:
    form = f"/change/restore-offsets?group={group}"
    assert "Which time?" in pages.send(form, status=400, before="").text
    assert "is in the future" in pages.send(form, status=400, before="2999-01-01T00:00Z").text
    assert "'soon' is no time" in pages.send(form, status=400, before="soon").text
    rows = [row for row in pages.get(form).rows if row[-1] == "This and what followed"]
    assert len(rows) == 1
    assert "set 1 committed offset without being a member" in rows[0][1]


# -- topics


def test_create_change_and_delete_a_topic(pages: Pages, unique: str, lines: pytest.LogCaptureFixture) -> None:
    plan = pages.send(
        "/change/create-topic", name=unique, partitions="2", replicas="", configs="retention.ms=3600000\r\n"
    )
    assert plan.body() == [["partitions", "2"], ["replicas", "the broker's default"], ["retention.ms", "3600000"]]
    assert unique not in pages.cluster.topics()
    assert f"Created topic {unique}." in confirm(pages).text
    assert len(pages.cluster.topics()[unique].partitions) == 2
    pages.read()
    links = [link for link in pages.get("/topic", name=unique).links if link.startswith("/change/")]
    assert len(links) == 3
    form = f"/change/topic-settings?topic={unique}"
    assert ["retention.ms", "3600000", "dynamic-topic"] in pages.get(form).rows
    plan = pages.send(form, setting="retention.ms", how="value", value="7200000")
    assert plan.body() == [["retention.ms", "3600000 → 7200000"]]
    assert f"Changed retention.ms of topic {unique}: 3600000 → 7200000." in confirm(pages).text
    pages.send(form, setting="retention.ms", how="default", value="ignored")
    plan = pages.send(pages.address.removeprefix(ORIGIN), status=400)
    assert f"Type {unique} to confirm." in plan.text, "records may be deleted"
    assert "7200000 → the default" in confirm(pages, typed=unique).text
    plan = pages.send(f"/change/add-partitions?topic={unique}", count="3")
    assert "partitions cannot be removed" in plan.text
    assert f"Topic {unique}: 2 partitions → 3." in confirm(pages).text
    assert len(pages.cluster.topics()[unique].partitions) == 3
    pages.send(f"/change/delete-topic?topic={unique}")
    assert f"Deleted topic {unique}." in confirm(pages, typed=unique).text
    assert unique not in pages.cluster.topics()
    assert [line.partition('event="')[2].partition('"')[0] for line in lines.messages] == [
        "topic created", "topic configs changed", "topic configs changed", "partitions added", "topic deleted"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "old", "new", "deletes"),
    [
        ("retention.ms", "1000", "999", True),
        ("retention.ms", "1000", "2000", False),
        ("retention.ms", "1000", "-1", False),
        ("retention.ms", "1000", None, True),
        ("retention.bytes", "-1", "1000", True),
        ("retention.bytes", "-1", "-1", False),
        ("delete.retention.ms", "1000", "10", True),
        ("local.retention.ms", "-1", "-2", True),
        ("cleanup.policy", "delete", "compact", True),
        ("cleanup.policy", "delete", "delete", False),
        ("segment.bytes", "1000000", "10000", False),
    ],
)
def test_settings_that_may_delete_records(key: str, old: str, new: str | None, deletes: bool) -> None:
    entry = ConfigEntry(key, old, ConfigSource.DYNAMIC_TOPIC_CONFIG, read_only=False, sensitive=False)
    assert may_delete(key, entry, new) == deletes


@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ("create-topic", {"name": ""}, "Name the topic."),
        ("create-topic", {"name": "TOPIC"}, "exists already, with 2 partitions"),
        ("create-topic", {"name": "a/b"}, "INVALID_TOPIC_EXCEPTION"),
        ("create-topic", {"name": "new", "partitions": "0"}, "Write a whole number of 1 or more."),
        ("create-topic", {"name": "new", "replicas": "9"}, "INVALID_REPLICATION_FACTOR"),
        ("create-topic", {"name": "new", "configs": "retention.ms"}, "'retention.ms' is not NAME=VALUE."),
        ("create-topic", {"name": "new", "configs": "a=1\na=2"}, "The setting a is there twice."),
        ("create-topic", {"name": "new", "configs": "retention.ms=x"}, "INVALID_CONFIG"),
        ("topic-settings", {"setting": "retention.ms", "value": "x"}, "nothing was changed"),
        ("topic-settings", {"setting": "retention.m", "value": "1"}, "did you mean retention.ms?"),
        ("add-partitions", {"count": "2"}, "has 2 partitions, and can only get more."),
    ],
)
def test_wrong_input_about_topics(pages: Pages, group: str, change: str, fields: dict[str, str], message: str) -> None:
    fields = {key: value.replace("TOPIC", group) for key, value in fields.items()}
    query = "" if change == "create-topic" else f"?topic={group}"
    page = pages.send(f"/change/{change}{query}", status=400, **fields)
    assert message in page.text
    assert any(found.get("aria-invalid") for _, found in page.tags)


def test_topics_that_do_not_exist(pages: Pages) -> None:
    assert "topic nothing does not exist" in pages.get("/change/add-partitions", topic="nothing", status=404).text
    assert "Topic nothing does not exist" in pages.send("/change/delete-topic?topic=nothing", status=400).text
    assert "the address names no topic" in pages.get("/change/delete-topic", status=404).text
    assert "there is no such change" in pages.get("/change/everything", status=404).text


# -- who may


def test_forms_without_the_token(pages: Pages, group: str) -> None:
    path = f"/change/reset-offsets?group={group}"
    for data in ({"to": "earliest"}, {"to": "earliest", "token": "x"}, {"to": "earliest", "token": "é"}):
        answer = pages.client.post(path, data=data, headers={"origin": ORIGIN})
        assert (answer.status_code, "of another session" in answer.text) == (403, True)
    pages.send(path, to="earliest")
    answer = pages.client.post(pages.address, data={"typed": group}, headers={"origin": ORIGIN})
    assert answer.status_code == 403
    assert offsets(pages, group) == {(group, 0): 3}


def test_what_is_no_form(pages: Pages, group: str) -> None:
    path, origin = f"/change/reset-offsets?group={group}", {"origin": ORIGIN}
    assert pages.client.post(path, json={"to": "earliest"}, headers=origin).status_code == 415
    form = origin | {"content-type": "application/x-www-form-urlencoded"}
    assert pages.client.post(path, content=b"a=" + b"x" * 70_000, headers=form).status_code == 413
    assert pages.client.post(path, content=b"a=%ff", headers=form).status_code == 400
    assert pages.client.post(path, content="&".join(f"a{n}=" for n in range(60)), headers=form).status_code == 400


def test_a_console_that_only_reads(server: KohortServer, group: str) -> None:
    with Pages(server.bootstrap_servers) as pages:
        pages.read()
        for path, query in (("/group", {"id": group}), ("/topic", {"name": group}), ("/topics", {})):
            page = pages.get(path, **query)
            assert not [link for link in page.links if link.startswith("/change")]
            assert "Read-only." in page.text
        refused = pages.get("/change/reset-offsets", group=group, status=403)
        assert "kohort console --allow-changes lets it" in refused.text
        answer = pages.client.post(
            f"/change/reset-offsets?group={group}", data={"to": "latest"}, headers={"origin": ORIGIN}
        )
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_remove_a_member(pages: Pages, group: str, lines: pytest.LogCaptureFixture) -> None:
    member = GroupMember(pages.bootstrap, group, {group: (0, 1)})
    [link] = [link for link in pages.get("/group", id=group, tab="members").links if "remove-member" in link]
    plan = pages.send(link, member=member.member_id, reason="it hangs")
    assert plan.body() == [[member.member_id, "–", "/127.0.0.1", "by-hand", "2"]]
    assert "A process that still runs joins again" in plan.text
    waiting = pages.address.removeprefix(ORIGIN)
    assert f"Removed by-hand on 127.0.0.1 from group {group}; it had {group}[0-1]." in confirm(pages).text
    assert not pages.cluster.describe_groups([group])[group].members
    assert f'event="member removed" group={group} member={member.member_id} why="it hangs"' in lines.messages[-1]
    assert pages.get(waiting, status=404)
    refused = pages.send(link, status=400, member="by-hand")
    assert f"Group {group} has no members; nobody was removed." in refused.text


@pytest.mark.parametrize("change", ["delete-group", "delete-offsets"])
def test_a_deletion_of_other_offsets_than_were_shown(pages: Pages, group: str, change: str) -> None:
    fields = {"topics": group} if change == "delete-offsets" else {}
    plan = pages.send(f"/change/{change}?group={group}", **fields)
    pages.cluster.commit(group, {(group, 0): 2})
    done = pages.send(plan.html, typed=group)
    assert "have changed meanwhile; nothing was deleted" in done.text
    assert offsets(pages, group)[group, 0] == 2


def test_a_number_of_many_digits(pages: Pages) -> None:
    for path in ("/plan/", "/outcome/"):
        assert pages.client.get(path + "9" * 5_000).status_code == 404
        assert pages.get(path + "9" * 100, status=404)


def test_names_are_escaped(pages: Pages, unique: str) -> None:
    group = f"{unique}<script>alert(1)</script>"
    pages.cluster.create_topic(unique, 1)
    pages.cluster.commit(group, {(unique, 0): 0})
    page = pages.send(f"/change/delete-group?group={unique}%3Cscript%3Ealert(1)%3C/script%3E")
    assert f"Delete group {group} and its 1 committed offset?" in page.text
    assert page.count("script") == 1
    done = pages.send(page.html, typed=group)
    assert done.count("script") == 1
    assert f"Deleted group {group}." in done.text


# -- plans


def test_plans_are_kept_for_a_while() -> None:
    now = [0.0]
    shelf: Shelf[str] = Shelf(lambda: now[0])
    first = shelf.put("first")
    assert (shelf.get(first), shelf.take(first), shelf.take(first)) == ("first", "first", None)
    numbers = [shelf.put(str(number)) for number in range(MOST + 1)]
    assert shelf.get(numbers[0]) is None, "the oldest"
    assert shelf.get(numbers[1]) == "1"
    now[0] = KEPT_S
    assert shelf.get(numbers[-1]) is None
    shelf.put("another")
    assert len(shelf._kept) == 1, "those that are too old are forgotten"
