"""`kohort topics alter` and `delete-records` against a server."""

from __future__ import annotations

import json

import pytest
from run_command import Kohort, Terminal

from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord

START_MS = 1_700_000_000_000


@pytest.fixture
def topic(bootstrap: str, unique: str) -> str:
    """Two partitions with 10 and 4 records, one a second."""
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(unique, 2, configs={"retention.ms": "-1"})
        for index, count in ((0, 10), (1, 4)):
            for n in range(count):
                cluster.produce(unique, index, [NewRecord(None, b"v", START_MS + 1000 * n)])
    return unique


def starts(bootstrap: str, topic: str) -> list[int]:
    with Cluster(bootstrap) as cluster:
        return list(cluster.offsets([(topic, 0), (topic, 1)], "earliest").values())


def described(kohort: Kohort, topic: str) -> tuple[int, dict[str, str]]:
    (found,) = json.loads(kohort("topics", "describe", topic, "-o", "json").out)
    return len(found["partitions"]), found["configs"]


def test_settings_and_partitions_are_changed(kohort: Kohort, topic: str) -> None:
    arguments = ("--partitions", "4", "--config", "cleanup.policy=compact", "--delete-config", "retention.ms")
    ran = kohort("topics", "alter", topic, *arguments, "--yes")
    assert ran.out.splitlines() == [
        f"{topic}: cleanup.policy: delete → compact",
        f"{topic}: retention.ms: -1 → the default",
        f"{topic}: 2 partitions → 4",
    ]
    assert described(kohort, topic) == (4, {"cleanup.policy": "compact"})
    document = json.loads(kohort("topics", "alter", topic, "--config", "retention.ms=7", "-o", "json").out)
    assert document["partitions"] == {"old": 4, "new": 4}
    assert document["configs"]["retention.ms"] == {"old": "604800000", "new": "7"}


def test_settings_that_are_so_already(kohort: Kohort, topic: str) -> None:
    arguments = ("--config", "retention.ms=-1", "--delete-config", "cleanup.policy")
    assert kohort("topics", "alter", topic, *arguments).out.splitlines() == [
        f"{topic}: retention.ms: -1 already",
        f"{topic}: cleanup.policy: delete, the default already",
    ]
    assert kohort("topics", "alter", topic, "--config", "cleanup.policy=delete").out.endswith("delete → delete\n")


def test_new_partitions_need_a_confirmation(kohort: Kohort, topic: str) -> None:
    ran = kohort("topics", "alter", topic, "--partitions", "3", "--config", "retention.ms=7", code=2)
    assert ran.err == "kohort: nothing was changed: this is no terminal to confirm on; add --yes\n"
    assert described(kohort, topic) == (2, {"retention.ms": "-1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.cli.confirmation.sys", Terminal)
        ran = kohort("topics", "alter", topic, "--partitions", "3", stdin="y\n")
    assert f"Give topic {topic} 3 partitions instead of 2?" in ran.out
    assert described(kohort, topic)[0] == 3


def test_changes_that_are_refused(kohort: Kohort, topic: str) -> None:
    ran = kohort("topics", "alter", topic, "--partitions", "2", "-y", code=1)
    assert ran.err == f"kohort: topic {topic} has 2 partitions, and can only get more; nothing was changed\n"
    ran = kohort("topics", "alter", topic, "--config", "retention.mss=1", "--config", "cleanup.policy=compact", code=1)
    assert ran.err.endswith("; did you mean retention.ms? nothing was changed\n")
    assert described(kohort, topic) == (2, {"retention.ms": "-1"})
    ran = kohort("topics", "alter", topic, "--config", "retention.ms=soon", code=1)
    assert "INVALID_CONFIG" in ran.err
    assert ran.err.endswith("; nothing was changed\n")
    assert "does not exist" in kohort("topics", "alter", f"{topic}x", "--config", "retention.ms=1", code=1).err
    assert "nothing to change" in kohort("topics", "alter", topic, code=2).err
    both = ("--config", "retention.ms=1", "--delete-config", "retention.ms")
    assert "retention.ms is in --config, too" in kohort("topics", "alter", topic, *both, code=2).err


def test_records_before_an_offset_are_deleted(kohort: Kohort, topic: str, bootstrap: str) -> None:
    ran = kohort("topics", "delete-records", f"{topic}:0", "--before", "6", code=2)
    assert ran.err == "kohort: nothing was deleted: this is no terminal to confirm on; add --yes\n"
    heading, row = ran.out.splitlines()
    assert heading.split() == ["TOPIC", "PARTITION", "START", "END", "NEW-START", "DELETED"]
    assert row.split() == [topic, "0", "0", "10", "6", "6"]
    assert starts(bootstrap, topic) == [0, 0]
    ran = kohort("topics", "delete-records", f"{topic}:0", "--before", "6", "--yes")
    assert ran.out.splitlines()[-1] == f"deleted the records before the new starts: {topic}[0]"
    assert starts(bootstrap, topic) == [6, 0]
    _, row, end = kohort("topics", "delete-records", f"{topic}:0", "--before", "3").out.splitlines()
    assert row.split()[2:] == ["6", "10", "6", "0"]
    assert end == "nothing was deleted"
    rows = json.loads(kohort("topics", "delete-records", topic, "--before", "end", "-y", "-o", "json").out)
    assert rows == [
        {"topic": topic, "partition": 0, "old_start": 6, "new_start": 10},
        {"topic": topic, "partition": 1, "old_start": 0, "new_start": 4},
    ]
    assert starts(bootstrap, topic) == [10, 4]


def test_records_before_a_time_are_deleted(kohort: Kohort, topic: str, bootstrap: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.cli.confirmation.sys", Terminal)
        arguments = ("topics", "delete-records", topic, "--before-time", "2023-11-14T22:13:25Z")
        assert "nothing was deleted" in kohort(*arguments, stdin="n\n", code=1).err
        assert starts(bootstrap, topic) == [0, 0]
        ran = kohort(*arguments, stdin="y\n")
    assert f"Delete 9 records (at most) of {topic}[0-1]? They cannot be restored." in ran.out
    assert f"no record at or after that time, so the end of the log: {topic}[1]\n" in ran.out
    assert starts(bootstrap, topic) == [5, 4]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        ("T --before 7 -y", 1, "offset 7 is after the end of the log: T-1 ends at 4; nothing was deleted"),
        ("T:9 --before 1 -y", 1, "topic T has no partition 9; it has 2 partitions"),
        ("Tx --before 1 -y", 1, "topic Tx does not exist; did you mean T?"),
        ("T -y", 2, "choose one of --before and --before-time"),
        ("T --before 1 --before-time 2023-01-01 -y", 2, "choose one of --before and --before-time"),
        ("T --before soon -y", 2, "'soon' is no offset and not 'end'"),
        ("T --before-time soon -y", 2, "'soon' is no time"),
        ("T --before-time 9026-11-21T12:00Z -y", 2, "is in the future; to delete all records: --before end"),
        ("T: --before 1 -y", 2, "is not TOPIC or TOPIC:0,2-5"),
    ],
)
def test_deletions_that_are_refused(
    kohort: Kohort, topic: str, bootstrap: str, arguments: str, code: int, why: str
) -> None:
    ran = kohort("topics", "delete-records", *arguments.replace("T", topic, 1).split(), code=code)
    assert why.replace("TOPIC", "_").replace("T", topic).replace("_", "TOPIC") in ran.err
    assert starts(bootstrap, topic) == [0, 0]
