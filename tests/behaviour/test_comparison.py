"""The comparison with Apache Kafka, without Kafka: what is compared, what is not, and what is known of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import departures
import pytest
import random_requests as requests
import random_run
import random_transactions as transactions
import scenario_files as files
import scenario_run
from guide import Guide
from lanes import DOCUMENT, STRICT, Lane, documented
from lanes import USUAL as LANE
from servers import USUAL as SETTINGS
from servers import Pair, started, starting_kohort
from test_scenarios import SCENARIOS

from kohort.conformance.play import transcript as peer_transcript
from kohort.conformance.play.profiles import RESTARTED, USUAL
from kohort.conformance.rows import NOT_PLAYED

FOLDER = Path(__file__).parent
RULES = "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("departures.py", "random_transactions.py"))
VERBS = ("delete-offsets", "txn-commit", "add-offsets")
"""Words of the rules that are no differences."""
OF_AUTHORIZATION = {"acl-hosts", "acls-checked", "patterns-see-all", "revoked-while-waiting"}
"""Differences of a server with an authorizer, which the two servers do not have; see tests/broker/security."""


@contextmanager
def two_of_kohort(lane: Lane = LANE, **other: str) -> Iterator[Pair]:
    """Two servers that play Kafka and kohort; the first one also has other settings."""
    topics = scenario_run.SHARED_TOPICS | requests.TOPICS
    with starting_kohort(SETTINGS | other, lane) as first, starting_kohort(SETTINGS, lane) as second:
        yield started({"kafka": first, "kohort": second}, topics, lane)


def test_every_scenario_is_run_or_listed_with_a_reason() -> None:
    run, listed = {scenario.name for scenario in files.scenarios()}, files.reasons(files.NOT_RUN)
    assert run | listed.keys() == {path.stem for path in SCENARIOS}
    assert run & listed.keys() == set()
    assert all(len(reason) > 15 for reason in listed.values()), listed


def test_every_row_of_the_conformance_list_is_shown_or_listed_with_a_reason() -> None:
    document = (DOCUMENT.parent / "conformance.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| ([A-Z]+\d+) \|", document, re.MULTILINE))
    assert len(rows) == 322
    listed = files.reasons(NOT_PLAYED)
    assert rows - files.rows_shown() == listed.keys()
    assert all(len(reason) > 10 for reason in listed.values()), listed


def test_every_difference_is_explained_and_every_explanation_is_of_one() -> None:
    shown = {known for entry in files.known().values() for known in entry.ids}
    for path in files.SEQUENCES.glob("*.txt"):
        shown.update(filter(None, map(peer_transcript.difference_of, path.read_text(encoding="utf-8").splitlines())))
    shown |= {word for word in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', RULES) if word not in VERBS}
    assert shown - documented().keys() == set(), "not in docs/differences.md"
    assert documented().keys() - shown == OF_AUTHORIZATION, "nothing shows these"


def test_the_strict_lane_shows_nothing_but_what_stays() -> None:
    run = {scenario.name for scenario in files.scenarios(STRICT)}
    for name, entry in files.known(STRICT).items():
        assert name in run, f"{name}.txt is not run"
        assert entry.ids, f"{name}.txt: no id says why"
        assert set(entry.ids) <= STRICT.ids, f"{name}.txt: docs/differences.md says that strict servers are as Kafka"
        assert entry.differences, name


def test_a_departure_that_strict_servers_lack_explains_nothing_there() -> None:
    for lane, known in ((LANE, "numbers-go-on"), (STRICT, "")):
        world = Guide(prompt=True, lane=lane)
        for command in (requests.SETTINGS, "group g a", "leave g a", "delete g"):
            world.play(command)
        assert departures.before(world, "join g b v=3") == known


def test_every_known_difference_of_a_scenario_has_an_id_and_two_answers() -> None:
    run = {scenario.name: scenario for scenario in files.scenarios()}
    for name, entry in files.known().items():
        assert name in run, f"{name}.txt is not run"
        assert entry.ids, f"{name}.txt: no id says why"
        for row in entry.differences:
            assert row.command in run[name].commands, f"{name}.txt has no {row.command!r}"
            servers = {line.split()[0] for line in row.lines}
            assert servers == {"kafka", "kohort"} or (entry.varies and row == row.example()), row


def test_a_seed_makes_the_same_sequence_whatever_the_hashes_are() -> None:
    program = "import random_requests as r; print([r.sequence(seed)[0] for seed in range(60)])"
    paths = os.pathsep.join([*(str(FOLDER.parent / name) for name in ("behaviour", "coordinator", "peers")), *sys.path])
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": hashes},
            capture_output=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(printed) == 1


def test_sequences_are_of_every_kind_and_of_many_versions() -> None:
    commands = [command for seed in range(300) for command in requests.sequence(seed)[0]]
    for verb in ("join", "sync", "heartbeat", "leave", "commit", "fetch", "describe", "list"):
        versions = {
            word for command in commands if command.split()[0] == verb for word in command.split() if word[:2] == "v="
        }
        assert len(versions) >= 5, verb
    for verb in ("beat", "delete", "delete-offsets", "describe-consumer"):
        assert any(command.split()[0] == verb for command in commands), verb


@pytest.mark.parametrize("lane", [LANE, STRICT], ids=["usual", "strict"])
def test_the_answers_of_two_servers_that_are_the_same_are_the_same(lane: Lane) -> None:
    with two_of_kohort(lane) as pair:
        results = [random_run.of_seed(pair, seed) for seed in range(4 * len(requests.KINDS))]
    assert [result.commands[: result.at + 1] for result in results if result.at >= 0] == []
    assert sum(result.compared for result in results) > 300


@pytest.mark.timeout(240)
def test_a_difference_is_found_and_made_short() -> None:
    with two_of_kohort(**{"group.max.size": "2"}) as pair:
        found = next(text for seed in range(0, 600, 6) if (text := random_run.finding(pair, seed)))
    asked = [line.strip() for line in found.splitlines() if line.startswith("    ") and line[4] != " "]
    assert "GROUP_MAX_SIZE_REACHED" in found
    assert len(asked) <= random_run.PREPARED + 6, found


def test_transactions_are_asked_about_in_every_way() -> None:
    for lane in (LANE, STRICT):
        commands = [command for seed in range(200) for command in transactions.sequence(seed, lane)]
        verbs = {"add", "ask", "add-offsets", "send", "txn-commit", "end", "init", "read", "ends", "producers", "fetch"}
        assert verbs <= {command.split()[0] for command in commands}
        assert any("copy " in command for command in commands) == (lane is STRICT)
        for verb in ("add", "add-offsets", "send", "end", "init", "txn-commit"):
            versions = {word for one in commands if one.split()[0] == verb for word in one.split() if word[:2] == "v="}
            assert len(versions) >= 4, verb


@pytest.mark.timeout(240)
@pytest.mark.parametrize("lane", [LANE, STRICT], ids=["usual", "strict"])
def test_transactions_of_two_servers_that_are_the_same_are_the_same(lane: Lane) -> None:
    said: list[str] = []
    with two_of_kohort(lane) as pair:
        assert transactions.compared(pair, range(12), said.append) == []
    assert "not when played again" not in "".join(said)


@pytest.mark.timeout(240)
def test_a_difference_of_transactions_is_found_and_made_short() -> None:
    with two_of_kohort(**{"transaction.max.timeout.ms": "50000"}) as pair:
        assert transactions.compare(pair, transactions.OPENING).at == 1
    with two_of_kohort(**{"transaction.partition.verification.enable": "false"}) as pair:
        found = next(result for seed in range(60) if (result := transactions.finding(pair, seed)))
    assert found.kafka != found.kohort
    assert found.at <= len(transactions.OPENING) + 3, found


@pytest.mark.parametrize(
    ("command", "kafka", "kohort", "known"),
    [
        ("send x t:0", "    log_append_time_ms=set log_start_offset=0", "    log_start_offset=0", "repeat-timestamp"),
        ("send x t:0", "    log_append_time_ms=set log_start_offset=0", "    log_start_offset=1", ""),
        ("send x t:0", "    error=45 base_offset=-1", "    log_start_offset=0", "refused-first"),
        ("send x t:0", "    error=47 base_offset=-1", "    log_start_offset=0", ""),
        ("send x t:0", "    log_start_offset=0", "    error=45 base_offset=-1", ""),
        ("end x commit", "error=45", "ok", ""),
        ("delete-offsets t:1", "    partition_index=1", "error=69 GROUP_ID_NOT_FOUND", "empty-group"),
        ("delete-offsets t:1", "error=69 GROUP_ID_NOT_FOUND", "    partition_index=1", ""),
        ("txn-commit x t:1", "  error=25 UNKNOWN_MEMBER_ID", "  error=22 ILLEGAL_GENERATION", "empty-group"),
        ("txn-commit x t:1", "  error=25 UNKNOWN_MEMBER_ID", "  error=49 INVALID_PRODUCER_ID_MAPPING", ""),
    ],
)
def test_known_differences_of_transactions(command: str, kafka: str, kohort: str, known: str) -> None:
    assert transactions.explained(command, ["name='t'", kafka], ["name='t'", kohort], {"x"}) == known
    is_state = known == "refused-first"
    assert (transactions.explained(command, ["name='t'", kafka], ["name='t'", kohort], ()) == known) == (not is_state)


def test_scenarios_say_over_the_wire_what_they_say_in_process() -> None:
    chosen = {scenario.name: scenario for scenario in files.scenarios() if scenario.profile is USUAL}
    with two_of_kohort(**USUAL.settings) as pair:
        for name in ("heartbeat_static", "consumer_offsets", "offset_delete_simple"):
            scenario = chosen[name]
            transcript = scenario_run.play(pair, "kafka", scenario).transcript
            guide = Guide()
            answered = 0
            for number, command in enumerate(scenario.commands):
                guide.play(command)
                answered += len(scenario.hints.answered[number])
            lines = [line for lines in transcript for line in lines if line[0] != " "]
            assert len([line for line in lines if not line.startswith(("fetched", "listed", "described"))]) == answered


def test_a_scenario_starts_its_server_again_with_other_settings_and_leaves_it_as_it_was() -> None:
    chosen = {scenario.name: scenario for scenario in files.scenarios() if scenario.profile is RESTARTED}
    full = chosen["group_full_after_restart"]
    with two_of_kohort(**RESTARTED.settings) as pair:
        transcript = [line for lines in scenario_run.play(pair, "kafka", full).transcript for line in lines]
        assert any("GROUP_MAX_SIZE_REACHED" in line for line in transcript), transcript
        described = scenario_run.play(pair, "kafka", chosen["sync_leader"]).transcript[-1]
        assert len([line for line in described if "member_id=" in line]) == 3, described


def test_varying_answers_have_the_errors_of_the_example() -> None:
    def difference(command: str, kafka: str, kohort: str) -> files.Difference:
        return files.Difference(command, (f"kafka  {kafka}", f"kohort {kohort}"))

    example = difference("sync g b", "b SyncGroup error=27", "b SyncGroup assignment=t:0")
    known = files.Known(("which-partitions",), (example,), varies=True)
    assert known.fits([])
    assert known.fits([difference("sync g b", "b SyncGroup assignment=t:1", "b SyncGroup assignment=t:2")])
    assert known.fits([difference("sync g b", "b SyncGroup error=27", "b SyncGroup assignment=t:1")])
    assert not known.fits([difference("sync g b", "b SyncGroup assignment=t:1", "b SyncGroup error=27")])
    assert not known.fits([difference("sync g b", "b SyncGroup error=25", "b SyncGroup assignment=t:0")])
    assert not known.fits([difference("sync g c", "c SyncGroup assignment=t:1", "c SyncGroup assignment=t:2")])


@pytest.mark.parametrize(
    ("plays", "is_found"), [("a a a", True), ("a ab a", True), ("a b a", False), ("ab a b", False)]
)
def test_a_difference_equal_in_every_late_play_is_a_finding(plays: str, is_found: bool) -> None:
    outcome = scenario_run.Outcome()
    rows = [tuple(files.Difference(command, ()) for command in play) for play in plays.split()]
    compared = [scenario_run.Compared(each, 1.0, is_sure=False) for each in rows]
    scenario_run.judge(files.scenarios()[0], compared, files.NOTHING, outcome)
    assert (len(outcome.findings), len(outcome.too_late)) == (is_found, not is_found)
    results = [random_run.Result((), 1, at=1, kafka=[play]) for play in plays.split()]
    assert random_run.is_sure(results) == (plays == "a a a")


def guide_after(*commands: str) -> Guide:
    world = Guide(prompt=True)
    for command in (requests.SETTINGS, *commands):
        world.play(command)
    return world


TIED = ("join g a v=3 protocols=one:t,two:t", "join g b v=3 protocols=two:t,one:t", "join g a", "sync g a")


@pytest.mark.parametrize(("protocols", "known"), [("two:t,one:t", "vote-tie"), ("one:t,two:t", "")])
def test_another_protocol_is_explained_by_a_tie_of_votes_alone(protocols: str, known: str) -> None:
    world = guide_after(*TIED, f"join g b protocols={protocols}", "join g a")
    answers = (["a JoinGroup generation_id=2 protocol_name='two'"], ["a JoinGroup generation_id=2 protocol_name='one'"])
    assert departures.after(world, "join g a", *answers) == known
    assert departures.after(world, "join g a", answers[0], ["a JoinGroup error=27 protocol_name='one'"]) == ""


@pytest.mark.parametrize(
    ("command", "theirs", "ours", "known"),
    [
        ("beat g x epoch=1 owned=t:0 id=x", 3, 2, "stale-epoch"),
        ("beat g x epoch=0 topics=u id=x", 3, 2, "join-acknowledges"),
        ("beat g x epoch=2 owned=t:0 id=x", 3, 2, ""),
        ("beat g x epoch=1 owned=t:0 id=x", 3, 3, ""),
        ("beat g x epoch=1 owned=t:0 id=x", 1, 2, ""),
    ],
)
def test_a_member_that_says_another_epoch_may_be_told_again_what_is(
    command: str, theirs: int, ours: int, known: str
) -> None:
    joins = ("beat g x epoch=0 topics=t id=x", "beat g y epoch=0 topics=t")
    world = guide_after("topics t=2 u=2", *joins, "beat g x epoch=1 owned=t:0 id=x")
    state = world.shard.consumers.groups["g"].state_of("x")
    assert state.member_epoch == 2
    answers = [[f"x ConsumerGroupHeartbeat member_id='x' member_epoch={epoch}"] for epoch in (theirs, ours)]
    assert departures.between(world, command, answers[0], answers[1], departed=False) == known


def test_a_departure_explains_no_answer_that_did_not_come() -> None:
    world = guide_after("topics t=2", "beat g x epoch=0 topics=t id=x", "beat g y epoch=0 topics=t id=y")
    answer = ["x ConsumerGroupHeartbeat member_id='x' member_epoch=3"]
    other = ["x ConsumerGroupHeartbeat member_id='x' member_epoch=4"]
    assert departures.between(world, "beat g x", answer, other, departed=True) == "departure-target"
    assert departures.between(world, "beat g x", answer, other, departed=False) == ""
    assert departures.between(world, "beat g x", answer, [], departed=True) == ""
    assert departures.between(world, "delete g", ["operator DeleteGroups a"], ["b"], departed=True) == ""


@pytest.mark.parametrize(("gen", "known"), [(2, "classic-timeouts"), (3, "")])
def test_a_member_that_rejoined_may_be_refused_a_commit_of_an_earlier_generation(gen: int, known: str) -> None:
    join = "join g b v=7 protocols=range:t instance=ib"
    beats = ("beat g y epoch=0 topics=u id=y", "beat g z epoch=0 topics=u id=z")
    world = guide_after("topics t=2 u=2", beats[0], join, beats[1], join)
    assert world.shard.consumers.groups["g"].state_of(world.names["g", "b"].member_id or "").member_epoch == 3
    taken, refused = ["b OffsetCommit name='t'", "        ok"], ["b OffsetCommit name='t'", "        error=22"]
    command = f"commit g b t-0=10 gen={gen} v=5"
    assert departures.between(world, command, taken, refused, departed=False) == known
    assert departures.between(world, command, refused, taken, departed=False) == ""
