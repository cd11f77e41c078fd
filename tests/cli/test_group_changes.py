"""`kohort groups delete`, `delete-offsets`, `export` and `import` against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from group_member import GroupMember
from run_command import Kohort, Terminal

from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.client.metadata import TopicPartition
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode


@pytest.fixture
def group(bootstrap: str, unique: str) -> str:
    """A group with offsets in the two partitions of a topic, with five records each, and in one of another topic."""
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(unique, 2)
        cluster.create_topic(f"{unique}.b", 1)
        for place in ((unique, 0), (unique, 1), (f"{unique}.b", 0)):
            cluster.produce(*place, [NewRecord(None, b"v", 1)] * 5)
        cluster.commit(unique, {(unique, 0): Committed(3, -1, "mark"), (unique, 1): 4, (f"{unique}.b", 0): 5})
    return unique


@pytest.fixture
def member(group: str, bootstrap: str) -> Iterator[GroupMember]:
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    yield member
    member.leave()


def offsets(bootstrap: str, group: str) -> dict[str, Committed]:
    with Cluster(bootstrap) as cluster:
        return {
            f"{topic.removeprefix(group)}{index}": found for (topic, index), found in cluster.committed(group).items()
        }


# -- delete


def test_groups_are_deleted(kohort: Kohort, group: str, bootstrap: str) -> None:
    ran = kohort("groups", "delete", group, f"{group}x", "--yes", code=1)
    deleted, undo = ran.out.splitlines()
    assert deleted == f"deleted group {group}"
    assert undo.startswith(f"to undo: kohort groups restore {group} --before 20")
    assert ran.err == f"kohort: group {group}x does not exist\n"
    assert "delete takes names and no patterns" in kohort("groups", "delete", f"{group}*", "--yes", code=1).err
    assert offsets(bootstrap, group) == {}
    (row,) = json.loads(kohort("groups", "delete", group, "-y", "-o", "json", code=1).out)
    assert row == {"group": group, "deleted": False, "error": f"group {group} does not exist"}


def test_a_group_with_members_is_not_deleted(kohort: Kohort, group: str, bootstrap: str, member: GroupMember) -> None:
    ran = kohort("groups", "delete", group, "--yes", code=1)
    assert ran.err == (f"kohort: group {group} is not empty, it has 1 member: by-hand on 127.0.0.1; stop them first\n")
    assert len(offsets(bootstrap, group)) == 3


@pytest.mark.parametrize("command", ["delete G", "delete-offsets G --topic G"])
def test_deleting_asks(kohort: Kohort, group: str, bootstrap: str, command: str) -> None:
    arguments = command.replace("G", group).split()
    ran = kohort("groups", *arguments, code=2)
    assert ran.err == "kohort: nothing was deleted: this is no terminal to confirm on; add --yes\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.cli.confirmation.sys", Terminal)
        assert kohort("groups", *arguments, stdin="n\n", code=1).err == "kohort: nothing was deleted\n"
        assert len(offsets(bootstrap, group)) == 3
        kohort("groups", *arguments, stdin="y\n")
    assert len(offsets(bootstrap, group)) < 3


# -- delete-offsets


def test_offsets_of_partitions_and_topics_are_deleted(kohort: Kohort, group: str, bootstrap: str) -> None:
    ran = kohort("groups", "delete-offsets", group, "--topic", f"{group}:1", "--topic", f"{group}.b", "--yes")
    deleted, undo = ran.out.splitlines()
    assert deleted == f"deleted 2 offsets of group {group}: {group}[1] {group}.b[0]"
    assert undo.startswith(f"to undo: kohort groups restore {group} --before 20")
    assert offsets(bootstrap, group) == {"0": Committed(3, -1, "mark")}
    document = json.loads(kohort("groups", "delete-offsets", group, "--topic", group, "-y", "-o", "json").out)
    assert document["offsets"] == [{"topic": group, "partition": 0, "deleted": True, "error": None}]


def test_offsets_of_a_deleted_topic_can_be_deleted(kohort: Kohort, group: str, bootstrap: str) -> None:
    ran = kohort("groups", "delete-offsets", group, "--topic", f"{group}.c", "--yes", code=1)
    assert ran.err == (
        f"kohort: group {group} has no committed offset of topic {group}.c; did you mean {group}.b? "
        "nothing was deleted\n"
    )
    ran = kohort("groups", "delete-offsets", group, "--topic", f"{group}:0,5", "--yes", code=1)
    assert f"has no committed offset of {group}[5]; nothing was deleted" in ran.err
    ran = kohort("groups", "delete-offsets", f"{group}x", "--topic", group, "--yes", code=1)
    assert ran.err == f"kohort: group {group}x does not exist; did you mean {group}? nothing was deleted\n"


def test_offsets_that_members_read_stay(kohort: Kohort, group: str, bootstrap: str, member: GroupMember) -> None:
    ran = kohort("groups", "delete-offsets", group, "--topic", group, "--topic", f"{group}.b", "--yes", code=1)
    assert ran.out.startswith(f"deleted 1 offset of group {group}: {group}.b[0]\n")
    assert ran.err == (
        f"kohort: not deleted, because members of group {group} subscribe to the topic; stop them first: {group}[0-1]\n"
    )
    assert set(offsets(bootstrap, group)) == {"0", "1"}


# -- export and import


def test_what_is_exported_is_imported(kohort: Kohort, group: str, bootstrap: str, tmp_path: Path) -> None:
    before = offsets(bootstrap, group)
    file = tmp_path / "offsets.json"
    file.write_text(kohort("groups", "export", group).out)
    kohort("groups", "delete", group, "--yes")
    ran = kohort("groups", "import", str(file))
    assert ran.out.splitlines()[0] == f"group {group}:"
    assert ran.out.splitlines()[-1] == "nothing was changed: this is a dry run; --execute does it"
    assert offsets(bootstrap, group) == {}
    assert kohort("groups", "import", str(file), "--execute", code=2).err.startswith("kohort: nothing was changed")
    ran = kohort("groups", "import", str(file), "--execute", "--yes")
    assert ran.out.splitlines()[-2:] == [
        f"set 3 offsets of group {group}",
        f"{group}[0-1] {group}.b[0] had no offsets before; to undo that: "
        f"kohort groups delete-offsets {group} --topic {group}:0-1 --topic {group}.b:0",
    ]
    assert offsets(bootstrap, group) == before


def test_an_import_is_undone(kohort: Kohort, group: str, bootstrap: str, tmp_path: Path) -> None:
    before = offsets(bootstrap, group)
    file, backup = tmp_path / "offsets.csv", tmp_path / "backup"
    file.write_text(f"{group},{group},0,99\n{group},{group}.gone,0,1\n{group}.new,{group},0,1\n")
    ran = kohort("groups", "import", str(file), "--execute", "--yes", "--backup", str(backup))
    assert f"after the end of the log, so the end: {group}[0]\n" in ran.out
    assert f"left out, because the topic or partition does not exist: {group}.gone[0]\n" in ran.err
    assert f"to undo: kohort groups import {backup} --execute\n" in ran.out
    assert offsets(bootstrap, group)["0"] == Committed(5)
    kohort("groups", "import", str(backup), "--execute", "--yes")
    assert offsets(bootstrap, group) == before


def test_many_offsets_are_several_requests(
    kohort: Kohort, group: str, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, sizes, commit = tmp_path / "offsets.csv", [], Cluster.commit

    def watched(cluster: Cluster, group_id: str, offsets: dict[TopicPartition, int | Committed]) -> None:
        sizes.append(len(offsets))
        commit(cluster, group_id, offsets)

    monkeypatch.setattr("kohort.cli.groups.reset.COMMITTED", 2)
    monkeypatch.setattr(Cluster, "commit", watched)
    file.write_text(f"{group},{group},0,1\n{group},{group},1,2\n{group},{group}.b,0,3\n")
    assert f"set 3 offsets of group {group}\n" in kohort("groups", "import", str(file), "--execute", "--yes").out
    assert sizes == [2, 1]
    assert [found.offset for found in offsets(bootstrap, group).values()] == [1, 2, 3]


def test_an_import_that_fails_half_way_says_so(
    kohort: Kohort, group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group gets its first member after the last look at it."""
    file, backup = tmp_path / "offsets.csv", tmp_path / "backup"
    file.write_text(f"{group},{group},0,1\n{group}.new,{group},0,1\n")
    commit = Cluster.commit

    def joined(cluster: Cluster, group_id: str, offsets: dict[TopicPartition, int | Committed]) -> None:
        if group_id != group:
            raise ServerError(ErrorCode.UNKNOWN_MEMBER_ID, "cannot commit")
        commit(cluster, group_id, offsets)

    monkeypatch.setattr(Cluster, "commit", joined)
    ran = kohort("groups", "import", str(file), "--execute", "--yes", "--backup", str(backup), code=1)
    assert ran.err.startswith(f"kohort: some of the offsets may be set already; the old ones are in {backup}\n")
    assert "cannot commit" in ran.err


def test_exports_of_patterns_and_in_the_format_of_kafkas_tool(kohort: Kohort, group: str, bootstrap: str) -> None:
    assert kohort("groups", "export", group, "-o", "csv").out == f"{group},0,3\n{group},1,4\n{group}.b,0,5\n"
    with Cluster(bootstrap) as cluster:
        cluster.commit(f"{group}.2", {(group, 0): 1})
    ran = kohort("groups", "export", f"{group}*", "nobody", "-o", "csv", code=1)
    assert ran.out.splitlines()[0] == f"{group},{group},0,3"
    assert ran.out.splitlines()[-1] == f"{group}.2,{group},0,1"
    assert ran.err == "kohort: group nobody does not exist\n"
    assert (
        "'jsn' is not one of json, yaml, csv; did you mean json?"
        in kohort("groups", "export", group, "-o", "jsn", code=2).err
    )


def test_imports_that_are_refused(
    kohort: Kohort, group: str, bootstrap: str, member: GroupMember, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"{group}.free,{group},0,1\n{group},{group},0,1\n")
    ran = kohort("groups", "import", str(file), "--execute", "--yes", code=1)
    assert "offsets can only be changed while group" in ran.err.splitlines()[0]
    assert ran.err.splitlines()[1] == "kohort: nothing was changed"
    assert offsets(bootstrap, f"{group}.free") == {}
    file.write_text(f"{group},0,1\n")
    ran = kohort("groups", "import", str(file), code=2)
    assert f"use kohort groups reset-offsets GROUP --from-file {file}" in ran.err
    file.write_text('[{"group": "free", "offsets": []}]')
    assert f"{file} has no offsets" in kohort("groups", "import", str(file), code=2).err
    file.write_text("free,no.such.topic,0,1\n")
    assert f"no topic of {file} exists; nothing was changed" in kohort("groups", "import", str(file), code=1).err
