"""Known bugs of share groups; test_mutations.py plants them. The comments name the reports of those that others had."""

from __future__ import annotations

from planting import bug

PARTITION, SHARD, CELLS = (
    "coordinator/shares/share_partition.py",
    "coordinator/shares/shard.py",
    "coordinator/shares/cells.py",
)
STATES, TARGETS = "coordinator/share_groups/states.py", "coordinator/share_groups/targets.py"
SESSIONS, SHARDS, FETCH = "broker/shares/sessions.py", "broker/shares/shards.py", "broker/handlers/shares/fetch.py"
SIMULATOR = "simulator of share"
LARGE_TEST = "tests/broker/shares/test_large_share_groups.py::"
LIMITS_TEST = "tests/broker/shares/test_share_limits.py::"
SESSIONS_TEST = "tests/broker/shares/test_share_sessions.py::"

SHARE_BUGS = {
    # -- locks
    "anybody ends a lock": bug((SIMULATOR,), (PARTITION, "if begin > first or holder != member:", "if begin > first:")),
    "a lock ends early": bug(
        (SIMULATOR,), (PARTITION, "lambda lock: lock[4] <= now, limit", "lambda lock: True, limit")
    ),
    "a delivery is not counted": bug(
        (SIMULATOR,), (PARTITION, "self.add(first, last, count + 1)", "self.add(first, last, count)")
    ),
    "a record is archived one delivery too early": bug(
        (SIMULATOR,),
        (PARTITION, "ARCHIVED if count >= limit else AVAILABLE", "ARCHIVED if count >= limit - 1 else AVAILABLE"),
    ),
    # -- the start
    "the start passes records that were given back": bug(
        (SIMULATOR,),
        (CELLS, "            if not is_terminal(changes[j][2]):\n                return start\n", ""),
    ),
    # PR 23074
    "a late write takes the start back": bug(
        ("tests/coordinator/shares/test_share_partition.py::test_a_late_write_takes_nothing_back",),
        ("coordinator/shares/state.py", "self.start = max(self.start, value.start)", "self.start = value.start"),
    ),
    # -- the log
    "an acknowledgement is not written": bug(
        (SIMULATOR,), (SHARD, "            self._put(event.key, served.state, cells, now)\n", "")
    ),
    "a pruned log lacks what was decided meanwhile": bug(
        ("tests/broker/shares/test_share_groups.py::test_the_log_of_states_is_pruned",),
        (
            SHARDS,
            "self._pruned = index, partition.end_offset, list(shard.states)",
            "self._pruned = index, partition.end_offset, []",
        ),
    ),
    # -- groups
    # KAFKA-20742
    "a large topic that is new to a group begins at 0 after a crash": bug(
        (f"{LARGE_TEST}test_a_crash_while_a_large_topic_is_initialized",),
        (STATES, "start = 0 if topic_id in group.initialized else RESET", "start = 0"),
    ),
    "what is initialized twice loses its state": bug(
        (f"{LARGE_TEST}test_what_has_a_state_keeps_it_when_an_initialization_begins_again",),
        (SHARD, "keys = event.keys if event.anew else", "keys = event.keys if True else"),
    ),
    "an initialization is forgotten at a crash": bug(
        (f"{LARGE_TEST}test_a_crash_while_a_large_topic_is_initialized",),
        (
            STATES,
            "        if group.initializing or group.deleting:\n            self._begin(group, now)\n",
            "        pass\n",
        ),
    ),
    "no target is made while the clock is behind": bug(
        (SIMULATOR,), (TARGETS, "        if group.assigned_ms > now:\n", "        if False:\n")
    ),
    # -- sessions and fetches
    # KAFKA-19015
    "a session that ends with its connection keeps its records": bug(
        (f"{SESSIONS_TEST}test_a_closed_connection_gives_records_back",),
        (
            SHARDS,
            "            self.close_session(session)\n        self.release()",
            "            self.sessions.drop(session)",
        ),
    ),
    # KAFKA-19227
    "an acknowledgement wakes nobody": bug(
        (f"{SESSIONS_TEST}test_a_released_record_wakes_one_member_that_waits_in_the_same_step",),
        (
            SHARD,
            "            # Room in the window is news too, for those that wait.\n"
            "            self._freed.append(Freed(event.key))\n",
            "",
        ),
    ),
    "a fetch that is not satisfied keeps others waiting": bug(
        (f"{LIMITS_TEST}test_a_fetch_that_wants_many_bytes_does_not_stop_those_behind_it",),
        (FETCH, "found.key.group, behind=wait.context.request_id)", "found.key.group)"),
    ),
}
