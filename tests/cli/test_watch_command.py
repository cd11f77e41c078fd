"""`kohort groups watch` against a server: as a table, JSON, lines, on a terminal, in an outage; its requests."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from consumer_member import ConsumerMember
from group_member import GroupMember
from run_command import Kohort

from kohort.cli.groups.lookup import selected
from kohort.cli.groups.watch.app import Watched, document_of
from kohort.cli.groups.watch.sampling import Sampler
from kohort.cli.groups.watch.screen import pictured
from kohort.client.admin.survey import Survey, Surveyor
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.wire.routing import GROUPS
from kohort.testing import KohortServer

Start = Callable[..., "subprocess.Popen[bytes]"]
QUICK = ("--interval", "100ms")


@pytest.fixture
def group(cluster: Cluster, written: str) -> str:
    """A group that has read 3 of 5 records in one partition and none in the other."""
    cluster.commit(written, {(written, 0): 3, (written, 1): 0})
    return written


def test_one_group_once(kohort: Kohort, group: str) -> None:
    lines = kohort("groups", "watch", group, "--once", *QUICK).out.splitlines()
    head = lines[0].split("  ")
    assert head[1:5] == [group, "Empty", "0 members", "lag 7"]
    assert re.fullmatch(r"lag time \d+d\d+h", head[5]), "the records say that they are old"
    assert head[6:] == ["in 0/s", "out 0/s", "catch up -"]
    assert lines[1].split()[:5] == ["PARTITION", "COMMITTED", "END", "LAG", "LAG-TIME"]
    assert [line.split()[:4] for line in lines[2:]] == [[f"{group}-1", "0", "5", "5"], [f"{group}-0", "3", "5", "2"]]


def test_groups_of_a_pattern_as_json(kohort: Kohort, cluster: Cluster, group: str) -> None:
    cluster.commit(f"{group}.b", {(group, 0): 5})
    line, *more = kohort("groups", "watch", f"{group}*", "--once", *QUICK, "-o", "json").out.splitlines()
    assert not more
    document = json.loads(line)
    assert [one["group"] for one in document["groups"]] == [group, f"{group}.b"]
    first, second = document["groups"]
    assert (first["lag"], first["rate_in"], first["rate_out"], first["members"]) == (7, 0.0, 0.0, 0)
    assert (second["lag"], second["catches_up"], second["catch_up_s"]) == (0, True, 0.0)
    assert (first["lag_ms"] > 0, first["lag_ms_is_estimated"], second["lag_ms"]) == (True, False, 0)
    assert (document["error"], document["has_journal"], document["changes"]) == (None, True, [])
    assert "offsets" not in first
    table = kohort("groups", "watch", f"{group}*", "--once", *QUICK).out.splitlines()
    assert table[1].split()[:2] == ["GROUP", "LAG"]
    assert [line.split()[:2] for line in table[2:]] == [[group, "7"], [f"{group}.b", "0"]]


def test_what_it_refuses(kohort: Kohort, group: str) -> None:
    ran = kohort("groups", "watch", f"{group}x", "--once", code=1)
    assert ran.err == f"kohort: group {group}x does not exist; did you mean {group}?\n"
    assert kohort("groups", "watch", "no-*", code=1).err == "kohort: no group matches no-*\n"
    assert "--interval" in kohort("groups", "watch", "--interval", "1ms", code=2).err
    assert "'yaml' is not one of table, json" in kohort("groups", "watch", "-o", "yaml", code=2).err


def test_rebalances_are_told_as_they_happen(start: Start, bootstrap: str, group: str) -> None:
    process = start("groups", "watch", group, *QUICK, "-o", "json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert first["groups"][0]["rate_in"] is None
    member = GroupMember(bootstrap, group, {group: (0, 1)})
    texts: list[str] = []
    while not any("stable after" in text for text in texts):
        document = json.loads(process.stdout.readline())
        texts += [change["text"] for change in document["changes"] if change["group"] == group]
    assert texts[-1].startswith("by-hand on 127.0.0.1 joined; stable after ")
    [row] = document["groups"]
    assert (row["state"], row["members"], row["assignor"]) == ("Stable", 1, "range")
    assert {part["owner"] for part in row["offsets"]} == {"by-hand on 127.0.0.1"}
    member.leave()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_lines_have_no_escape_codes(start: Start, group: str) -> None:
    process = start("groups", "watch", f"{group}*", *QUICK)
    assert process.stdout is not None
    told = b""
    while told.count(b"PARTITION") < 2:
        line = process.stdout.readline()
        assert line
        told += line
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert b"\x1b" not in told


def test_on_a_terminal(bootstrap: str, group: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    # Without the width that pytest gives its workers.
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", "from kohort.cli.main import main; main()", "groups", "watch", group, "-b", bootstrap],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
    )
    os.close(theirs)
    try:
        told = b""
        while b"Ctrl-C ends" not in told:
            told += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        while chunk := _read(ours):
            told += chunk
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert told.startswith(b"\x1b[?1049h")
    last_picture = told.split(b"\x1b[?1049l")[-1]
    assert group.encode() in last_picture
    assert b"Ctrl-C ends" not in last_picture
    assert told.rindex(b"\x1b[?25h") > told.rindex(b"\x1b[?25l")  # the cursor is shown again


def _read(descriptor: int) -> bytes:
    """Empty once the process has closed the terminal."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def test_an_outage_is_shown_and_the_watch_goes_on() -> None:
    with KohortServer() as server:
        server.create_topic("orders", 1)
        with Cluster(server.bootstrap_servers) as cluster:
            cluster.commit("billing", {("orders", 0): 0})
        with Cluster(server.bootstrap_servers, api_timeout_ms=100, retry_backoff_ms=10) as cluster:
            sampler, watched = Sampler(cluster, ("billing",), 3), Watched(60.0)
            watched.add(sooner_or_later(sampler))
            assert watched.trouble == ""
            server.stop_broker(1)
            with pytest.raises(KafkaError) as failed:
                sampler.take()
            assert failed.value.retriable
            watched.fail(failed.value)
            shown = pictured(watched.view(), 80)
            assert re.match(r"no answer for \d+ s, the figures are of ", shown[1].text)
            assert "billing" in shown[0].text
            assert document_of(watched)["error"].startswith("no answer for ")
            server.start_broker(1)
            watched.add(sooner_or_later(sampler))
            assert watched.trouble == ""


def sooner_or_later(sampler: Sampler) -> Survey:
    while True:
        with suppress(KafkaError):
            return sampler.take()


def test_many_groups_take_few_requests(cluster: Cluster, bootstrap: str, group: str) -> None:
    count = 2 * GROUPS + 20
    for number in range(count):
        cluster.commit(f"{group}.{number:03}", {(group, number % 2): number % 6})
    member = ConsumerMember(bootstrap, f"{group}.consumers", "worker", group)
    member.heartbeat()
    for stories, with_lag in ((-1, False), (3, False), (3, True)):
        surveyor = Surveyor(cluster, stories=stories, with_lag=with_lag)
        listed = selected(cluster, (f"{group}.*",))
        survey = surveyor.survey(listed)
        assert len(survey.groups) == count + 1
        for number in range(count):
            [(place, committed)] = survey.groups[f"{group}.{number:03}"].committed.items()
            assert (place, committed.offset) == ((group, number % 2), number % 6)
        assert survey.ends == {(group, 0): 5, (group, 1): 5}, "those of the group that has committed nothing"
        lags = [survey.lag_of(survey.groups[f"{group}.{number:03}"]) for number in range(count)]
        assert [lag.total for lag in lags] == [5 - number % 6 for number in range(count)]
        assert all((lag.as_of_ms is not None) == (lag.worst_ms is not None) == with_lag for lag in lags)
        consumers = survey.groups[f"{group}.consumers"].group
        assert (consumers.type, consumers.state, consumers.epoch) == ("consumer", "Stable", 1)
        assert sum(map(len, consumers.members[0].assigned.values())) == 2
        assert survey.has_journal == (stories >= 0)
        assert surveyor.requests.keys() == {
            "DescribeGroups", "ConsumerGroupDescribe", "OffsetFetch", "ListOffsets", "Metadata"
        }  # fmt: skip
        # two brokers, each with up to two requests for a hundred groups
        assert surveyor.requests.total() <= 4 + 1 + 4 + 2 + 1
    member.leave()


def test_a_group_whose_coordinator_has_moved_has_an_error(cluster: Cluster, group: str) -> None:
    [listed] = selected(cluster, (group,))
    wrong = replace(listed, coordinator=3 - listed.coordinator)
    survey = Surveyor(cluster).survey([wrong])
    assert survey.groups[group].error == "NOT_COORDINATOR"
    assert survey.groups[group].committed == {}
