"""Share groups in `kohort groups`: what is shown, and what operators change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from run_command import Kohort
from share_member import ACCEPT, PATIENT, REJECT, RELEASE, ShareMember

from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    from kohort.testing import KohortServer

    with KohortServer(brokers=2, group_share_delivery_count_limit=2, **PATIENT) as running:
        yield running.bootstrap_servers


@pytest.fixture
def group(cluster: Cluster, unique: str) -> str:
    """A topic and a group of the same name: two partitions, with ten records each, read from the beginning."""
    cluster.create_topic(unique, 2)
    cluster.alter_group_configs(unique, {"share.auto.offset.reset": "earliest"})
    for partition in (0, 1):
        for _ in range(10):
            cluster.produce(unique, partition, [NewRecord(None, b"v", 1)])
    return unique


@pytest.fixture
def worker(bootstrap: str, group: str) -> Iterator[ShareMember]:
    with ShareMember(bootstrap, group, group, "worker") as member:
        yield member


def offsets_of(kohort: Kohort, group: str) -> Any:
    [document] = json.loads(kohort("groups", "describe", group, "-o", "json").out)
    return document


def worked(worker: ShareMember) -> None:
    """4 of partition 0 are in flight, 1 is accepted, 1 rejected, 1 given back and in flight again, 1 given up."""
    assert worker.take(0, 6) == [(0, 5, 1)]
    assert worker.ack(0, (0, 0, ACCEPT), (1, 1, REJECT), (2, 3, RELEASE)) is ErrorCode.NONE
    assert worker.take(0, 1) == [(2, 2, 2)]
    assert worker.ack(0, (2, 2, RELEASE)) is ErrorCode.NONE
    assert worker.take(0, 1) == [(3, 3, 2)]


def test_what_is_in_flight_and_what_was_archived(kohort: Kohort, worker: ShareMember, group: str) -> None:
    worked(worker)
    shown = " ".join(kohort("groups", "describe", group).out.split())
    assert "TOPIC PARTITION START-OFFSET LOG-END-OFFSET LAG IN-FLIGHT GIVEN-BACK" in shown
    assert f"{group} {group} 0 3 10 7 3 0" in shown
    assert f"{group}: Stable, 1 member, 7 unfinished records, 3 of them in flight" in shown
    assert f"worker /127.0.0.1 {group} 0 3 2 × 1, 1 × 2" in shown
    assert f"{group} 0 2 delivered too often 2 worker 2" in shown
    assert f"{group} 0 1 rejected 1 worker 2" in shown
    assert f"not read yet, so without a start offset: {group}[1]" in shown
    assert f"{group}: records since the server loaded the group: 8 delivered, 1 accepted" in shown
    found = offsets_of(kohort, group)
    assert (found["protocol_type"], found["total_lag"], found["in_flight"]) == ("share", 7, 3)
    row = found["offsets"][0]
    assert (row["start_offset"], row["log_end_offset"], row["lag"]) == (3, 10, 7)
    assert [one["why"] for one in row["records"]["archived"]] == ["rejected", "delivered too often"]
    [(member, held)] = row["records"]["holders"].items()
    assert (member, held["records"], held["deliveries"]) == (worker.member_id, 3, {"1": 2, "2": 1})


def test_lists_and_patterns_have_share_groups(kohort: Kohort, worker: ShareMember, group: str) -> None:
    worked(worker)
    listed = json.loads(kohort("groups", "list", "--lag", "--type", "share", "-o", "json").out)
    [row] = [one for one in listed if one["group"] == group]
    assert (row["type"], row["members"], row["total_lag"], row["max_lag_ms"]) == ("share", 1, 7, None)
    assert f"{group}: Stable, 1 member, 7 unfinished" in kohort("groups", "describe", f"{group[:-1]}*").out
    assert worker.member_id in kohort("groups", "describe", group, "--members").out
    assert "simple" in kohort("groups", "describe", group, "--state").out


def test_watch_and_doctor(kohort: Kohort, worker: ShareMember, group: str) -> None:
    worked(worker)
    [row] = json.loads(kohort("groups", "watch", group, "--once", "--interval", "100ms", "-o", "json").out)["groups"]
    assert (row["type"], row["lag"], row["members"]) == ("share", 7, 1)
    assert [one["owner"] for one in row["offsets"] if one["partition"] == 0] == ["worker holds 3"]
    looked = kohort("groups", "doctor", group, "--for", "100ms", "-o", "json", code=1)
    [finding] = json.loads(looked.out)["findings"]
    assert (finding["kind"], finding["severity"]) == ("gave up", "warning")
    worker.leave()
    kinds = [one["kind"] for one in json.loads(kohort("groups", "doctor", group, "-o", "json", code=1).out)["findings"]]
    assert kinds == ["deserted", "gave up"]


def test_explain(kohort: Kohort, worker: ShareMember, group: str) -> None:
    worked(worker)
    told = kohort("groups", "explain", group).out
    assert f"{group}: Stable, 1 member, share group, epoch 1" in told
    assert "worker on 127.0.0.1 joined" in told
    assert f"worker on 127.0.0.1: 1 record rejected: {group}[0] 1 (delivered 1 ×)" in told
    assert f"worker on 127.0.0.1: 1 record delivered too often: {group}[0] 2 (delivered 2 ×)" in told
    worker.leave()
    assert "worker on 127.0.0.1 left" in kohort("groups", "explain", group).out


def test_release(kohort: Kohort, bootstrap: str, worker: ShareMember, group: str) -> None:
    assert worker.take(0, 3) == [(0, 2, 1)]
    assert worker.take(1, 2) == [(0, 1, 1)]
    command = ("groups", "release", group)
    assert "whose records? Name members, or add --all" in kohort(*command, code=2).err
    assert f"group {group} has no member werker; did you mean worker" in kohort(*command, "werker", code=1).err
    dry = kohort(*command, "worker", "--topic", f"{group}:1").out
    assert "nothing was released: this is a dry run; --execute does it" in dry
    assert "this is no terminal to confirm on; add --yes" in kohort(*command, "worker", "--execute", code=2).err
    assert offsets_of(kohort, group)["in_flight"] == 5
    done = kohort(*command, "worker", "--topic", f"{group}:1", "--execute", "--yes").out
    assert f"released 2 records of worker in group {group}\n" in done
    assert offsets_of(kohort, group)["in_flight"] == 3, "those of the other partition stay"
    with ShareMember(bootstrap, group, group, "other") as other:
        assert other.take(1, 2) == [(0, 1, 2)]
    assert worker.ack(1, (0, 0, ACCEPT)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    worker.begin_again(1)
    released = json.loads(kohort(*command, "--all", "--execute", "--yes", "-o", "json").out)
    assert released["members"][0]["held"] == [{"topic": group, "partition": 0, "records": 3, "error": None}]
    assert "the member holds no records there; nothing was released" in kohort(*command, "worker", code=1).err
    assert "the members hold no records there; nothing was released" in kohort(*command, "--all", code=1).err
    nobody = kohort("groups", "release", f"{group}x", "--all", code=1).err
    assert f"group {group}x does not exist" in nobody


def test_release_of_another_group_ends_its_hold(kohort: Kohort, cluster: Cluster, unique: str) -> None:
    cluster.create_topic(unique)
    cluster.commit(unique, {(unique, 0): 0})
    assert kohort("groups", "release", unique).out == f"{unique}: rebalances were not held\n"
    assert f"group {unique} is no share group" in kohort("groups", "release", unique, "--all", code=2).err


def test_redeliver(kohort: Kohort, worker: ShareMember, group: str) -> None:
    worked(worker)
    command = ("groups", "redeliver", group)
    assert "which records? Add --archived" in kohort(*command, code=2).err
    assert "--offset needs one partition" in kohort(*command, "--offset", "3", code=2).err
    assert "'5-3' is neither an offset" in kohort(*command, "--topic", f"{group}:0", "--offset", "5-3", code=2).err
    in_flight = kohort(*command, "--topic", f"{group}:0", "--offset", "3-5", code=1)
    assert "none of these records is finished" in in_flight.err
    planned = json.loads(kohort(*command, "--archived", "--why", "rejected", "-o", "json").out)
    assert [(row["first_offset"], row["why"]) for row in planned["ranges"]] == [(1, "rejected")]
    assert "nothing is delivered again: this is a dry run" in kohort(*command, "--archived").out
    done = kohort(*command, "--archived", "--execute", "--yes").out
    assert f"2 records of group {group} are delivered again: {group}[0]\n" in done
    assert worker.take(0, 2) == [(1, 2, 1)]
    assert worker.ack(0, (1, 5, ACCEPT)) is ErrorCode.NONE
    again = kohort(*command, "--topic", f"{group}:0", "--offset", "0", "--offset", "4-20", "--execute", "--yes").out
    assert f"3 records of group {group} are delivered again" in again
    assert worker.take(0, 1) + worker.take(0, 2) == [(0, 0, 1), (4, 5, 1)]
    assert "kohort-cli on 127.0.0.1 asked for another delivery of 3 records" in kohort("groups", "explain", group).out
    assert "no archived records are known there" in kohort(*command, "--archived", code=1).err
    assert (
        f"group {group} does not read topic {group}x"
        in kohort(*command, "--archived", "--topic", f"{group}x", code=1).err
    )


def test_reset_and_delete_offsets(kohort: Kohort, worker: ShareMember, group: str, tmp_path: Any) -> None:
    assert worker.take(0, 3) == [(0, 2, 1)]
    assert worker.ack(0, (0, 2, ACCEPT)) is ErrorCode.NONE
    reset = ("groups", "reset-offsets", group, "--to-offset", "1", "--topic", f"{group}:0")
    refused = f"offsets can only be changed while group {group} is inactive, and it is Stable with 1 member: worker"
    assert refused in kohort(*reset, code=1).err
    assert "it has 1 member: worker" in kohort("groups", "delete-offsets", group, "--topic", group, "-y", code=1).err
    worker.leave()
    assert "everything from the new offsets on is delivered again" in kohort(*reset).out
    backup = str(tmp_path / "old.json")
    done = kohort(*reset, "--execute", "--yes", "--backup", backup).out
    assert f"set 1 offset of group {group}\n" in done
    assert f"to undo: kohort groups reset-offsets {group} --from-file {backup} --execute\n" in done
    assert offsets_of(kohort, group)["offsets"][0]["start_offset"] == 1
    kohort("groups", "reset-offsets", group, "--from-file", backup, "--execute", "--yes")
    assert offsets_of(kohort, group)["offsets"][0]["start_offset"] == 3
    assert f"kohort-cli on 127.0.0.1 set start offsets: {group}[0] to 1" in kohort("groups", "explain", group).out
    assert (
        "has offsets of whole topics"
        in kohort("groups", "delete-offsets", group, "--topic", f"{group}:0", "--yes", code=1).err
    )
    deleted = kohort("groups", "delete-offsets", group, "--topic", group, "--yes").out
    assert deleted == f"deleted the offsets of group {group} in {group}\n"
    assert offsets_of(kohort, group)["offsets"] == []
    assert kohort("groups", "delete", group, "--yes").out == f"deleted group {group}\n"
    assert "does not exist" in kohort("groups", "describe", group, code=1).err


def test_what_a_share_group_has_not(kohort: Kohort, worker: ShareMember, group: str) -> None:
    assert "its members come and go without a rebalance" in kohort("groups", "hold", group, "--for", "1m", code=1).err
    refused = kohort("groups", "remove-member", group, "--all", code=1).err
    assert "is a share group: kohort groups release gives back what a member holds" in refused
    assert "is no share group" not in refused
    assert "does not exist" in kohort("groups", "redeliver", f"{group}x", "--archived", code=1).err
