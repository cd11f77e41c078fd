"""`kohort groups` against a server: views, states, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from group_member import GroupMember
from run_command import Kohort

from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster


@pytest.fixture
def group(kohort: Kohort, unique: str) -> str:
    """A group without members that has read 2 of 3 records of partition 0, and all (none) of partition 1."""
    kohort("topics", "create", unique, "--partitions", "2")
    kohort("produce", unique, "-p", "0", stdin="a\nb\n")
    kohort("consume", unique, "-g", unique, "--from-beginning", "-e")
    kohort("produce", unique, "-p", "0", stdin="c\n")
    return unique


@pytest.fixture
def member(group: str, bootstrap: str) -> Iterator[GroupMember]:
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    yield member
    member.leave()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_an_empty_group(kohort: Kohort, group: str) -> None:
    described = rows(kohort("groups", "describe", group).out)
    numbers = ["PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-TIME"]
    assert described[0] == ["GROUP", "TOPIC", *numbers, "CONSUMER-ID", "HOST", "CLIENT-ID"]
    assert described[1][:6] + described[1][7:] == [group, group, "0", "2", "3", "1", "-", "-", "-"]
    assert re.fullmatch(r"0|\d+ms|[\d.]+s|\d+m\d\ds", described[1][6]), described[1][6]
    assert " ".join(described[-1]) == f"{group}: Empty, 0 members, total lag 1"


def test_a_query_that_holds_the_group_without_being_its_member(kohort: Kohort, group: str, bootstrap: str) -> None:
    holder = GroupReader("0f00", "lake", "1f00", 7, "nightly job", "driver-1", 42)
    with Cluster(bootstrap) as cluster:
        cluster.commit(group, {(group, 0): Committed(3, -1, holder.metadata())})
    first, total, held = kohort("groups", "describe", group).out.splitlines()[1:]
    assert first.split() == [group, group, "0", "3", "3", "0", "0", "lake", "driver-1", "kohort-spark"]
    assert total.endswith("Empty, 0 members, total lag 0")
    assert held == f"{group}: held by Spark query lake (0f00) of nightly job on driver-1, batch 7"
    (described,) = json.loads(kohort("groups", "describe", group, "-o", "json").out)
    assert described["offsets"][0]["holder"]["batch"] == 7
    assert described["offsets"][0]["client_id"] == "kohort-spark"


def test_a_group_with_a_member(kohort: Kohort, group: str, member: GroupMember) -> None:
    described = rows(kohort("groups", "describe", group).out)
    assert described[1][:6] + described[1][7:8] == [group, group, "0", "2", "3", "1", member.member_id]
    assert described[2][:8] == [group, group, "1", "-", "0", "-", "-", member.member_id]
    assert described[1][-1] == "by-hand"
    assert " ".join(described[-1]) == f"{group}: Stable, 1 member, total lag 1"


def test_the_views(kohort: Kohort, group: str, member: GroupMember) -> None:
    heading, row, _ = rows(kohort("groups", "describe", group, "--members", "--verbose").out)
    assert heading == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    assert (row[:3], row[-2:]) == ([group, member.member_id, "-"], ["2", f"{group}(0,1)"])
    heading, row = rows(kohort("groups", "describe", group, "--state").out)
    assert heading == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert row[-3:] == ["range", "Stable", "1"]
    kohort("consume", group, "-g", f"{group}.all", "--from-beginning", "-e")
    assert (
        kohort("groups", "describe", f"{group}.all", "--offsets").out
        == kohort("groups", "describe", f"{group}.all").out
    )


def test_json(kohort: Kohort, group: str, member: GroupMember) -> None:
    (described,) = json.loads(kohort("groups", "describe", group, "-o", "json").out)
    assert (described["group"], described["state"], described["total_lag"]) == (group, "Stable", 1)
    assert described["members"][0]["assignment"] == {group: [0, 1]}
    first, second = described["offsets"]
    assert (first["current_offset"], first["log_end_offset"], first["lag"]) == (2, 3, 1)
    assert (second["current_offset"], second["log_end_offset"], second["lag"]) == (None, 0, None)
    assert first["lag_ms"] >= 0
    assert (first["last_stable_offset"], second["lag_ms"]) == (3, None)
    assert described["max_lag_ms"] == first["lag_ms"]
    assert described["lag_as_of_ms"] > 1_700_000_000_000
    assert first["consumer_id"] == member.member_id
    listed = json.loads(kohort("groups", "list", "-o", "json").out)
    assert [row["state"] for row in listed if row["group"] == group] == ["Stable"]


def test_lists_by_state_and_type(kohort: Kohort, group: str) -> None:
    assert [group, "Empty"] in [row[:2] for row in rows(kohort("groups", "list", "--state", "empty").out)]
    assert group not in kohort("groups", "list", "--state", "Stable").out
    assert group in kohort("groups", "list", "--type", "classic").out
    assert group not in kohort("groups", "list", "--type", "consumer").out


def test_offsets_survive_their_topic(kohort: Kohort, group: str) -> None:
    kohort("topics", "delete", group, "--yes")
    ran = kohort("groups", "describe", group, code=None)
    assert ran.code in (0, 1), ran  # brokers may delete the offsets together with the topic
    assert "Traceback" not in ran.err


def test_an_unknown_group_is_named_after_those_known(kohort: Kohort, group: str) -> None:
    ran = kohort("groups", "describe", "nobody", group, code=1)
    assert ran.err == "kohort: group nobody does not exist\n"
    assert f"{group}: Empty" in ran.out
    assert json.loads(kohort("groups", "describe", "nobody", "-o", "json", code=1).out) == []


@pytest.mark.parametrize(
    "command",
    [
        ("describe",),
        ("explain",),
        ("release",),
        ("hold", "--for", "1m"),
        ("assign", "--assignor", "range", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_typo_in_the_name_of_a_group(kohort: Kohort, group: str, command: tuple[str, ...]) -> None:
    told = kohort("groups", command[0], f"{group}x", *command[1:], code=1).err
    assert told == f"kohort: group {group}x does not exist; did you mean {group}?\n"


def test_a_pattern_that_no_group_matches(kohort: Kohort, group: str) -> None:
    for command in ("describe", "export", "doctor"):
        assert kohort("groups", command, "absent-*", code=1).err == "kohort: no group matches absent-*\n"


def test_a_group_with_members_does_not_lend_its_offsets(kohort: Kohort, group: str, member: GroupMember) -> None:
    ran = kohort("consume", group, "--group", group, code=1)
    assert f"group {group} is Stable: only its members may commit" in ran.err


def test_lists_with_members_and_lag(kohort: Kohort, group: str, member: GroupMember) -> None:
    listed = kohort("groups", "list", "--lag").out.splitlines()
    assert listed[0].split()[-3:] == ["MEMBERS", "LAG", "LAG-TIME"]
    assert ["1", "1"] in [line.split()[-3:-1] for line in listed if line.startswith(f"{group} ")]
    rows = json.loads(kohort("groups", "list", "--lag", "-o", "json").out)
    [row] = [row for row in rows if row["group"] == group]
    assert (row["members"], row["total_lag"]) == (1, 1)
    assert row["max_lag_ms"] >= 0
    assert "members" not in json.loads(kohort("groups", "list", "-o", "json").out)[0]


def test_lag_without_a_committed_offset_is_unknown(kohort: Kohort, group: str, bootstrap: str) -> None:
    member = GroupMember(bootstrap, f"{group}.new", {group: (0,)})
    try:
        listed = kohort("groups", "list", "--lag").out.splitlines()
    finally:
        member.leave()
    assert ["1", "-", "-"] in [line.split()[-3:] for line in listed if line.startswith(f"{group}.new ")]


def test_partitions_without_an_offset_are_not_in_the_total(kohort: Kohort, group: str, bootstrap: str) -> None:
    member = GroupMember(bootstrap, f"{group}.new", {group: (0, 1)})
    try:
        out = kohort("groups", "describe", f"{group}.new", group).out
    finally:
        member.leave()
    one, other = out.split("\n\n")
    assert one.endswith(
        f"{group}.new: Stable, 1 member, total lag 0; 1 partition without a committed offset is not in it"
    )
    assert other.endswith(f"{group}: Empty, 0 members, total lag 1\n")


def test_patterns_and_all(kohort: Kohort, group: str, bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        cluster.commit(f"{group}.x", {(group, 0): 1})
        cluster.commit(f"{group}.*", {(group, 0): 2})

    def described(*arguments: str, code: int = 0) -> list[str]:
        documents = json.loads(kohort("groups", "describe", *arguments, "-o", "json", code=code).out)
        return [document["group"] for document in documents]

    assert described(f"{group}.?") == [f"{group}.*", f"{group}.x"]
    assert described(f"{group}.*") == [f"{group}.*"], "a group of that name comes before the pattern"
    assert described(f"{group}[.]x", group) == [f"{group}.x", group]
    assert set(described("--all")) >= {group, f"{group}.x", f"{group}.*"}
    assert described(f"{group}z*", code=1) == []
    assert "name one or more groups" in kohort("groups", "describe", code=2).err
    assert "name one or more groups" in kohort("groups", "describe", group, "--all", code=2).err
