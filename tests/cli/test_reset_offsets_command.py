"""`kohort groups reset-offsets` against a server."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from group_member import GroupMember
from run_command import Kohort, Ran, Terminal

from kohort.cli.groups.lookup import refusal
from kohort.cli.groups.reset import Destination, places_to_reset
from kohort.cli.option_objects import Failed
from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed, GroupDescription
from kohort.client.cluster import Cluster
from kohort.client.metadata import Partition, Topic
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode

EPOCH_MS = 1_700_000_000_000
"""The timestamp of the first record of a partition; each further one is a second later."""


@pytest.fixture
def group(bootstrap: str, unique: str) -> str:
    """Two partitions with 10 and 5 records, the first two of which are deleted in partition 0; an offset in it."""
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(unique, 2)
        for index, count in ((0, 10), (1, 5)):
            cluster.produce(
                unique,
                index,
                [NewRecord(b"key\x1b[31m", b"value %d" % n, EPOCH_MS + 1000 * n) for n in range(count)],
            )
        cluster.delete_records({(unique, 0): 2})
        cluster.commit(unique, {(unique, 0): Committed(7, -1, "mark")})
    return unique


@pytest.fixture
def reset(kohort: Kohort, group: str) -> Any:
    """Run the command for the group."""

    def run(*arguments: str, code: int = 0) -> Ran:
        return kohort("groups", "reset-offsets", group, *arguments, code=code)

    return run


def offsets(bootstrap: str, group: str) -> dict[int, Committed]:
    with Cluster(bootstrap) as cluster:
        return {index: committed for (_, index), committed in cluster.committed(group).items()}


@contextmanager
def answering(answer: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.cli.confirmation.sys", Terminal)
        patch.setattr("typer.confirm", lambda *_, **__: answer == "y")
        yield


def moves(text: str) -> list[list[str]]:
    return [line.split()[1:] for line in text.splitlines()[1:] if line.startswith("t")]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--to-earliest", "--topic", "T"), [["0", "7", "2", "-5"], ["1", "-", "0", "-"]]),
        (("--to-latest", "--topic", "T:1"), [["1", "-", "5", "-"]]),
        (("--to-latest", "--all-topics"), [["0", "7", "10", "+3"]]),
        (("--to-offset", "1", "--topic", "T"), [["0", "7", "2", "-5"], ["1", "-", "1", "-"]]),
        (("--to-offset", "8", "--topic", "T:0-1"), [["0", "7", "8", "+1"], ["1", "-", "5", "-"]]),
        (("--shift-by", "-100", "--all-topics"), [["0", "7", "2", "-5"]]),
        (("--to-current", "--topic", "T"), [["0", "7", "7", "0"], ["1", "-", "5", "-"]]),
        (("--to-datetime", "2023-11-14T22:13:24.500Z", "--topic", "T"), [["0", "7", "5", "-2"], ["1", "-", "5", "-"]]),
        (("--by-duration", "1h", "--topic", "T:0"), [["0", "7", "10", "+3"]]),
    ],
)
def test_a_dry_run_shows_each_destination(
    reset: Any, group: str, bootstrap: str, arguments: tuple[str, ...], expected: list[list[str]]
) -> None:
    ran = reset(*(word.replace("T", group, 1) if word.startswith("T") else word for word in arguments))
    assert ran.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "OLD", "NEW", "DIFFERENCE"]
    assert moves(ran.out) == expected
    assert ran.out.splitlines()[-1] == "nothing was changed: this is a dry run; --execute does it"
    assert offsets(bootstrap, group) == {0: Committed(7, -1, "mark")}


def test_what_is_clamped_is_said(reset: Any, group: str) -> None:
    lines = reset("--to-offset", "1", "--topic", group).out.splitlines()
    assert f"before the start of the log, so the start: {group}[0]" in lines
    lines = reset("--to-offset", "99", "--topic", group).out.splitlines()
    assert f"after the end of the log, so the end: {group}[0-1]" in lines
    lines = reset("--to-datetime", "2033-01-01T00:00:00+02:00", "--topic", group).out.splitlines()
    assert f"no record at or after that time, so the end of the log: {group}[0-1]" in lines
    assert "new offsets: the first records at or after 2033-01-01 00:00:00+02:00" in lines


def test_a_time_without_a_zone_is_local(reset: Any, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-3")
    time.tzset()
    try:
        ran = reset("--to-datetime", "2023-11-15T01:13:25", "--topic", f"{group}:0")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert moves(ran.out) == [["0", "7", "5", "-2"]]
    assert "at or after 2023-11-15 01:13:25+03:00 (local time, because it has no zone)" in ran.out


def test_it_is_done_and_undone(reset: Any, kohort: Kohort, group: str, bootstrap: str, tmp_path: Path) -> None:
    backup = tmp_path / "old offsets.json"
    ran = reset("--to-earliest", "--topic", group, "--execute", "--yes", "--backup", str(backup))
    assert offsets(bootstrap, group) == {0: Committed(2), 1: Committed(0)}
    done, undo, other, new = ran.out.splitlines()[-4:]
    assert done == f"set 2 offsets of group {group}"
    assert undo == f"to undo: kohort groups import '{backup}' --execute"
    assert other.startswith(f"or: kohort groups restore {group} --before 20")
    assert (
        new == f"{group}[1] had no offset before; to undo that: kohort groups delete-offsets {group} --topic {group}:1"
    )
    assert "exists; name a new file" in reset("--to-latest", "--all-topics", "--backup", str(backup), code=2).err
    kohort(*shlex.split(undo)[3:], "--yes")
    assert offsets(bootstrap, group) == {0: Committed(7, -1, "mark"), 1: Committed(0)}


def test_it_asks_on_a_terminal_and_nowhere_else(reset: Any, group: str, bootstrap: str, tmp_path: Path) -> None:
    ran = reset("--to-latest", "--all-topics", "--execute", code=2)
    assert "nothing was changed: this is no terminal to confirm on; add --yes" in ran.err
    with answering("n"):
        backup = tmp_path / "backup"
        assert (
            "nothing was changed"
            in reset("--to-latest", "--all-topics", "--execute", "--backup", str(backup), code=1).err
        )
    assert not backup.exists()
    assert offsets(bootstrap, group)[0].offset == 7
    with answering("y"):
        reset("--to-latest", "--all-topics", "--execute")
    assert offsets(bootstrap, group)[0].offset == 10


def test_the_question_is_not_in_the_document(reset: Any, kohort: Kohort, group: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.cli.confirmation.sys", Terminal)
        arguments = ("--to-latest", "--all-topics", "--execute", "-o", "json")
        ran = kohort("groups", "reset-offsets", group, *arguments, stdin="y\n")
    assert json.loads(ran.out.removeprefix(" y\n"))["executed"] is True  # the runner echoes the answer
    assert ran.err.startswith(f"Set 1 offset of group {group}? [y/N]:")


def test_offsets_that_change_during_the_question_stay(
    reset: Any, group: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object, **__: object) -> bool:
        with Cluster(bootstrap) as cluster:
            cluster.commit(group, {(group, 0): 8})
        return True

    monkeypatch.setattr("kohort.cli.confirmation.sys", Terminal)
    monkeypatch.setattr("typer.confirm", meanwhile)
    ran = reset("--to-latest", "--all-topics", "--execute", code=1)
    assert ran.err == f"kohort: the committed offsets of group {group} have changed meanwhile; nothing was changed\n"
    assert offsets(bootstrap, group)[0].offset == 8


def test_a_preview_has_the_first_records_without_control_characters(reset: Any, group: str) -> None:
    lines = reset("--to-offset", "4", "--topic", group, "--preview").out.splitlines()
    assert lines[3] == "first record at each new offset:"
    assert lines[4].startswith(f"  {group}-0: 4 at 2023-11-1")
    assert lines[4].endswith("key key�[31m: value 4")
    assert reset("--to-latest", "--all-topics", "--preview").out.splitlines()[3] == f"  {group}-0: none yet"


def test_a_spark_query_that_commits_to_the_group_is_named(reset: Any, group: str, bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        cluster.commit(group, {(group, 0): Committed(7, -1, GroupReader("0f00", "lake").metadata())})
    lines = reset("--to-latest", "--all-topics").out.splitlines()
    assert lines[2] == "committed by Spark query lake (0f00), which commits over a reset while it runs"


def test_json(reset: Any, group: str) -> None:
    document = json.loads(reset("--to-offset", "1", "--topic", group, "--preview", "-o", "json").out)
    assert (document["group"], document["executed"], document["left_out"]) == (group, False, [])
    first, second = document["offsets"]
    assert (first["old"], first["new"], first["difference"]) == (7, 2, -5)
    assert first["note"] == "before the start of the log, so the start"
    assert first["first_record"] == {
        "offset": 2, "timestamp": EPOCH_MS + 2000, "key": "key�[31m", "value": "value 2"
    }  # fmt: skip
    assert (second["old"], second["difference"], second["note"]) == (None, None, None)
    executed = json.loads(reset("--to-latest", "--all-topics", "--execute", "-y", "-o", "json").out)
    assert executed["executed"] is True


def test_from_the_csv_of_kafkas_tool_and_from_another_group(
    reset: Any, kohort: Kohort, group: str, bootstrap: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f'"{group}",0,4\n{group},1,77\n')
    assert moves(reset("--from-file", str(file)).out) == [["0", "7", "4", "-3"], ["1", "-", "5", "-"]]
    assert moves(reset("--from-file", str(file), "--topic", f"{group}:0").out) == [["0", "7", "4", "-3"]]
    file.write_text(f"other,{group},0,4\n{group},{group},0,5\n")
    assert moves(reset("--from-file", str(file)).out) == [["0", "7", "5", "-2"]]
    other = f"{group}.other"
    with Cluster(bootstrap) as cluster:
        cluster.commit(other, {(group, 1): 3, (group, 0): Committed(9, 2, "mark")})
    reset("--to-group", other, "--execute", "--yes")
    assert offsets(bootstrap, group) == {0: Committed(9), 1: Committed(3)}
    ran = reset("--to-group", f"{group}.othr", code=1)
    assert ran.err == f"kohort: group {group}.othr does not exist; did you mean {other}? nothing was changed\n"


class Remaining:
    """A cluster whose topic "gone" is deleted, while the offsets in it remain."""

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        there = Topic("there", (Partition("there", 0, 1, 0, (1,), (1,)),))
        gone = Topic("gone", (), error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {name: there if name == "there" else gone for name in names}


def test_offsets_of_deleted_topics_are_left_out() -> None:
    cluster: Any = Remaining()
    old = {("gone", 0): Committed(1), ("there", 0): Committed(2), ("there", 5): Committed(3)}
    found = places_to_reset(cluster, "billing", Destination(to_latest=True), {}, old, None)
    assert found == ([("there", 0)], [("gone", 0), ("there", 5)])
    with pytest.raises(Failed) as failed:
        places_to_reset(cluster, "billing", Destination(to_group="x"), {}, {}, {("gone", 0): Committed(1)})
    assert "no partition exists any more of those where group x has committed offsets" in failed.value.message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no offsets"),
        ("T,0", "line 1 is not topic,partition,offset"),
        ("T,0,-1", "line 1 is not topic,partition,offset"),
        ("T,0,1\nT,0,2", "is there twice"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("T,0," + "0" * 140_000, "field larger than"),
        ('[{"group": "\\ud800", "offsets": []}]', "has no UTF-8 form"),
        ('[{"group": "T"}]', "entry 0 is not"),
        ('[{"group": "T", "offsets": [{"topic": "T", "partition": 0}]}]', "offset 0 of group T has no valid topic"),
        ('[{"group": "T", "offsets": [{"topic": "T", "partition": 0, "offset": true}]}]', "no valid topic"),
        ('[{"group": "other", "offsets": []}]', "it has those of other"),
    ],
)
def test_bad_files_are_wrong_usage(reset: Any, tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    ran = reset("--from-file", str(file), code=2)
    assert why in ran.err
    assert ran.err.count("\n") == 1


def test_a_group_with_members_is_refused(reset: Any, group: str, bootstrap: str) -> None:
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    try:
        ran = reset("--to-earliest", "--all-topics", "--execute", "--yes", code=1)
    finally:
        member.leave()
    assert ran.err == (
        f"kohort: offsets can only be changed while group {group} is inactive, and it is Stable with 1 member: "
        "by-hand on 127.0.0.1; stop them first; nothing was changed\n"
    )
    assert offsets(bootstrap, group)[0].offset == 7


@pytest.mark.parametrize(
    ("protocol_type", "type", "of"),
    [("connect", "classic", "protocol type connect"), ("share", "share", "share"), ("streams", "streams", "streams")],
)
def test_a_group_of_another_kind_is_refused(protocol_type: str, type: str, of: str) -> None:
    group = GroupDescription("workers", "Empty", protocol_type, "", (), 0, type)
    assert refusal(group) == f"group workers is no consumer group: it is of {of}"


def test_a_new_group(kohort: Kohort, group: str, bootstrap: str) -> None:
    new = f"{group}.new"
    command = ("groups", "reset-offsets", new, "--new")
    planned = kohort(*command, "--to-latest", "--topic", group)
    assert moves(planned.out) == [["0", "-", "10", "-"], ["1", "-", "5", "-"]]
    assert offsets(bootstrap, new) == {}
    kohort(*command, "--to-group", group, "--execute", "--yes")
    assert offsets(bootstrap, new) == {0: Committed(7)}
    ran = kohort("groups", "reset-offsets", f"{new}er", "--new", "--to-latest", "--all-topics", code=1)
    assert f"group {new}er has no committed offsets; nothing was changed" in ran.err


def test_what_does_not_exist_is_refused(reset: Any, kohort: Kohort, group: str, bootstrap: str) -> None:
    ran = kohort("groups", "reset-offsets", f"{group}x", "--to-latest", "--all-topics", code=1)
    assert ran.err == f"kohort: group {group}x does not exist; did you mean {group}? nothing was changed\n"
    assert f"topic {group} has no partition 7" in reset("--to-latest", "--topic", f"{group}:7", code=1).err
    assert (
        f"topic {group}x does not exist; did you mean {group}?"
        in reset("--to-latest", "--topic", f"{group}x", code=1).err
    )
    ran = reset("--shift-by", "1", "--topic", group, code=1)
    assert ran.err == f"kohort: there is no committed offset to shift: {group}[1]; nothing was changed\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--topic T", "none is given"),
        ("--to-latest --to-current --topic T", "--to-latest and --to-current are given"),
        ("--to-offset 0 --shift-by 0 --topic T", "--to-offset and --shift-by are given"),
        ("--to-latest", "which partitions?"),
        ("--to-latest --topic T --all-topics", "choose one of --topic and --all-topics"),
        ("--to-latest --topic T:x", "'T:x' is not TOPIC or TOPIC:0,2-5"),
        ("--to-latest --topic T:3-1", "'T:3-1' is not TOPIC or TOPIC:0,2-5"),
        ("--to-latest --topic T:0-999999999", "'T:0-999999999' is not TOPIC or TOPIC:0,2-5"),
        ("--to-offset -1 --topic T", "--to-offset"),
        ("--to-datetime noon --topic T", "'noon' is no time"),
        ("--by-duration 2 --topic T", "'2' is not a duration; write 30s, 5m, 1h30m or 2d"),
    ],
)
def test_wrong_usage(kohort: Kohort, arguments: str, why: str) -> None:
    ran = kohort("groups", "reset-offsets", "G", *arguments.split(), code=2)
    assert why in ran.err
