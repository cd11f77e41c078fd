"""`kohort groups remove-member`: who is chosen, what is shown, what the journal says."""

from __future__ import annotations

import json

import pytest
from group_member import GroupMember
from run_command import Kohort

from kohort.client.cluster import Cluster


@pytest.fixture
def member(bootstrap: str, cluster: Cluster, unique: str) -> GroupMember:
    cluster.create_topic(unique, 2)
    return GroupMember(bootstrap, unique, {unique: (0, 1)}, client_id="worker-1")


def test_a_dry_run_and_a_removal(kohort: Kohort, cluster: Cluster, member: GroupMember, unique: str) -> None:
    command = ("groups", "remove-member", unique, "worker-1")
    shown = kohort(*command).out
    assert f"{member.member_id}  -" in shown
    assert "nobody was removed: this is a dry run; --execute does it\n" in shown
    assert "this is no terminal to confirm on; add --yes" in kohort(*command, "--execute", code=2).err
    assert cluster.describe_groups([unique])[unique].members
    done = kohort(*command, "--execute", "--yes", "--reason", "it hangs").out
    assert f"removed worker-1 on 127.0.0.1 from group {unique}; it had {unique}[0-1]\n" in done
    assert not cluster.describe_groups([unique])[unique].members
    told = kohort("groups", "explain", unique).out
    assert "worker-1 on 127.0.0.1 was removed: an operator removed it: it hangs" in told
    assert f"group {unique} has no members; nobody was removed" in kohort(*command, code=1).err


def test_json(kohort: Kohort, member: GroupMember, unique: str) -> None:
    command = ("groups", "remove-member", unique, "--all", "-o", "json")
    planned = json.loads(kohort(*command).out)
    assert (planned["executed"], [row["removed"] for row in planned["members"]]) == (False, [False])
    done = json.loads(kohort(*command, "--execute", "--yes").out)
    assert done["members"] == [
        {
            "consumer_id": member.member_id,
            "group_instance_id": None,
            "host": "/127.0.0.1",
            "client_id": "worker-1",
            "partitions": 2,
            "removed": True,
            "error": None,
        }
    ]


def test_members_that_are_not_there(kohort: Kohort, bootstrap: str, member: GroupMember, unique: str) -> None:
    command = ("groups", "remove-member", unique)
    assert f"group {unique} has no member worker-2; did you mean worker-1?" in kohort(*command, "worker-2", code=1).err
    assert "has no static member worker-1; nobody" in kohort(*command, "--instance-id", "worker-1", code=1).err
    assert "name members, or add --instance-id ID or --all" in kohort(*command, code=2).err
    assert f"group {unique}x does not exist" in kohort("groups", "remove-member", f"{unique}x", "--all", code=1).err
    member.leave()
