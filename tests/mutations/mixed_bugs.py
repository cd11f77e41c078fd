"""Known bugs of groups that change their protocol, and of their classic members; test_mutations.py plants them."""

from __future__ import annotations

from planting import bug

UPGRADE = "coordinator/migration/upgrade.py"
DOWNGRADE = "coordinator/migration/downgrade.py"
CONVERSION = "coordinator/migration/conversion.py"
MEMBER = "coordinator/migration/classic_side.py"
MIXED = "coordinator/migration/classic_requests.py"
MEMBERS = "coordinator/consumer/members.py"

MIXED_BUGS = {
    "an upgrade forgets partitions that cooperative members still use": bug(
        ("consumer_mixed_rebalancing.txt",), (UPGRADE, "if partition not in owners:", "if False:")
    ),
    "an upgrade during a rebalance treats the group as stable": bug(
        ("consumer_mixed_rebalancing.txt",), (UPGRADE, "is_settled = group.phase is Phase.STABLE", "is_settled = True")
    ),
    "an upgrade loses the user data of a custom assignor": bug(
        ("consumer_mixed_refused.txt",), (UPGRADE, "if assignment.user_data and group", "if False and group")
    ),
    "a crash after a downgrade loses the rebalance": bug(
        ("consumer_mixed_downgrade.txt",),
        (DOWNGRADE, "self.classic.generation_id + (1 if self.rebalance else 0))", "self.classic.generation_id)"),
    ),
    "a generation has one leader before and another after two conversions": bug(
        ("consumer_mixed_static.txt",), (DOWNGRADE, "        and last_generation < group.epoch\n", "")
    ),
    "a classic member is told to rejoin before all its new partitions are free": bug(
        ("consumer_mixed_waits.txt",), (MEMBER, "return all(group.epoch_of(", "return any(group.epoch_of(")
    ),
    "a classic member that must revoke partitions is not told to rejoin": bug(
        ("consumer_mixed_unsubscribe.txt",), (MEMBER, " or state.state is Reconciliation.UNREVOKED_PARTITIONS:", ":")
    ),
    "a classic member in a consumer group has the server's session timeout": bug(
        ("consumer_mixed_timeouts.txt",),
        (MEMBERS, "return session_timeout_of(member) if is_classic(member) else", "return"),
    ),
    "a classic member that never syncs keeps its partitions": bug(
        ("consumer_mixed_timeouts.txt",),
        (MIXED, "self._running.deadlines.set((SYNC, group.group_id,", "((SYNC, group.group_id,"),
    ),
    "a former member rejoins with partitions that others own": bug(
        ("consumer_mixed_timeouts.txt",),
        (MIXED, "former_id is None and request.member_id and subscription.owned_partitions:", "False:"),
    ),
    "a member that is not the last of its protocol converts the group": bug(
        ("consumer_mixed_waits.txt",), (CONVERSION, "or classic < size or not joint", "or not joint")
    ),
}
