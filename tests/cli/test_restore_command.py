"""`kohort groups restore` against a server: what was reset, deleted or expired comes back."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from group_member import GroupMember
from run_command import Kohort

from kohort.cli.groups.restore import offsets_before
from kohort.cli.groups.timeline import story_lines
from kohort.cli.groups.wording import Names, utc
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord


@pytest.fixture
def group(bootstrap: str, unique: str) -> str:
    """A group with offsets in two of the three partitions of a topic, with ten records each."""
    with Cluster(bootstrap, client_id="app") as cluster:
        cluster.create_topic(unique, 3)
        for index in range(3):
            cluster.produce(unique, index, [NewRecord(None, b"v", 1)] * 10)
        cluster.commit(unique, {(unique, 0): Committed(7, -1, "mark"), (unique, 1): 4})
    return unique


def offsets(bootstrap: str, group: str) -> dict[int, int]:
    with Cluster(bootstrap) as cluster:
        return {index: found.offset for (_, index), found in cluster.committed(group).items()}


def undo_in(text: str) -> list[str]:
    """The arguments of the command that the output names."""
    [command] = re.findall(r"^(?:to undo|or): kohort (groups restore .*)$", text, re.MULTILINE)
    return shlex.split(command)


def after_all_changes(bootstrap: str, group: str) -> str:
    """A moment, by the server's clock, after the newest story of the group."""
    with Cluster(bootstrap) as cluster:
        while (explanation := cluster.explain_group(group)).now_ms <= explanation.stories[-1]["started_ms"]:
            pass
    return utc(explanation.now_ms)


def moves(text: str) -> list[list[str]]:
    return [line.split()[1:] for line in text.splitlines()[1:] if re.match(r"\S+ +\d+ +[\d-]+ +\d+ ", line)]


def test_a_reset_is_undone_by_the_command_that_it_names(kohort: Kohort, group: str, bootstrap: str) -> None:
    done = kohort("groups", "reset-offsets", group, "--to-earliest", "--topic", f"{group}:0-1", "--execute", "--yes")
    undo = undo_in(done.out)
    dry = kohort(*undo)
    assert dry.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "OLD", "NEW", "DIFFERENCE"]
    assert moves(dry.out) == [["0", "0", "7", "+7"], ["1", "0", "4", "+4"]]
    assert "on 127.0.0.1 set 2 committed offsets without being a member" in dry.out
    assert dry.out.endswith("nothing was changed: this is a dry run; --execute does it\n")
    assert offsets(bootstrap, group) == {0: 0, 1: 0}
    back = kohort(*undo, "--execute", "--yes")
    assert f"set 2 offsets of group {group}\n" in back.out
    assert offsets(bootstrap, group) == {0: 7, 1: 4}
    assert kohort(*undo, code=1).err.startswith("kohort: the committed offsets are those from before")
    kohort(*undo_in(back.out), "--execute", "--yes")
    assert offsets(bootstrap, group) == {0: 0, 1: 0}, "the restoration is undone"


def test_a_deleted_group_comes_back(kohort: Kohort, group: str, bootstrap: str) -> None:
    undo = undo_in(kohort("groups", "delete", group, "--yes").out)
    assert kohort("groups", "describe", group, code=1).err.endswith(f"its history: kohort groups explain {group}\n")
    assert moves(kohort(*undo).out) == [["0", "-", "7", "-"], ["1", "-", "4", "-"]]
    kohort(*undo, "--execute", "--yes")
    assert offsets(bootstrap, group) == {0: 7, 1: 4}


def test_only_some_partitions(kohort: Kohort, group: str, bootstrap: str) -> None:
    undo = undo_in(kohort("groups", "delete-offsets", group, "--topic", group, "--yes").out)
    document = json.loads(kohort(*undo, "--topic", f"{group}:1", "--execute", "--yes", "-o", "json").out)
    assert document["offsets"] == [
        {"topic": group, "partition": 1, "old": None, "new": 4, "difference": None, "note": None}
    ]
    assert (document["executed"], len(document["undoes"])) == (True, 1)
    assert offsets(bootstrap, group) == {1: 4}


def test_offsets_that_were_not_there_before_are_named(kohort: Kohort, group: str, bootstrap: str) -> None:
    done = kohort("groups", "reset-offsets", group, "--to-latest", "--topic", group, "--execute", "--yes")
    out = kohort(*undo_in(done.out), "--execute", "--yes").out
    command = f"kohort groups delete-offsets {group} --topic {group}:2"
    assert f"{group}[2] had no offset before; to delete it: {command}\n" in out
    assert offsets(bootstrap, group) == {0: 7, 1: 4, 2: 10}


def test_a_backup_goes_first_in_a_reset(kohort: Kohort, group: str, tmp_path: Any) -> None:
    backup = str(tmp_path / "old.json")
    command = ("--to-earliest", "--topic", f"{group}:0", "--execute", "--yes", "--backup", backup)
    out = kohort("groups", "reset-offsets", group, *command).out
    assert f"to undo: kohort groups import {backup} --execute\nor: kohort groups restore {group} --before 2" in out


def test_refusals(kohort: Kohort, group: str, bootstrap: str) -> None:
    which = kohort("groups", "restore", group, code=2)
    assert f"since then: kohort groups restore {group} --before 2" in which.out
    assert "which changes? The list has the command that undoes each" in which.err
    moment = after_all_changes(bootstrap, group)
    unchanged = kohort("groups", "restore", group, "--before", moment, code=1).err
    assert f"group {group} was changed from outside" in unchanged
    future = kohort("groups", "restore", group, "--before", "2999-01-01T00:00Z", code=2).err
    assert "2999-01-01 00:00:00+00:00 is in the future" in future
    assert "is no time" in kohort("groups", "restore", group, "--before", "yesterday", code=2).err
    nothing = kohort("groups", "restore", f"{group}x", "--before", moment, code=1).err
    assert nothing == f"kohort: group {group}x does not exist; did you mean {group}? the journal has nothing of it\n"
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    try:
        refused = kohort("groups", "restore", group, "--before", "2020-01-01", code=1).err
    finally:
        member.leave()
    assert "offsets can only be changed while group" in refused


def test_the_journal_does_not_reach_back(unique: str, kohort: Kohort) -> None:
    with KohortServer(journal_max_stories_per_group=2) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic(unique, 1)
        for n in range(4):
            cluster.commit(unique, {(unique, 0): n})
            cluster.delete_offsets(unique, [(unique, 0)])
        command = ("groups", "restore", unique, "-b", server.bootstrap_servers, "--before")
        err = kohort(*command, "2020-01-01T00:00Z", code=1).err
        assert f"the journal of group {unique} reaches back to " in err
        assert "and not to 2020-01-01 00:00:00+00:00" in err
        [oldest, _] = cluster.explain_group(unique).stories
        assert oldest["number"] > 1
        err = kohort(*command, utc(oldest["started_ms"]), code=1).err
        assert "the committed offsets are those from before" in err


def test_a_server_without_a_journal(unique: str, kohort: Kohort) -> None:
    with KohortServer(compatibility="kafka") as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic(unique, 1)
        cluster.commit(unique, {(unique, 0): 0})
        where = ("-b", server.bootstrap_servers)
        err = kohort("groups", "restore", unique, "--before", "2020-01-01", *where, code=1).err
        assert "shows no journal of its groups" in err
        assert err.endswith("; nothing was changed\n")
        to_latest = ("--to-latest", "--all-topics", "--execute", "--yes")
        assert "restore" not in kohort("groups", "reset-offsets", unique, *to_latest, *where).out


def test_explain_tells_what_was_changed(kohort: Kohort, group: str) -> None:
    kohort("groups", "delete-offsets", group, "--topic", f"{group}:0", "--yes")
    out = kohort("groups", "explain", group).out
    assert "app on 127.0.0.1 set 2 committed offsets without being a member" in out
    assert f"{group}[0]: none → 7" in out
    assert "on 127.0.0.1 deleted 1 committed offset\n" in out
    assert f"{group}[0]: 7 → none" in out


def test_the_first_change_counts() -> None:
    first = {"number": 1, "started_ms": 1, "changed": {"t": [[0, 10, 5], [1, -1, 5]]}}
    second = {"number": 2, "started_ms": 2, "changed": {"t": [[0, 5, 0], [2, 3, -1]]}}
    assert offsets_before([first, second]) == {("t", 0): 10, ("t", 1): -1, ("t", 2): 3}


@pytest.mark.parametrize(
    ("cause", "goes_on", "expected"),
    [
        (
            {"what": "offsets deleted", "cause": "1 of them; past their retention"},
            False,
            "7 committed offsets were deleted: past their retention",
        ),
        (
            {"what": "offsets changed", "client_id": "spark", "host": "/10.0.0.1"},
            True,
            "spark on 10.0.0.1 set 7 committed offsets without being a member, and committed again and again",
        ),
        (
            {"what": "offsets deleted", "client_id": "tool", "host": "/10.0.0.1", "principal": "User:alice"},
            False,
            "tool on 10.0.0.1 (user alice) deleted 7 committed offsets",
        ),
    ],
)
def test_words(cause: dict[str, str], goes_on: bool, expected: str) -> None:
    rows = [[index, 5, -1] for index in range(7)]
    story = {"group": "g", "number": 3, "started_ms": 0, "outcome": "noted", "cause": cause, "changed": {"t": rows}}
    headline, *lines = (line.text for line in story_lines(story | {"goes_on": goes_on}, Names([])))
    assert headline.endswith(expected)
    assert lines[:2] == ["t[0]: 5 → none", "t[1]: 5 → none"]
    assert lines[5] == "and 2 more, with -o json"
    assert lines[6].endswith("kohort groups restore g --before 1970-01-01T00:00:00.000Z")
