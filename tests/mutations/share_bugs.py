"""Known bugs of share groups; test_mutations.py plants them."""

from __future__ import annotations

from planting import bug

PARTITION, SHARD = "coordinator/shares/share_partition.py", "coordinator/shares/shard.py"
CELLS, TARGETS = "coordinator/shares/cells.py", "coordinator/share_groups/targets.py"
SHARDS, FETCH = "broker/shares/shards.py", "broker/handlers/shares/fetch.py"
DEAD_LETTERS, REDELIVERY = "broker/shares/dead_letters.py", "coordinator/shares/redelivery.py"
SIMULATOR, OVERSEER = "simulator of share", "simulator of overseer"
LIMITS_TEST = "tests/broker/shares/test_share_limits.py::"

SHARE_BUGS = {
    # -- locks
    "anybody ends a lock": bug((SIMULATOR,), (PARTITION, "if begin > first or holder != member:", "if begin > first:")),
    "a lock ends early": bug(
        (SIMULATOR,), (PARTITION, "lambda lock: lock[4] <= now, settings", "lambda lock: True, settings")
    ),
    "a delivery is not counted": bug(
        (SIMULATOR,), (PARTITION, "self.add(first, last, count + 1)", "self.add(first, last, count)")
    ),
    "a record is archived one delivery too early": bug(
        (SIMULATOR,),
        (PARTITION, "count < settings.delivery_limit:", "count < settings.delivery_limit - 1:"),
    ),
    # -- the start
    "the start passes records that were given back": bug(
        (SIMULATOR,),
        (CELLS, "            if not is_terminal(changes[j][2]):\n                return start\n", ""),
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
    # -- dead letters, and records that are delivered again
    "a dead letter that is a batch of its own is not written": bug(
        (OVERSEER,), (DEAD_LETTERS, "        if data:\n", "        if data and piece.count > 1:\n")
    ),
    "what has dead letters is not archived": bug(
        (OVERSEER,),
        (DEAD_LETTERS, "state.shares.ask(piece.key, DeadLettered(piece.key, _ranges(written), piece.name))", "pass"),
    ),
    "what is finished before a record that is delivered again is delivered too": bug(
        (OVERSEER,), (REDELIVERY, "if inside and is_terminal(kind):", "if is_terminal(kind):")
    ),
    # -- groups
    "no target is made while the clock is behind": bug(
        (SIMULATOR,), (TARGETS, "        if group.assigned_ms > now:\n", "        if False:\n")
    ),
    # -- sessions and fetches
    "a fetch that is not satisfied keeps others waiting": bug(
        (f"{LIMITS_TEST}test_a_fetch_that_wants_many_bytes_does_not_stop_those_behind_it",),
        (FETCH, "found.key.group, behind=wait.context.request_id)", "found.key.group)"),
    ),
}
