"""The commands' output about a running group that changes its protocol."""

from __future__ import annotations

import json

from consumer_member import ConsumerMember
from group_member import GroupMember
from run_command import Kohort


def test_a_mixed_group_is_described_and_explained(kohort: Kohort, bootstrap: str, unique: str) -> None:
    kohort("topics", "create", unique, "--partitions", "2")
    classic = GroupMember(bootstrap, unique, {unique: (0, 1)})
    assert "PROTOCOL" not in kohort("groups", "describe", unique, "--members").out
    consumer = ConsumerMember(bootstrap, unique, "b", subscribed_topic_names=(unique,))
    heading, *rows, _ = kohort("groups", "describe", unique, "--members").out.splitlines()
    assert heading.split()[-1] == "PROTOCOL"
    assert sorted(row.split()[-1] for row in rows[:2]) == ["classic", "consumer"]
    [document] = json.loads(kohort("groups", "describe", unique, "--members", "-o", "json").out)
    assert {member["protocol"] for member in document["members"]} == {"classic", "consumer"}
    told = kohort("groups", "explain", unique).out
    assert "group upgraded: a member of the consumer protocol joins" in told
    consumer.leave()
    told = kohort("groups", "explain", unique).out
    assert "group downgraded: a member left" in told
    listed = json.loads(kohort("groups", "list", "-o", "json").out)
    assert [group["type"] for group in listed if group["group"] == unique] == ["classic"]
    classic.leave()
