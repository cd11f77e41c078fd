"""Known bugs of coordinators, planted one at a time, and what catches each. A suite that lets one live is too weak.

Each bug changes one or two lines, in memory, in a process of its own (a fork of catcher.py). Every catcher that is
named has to see it: a scenario, a test, or the simulator with the seed that seeds.txt records. `make test-slow`
searches seeds anew. Without a bug no catcher sees anything. When code moves, the texts here move with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from consumer_bugs import CONSUMER_BUGS
from library_bugs import LIBRARY_BUGS
from mixed_bugs import MIXED_BUGS
from planting import Bug, Catchers, is_simulator, record, recorded_seeds, seed_in
from security_bugs import SECURITY_BUGS

REBALANCE, GROUP, JOIN, RUNNING = (
    "coordinator/classic/rebalance.py",
    "coordinator/classic/requests.py",
    "coordinator/classic/join.py",
    "coordinator/soft_state.py",
)
OFFSETS, CHECKS, DEADLINES = (
    "coordinator/offsets/offsets.py",
    "coordinator/classic/checks.py",
    "coordinator/deadlines.py",
)
SHARD, BROKER, SCHEDULE = "coordinator/shard.py", "broker/broker.py", "broker/turn_schedule.py"
FENCING, FETCH = "coordinator/offsets/ownership_fence.py", "broker/handlers/fetch.py"
PATTERNS, MATCHES = "coordinator/consumer/pattern_subscriptions.py", "coordinator/patterns/pattern_matches.py"
TARGETS, HANDOVER = "coordinator/consumer/target.py", "coordinator/consumer/staged_target.py"
SETTINGS, SHARDS, START = "coordinator/settings/group_settings.py", "broker/group_shards.py", "broker/start.py"
MACHINES = "broker/machines.py"


BUGS = (
    # -- durability
    Bug(
        "answers leave before the turn's commit",
        (
            (
                SCHEDULE,
                "        if turn.operations:\n",
                "        self._edge.release(turn)\n        if turn.operations:\n",
            ),
            (SCHEDULE, "-> None:\n        self._edge.release(turn)\n", "-> None:\n"),
        ),
        ("tests/server/test_turns.py::test_a_failed_commit_stops_everything_and_acknowledges_nothing",),
    ),
    Bug(
        "what a turn decided is written with the next one; until then only memory has it, and shows it",
        (
            (
                BROKER,
                "        return state.end_turn(releases)\n",
                "        turn = state.end_turn(releases)\n"
                "        late, self.late = getattr(self, 'late', ()), turn.operations\n"
                "        return Turn(late, *(getattr(turn, name) for name in ('releases', 'complaints', 'tasks')))\n",
            ),
        ),
        (
            "tests/broker/test_restart.py::test_r4_a_crash_at_any_commit_loses_nothing_acknowledged",
            "tests/broker/test_group_rows.py::test_after_a_failed_append_a_commit_never_was",
            "simulator of member",
        ),
    ),
    Bug(
        "the leader's assignment is answered and not written",
        ((REBALANCE, "        self._running.out.records.append(record)\n", ""),),
        (
            "sync_leader.txt",
            "tests/broker/test_restart.py::test_r4_a_crash_at_any_commit_keeps_what_members_were_told",
            "simulator of member",
        ),
    ),
    Bug(
        "a static member's new id is answered and not written",
        ((JOIN, "        self._running.out.records.append(record)\n", ""),),
        (
            "static_return.txt",
            "tests/broker/test_restart.py::test_r4_a_crash_at_any_commit_keeps_what_members_were_told",
        ),
    ),
    # -- generations
    Bug(
        "the generation rises when a rebalance starts, not when the join is complete",
        (
            (
                REBALANCE,
                "        self._running.enter(group, Phase.PREPARING, now)\n",
                "        group.generation_id += 1\n        self._running.enter(group, Phase.PREPARING, now)\n",
            ),
            (REBALANCE, "self._hard.generations.get(group.group_id, 0)) + 1", "0)"),
        ),
        ("heartbeat.txt", "join_rebalance_timeout.txt", "simulator of member"),
    ),
    Bug(
        "a generation is used again after the group was deleted",
        (
            (JOIN, "generation = self._hard.generations.get(", "generation = 0 and self._hard.generations.get("),
            (REBALANCE, "group.generation_id = max(", "group.generation_id = min("),
        ),
        ("generation_after_deletion.txt", "simulator of member"),
    ),
    Bug(
        "a generation is used again after a crash between join and sync",
        (
            (
                REBALANCE,
                "        self._running.out.records.append(generation_record(group.group_id, group.generation_id))\n",
                "",
            ),
        ),
        ("failover_between_join_and_sync.txt", "simulator of member"),
    ),
    Bug(
        "a generation that was lost in a crash goes on as if it had been synced",
        ((GROUP, 'self._rebalances.start(group, now, "a generation was lost")', "pass"),),
        ("failover_between_join_and_sync.txt", "unload_sync.txt"),
    ),
    Bug(
        "a name that was forgotten takes its generation along",
        ((OFFSETS, '            self._emit(generation_record("", highest))\n', "            pass\n"),),
        ("generation_forgotten.txt",),
    ),
    # -- fencing
    Bug(
        "the former self of a static member is not fenced",
        ((CHECKS, "        if owner != member_id:\n            return ErrorCode.FENCED_INSTANCE_ID\n", ""),),
        ("static_return.txt", "heartbeat_static.txt", "join_unknown.txt"),
    ),
    Bug(
        "a commit of an older generation is accepted",
        ((OFFSETS, "if generation != group.generation_id", "if generation > group.generation_id"),),
        ("commit_members.txt", "simulator of member, liar"),
    ),
    Bug(
        "a commit between join and sync is accepted",
        (
            (
                OFFSETS,
                "return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.COMPLETING else ErrorCode.NONE",
                "return ErrorCode.NONE",
            ),
        ),
        ("commit_members.txt", "commit_operator.txt"),
    ),
    Bug(
        "a commit without a member is accepted while the group has members",
        ((OFFSETS, "group.phase is Phase.EMPTY and generation < 0", "generation < 0"),),
        ("commit_operator.txt", "simulator of member"),
    ),
    Bug(
        "a commit that repeats is taken, whatever has become of its member",
        (
            (
                OFFSETS,
                "        if self._check_commit(request, commit.version):\n            return None\n",
                "",
            ),
        ),
        ("tests/broker/test_commits.py::test_a_refused_commit_changes_nothing",),
    ),
    Bug(
        "a commit that repeats is accepted as before, although its group has changed",
        (("broker/shortcuts/commits.py", "            or accepted.version != shard.version\n", ""),),
        ("tests/broker/test_commits.py::test_a_new_generation_refuses_the_kept_commit",),
    ),
    Bug(
        "a commit that repeats overtakes what its turn has decided before",
        ((MACHINES, "        return number in self._decided\n", "        return False\n"),),
        ("tests/broker/test_commits.py::test_records_decided_earlier_in_the_turn_are_written_first",),
    ),
    # -- timers
    Bug(
        "a timer that was moved fires at its old time",
        ((DEADLINES, "due is not None and due.when == when:", "due is not None:"),),
        ("heartbeat.txt", "static_silent.txt", "simulator of member"),
    ),
    Bug(
        "what came of a heartbeat counts after groups have changed",
        ((SHARD, "        if not _keeps_answers(event):\n            self.version += 1\n", ""),),
        ("simulator of member",),
    ),
    Bug(
        "what came of a heartbeat counts after a deadline was served",
        ((SHARD, "                    self.version += 1\n", ""),),
        ("tests/broker/test_heartbeats.py::test_a_heartbeat_learns_that_another_session_has_ended",),
    ),
    Bug(
        "a session ends while the member's join is parked",
        (
            (
                GROUP,
                "(member.join in self._running.parked and not member.is_new) or member.sync is not None",
                "member.sync is not None",
            ),
        ),
        ("parked_beyond_session.txt",),
    ),
    Bug(
        "a session ends while the member's sync is parked",
        (
            (
                GROUP,
                "(member.join in self._running.parked and not member.is_new) or member.sync is not None",
                "member.join in self._running.parked and not member.is_new",
            ),
        ),
        ("parked_beyond_session.txt",),
    ),
    Bug(
        "a commit does not keep the session alive",
        ((OFFSETS, "        if session is not None:\n", "        if False:\n"),),
        ("commit_members.txt", "simulator of member"),
    ),
    Bug(
        "a heartbeat does not keep the session alive while the group rebalances",
        (
            (
                GROUP,
                "        self._running.arm_session(group, group.members[request.member_id], now)\n",
                "        if group.phase is not Phase.PREPARING:\n"
                "            self._running.arm_session(group, group.members[request.member_id], now)\n",
            ),
        ),
        ("heartbeat.txt", "join_rebalance_timeout.txt"),
    ),
    Bug(
        "after a load members are held to no session",
        (
            (
                GROUP,
                "            for member in group.members.values():\n"
                "                self._running.arm_session(group, member, now)\n            if",
                "            if",
            ),
        ),
        ("failover.txt", "simulator of member"),
    ),
    # -- the rebalance
    Bug(
        "a rebalance completes without those that have been given an id and not used it yet",
        ((REBALANCE, "== len(group.members) and not group.pending and", "== len(group.members) and"),),
        ("pending_expires.txt",),
    ),
    Bug(
        "static members that are late are removed like others",
        (
            (
                REBALANCE,
                "            if member.instance_id is None:\n                self.remove(",
                "            if True:\n                self.remove(",
            ),
        ),
        ("join_static_stay.txt",),
    ),
    Bug(
        "members that never sync stay in a stable group",
        ((REBALANCE, 'case "sync", Phase.COMPLETING | Phase.STABLE:', 'case "sync", Phase.COMPLETING:'),),
        ("sync_overdue.txt", "simulator of member"),
    ),
    Bug(
        "followers are not told that the rebalance they wait for is off",
        (
            (
                REBALANCE,
                "                self._running.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))\n",
                "                pass\n",
            ),
        ),
        ("rejoin_completing.txt", "sync_overdue.txt", "simulator of member"),
    ),
    Bug(
        "a heartbeat that is held sleeps through the start of a rebalance",
        (
            (
                REBALANCE,
                "            self._running.answer_heartbeat(group, member, ErrorCode.REBALANCE_IN_PROGRESS)\n",
                "",
            ),
        ),
        ("heartbeat_held.txt",),
    ),
    Bug(
        "a request that a newer one replaces is never answered",
        (
            (
                RUNNING,
                "        member.join = event.request_id\n",
                "        member.join = event.request_id\n        self.out.replies[:] = self.out.replies[:-1]\n",
            ),
        ),
        ("parked_replaced.txt", "simulator of member"),
    ),
    # -- expiry
    Bug(
        "offsets expire while the group rebalances",
        (
            (
                OFFSETS,
                "subscribed_topics(group) if group.phase is Phase.STABLE else None",
                "subscribed_topics(group) if group.phase is Phase.STABLE else set()",
            ),
        ),
        ("expiry_stable.txt", "simulator of member"),
    ),
    Bug(
        "a group expires under members that are about to join",
        ((OFFSETS, " and not group.pending and len(expired)", " and len(expired)"),),
        ("expiry_simple.txt",),
    ),
    Bug(
        "offsets of a topic that was created again are those of its former self",
        (
            (
                OFFSETS,
                "if value is None or (topic_id != value.topic_id and NO_UUID not in (topic_id, value.topic_id)):",
                "if value is None:",
            ),
        ),
        ("tests/broker/test_group_rows.py::test_offsets_of_a_topics_former_self_are_not_read_by_its_id",),
    ),
    Bug(
        "a group with members can be deleted",
        (
            (
                SHARD,
                "has_members = group is not None and group.phase is not Phase.EMPTY",
                "has_members = group is not None and group.phase is Phase.STABLE",
            ),
        ),
        ("delete_groups_by_state.txt",),
    ),
    # -- fencing by ownership
    Bug(
        "commits are not fenced by ownership",
        ((FENCING, "    if by_ownership:\n", "    if by_ownership and epoch != state.member_epoch:\n"),),
        ("consumer_fenced_commits.txt", "simulator of zombie"),
    ),
    Bug(
        "a fetch is judged when it arrives, not when it is answered",
        (
            (
                FETCH,
                "    fence = _fence(state, request)\n",
                "    fences = state.__dict__.setdefault('fences', {})\n"
                "    fence = fences.setdefault(context.request_id, _fence(state, request))\n",
            ),
        ),
        (
            "tests/broker/test_fetch_fencing.py::test_a_fetch_that_waits_is_judged_when_it_is_answered",
            "tests/broker/test_fetch_fencing.py::test_a_fetch_that_has_waited_in_vain_tells_what_was_lost",
            "tests/broker/test_fetch_fencing.py::test_a_zombie_whose_session_has_ended_reads_nothing_more",
            "simulator of zombie",
        ),
    ),
    Bug(
        "what a member is to give up is no longer its own",
        ((FENCING, " and partition not in state.revoking:", ":"),),
        (
            "consumer_fenced_commits.txt",
            "tests/broker/test_fetch_fencing.py::test_a_member_reads_on_until_it_has_acknowledged",
            "simulator of zombie",
        ),
    ),
    Bug(
        "an epoch from before a partition was lost and got again is good for it",
        ((FENCING, "since is not None and since <= epoch <= state.member_epoch", "since is not None"),),
        (
            "consumer_fenced_commits.txt",
            "consumer_offsets.txt",
            "tests/broker/test_fetch_fencing.py::test_a_partition_that_comes_back_is_another_tenure",
            "simulator of zombie",
        ),
    ),
    # -- regular expressions
    Bug(
        "a pattern matches within a name",
        (
            (
                "coordinator/patterns/regex.py",
                "if compiled.fullmatch(name) is not None",
                "if compiled.search(name) is not None",
            ),
        ),
        (
            "consumer_regex.txt",
            "consumer_regex_nothing.txt",
            "tests/coordinator/test_regex.py::test_it_finds_what_python_finds",
        ),
    ),
    Bug(
        "topics that are created later are not compared with the patterns in use",
        ((MATCHES, "                known.todo += created\n", "                pass\n"),),
        (
            "consumer_regex.txt",
            "consumer_regex_restart.txt",
            "tests/broker/test_patterns.py::test_topics_are_looked_for_beside_the_turns",
        ),
    ),
    Bug(
        "an answer from before the coordinator went down is taken for the one that is awaited",
        ((MATCHES, "        if task is None or task.number != event.number:\n", "        if task is None:\n"),),
        (
            "consumer_regex_restart.txt",
            "tests/coordinator/test_pattern_matches.py::test_only_the_result_of_the_running_task_counts",
        ),
    ),
    Bug(
        "what patterns match is not looked at again after a restart",
        (
            (
                PATTERNS,
                "            for text in group.pattern_users:\n                self._matches.use(",
                "            for text in ():\n                self._matches.use(",
            ),
        ),
        (
            "consumer_regex_restart.txt",
            "tests/broker/test_patterns.py::test_what_matched_outlives_a_restart",
        ),
    ),
    Bug(
        "the record of a pattern stays when nobody uses it any more",
        ((PATTERNS, "        if former and former != present:\n", "        if False:\n"),),
        ("consumer_regex.txt",),
    ),
    Bug(
        "a member that changes its pattern loses what it has before the new one is known",
        (
            (
                "coordinator/consumer/members.py",
                "subscribed=None if group.is_pending(member_id) else _Subscribed(",
                "subscribed=_Subscribed(",
            ),
        ),
        ("consumer_regex_nothing.txt", "consumer_regex_held.txt"),
    ),
    Bug(
        "offsets expire while it is not known what a pattern matches",
        ((OFFSETS, "            if consumers is not None and consumers.has_pending:\n", "            if False:\n"),),
        ("consumer_regex_offsets.txt",),
    ),
    Bug(
        "topics that a pattern matches do not count as subscribed",
        (
            (
                "coordinator/consumer/group.py",
                "        return [*self._count(sorted(names - were), 1), *self._count(sorted(were - names), -1)]\n",
                "        return []\n",
            ),
        ),
        ("consumer_regex_offsets.txt",),
    ),
    Bug(
        "each topic that is created is a record with all names, at once",
        ((PATTERNS, "            elif now < due:\n", "            elif False:\n"),),
        ("consumer_regex.txt",),
    ),
    # -- settings of groups
    Bug(
        "groups' own settings are forgotten with a restart",
        (
            (
                START,
                "    for group_id, configs in state.catalog.group_configs.items():\n",
                "    for group_id, configs in ():\n",
            ),
        ),
        ("tests/broker/test_group_configs.py::test_a_change_reaches_the_shard_and_lasts",),
    ),
    Bug(
        "a change of a group's settings is kept, and its shard is not told",
        ((SHARDS, "        self.machines.ask(self.of(group_id), GroupConfigsChanged(group_id, configs))\n", ""),),
        (
            "tests/broker/test_group_configs.py::test_a_change_reaches_the_shard_and_lasts",
            "tests/broker/test_group_configs.py::test_all_configs_are_replaced_by_the_older_api",
        ),
    ),
    Bug(
        "settings that are taken back stay in force",
        ((SETTINGS, "            self._own.pop(group_id, None)\n", "            pass\n"),),
        (
            "consumer_group_settings.txt",
            "tests/broker/test_group_configs.py::test_a_change_reaches_the_shard_and_lasts",
        ),
    ),
    Bug(
        "a rollout hold holds nothing",
        (
            (
                TARGETS,
                "        return until > now and self._consumers.of(group).freeze_ended_ms != until\n",
                "        return False\n",
            ),
        ),
        ("consumer_hold.txt", "consumer_hold_dead.txt", "simulator of operator"),
    ),
    Bug(
        "a death during a hold lets everybody's partitions move",
        (
            (
                HANDOVER,
                "            targets[owner].add(partition)\n    waiting = 0\n",
                "            pass\n    waiting = 0\n",
            ),
        ),
        ("consumer_hold_dead.txt", "simulator of operator"),
    ),
    Bug(
        "a hold that enough members ended comes back with a restart",
        ((SHARDS, "        for group_id in effects.holds_over:\n", "        for group_id in ():\n"),),
        ("tests/broker/test_group_configs.py::test_a_hold_that_enough_members_ended_is_over_for_good",),
    ),
    Bug(
        "a group's session may be shorter than its heartbeat interval",
        (
            (
                SETTINGS,
                "        if settings.session_timeout_ms <= settings.heartbeat_interval_ms:\n",
                "        if False:\n",
            ),
        ),
        ("tests/broker/test_group_configs.py::test_a_session_is_longer_than_the_interval",),
    ),
)


ALL = (*BUGS, *CONSUMER_BUGS, *MIXED_BUGS, *LIBRARY_BUGS, *SECURITY_BUGS)
CATCHERS = tuple(dict.fromkeys(catcher for bug in ALL for catcher in bug.caught_by))
FOUND_BY_SEEDS = [bug for bug in ALL if any(map(is_simulator, bug.caught_by))]


@pytest.fixture(scope="session")
def catchers() -> Iterator[Catchers]:
    with closing(Catchers(catcher for catcher in CATCHERS if "::" in catcher)) as process:
        yield process


@pytest.mark.parametrize("bug", ALL, ids=[bug.what for bug in ALL])
def test_a_planted_bug_is_caught(bug: Bug, catchers: Catchers) -> None:
    """The simulator catches it with the seed that is recorded."""
    seen = catchers.see(bug.changes, bug.caught_by, recorded_seeds().get(bug.what))
    assert set(seen) == set(bug.caught_by)
    assert [catcher for catcher, what in seen.items() if what is None] == [], "did not see it"


@pytest.fixture(scope="session")
def searched(request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """The first seeds that catch bugs; with `--rewrite` they are recorded."""
    found: dict[str, int] = {}
    yield found
    if request.config.option.rewrite:
        record(recorded_seeds() | found)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", FOUND_BY_SEEDS, ids=[bug.what for bug in FOUND_BY_SEEDS])
def test_the_simulator_finds_it_by_itself(bug: Bug, catchers: Catchers, searched: dict[str, int]) -> None:
    seen = catchers.see(bug.changes, filter(is_simulator, bug.caught_by))
    [what] = seen.values()
    assert what is not None, "no seed sees it"
    searched[bug.what] = seed_in(what)


@pytest.mark.timeout(620)
def test_without_a_bug_nothing_is_seen(catchers: Catchers) -> None:
    """All that any bug is caught by; of the simulator's seeds a few, because its own tests run them too."""
    seen = catchers.see((), CATCHERS, search=20)
    assert {catcher: what for catcher, what in seen.items() if what is not None} == {}
