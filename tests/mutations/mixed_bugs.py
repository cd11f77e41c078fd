"""Known bugs of groups that change their protocol, and of their classic members; test_mutations.py plants them."""

from __future__ import annotations

from planting import Bug

UPGRADE, DOWNGRADE, CONVERSION, MEMBER, MIXED = (
    "coordinator/migration/upgrade.py",
    "coordinator/migration/downgrade.py",
    "coordinator/migration/conversion.py",
    "coordinator/migration/classic_side.py",
    "coordinator/migration/classic_requests.py",
)
MEMBERS = "coordinator/consumer/members.py"

MIXED_BUGS = (
    Bug(
        "an upgrade forgets what cooperative members go on using",
        ((UPGRADE, "            if partition not in owners:\n", "            if False:\n"),),
        ("consumer_mixed_rebalancing.txt",),
    ),
    Bug(
        "a group that is upgraded in the middle of a rebalance stays as it is",
        ((UPGRADE, "is_settled = group.phase is Phase.STABLE\n", "is_settled = True\n"),),
        ("consumer_mixed_rebalancing.txt",),
    ),
    Bug(
        "an upgrade loses what a custom assignor sends",
        ((UPGRADE, "    if assignment.user_data and group", "    if False and group"),),
        ("consumer_mixed_refused.txt",),
    ),
    Bug(
        "a crash after a downgrade loses the rebalance",
        ((DOWNGRADE, "self.classic.generation_id + (1 if self.rebalance else 0))", "self.classic.generation_id)"),),
        ("consumer_mixed_downgrade.txt",),
    ),
    Bug(
        "two members lead the same generation, one before and one after two conversions",
        (
            (
                DOWNGRADE,
                "        and last_generation < group.epoch\n",
                "",
            ),
        ),
        ("consumer_mixed_static.txt",),
    ),
    Bug(
        "a classic member is told to join before all that it waits for is free",
        ((MEMBER, "    return all(group.epoch_of(", "    return any(group.epoch_of("),),
        ("consumer_mixed_waits.txt",),
    ),
    Bug(
        "a classic member that has to give partitions up is not told so",
        ((MEMBER, " or state.state is Reconciliation.UNREVOKED_PARTITIONS:\n", ":\n"),),
        ("consumer_mixed_unsubscribe.txt",),
    ),
    Bug(
        "a classic member in a consumer group has the session of the server",
        ((MEMBERS, "        return session_timeout_of(member) if is_classic(member) else", "        return"),),
        ("consumer_mixed_timeouts.txt",),
    ),
    Bug(
        "a classic member that never syncs keeps its partitions",
        (
            (
                MIXED,
                "        self._running.deadlines.set((SYNC, group.group_id, member_id),",
                "        ((SYNC, group.group_id, member_id),",
            ),
        ),
        ("consumer_mixed_timeouts.txt",),
    ),
    Bug(
        "a former member comes back as a new one with what others own",
        (
            (
                MIXED,
                "        if former_id is None and request.member_id and subscription.owned_partitions:\n",
                "        if False:\n",
            ),
        ),
        ("consumer_mixed_timeouts.txt",),
    ),
    Bug(
        "a member that is not the last of its protocol takes the group with it",
        ((CONVERSION, " or classic < size or not joint", " or not joint"),),
        ("consumer_mixed_waits.txt",),
    ),
)
