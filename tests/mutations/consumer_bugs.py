"""Known bugs of consumer groups (KIP-848), on both sides of the wire; test_mutations.py plants them."""

from __future__ import annotations

from planting import bug

HEARTBEAT, TARGETS = "coordinator/consumer/heartbeat.py", "coordinator/consumer/target.py"
MEMBERS = "coordinator/consumer/members.py"
LEAVE = "coordinator/consumer/leave.py"
LIFECYCLE = "coordinator/consumer/lifecycle.py"
HOLDS, RUNNING = "coordinator/consumer/held_heartbeats.py", "coordinator/consumer/soft_state.py"
STEP = "coordinator/consumer/reconciliation.py"
CHECKS = "coordinator/consumer/checks.py"
FENCING = "coordinator/offsets/ownership_fence.py"
CLIENT = "client/membership/consumer.py"
EPOCHS = "client/membership/epoch_member.py"
SIMULATOR = "simulator of consumer"
MEMBER_TEST = "tests/client_library/membership/test_consumer_membership.py::"

CONSUMER_BUGS = {
    "partitions are assigned to others before they are revoked": bug(
        ("consumer_revoke.txt", SIMULATOR), (STEP, "if revoking and _still_has_any(owned, revoking):", "if False:")
    ),
    "a heartbeat without owned partitions acknowledges a revocation": bug(
        ("consumer_revoke.txt", SIMULATOR), (STEP, "return owned is None or any(", "return owned is not None and any(")
    ),
    "a partition is assigned to a second member": bug(
        ("consumer_join.txt", SIMULATOR),
        (
            STEP,
            " or current_epoch_of(partition) == FREE:",
            ":\n            assigned[partition] = target_epoch\n        elif True:",
        ),
    ),
    "a partition is assigned at the member's old epoch": bug(
        ("consumer_join.txt", SIMULATOR),
        (STEP, "assigned[partition] = target_epoch", "assigned[partition] = member.member_epoch"),
    ),
    "a changed subscription makes no new target": bug(
        ("consumer_subscription.txt", SIMULATOR),
        (MEMBERS, 'self.targets.bump(group, now, "a member\'s subscription changed", member_id)', "pass"),
    ),
    "the group's epoch does not rise": bug(
        ("consumer_join.txt", SIMULATOR),
        (RUNNING, "if known is not None else 0,", "- 1 if known is not None and known.epoch else 0,"),
    ),
    "epochs start again after the deletion of the group": bug(
        ("consumer_expiry.txt",),
        (
            LIFECYCLE,
            "self._emit(generation_record(group.group_id, self._consumers.highest_epoch(group.group_id)))",
            "pass",
        ),
    ),
    "a first heartbeat is held as long as a later one": bug(
        (SIMULATOR,), (HEARTBEAT, "= self._holds.time_for_join(group, state, event.hold_ms)", "= event.hold_ms")
    ),
    "an acknowledgement older than the member's last answer is held": bug(
        ("consumer_behind.txt",),
        (HEARTBEAT, "elif not tell and not goes_on and not is_changed:", "elif not tell and not is_changed:"),
    ),
    "a heartbeat that changes the subscription is held": bug(
        ("consumer_changes_unheld.txt",),
        (HEARTBEAT, "is_changed = value != group.members.get(member_id)", "is_changed = False"),
    ),
    "the assignment interval counts from the departure of the last member": bug(
        ("consumer_emptied.txt",),
        (TARGETS, "target_epoch_value(group.epoch, group.assigned_ms)", "target_epoch_value(group.epoch, now)"),
    ),
    "each departure makes a target": bug(
        ("consumer_leave_together.txt",),
        (TARGETS, "LEAVING_MS, LEAVING_MAX_MS = 250, 1_000", "LEAVING_MS, LEAVING_MAX_MS = 0, 0"),
    ),
    "departures delay a target for ever": bug(
        ("consumer_leave_together.txt",),
        (TARGETS, "min(last_ms + LEAVING_MS, first_ms + LEAVING_MAX_MS)", "last_ms + LEAVING_MS"),
    ),
    "a departure delays the target of a group without held heartbeats": bug(
        ("consumer_leave_together.txt", "strict_consumer.txt"),
        (TARGETS, "if not is_dead and settings.heartbeat_hold_enable:", "if not is_dead:"),
    ),
    "a member that repeats its join never gets partitions": bug(
        ("consumer_emptied.txt",), (HEARTBEAT, "elif request.member_epoch == 0 and has_nothing(before)", "elif False")
    ),
    "the answer to a leave has an interval": bug(("consumer_emptied.txt",), (LEAVE, "interval_ms=0", "interval_ms=1")),
    "the size of the subscribed names is not limited": bug(
        ("consumer_names.txt",),
        (HEARTBEAT, ":= check_names(group, request, self._config.group_max_bytes):", ":= None:"),
    ),
    "the heartbeat of a member that must revoke partitions is held": bug(
        (SIMULATOR,), (HOLDS, "state.state is Reconciliation.UNREVOKED_PARTITIONS or not", "not")
    ),
    "a hold ignores the member's heartbeat interval and session": bug(
        ("consumer_held.txt", SIMULATOR),
        (HOLDS, "min(event.hold_ms, told - margin, settings.session_timeout_ms // 3)", "event.hold_ms"),
    ),
    "a request waits behind a held heartbeat": bug(
        ("consumer_held.txt", SIMULATOR),
        (HOLDS, "        self.release(group, member, now)\n\n    def abandon", "\n    def abandon"),
    ),
    "held heartbeats are not answered when the shard moves": bug(
        ("consumer_held.txt", SIMULATOR),
        (HOLDS, "self.refuse(group_id, member_id, ErrorCode.NOT_COORDINATOR, None)", "pass"),
    ),
    "only a join restarts the session": bug(
        ("consumer_held.txt", SIMULATOR),
        (
            HEARTBEAT,
            "self._members.arm_session(group, member_id,",
            "if request.member_epoch == 0:\n            self._members.arm_session(group, member_id,",
        ),
    ),
    "a member that does not revoke its partitions is not removed": bug(
        ("consumer_revoke.txt", SIMULATOR),
        (LIFECYCLE, "return group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS", "return False"),
    ),
    "a revocation has no time limit after a restart": bug(
        ("consumer_restart.txt", SIMULATOR),
        (
            LIFECYCLE,
            "                if group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS:\n"
            "                    self._running.deadlines.set("
            "(REVOKE, group.group_id, member_id), now + member.rebalance_timeout_ms)\n",
            "",
        ),
    ),
    "a static member that returns has no target": bug(
        ("consumer_static.txt", f"{SIMULATOR}, storm"),
        (MEMBERS, "self._emit(target_record(group.group_id, member_id, target_value(target)))", "pass"),
    ),
    "a static member that leaves temporarily is removed": bug(
        ("consumer_static.txt", SIMULATOR), (LEAVE, "if request.member_epoch == LEFT_FOR_A_WHILE:", "if False:")
    ),
    "an instance id in use is taken over": bug(
        ("consumer_static.txt", SIMULATOR),
        (
            HEARTBEAT,
            "group.state_of(holder).member_epoch == LEFT_FOR_A_WHILE or is_classic(group.members[holder]):",
            "holder != member_id:",
        ),
    ),
    "a member that missed two answers is fenced": bug(
        ("consumer_lost_held.txt", SIMULATOR),
        (MEMBERS, "            after = replace(after, previous_member_epoch=previous)\n", ""),
    ),
    "a duplicated heartbeat is fenced": bug(
        ("consumer_lost_answers.txt", SIMULATOR),
        (
            CHECKS,
            "    if epoch >= state.previous_member_epoch and (owned is None or known.issuperset(owned)):\n"
            "        return None\n",
            "",
        ),
    ),
    "a target contains former members": bug(
        ("consumer_off_loop_late.txt", SIMULATOR),
        (TARGETS, "flat(result.get(m, {})) for m in group.members}", "flat(of) for m, of in result.items()}"),
        (TARGETS, "{m: prepared.targets.get(m, frozenset()) for m in group.members}", "dict(prepared.targets)"),
    ),
    "a member's assignment is answered but not written": bug(
        ("consumer_join.txt", SIMULATOR),
        (
            MEMBERS,
            "self._emit(current_record(group.group_id, member_id, current_value(after)))",
            "self.consumers.hard.apply(current_record(group.group_id, member_id, current_value(after)))",
        ),
    ),
    "a target is used but not written": bug(
        ("consumer_join.txt", SIMULATOR),
        (TARGETS, "_consumers.emit(target_record(group.group_id", "_consumers.hard.apply(target_record(group.group_id"),
    ),
    "a commit with an epoch before the partition's assignment is accepted": bug(
        ("consumer_offsets.txt",),
        (FENCING, "since is not None and since <= epoch <=", "since is not None and epoch <="),
    ),
    "new partitions of a topic make no new target": bug(
        ("consumer_topics.txt", SIMULATOR),
        (LIFECYCLE, "group.members and self.targets.hash(group) !=", "group.members and not"),
    ),
    "an epoch has two targets": bug(
        (SIMULATOR,),
        (TARGETS, "elif known.target.asked_epoch is None:", "else:"),
        (TARGETS, "if target.asked_epoch != event.epoch:\n            return\n        target", "target"),
    ),
    "client: reports a revocation before it is done": bug(
        (f"{MEMBER_TEST}test_a_full_report_while_it_gives_up_still_has_what_it_gives_up", SIMULATOR),
        (CLIENT, "owned = self.owned | self._target if", "owned = self._target if"),
    ),
    "client: does not send its full state after a lost answer": bug(
        (f"{MEMBER_TEST}test_after_a_missing_answer_the_heartbeat_is_full_again",),
        (EPOCHS, "self._send_all = True\n            self._requests.failed(now,", "self._requests.failed(now,"),
    ),
    "client: counts its session from the answer, not from the request": bug(
        (f"{MEMBER_TEST}test_after_a_session_without_contact_its_ownership_is_doubtful_until_an_answer", SIMULATOR),
        (CLIENT, "self._assured_at = self._requests.sent_at", "self._assured_at = now"),
    ),
    "client: keeps its partitions when it is fenced": bug(
        (f"{MEMBER_TEST}test_fenced_it_loses_everything_and_joins_again", SIMULATOR),
        (CLIENT, "self.owned = self._target = self._revoking =", "self._target = self._revoking ="),
    ),
}
