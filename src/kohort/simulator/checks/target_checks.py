"""What a turn owes a group's target: a member that subscribes to other topics raises the group's epoch, and a static
member that returns under another id has the target of its former id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.simulator.checks.consumer_ledger import Durable


def check_targets(before: Durable, after: Durable, came: Iterable[str], reasons: Mapping[str, str]) -> None:
    """`came`: members with a new record. `reasons`: why members were removed. The group was not deleted meanwhile."""
    if after.epoch != before.epoch:
        return
    for member_id in sorted(came):
        member = after.members.get(member_id)
        if member is None:
            continue
        former = before.members.get(member_id)
        if former is not None and {*former.subscribed_topic_names} != {*member.subscribed_topic_names}:
            raise after.broken("another subscription raises the epoch", f"{member_id} of epoch {after.epoch}")
        former_id = before.holder(member.instance_id) if member.instance_id is not None else None
        if former_id is None or reasons.get(former_id) != "static member returned":
            continue
        if before.target_epoch == after.target_epoch and before.targets.get(former_id) != after.targets.get(member_id):
            raise after.broken("a static member that returns has its target", f"{member_id}, {former_id} before")
