"""Known bugs of consumer groups (KIP-848), on both sides of the wire; test_mutations.py plants them."""

from __future__ import annotations

from planting import Bug

HEARTBEAT, TARGETS = "coordinator/consumer/heartbeat.py", "coordinator/consumer/target.py"
MEMBERS, LEAVE, LIFECYCLE = (
    "coordinator/consumer/members.py",
    "coordinator/consumer/leave.py",
    "coordinator/consumer/lifecycle.py",
)
HOLDS, RUNNING = "coordinator/consumer/held_heartbeats.py", "coordinator/consumer/soft_state.py"
STEP, CHECKS, FENCING = (
    "coordinator/consumer/reconciliation.py",
    "coordinator/consumer/checks.py",
    "coordinator/offsets/ownership_fence.py",
)
CLIENT = "client/membership/consumer.py"
SIMULATOR = "simulator of consumer"
MEMBER_TEST = "tests/client_library/test_consumer_membership.py::"

CONSUMER_BUGS = (
    Bug(
        "partitions go to others before they are given up",
        ((STEP, "    if revoking and _still_has_any(owned, revoking):\n", "    if False:\n"),),
        (
            "consumer_revoke.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a heartbeat that does not say what it owns acknowledges",
        ((STEP, "return owned is None or any(", "return owned is not None and any("),),
        (
            "consumer_revoke.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a partition is given to a second member",
        (
            (
                STEP,
                " or current_epoch_of(partition) == FREE:",
                ":\n            assigned[partition] = target_epoch\n        elif True:",
            ),
        ),
        (
            "consumer_join.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a partition is got at the member's old epoch",
        (
            (
                STEP,
                "            assigned[partition] = target_epoch\n",
                "            assigned[partition] = member.member_epoch\n",
            ),
        ),
        (
            "consumer_join.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "another subscription asks for no new target",
        ((MEMBERS, 'self.targets.bump(group, now, "a member\'s subscription changed", member_id)', "pass"),),
        (
            "consumer_subscription.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "the group epoch does not rise",
        (
            (
                RUNNING,
                "known.epoch if known is not None else 0,",
                "known.epoch - 1 if known is not None and known.epoch else 0,",
            ),
        ),
        (
            "consumer_join.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "epochs begin anew after the group was deleted",
        (
            (
                LIFECYCLE,
                "self._emit(generation_record(group.group_id, self._consumers.highest_epoch(group.group_id)))",
                "pass",
            ),
        ),
        ("consumer_expiry.txt",),
    ),
    Bug(
        "a first heartbeat is held as long as any",
        ((HEARTBEAT, "hold_ms = self._holds.time_for_join(group, state, event.hold_ms)", "hold_ms = event.hold_ms"),),
        (SIMULATOR,),
    ),
    Bug(
        "an acknowledgement that is older than what its member was told is held",
        ((HEARTBEAT, "elif not tell and not goes_on:", "elif not tell:"),),
        ("consumer_behind.txt",),
    ),
    Bug(
        "a group's members subscribe to any number of names",
        (
            (
                HEARTBEAT,
                "if refused := check_names(group, request, self._config.group_max_bytes):",
                "if refused := None:",
            ),
        ),
        ("consumer_names.txt",),
    ),
    Bug(
        "the heartbeat of a member that owes a revocation is held",
        (
            (
                HOLDS,
                "if state.state is Reconciliation.UNREVOKED_PARTITIONS or not settings.heartbeat_hold_enable:",
                "if not settings.heartbeat_hold_enable:",
            ),
        ),
        (SIMULATOR,),
    ),
    Bug(
        "a held heartbeat waits as long as it may, whatever the client waits for",
        (
            (
                HOLDS,
                "return min(event.hold_ms, told - margin, settings.session_timeout_ms // 3)",
                "return event.hold_ms",
            ),
        ),
        (
            "consumer_held.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a request waits behind a held heartbeat",
        ((HOLDS, "        self.release(group, member, now)\n\n    def abandon", "\n    def abandon"),),
        (
            "consumer_held.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "held heartbeats are forgotten when the shard goes elsewhere",
        (
            (
                HOLDS,
                "                self.refuse(group_id, member_id, ErrorCode.NOT_COORDINATOR, None)\n",
                "                pass\n",
            ),
        ),
        (
            "consumer_held.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "only a join begins the session anew",
        (
            (
                HEARTBEAT,
                "        self._members.arm_session(group, member_id, now)\n        self._answer",
                (
                    "        if request.member_epoch == 0:\n"
                    "            self._members.arm_session(group, member_id, now)\n"
                    "        self._answer"
                ),
            ),
        ),
        (
            "consumer_held.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "who does not give up is not removed",
        (
            (
                LIFECYCLE,
                "        return group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS\n",
                "        return False\n",
            ),
        ),
        (
            "consumer_revoke.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "who must give up has no time limit after a restart",
        (
            (
                LIFECYCLE,
                (
                    "                if group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS:\n"
                    "                    self._running.deadlines.set("
                    "(REVOKE, group.group_id, member_id), now + member.rebalance_timeout_ms)\n"
                ),
                "",
            ),
        ),
        (
            "consumer_restart.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a static member that is back has no target",
        (
            (
                MEMBERS,
                "                self._emit(target_record(group.group_id, member_id, target_value(target)))\n",
                "                pass\n",
            ),
        ),
        (
            "consumer_static.txt",
            f"{SIMULATOR}, storm",
        ),
    ),
    Bug(
        "a static member that goes for a while is removed",
        ((LEAVE, "        if request.member_epoch == LEFT_FOR_A_WHILE:\n", "        if False:\n"),),
        (
            "consumer_static.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "an instance id in use is taken over",
        (
            (
                HEARTBEAT,
                "if group.state_of(holder).member_epoch == LEFT_FOR_A_WHILE or is_classic(group.members[holder]):",
                "if holder != member_id:",
            ),
        ),
        (
            "consumer_static.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "who missed two answers is fenced",
        (
            (
                MEMBERS,
                "            after = replace(after, previous_member_epoch=previous)\n",
                "",
            ),
        ),
        (
            "consumer_lost_held.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a heartbeat that comes twice is fenced",
        (
            (
                CHECKS,
                (
                    "    if epoch >= state.previous_member_epoch and (owned is None or known.issuperset(owned)):\n"
                    "        return None\n"
                ),
                "",
            ),
        ),
        (
            "consumer_lost_answers.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a target has members that are gone",
        (
            (
                TARGETS,
                "full = {m: _flat(result.get(m, {})) for m in group.members}",
                "full = {m: _flat(assignment) for m, assignment in result.items()}",
            ),
        ),
        (
            "consumer_off_loop_late.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "what a member has is told and not written",
        (
            (
                MEMBERS,
                "self._emit(current_record(group.group_id, member_id, current_value(after)))",
                "self.consumers.hard.apply(current_record(group.group_id, member_id, current_value(after)))",
            ),
        ),
        (
            "consumer_join.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a target is used and not written",
        (
            (
                TARGETS,
                "self._consumers.emit(target_record(group.group_id, member_id, target_value(target)))",
                "self._consumers.hard.apply(target_record(group.group_id, member_id, target_value(target)))",
            ),
        ),
        (
            "consumer_join.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "a commit of an epoch before the partition was got is accepted",
        (
            (
                FENCING,
                "return since is not None and since <= epoch <= state.member_epoch",
                "return since is not None and epoch <= state.member_epoch",
            ),
        ),
        ("consumer_offsets.txt",),
    ),
    Bug(
        "topics that grow are not noticed",
        (
            (
                LIFECYCLE,
                "if group.members and self.targets.hash(group) != group.metadata_hash:",
                "if group.members and not group.metadata_hash:",
            ),
        ),
        (
            "consumer_topics.txt",
            SIMULATOR,
        ),
    ),
    Bug(
        "two targets for an epoch",
        (
            (
                TARGETS,
                "        elif known.target.asked_epoch is None:\n            self._make(group, now)",
                "        else:\n            self._make(group, now)",
            ),
            (
                TARGETS,
                (
                    "        if target.asked_epoch != event.epoch:\n"
                    "            return\n"
                    "        target.asked_epoch = None\n"
                ),
                "        target.asked_epoch = None\n",
            ),
        ),
        (SIMULATOR,),
    ),
    Bug(
        "client: says that it gave up before it did",
        ((CLIENT, "owned = self.owned | self._target if", "owned = self._target if"),),
        (
            f"{MEMBER_TEST}test_a_full_report_while_it_gives_up_still_has_what_it_gives_up",
            SIMULATOR,
        ),
    ),
    Bug(
        "client: says nothing again after a lost answer",
        (
            (
                CLIENT,
                "            self._send_all = True\n            self._requests.failed(now, chance)",
                "            self._requests.failed(now, chance)",
            ),
        ),
        (f"{MEMBER_TEST}test_after_an_answer_that_did_not_come_everything_is_said_again",),
    ),
    Bug(
        "client: counts its session from the answer",
        ((CLIENT, "        self._assured_at = self._requests.sent_at\n", "        self._assured_at = now\n"),),
        (
            f"{MEMBER_TEST}test_out_of_reach_for_a_session_what_it_owns_is_doubtful_until_it_is_answered",
            SIMULATOR,
        ),
    ),
    Bug(
        "client: keeps what it had when it is fenced",
        (
            (
                CLIENT,
                "        self.owned = self._target = self._revoking = NONE\n",
                "        self._target = self._revoking = NONE\n",
            ),
        ),
        (
            f"{MEMBER_TEST}test_fenced_it_loses_everything_and_joins_again",
            SIMULATOR,
        ),
    ),
)
