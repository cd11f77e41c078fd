"""Known bugs of coordinators, planted one at a time, and what catches each. A suite that lets one live is too weak.

Each bug changes one or two lines, in memory, in a process of its own (a fork of catcher.py). Every catcher that is
named has to see it: a scenario, a test, or the simulator with the seed that seeds.txt records. `make test-long`
searches new seeds. Without a bug no catcher sees anything. When code moves, the texts here move with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from acl_bugs import ACL_BUGS
from consumer_bugs import CONSUMER_BUGS
from library_bugs import LIBRARY_BUGS
from mixed_bugs import MIXED_BUGS
from planting import Catchers, bug, is_simulator, record, recorded_seeds, seed_in
from security_bugs import SECURITY_BUGS
from share_bugs import SHARE_BUGS
from transaction_bugs import TRANSACTION_BUGS

REBALANCE = "coordinator/classic/rebalance.py"
GROUP = "coordinator/classic/requests.py"
JOIN = "coordinator/classic/join.py"
RUNNING = "coordinator/soft_state.py"
OFFSETS = "coordinator/offsets/offsets.py"
CHECKS = "coordinator/classic/checks.py"
DEADLINES = "coordinator/deadlines.py"
SHARD, BROKER, SCHEDULE = "coordinator/shard.py", "broker/broker.py", "broker/turn_schedule.py"
FENCING, FETCH = "coordinator/offsets/ownership_fence.py", "broker/handlers/fetch.py"
PATTERNS, MATCHES = "coordinator/consumer/pattern_subscriptions.py", "coordinator/patterns/pattern_matches.py"
TARGETS, HANDOVER = "coordinator/consumer/target.py", "coordinator/consumer/staged_target.py"
SETTINGS, SHARDS, START = "coordinator/settings/group_settings.py", "broker/group_shards.py", "broker/start.py"
READS, PARKED_READS = "broker/waits/reads.py", "tests/broker/logs/test_parked_reads.py::"
MACHINES, TOPICS, MEMBERS = "broker/machines.py", "broker/topics/topic_store.py", "coordinator/consumer/members.py"


BUGS = {
    # -- as Kafka
    "commits by name are fenced without the topic's id": bug(
        ("tests/broker/groups/test_commit_fencing.py::test_a_classic_member_commits_its_partitions_in_every_version",),
        (
            "broker/handlers/offsets.py",
            "return changed(request, topics=tuple(known)), refused",
            "return request if version < 9 else changed(request, topics=tuple(known)), refused",
        ),
    ),
    "a storm keeps the rebalances of small and large groups open equally long": bug(
        ("storm.txt", "storm_size.txt"), (REBALANCE, "max(len(group.members) - HANDFUL, 0)", "100")
    ),
    "elections have the initial delay of consumers": bug(
        ("join_own_types.txt",), (REBALANCE, "waits = group.protocol_type in GATHERING or", "waits = True or")
    ),
    # -- hostile clients
    "an answer that nobody waits for keeps its memory": bug(
        ("simulator of hostile",),
        ("broker/works.py", "        self.size -= work.size\n", ""),
    ),
    "commits of a closed connection are made after those of the next one": bug(
        ("tests/broker/test_fair_turns.py::test_of_a_closed_connection_only_the_first_commit_is_made",),
        ("broker/connection.py", "frame is first or are_last_words(frame)", "outlasts(frame)"),
    ),
    # -- reads that storage answers later
    "what compaction replaces stays in what was read before": bug(
        (f"{PARKED_READS}test_what_compaction_replaces_meanwhile_is_read_again",),
        (READS, "                read.replace(first, last)\n", "                pass\n"),
    ),
    "what compaction replaces stays in the tail": bug(
        (f"{PARKED_READS}test_what_compaction_replaces_leaves_the_tail",),
        ("broker/logs/partition.py", "self.tail.drop_up_to(replaced[-1].last)", "pass"),
    ),
    "what was read keeps its room when it is answered": bug(
        (
            f"{PARKED_READS}test_older_records_wait_for_a_read",
            f"{PARKED_READS}test_a_closed_connection_drops_its_reads",
        ),
        (READS, "                self.size -= read.size\n", "                pass\n"),
    ),
    "a fetch is answered before all of its reads are done": bug(
        (f"{PARKED_READS}test_a_failed_read_is_an_error_that_clients_retry",),
        (READS, "return None if wait.reads_left else wait", "return wait"),
    ),
    "records that were deleted during a search by time are found": bug(
        (f"{PARKED_READS}test_a_record_that_is_deleted_during_its_search_is_not_found",),
        ("broker/handlers/records.py", "located.offset >= partition.start_offset", "True"),
    ),
    "a stop leaves logs of a topic that was being created or deleted": bug(
        ("tests/broker/test_large_topics.py::test_a_crash_after_any_turn_leaves_all_or_nothing",),
        (
            START,
            "resume_spare_logs([logs.pop(key) for key in sorted(left)])",
            "resume_spare_logs([logs.pop(key) for key in left][:0])",
        ),
    ),
    "a large topic is there before its logs are": bug(
        ("tests/broker/test_large_topics.py::test_a_crash_after_any_turn_leaves_all_or_nothing",),
        (
            "broker/handlers/topics_admin.py",
            "len(assignments) <= state.topics.logs_a_turn",
            "len(assignments) <= 100_000",
        ),
    ),
    "the offsets of a deleted topic outlive a stop": bug(
        ("tests/broker/groups/test_offsets.py::test_the_deletion_of_offsets_goes_on_after_a_restart",),
        (START, "    state.groups.topics_deleted(tuple(sorted(gone)))\n", "    gone.clear()\n"),
    ),
    "a new topic gets the offsets of the former one of its name": bug(
        ("tests/broker/groups/test_offsets.py::test_a_new_topic_of_the_same_name_has_none_of_the_offsets",),
        (TOPICS, "        self.is_created(name)\n        topic_id =", "        topic_id ="),
    ),
    "a commit right after the deletion of its group is lost": bug(
        ("tests/broker/groups/test_offsets.py::test_what_is_committed_after_the_deletion_of_a_group_stays",),
        (OFFSETS, "if offsets.get(place) is value and not", "if place in offsets and not"),
    ),
    "in a large group only some held heartbeats are answered when partitions move": bug(
        ("tests/coordinator/test_wakes.py::test_some_are_woken_in_each_step_and_all_at_one_moment",),
        (MEMBERS, 'self._running.deadlines.set((WAKE, group.group_id, ""), now)', "pass"),
    ),
    "a batch that is too large is decompressed before it is refused": bug(
        ("tests/broker/logs/test_preparation.py::test_a_batch_that_is_too_large_is_refused_before_it_is_decompressed",),
        ("broker/logs/preparation.py", "not HEADER_SIZE < len(data) <= settings.max_message_bytes", "len(data) <= 0"),
    ),
    # -- durability
    "answers leave before the turn's commit": bug(
        ("tests/server/test_turns.py::test_a_failed_commit_stops_everything_and_acknowledges_nothing",),
        (SCHEDULE, "if turn.operations:", "self._edge.release(turn)\n        if turn.operations:"),
        (SCHEDULE, "-> None:\n        self._edge.release(turn)", "-> None:"),
    ),
    "a turn's records are written with those of the next turn, after its answers have left": bug(
        (
            "tests/broker/test_restart.py::test_r4_a_crash_at_any_commit_loses_nothing_acknowledged",
            "tests/broker/groups/test_groups.py::test_after_a_failed_append_a_commit_has_no_effect",
            "simulator of member",
        ),
        (
            BROKER,
            "return state.end_turn(releases)",
            "turn = state.end_turn(releases)\n"
            "        late, self.late = getattr(self, 'late', ()), turn.operations\n"
            "        return Turn(late, *(getattr(turn, name) for name in ('releases', 'complaints', 'tasks')))",
        ),
    ),
    "the leader's assignment is answered but not written": bug(
        (
            "sync_leader.txt",
            "tests/broker/test_restart.py::test_r4_a_crash_at_any_commit_keeps_what_members_received",
            "simulator of member",
        ),
        (REBALANCE, "        self._running.out.records.append(record)\n", ""),
    ),
    "a static member's new id is answered but not written": bug(
        (
            "static_return.txt",
            "tests/broker/test_restart.py::test_r4_a_crash_at_any_commit_keeps_what_members_received",
        ),
        (JOIN, "        self._running.out.records.append(record)\n", ""),
    ),
    # -- generations
    "the generation rises when a rebalance starts, not when its join completes": bug(
        ("heartbeat.txt", "join_rebalance_timeout.txt", "simulator of member"),
        (
            REBALANCE,
            "self._running.enter(group, Phase.PREPARING,",
            "group.generation_id += 1\n        self._running.enter(group, Phase.PREPARING,",
        ),
        (REBALANCE, "self._running.highest_generation(group.group_id)) + 1", "0)"),
    ),
    "a generation is used again after the deletion of its group": bug(
        ("generation_after_deletion.txt", "simulator of member"),
        (JOIN, "generation_id=self._running.former_generation(request.group_id)", "generation_id=0"),
        (REBALANCE, "group.generation_id = max(", "group.generation_id = min("),
    ),
    "a generation is used again after a crash between join and sync": bug(
        ("failover_between_join_and_sync.txt", "simulator of member"),
        (
            REBALANCE,
            "        self._running.generation_used(group.group_id, group.generation_id)\n",
            "",
        ),
    ),
    "a generation that a crash interrupted before its sync stays in force": bug(
        ("failover_between_join_and_sync.txt", "unload_sync.txt"),
        (GROUP, 'self._rebalances.start(group, now, "a generation was lost")', "pass"),
    ),
    "the highest generation of forgotten group names is not written": bug(
        ("generation_forgotten.txt",),
        (
            "coordinator/offsets/former_groups.py",
            'self._running.out.records.append(generation_record("", highest))',
            "pass",
        ),
    ),
    # -- fencing
    "the former process of a static member is not fenced": bug(
        ("static_return.txt", "heartbeat_static.txt", "join_unknown.txt"),
        (CHECKS, "        if owner != member_id:\n            return ErrorCode.FENCED_INSTANCE_ID\n", ""),
    ),
    "a commit of an older generation is accepted": bug(
        ("commit_members.txt", "simulator of member, liar"),
        (OFFSETS, "if generation != group.generation_id", "if generation > group.generation_id"),
    ),
    "a commit between join and sync is accepted": bug(
        ("commit_members.txt", "commit_operator.txt"),
        (OFFSETS, "ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.COMPLETING else ErrorCode", "ErrorCode"),
    ),
    "a commit without a member is accepted while the group has members": bug(
        ("commit_operator.txt", "simulator of member"),
        (OFFSETS, "group.phase is Phase.EMPTY and generation < 0", "generation < 0"),
    ),
    "a repeated commit is accepted without a check of its member": bug(
        ("tests/broker/groups/test_commits.py::test_a_refused_commit_changes_nothing",),
        (OFFSETS, "        if self._check_commit(request, commit.version):\n            return None\n", ""),
    ),
    "a repeated commit is accepted although its group has changed": bug(
        ("tests/broker/groups/test_commits.py::test_a_new_generation_refuses_the_kept_commit",),
        ("broker/shortcuts/commits.py", "            or accepted.version != shard.version\n", ""),
    ),
    "a repeated commit is written before earlier records of its turn": bug(
        ("tests/broker/groups/test_commits.py::test_records_decided_earlier_in_the_turn_are_written_first",),
        (MACHINES, "return number in self._decided", "return False"),
    ),
    # -- timers
    "a timer that was moved fires at its old time": bug(
        ("heartbeat.txt", "static_silent.txt", "simulator of member"),
        (DEADLINES, "due is not None and due.when == when:", "due is not None:"),
    ),
    "the cached answer to a heartbeat stays valid after groups have changed": bug(
        ("simulator of member",), (SHARD, "        if not _keeps_answers(event):\n            self.version += 1\n", "")
    ),
    "the cached answer to a heartbeat stays valid after a deadline": bug(
        ("tests/broker/groups/test_heartbeats.py::test_a_heartbeat_learns_that_another_session_has_ended",),
        (SHARD, "                    self.version += 1\n", ""),
    ),
    "a session ends while the member's join is parked": bug(
        ("parked_beyond_session.txt",),
        (GROUP, "(waits and not member.is_new) or member.sync", "member.sync"),
    ),
    "a session ends while the member's sync is parked": bug(
        ("parked_beyond_session.txt",),
        (
            GROUP,
            "(waits and not member.is_new) or member.sync is not None",
            "waits and not member.is_new",
        ),
    ),
    "a commit does not keep the session alive": bug(
        ("commit_members.txt", "simulator of member"), (OFFSETS, "if session is not None:", "if False:")
    ),
    "a heartbeat does not keep the session alive while the group rebalances": bug(
        ("heartbeat.txt", "join_rebalance_timeout.txt"),
        (
            GROUP,
            "self._running.arm_session(group, group.members[request.member_id],",
            "if group.phase is not Phase.PREPARING:\n"
            "            self._running.arm_session(group, group.members[request.member_id],",
        ),
    ),
    "members have no session after a load": bug(
        ("failover.txt", "simulator of member"),
        (
            GROUP,
            "for member in group.members.values():\n"
            "                self._running.arm_session(group, member, now)\n"
            "            if",
            "if",
        ),
    ),
    # -- the rebalance
    "a rebalance completes without members that have not yet used their new ids": bug(
        ("pending_expires.txt",),
        (REBALANCE, "== len(group.members) and not group.pending and", "== len(group.members) and"),
    ),
    "late static members are removed like dynamic ones": bug(
        ("join_static_stay.txt",), (REBALANCE, "member.instance_id is None:", "True:")
    ),
    "members that never sync stay in a stable group": bug(
        ("sync_overdue.txt", "simulator of member"),
        (REBALANCE, 'case "sync", Phase.COMPLETING | Phase.STABLE:', 'case "sync", Phase.COMPLETING:'),
    ),
    "parked syncs are not answered when another rebalance starts": bug(
        ("rejoin_completing.txt", "sync_overdue.txt", "simulator of member"),
        (REBALANCE, "self._running.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))", "pass"),
    ),
    "a held heartbeat is not answered when a rebalance starts": bug(
        ("heartbeat_held.txt",),
        (REBALANCE, "            self._running.answer_heartbeat(group, member, ErrorCode.REBALANCE_IN_PROGRESS)\n", ""),
    ),
    "a request that a newer request replaces is never answered": bug(
        ("parked_replaced.txt", "simulator of member"),
        (RUNNING, "= event.request_id", "= event.request_id\n        self.out.replies[:] = self.out.replies[:-1]"),
    ),
    # -- expiry
    "offsets expire while the group rebalances": bug(
        ("expiry_stable.txt", "simulator of member"),
        (OFFSETS, "if group.phase is Phase.STABLE else None", "if group.phase is Phase.STABLE else set()"),
    ),
    "a group expires while members are about to join": bug(
        ("expiry_simple.txt",), (OFFSETS, "is_used = is_joined or pending or", "is_used = pending or")
    ),
    "a topic that is created again has the offsets of its predecessor": bug(
        ("tests/broker/groups/test_offsets.py::test_a_recreated_topics_id_reads_no_old_offsets",),
        (OFFSETS, "None or (topic_id != value.topic_id and NO_UUID not in (topic_id, value.topic_id)):", "None:"),
    ),
    "a group with members can be deleted": bug(
        ("delete_groups_by_state.txt",),
        (SHARD, "not None and group.phase is not Phase.EMPTY", "not None and group.phase is Phase.STABLE"),
    ),
    # -- fencing by ownership
    "commits are not fenced by ownership": bug(
        ("consumer_fenced_commits.txt", "simulator of zombie"),
        (FENCING, "if by_ownership:", "if by_ownership and epoch != state.member_epoch:"),
    ),
    "a fetch is fenced when it arrives, not when it is answered": bug(
        (
            "tests/broker/groups/test_fetch_fencing.py::test_a_waiting_fetch_is_checked_when_it_is_answered",
            "tests/broker/groups/test_fetch_fencing.py::test_a_fetch_without_data_reports_the_lost_partitions",
            "tests/broker/groups/test_fetch_fencing.py::test_a_zombie_whose_session_has_ended_reads_nothing_more",
            "simulator of zombie",
        ),
        (
            FETCH,
            "_fence(state, request), limit",
            "vars(state).setdefault('fences', {}).setdefault(wait.context.request_id, _fence(state, request)), limit",
        ),
    ),
    "a member does not own a partition that it must revoke": bug(
        (
            "consumer_fenced_commits.txt",
            "tests/broker/groups/test_fetch_fencing.py::test_a_member_reads_on_until_it_has_acknowledged",
            "simulator of zombie",
        ),
        (FENCING, " and partition not in state.revoking:", ":"),
    ),
    "an epoch from before the loss of a partition is valid after its return": bug(
        (
            "consumer_fenced_commits.txt",
            "consumer_offsets.txt",
            "tests/broker/groups/test_fetch_fencing.py::test_a_partition_that_returns_starts_a_new_ownership",
            "simulator of zombie",
        ),
        (FENCING, "since is not None and since <= epoch <= state.member_epoch", "since is not None"),
    ),
    # -- regular expressions
    "a pattern matches a part of a name": bug(
        (
            "consumer_regex.txt",
            "consumer_regex_nothing.txt",
            "tests/coordinator/test_regex.py::test_it_finds_what_python_finds",
        ),
        (
            "coordinator/patterns/regex.py",
            "if compiled.fullmatch(name) is not None",
            "if compiled.search(name) is not None",
        ),
    ),
    "new topics are not compared with the patterns in use": bug(
        (
            "consumer_regex.txt",
            "consumer_regex_restart.txt",
            "tests/broker/groups/test_patterns.py::test_pattern_searches_run_outside_of_turns",
        ),
        (MATCHES, "self._names += dict", "dict"),
    ),
    "a pattern's result from before a failover is taken for the awaited one": bug(
        (
            "consumer_regex_restart.txt",
            "tests/coordinator/test_pattern_matches.py::test_only_the_result_of_the_running_task_counts",
        ),
        (MATCHES, "if task is None or task.number != event.number:", "if task is None:"),
    ),
    "patterns are not resolved again after a restart": bug(
        ("consumer_regex_restart.txt", "tests/broker/groups/test_patterns.py::test_pattern_matches_survive_a_restart"),
        (PATTERNS, "group.pattern_users:\n                self._matches", "():\n                self._matches"),
    ),
    "the record of an unused pattern is not deleted": bug(
        ("consumer_regex.txt",), (PATTERNS, "if former and former != present:", "if False:")
    ),
    "a member that changes its pattern loses its partitions before the new pattern is resolved": bug(
        ("consumer_regex_nothing.txt", "consumer_regex_held.txt"),
        ("coordinator/consumer/members.py", "None if group.is_pending(member_id) else _Subscribed(", "_Subscribed("),
    ),
    "offsets expire while a pattern is not resolved": bug(
        ("consumer_regex_offsets.txt",), (OFFSETS, "if consumers is not None and consumers.has_pending:", "if False:")
    ),
    "topics that a pattern matches do not count as subscribed": bug(
        ("consumer_regex_offsets.txt",),
        (
            "coordinator/consumer/group.py",
            "[*self._count(sorted(names - were), 1), *self._count(sorted(were - names), -1)]",
            "[]",
        ),
    ),
    "each new topic writes a record with all matching names at once": bug(
        ("consumer_regex.txt",), (PATTERNS, "elif now < due:", "elif False:")
    ),
    # -- settings of groups
    "groups' settings are lost in a restart": bug(
        ("tests/broker/groups/test_group_configs.py::test_a_change_reaches_the_shard_and_lasts",),
        (START, "group_id, configs in state.catalog.group_configs.items():", "group_id, configs in ():"),
    ),
    "a change of a group's settings is stored but does not reach its shard": bug(
        (
            "tests/broker/groups/test_group_configs.py::test_a_change_reaches_the_shard_and_lasts",
            "tests/broker/groups/test_group_configs.py::test_all_configs_are_replaced_by_the_older_api",
        ),
        (SHARDS, "        self.machines.ask(self.of(group_id), GroupConfigsChanged(group_id, configs))\n", ""),
    ),
    "removed settings stay in force": bug(
        (
            "consumer_group_settings.txt",
            "tests/broker/groups/test_group_configs.py::test_a_change_reaches_the_shard_and_lasts",
        ),
        (SETTINGS, "self._own.pop(group_id, None)", "pass"),
    ),
    "a rollout hold does not stop rebalances": bug(
        ("consumer_hold.txt", "consumer_hold_dead.txt", "simulator of operator"),
        (TARGETS, "until > now and self._consumers.of(group).freeze_ended_ms != until", "False"),
    ),
    "the death of a member during a hold moves other members' partitions": bug(
        ("consumer_hold_dead.txt", "simulator of operator"),
        (HANDOVER, "targets[owner].add(partition)\n    waiting = 0", "pass\n    waiting = 0"),
    ),
    "a hold that ended with enough members returns after a restart": bug(
        ("tests/broker/groups/test_group_configs.py::test_a_hold_that_enough_members_ended_is_over_for_good",),
        (SHARDS, "for group_id in effects.holds_over if", "for group_id in () if"),
    ),
    "a group's session may be shorter than its heartbeat interval": bug(
        ("tests/broker/groups/test_group_configs.py::test_a_session_is_longer_than_the_interval",),
        (SETTINGS, "if settings.session_timeout_ms <= settings.heartbeat_interval_ms:\n", "if False:\n"),
    ),
}


ALL = BUGS | CONSUMER_BUGS | MIXED_BUGS | LIBRARY_BUGS | SECURITY_BUGS | TRANSACTION_BUGS | ACL_BUGS | SHARE_BUGS
CATCHERS = tuple(dict.fromkeys(catcher for bug in ALL.values() for catcher in bug.caught_by))
FOUND_BY_SEEDS = [what for what, bug in ALL.items() if any(map(is_simulator, bug.caught_by))]


@pytest.fixture(scope="session")
def catchers() -> Iterator[Catchers]:
    with closing(Catchers(catcher for catcher in CATCHERS if "::" in catcher)) as process:
        yield process


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ALL)
def test_a_planted_bug_is_caught(what: str, catchers: Catchers) -> None:
    """The simulator catches it with the seed that is recorded."""
    seen = catchers.see(ALL[what].changes, ALL[what].caught_by, recorded_seeds().get(what))
    assert set(seen) == set(ALL[what].caught_by)
    assert [catcher for catcher, what in seen.items() if what is None] == [], "did not see it"


@pytest.fixture(scope="session")
def searched(request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """The first seeds that catch bugs; with `--rewrite` they are recorded."""
    found: dict[str, int] = {}
    yield found
    if request.config.option.rewrite:
        record(recorded_seeds() | found)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", FOUND_BY_SEEDS)
def test_the_simulator_finds_it_by_itself(what: str, catchers: Catchers, searched: dict[str, int]) -> None:
    [seen] = catchers.see(ALL[what].changes, filter(is_simulator, ALL[what].caught_by)).values()
    assert seen is not None, "no seed sees it"
    searched[what] = seed_in(seen)


@pytest.mark.timeout(620)
def test_without_a_bug_nothing_is_seen(catchers: Catchers) -> None:
    """All that any bug is caught by; of the simulator's seeds a few, because its own tests run them too."""
    seen = catchers.see((), CATCHERS, search=2)
    assert {catcher: what for catcher, what in seen.items() if what is not None} == {}
