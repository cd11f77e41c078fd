"""The transaction shard against the state table of Kafka's transaction coordinator, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_world import PRODUCER, T0, T1, World

from kohort.coordinator.events import Client, Loaded, Record, RequestId, Unloaded
from kohort.coordinator.transactions.events import PartitionsAdded, ProducerInit, TransactionEnd
from kohort.coordinator.transactions.records import parse, transaction_record
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.transaction import LAST_EPOCH, Place, State, Transaction
from kohort.wire.errors import ErrorCode, ProtocolError

DAY = 86_400_000


def begun(world: World, *, bumps: bool = True) -> World:
    assert world.init() == "0 1000/0"
    assert world.add(1000, 0, bumps=bumps) == "0"
    return world


# -- InitProducerId


def test_a_new_id_begins_at_epoch_0_and_each_init_raises_it() -> None:
    world = World()
    assert [world.init(), world.init(), world.init(name="y")] == ["0 1000/0", "0 1000/1", "0 1001/0"]


@pytest.mark.conformance("TX4")
def test_the_newest_timeout_counts() -> None:
    world = World()
    world.init(timeout_ms=5_000)
    world.init(timeout_ms=7_000)
    assert world.state().timeout_ms == 7_000


@pytest.mark.conformance("TX6")
def test_an_init_with_the_present_epoch_raises_it_and_may_be_repeated() -> None:
    world = World()
    world.init()
    assert world.init(1000, 0) == "0 1000/1"
    assert world.init(1000, 0) == "0 1000/1"
    world.restart()
    assert world.init(1000, 0) == "0 1000/1"
    assert world.init(1000, 1) == "0 1000/2"
    assert world.init(1000, 0) == "90"


@pytest.mark.conformance("TX6")
def test_an_init_with_a_foreign_producer_id_is_fenced() -> None:
    world = World()
    world.init()
    assert world.init(77, 0) == "90"


@pytest.mark.conformance("TX8")
def test_after_another_producers_init_the_old_one_is_fenced_everywhere() -> None:
    world = begun(World(at_once=True))
    assert world.init() == "51"  # the transaction is aborted
    assert world.init() == "0 1000/2"
    answers = [world.add(1000, 0), world.commit(1000, 0), world.abort(1000, 0), world.init(1000, 0)]
    assert answers == ["90", "90", "90", "90"]


@pytest.mark.conformance("TX9")
def test_an_init_aborts_the_open_transaction() -> None:
    world = begun(World())
    assert world.init() == "51"
    assert world.state().state is State.PREPARE_ABORT
    assert world.init() == "51"
    assert [(e.epoch, e.committed, e.places) for e in world.endings] == [(1, False, (T0,))]
    world.markers()
    assert world.init() == "0 1000/2"


@pytest.mark.conformance("TX9")
def test_a_zombies_init_does_not_abort_the_open_transaction() -> None:
    world = World()
    world.init()
    world.init()
    assert world.add(1000, 1) == "0"
    assert world.init(1000, 0) == "90"
    assert world.commit(1000, 1) == "0 1000/2"


@pytest.mark.conformance("TX7")
def test_after_a_timeout_the_producer_gets_the_next_epoch() -> None:
    world = begun(World(at_once=True))
    world.advance(60_002)
    assert world.state().state is State.COMPLETE_ABORT
    assert world.init(1000, 0) == "0 1000/1"


@pytest.mark.conformance("TX7")
def test_below_version_2_a_producer_whose_transaction_timed_out_is_fenced() -> None:
    world = begun(World(at_once=True, version=1), bumps=False)
    world.advance(60_002)
    assert world.init(1000, 0) == "90"


@pytest.mark.conformance("TX10")
def test_at_the_last_epoch_an_init_gives_a_new_producer_id() -> None:
    world = World()
    assert world.at(LAST_EPOCH) == 1000
    assert world.init() == "0 1001/0"


@pytest.mark.conformance("TX10")
def test_a_repeated_init_at_the_last_epoch_gives_the_same_new_producer_id() -> None:
    world = World()
    world.at(LAST_EPOCH)
    assert world.init(1000, LAST_EPOCH) == "0 1001/0"
    world.restart()
    assert world.init(1000, LAST_EPOCH) == "0 1001/0"


@pytest.mark.conformance("TX10")
def test_a_repeated_init_that_reached_the_last_epoch_gets_it_again() -> None:
    world = World()
    world.at(LAST_EPOCH - 1)
    assert world.init(1000, LAST_EPOCH - 1) == f"0 1000/{LAST_EPOCH}"
    assert world.init(1000, LAST_EPOCH - 1) == f"0 1000/{LAST_EPOCH}"


# -- adding partitions


@pytest.mark.conformance("TX13")
def test_adding_is_a_union_and_repeats_write_nothing() -> None:
    world = begun(World())
    length = len(world.log)
    assert world.add(1000, 0, T0) == "0"
    assert len(world.log) == length
    assert world.add(1000, 0, T1, T0) == "0"
    assert world.state().places == {T0, T1}


@pytest.mark.parametrize(("pid", "epoch", "answer"), [(77, 0, "49"), (1000, 1, "90"), (1000, -1, "90")])
@pytest.mark.conformance("TX12")
def test_adding_as_another_producer_is_refused(pid: int, epoch: int, answer: str) -> None:
    world = World()
    assert world.add(1000, 0) == "49"
    world.init()
    assert world.add(pid, epoch) == answer


@pytest.mark.conformance("TX12")
def test_adding_waits_for_markers_before_the_producer_id_is_compared() -> None:
    world = begun(World())
    world.commit(1000, 0)
    assert [world.add(1000, 0), world.add(77, 0)] == ["51", "51"]
    world.markers()
    assert [world.add(1000, 0), world.add(1000, 1)] == ["90", "0"]


def test_activity_does_not_prolong_a_transaction() -> None:
    world = begun(World(at_once=True))
    world.advance(40_000)
    assert world.add(1000, 0, T1) == "0"
    world.advance(20_000)
    assert world.state().state is State.ONGOING
    world.advance(1)
    assert world.state().state is State.COMPLETE_ABORT


@pytest.mark.conformance("TX14")
def test_verification_is_a_question_and_changes_nothing() -> None:
    world = World()
    verify = world.shard.verify
    assert verify("x", 1000, 0, T0) == 49
    world.init()
    assert [verify("x", 1000, 0, T0), verify("x", 77, 0, T0), verify("x", 1000, 1, T0)] == [120, 49, 90]
    world.add(1000, 0)
    assert [verify("x", 1000, 0, T0), verify("x", 1000, 0, T1)] == [0, 120]
    world.commit(1000, 0)
    assert verify("x", 1000, 1, T0) == 51
    world.markers()
    assert verify("x", 1000, 1, T0) == 120


# -- EndTxn without new epochs


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.conformance("TX18")
def test_a_plain_end_keeps_the_epoch_and_says_no_producer(committed: bool) -> None:
    world = begun(World(), bumps=False)
    assert world.end(1000, 0, committed, bumps=False) == "0"
    assert [world.commit(1000, 0, bumps=False), world.abort(1000, 0, bumps=False)] == ["51", "51"]
    assert world.endings[0].epoch == 0
    world.markers()
    same, other = world.end(1000, 0, committed, bumps=False), world.end(1000, 0, not committed, bumps=False)
    assert [same, other] == ["0", "48"]
    assert world.add(1000, 0, bumps=False) == "0"


@pytest.mark.conformance("TX17", "TX18")
def test_a_plain_end_of_nothing_is_refused() -> None:
    world = World()
    assert world.commit(1000, 0, bumps=False) == "49"
    world.init()
    assert [world.commit(1000, 0, bumps=False), world.abort(1000, 0, bumps=False)] == ["48", "48"]
    assert [world.commit(77, 0, bumps=False), world.commit(1000, 5, bumps=False)] == ["49", "90"]


@pytest.mark.conformance("TX18")
def test_a_plain_end_on_an_older_connection_than_the_transaction_is_refused() -> None:
    """A delayed copy of the first transaction's end must not end the second, which has the same epoch."""
    world = World(at_once=True)
    world.init()
    world.add(1000, 0, bumps=False, connection=1)
    assert world.commit(1000, 0, bumps=False, connection=1) == "0"
    world.add(1000, 0, bumps=False, connection=2)
    assert world.commit(1000, 0, bumps=False, connection=1) == "90"
    assert world.state().state is State.ONGOING
    assert world.commit(1000, 0, bumps=False, connection=3) == "0"


def test_another_client_may_end_a_transaction_on_an_older_connection() -> None:
    """A driver commits what its tasks have prepared; Flink's committer does so too."""
    for driver in (Client("driver", PRODUCER.host), Client(PRODUCER.client_id, "/10.0.0.2")):
        world = World(at_once=True)
        world.init()
        for _ in range(2):
            world.add(1000, 0, bumps=False, connection=2)
            assert world.commit(1000, 0, bumps=False, connection=1, client=driver) == "0"


@pytest.mark.conformance("TX12")
def test_a_plain_addition_on_an_older_connection_than_another_is_refused() -> None:
    """A delayed copy must not begin a transaction that nobody ends, under which a delayed end would pass."""
    world = World(at_once=True)
    world.init()
    world.add(1000, 0, bumps=False, connection=2)
    assert world.commit(1000, 0, bumps=False, connection=2) == "0"
    assert world.add(1000, 0, bumps=False, connection=1) == "90"
    assert world.state().state is State.COMPLETE_COMMIT
    assert world.add(1000, 0, bumps=False, connection=2) == "0"
    assert world.add(1000, 0, T1, bumps=False, connection=3) == "0"
    assert world.add(1000, 0, T1, bumps=False, connection=2) == "90"
    world.init()
    world.init()
    assert world.add(1000, 2, bumps=False, connection=1) == "0", "another epoch: no copy of an earlier request"


def test_a_coordinator_that_has_moved_knows_no_connections() -> None:
    world = World(at_once=True)
    world.init()
    world.add(1000, 0, bumps=False, connection=2)
    world.step(Unloaded())
    world.step(Loaded())
    assert world.add(1000, 0, bumps=False, connection=1) == "0"
    assert world.commit(1000, 0, bumps=False, connection=1) == "0"


# -- EndTxn with new epochs


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.conformance("TX19", "TX20")
def test_each_end_gives_the_next_epoch(committed: bool) -> None:
    world = begun(World())
    assert world.end(1000, 0, committed, bumps=True) == "0 1000/1"
    assert (world.endings[0].epoch, world.endings[0].committed) == (1, committed)
    assert world.end(1000, 0, committed, bumps=True) == "51"
    world.markers()
    assert world.end(1000, 0, committed, bumps=True) == "0 1000/1"  # its answer was lost
    world.restart()
    assert world.end(1000, 0, committed, bumps=True) == "0 1000/1"
    assert world.add(1000, 1) == "0"


@pytest.mark.conformance("TX20")
def test_the_other_outcome_is_refused_after_the_end() -> None:
    world = begun(World(at_once=True))
    world.commit(1000, 0)
    assert world.abort(1000, 0) == "48"
    world = begun(World(at_once=True))
    world.abort(1000, 0)
    assert world.commit(1000, 0) == "90"


@pytest.mark.conformance("TX21")
def test_a_commit_that_lost_to_a_timeout_is_fenced_and_an_abort_succeeds() -> None:
    world = begun(World(at_once=True))
    world.advance(60_002)
    assert world.commit(1000, 0) == "90"
    assert world.abort(1000, 0) == "0 1000/1"


@pytest.mark.conformance("TX22")
def test_an_empty_commit_is_refused_and_an_empty_abort_raises_the_epoch() -> None:
    world = World()
    world.init()
    assert world.commit(1000, 0) == "48"
    assert world.abort(1000, 0) == "0 1000/1"
    assert world.endings[0].places == ()
    world.markers()
    assert world.commit(1000, 1) == "48"
    assert world.abort(1000, 1) == "0 1000/2"


def test_a_repeated_end_during_the_next_transaction_is_fenced() -> None:
    world = begun(World(at_once=True))
    world.commit(1000, 0)
    world.add(1000, 1)
    assert [world.commit(1000, 0), world.abort(1000, 0)] == ["90", "90"]
    assert world.state().state is State.ONGOING


def test_an_end_after_an_init_is_fenced() -> None:
    world = World()
    world.init()
    world.init(1000, 0)
    assert [world.commit(1000, 0), world.abort(1000, 0)] == ["90", "90"]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.conformance("TX23")
def test_the_last_epoch_ends_with_a_new_producer_id(restarts: bool) -> None:
    world = World()
    world.at(LAST_EPOCH)
    assert world.add(1000, LAST_EPOCH) == "0"
    assert world.commit(1000, LAST_EPOCH) == "0 1001/0"
    assert (world.endings[0].producer_id, world.endings[0].epoch) == (1000, LAST_EPOCH + 1)
    if restarts:
        world.restart()
    world.markers()
    assert world.commit(1000, LAST_EPOCH) == "0 1001/0"
    assert [world.add(1000, LAST_EPOCH), world.add(1001, 0)] == ["49", "0"]


def test_a_timeout_at_the_last_epoch_gives_a_new_producer_id() -> None:
    world = World(at_once=True)
    world.at(LAST_EPOCH)
    world.add(1000, LAST_EPOCH)
    world.advance(60_002)
    assert world.init(1000, LAST_EPOCH) == "0 1001/0"


def test_below_version_2_a_timeout_at_the_last_epoch_leaves_a_new_producer_id_to_the_next_init() -> None:
    world = World(at_once=True, version=1)
    world.at(LAST_EPOCH)
    world.add(1000, LAST_EPOCH, bumps=False)
    world.advance(60_002)
    assert world.state().epoch == LAST_EPOCH + 1
    assert world.init() == "0 1001/0"


# -- as Kafka 4.3, in strict mode


def test_a_strict_server_lets_a_zombies_init_abort_the_transaction() -> None:
    world = World(zombie_init=False)
    world.init()
    world.init()
    world.add(1000, 1)
    assert world.init(77, 0) == "90"
    assert world.init(1000, 0) == "51"
    assert world.state().state is State.PREPARE_ABORT
    world.markers()
    assert world.init(1000, 0) == "90"


def test_a_strict_server_ends_a_producer_whose_commit_lost_to_a_timeout() -> None:
    world = begun(World(at_once=True, lost_to_timeout=False))
    world.advance(60_002)
    assert world.commit(1000, 0) == "48"
    assert world.abort(1000, 0) == "0 1000/1"


def test_a_strict_server_takes_a_delayed_end_for_one_of_this_transaction() -> None:
    world = World(at_once=True, older_connection=False)
    world.init()
    world.add(1000, 0, bumps=False, connection=2)
    world.add(1000, 0, T1, bumps=False, connection=1)
    assert world.commit(1000, 0, bumps=False, connection=1) == "0"


# -- deadlines, restarts


def test_a_timeout_counts_from_the_first_partition_over_a_restart() -> None:
    world = begun(World(at_once=True))
    world.advance(30_000)
    world.restart()
    world.advance(30_000)
    assert world.state().state is State.ONGOING
    world.advance(1)
    assert world.state().state is State.COMPLETE_ABORT


@pytest.mark.conformance("TX6")
def test_an_id_is_forgotten_after_seven_days_without_a_transaction() -> None:
    world = begun(World(at_once=True))
    world.commit(1000, 0)
    world.advance(7 * DAY - 1)
    assert "x" in world.shard.ids
    world.advance(1)
    assert "x" not in world.shard.ids
    assert [world.add(1000, 1), world.commit(1000, 1), world.init(1000, 1)] == ["49", "49", "0 1001/0"]
    world.restart()


def test_a_restart_writes_the_markers_of_a_decided_transaction_again() -> None:
    world = begun(World())
    world.add(1000, 0, T1)
    world.commit(1000, 0)
    world.restart()
    assert [(e.epoch, e.committed, e.places) for e in world.endings] == [(1, True, (T0, T1))]
    world.markers()
    assert world.state().state is State.COMPLETE_COMMIT


def test_late_news_of_markers_completes_nothing() -> None:
    world = begun(World())
    world.commit(1000, 0)
    late = world.endings[0]
    world.markers()
    world.add(1000, 1)
    world.commit(1000, 1)
    world.endings.insert(0, late)
    kept = world.endings.pop()
    world.markers()
    assert world.state().state is State.PREPARE_COMMIT
    world.endings.append(kept)
    world.markers()
    assert world.state().state is State.COMPLETE_COMMIT


def test_a_shard_that_loads_or_has_moved_serves_nobody() -> None:
    shard = TransactionShard(0, TransactionSettings(), lambda: 1)
    asked = (
        ProducerInit(RequestId(1), "x", 1),
        PartitionsAdded(RequestId(2), "x", 1, 0, (T0,), True),
        TransactionEnd(RequestId(3), "x", 1, 0, True, True),
    )

    def errors() -> list[ErrorCode]:
        return [shard.step(event, 0).replies[0].body.error for event in asked] + [shard.verify("x", 1, 0, T0)]

    assert errors() == [14] * 4
    shard.step(Loaded(), 0)
    assert errors() == [0, 49, 49, 49]
    shard.step(Unloaded(), 0)
    assert errors() == [16] * 4


# -- records


def test_a_record_in_bytes() -> None:
    transaction = Transaction(
        7,
        3,
        60_000,
        State.ONGOING,
        7,
        -1,
        2,
        frozenset((T1, T0, Place("u", 5))),
        started=8,
        updated=9,
        client_version=2,
    )
    record = transaction_record("ab", transaction)
    assert record.key == b"\0\0\0\2ab"
    assert record.value == bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "03 02 74 03 00000000 00000001 00 02 75 02 00000005 00"
        "0000000000000009 0000000000000008"
        "03 00 08 0000000000000007 02 02 0002 b1ea01 02 0002"
    )
    assert parse(Record(record.key, record.value)) == ("ab", transaction)
    assert parse(transaction_record("ab", None)) == ("ab", None)


def test_a_record_of_version_0_is_read() -> None:
    value = bytes.fromhex("0000 0000000000000007 0003 0000ea60 04 ffffffff 0000000000000009 ffffffffffffffff")
    expected = Transaction(7, 3, 60_000, State.COMPLETE_COMMIT, updated=9)
    assert parse(Record(b"\0\0\0\1a", value)) == ("a", expected)


def test_a_record_of_an_unknown_kind_is_skipped_and_of_an_unknown_version_refused() -> None:
    assert parse(Record(b"\0\1\0\1a", b"")) is None
    for value in (b"\0\2", b"", b"\0\1\0"):
        with pytest.raises(ProtocolError):
            parse(Record(b"\0\0\0\1a", value))


# -- any history

PRODUCERS = st.tuples(st.sampled_from([-1, 0, 1]), st.sampled_from([-2, -1, 0, 1]))
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["init", "init named", "add", "commit", "abort", "markers", "restart", "advance"]),
        PRODUCERS,
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


@given(MOVES, st.sampled_from([1, 2]), st.booleans(), st.sampled_from([0, LAST_EPOCH - 3]))
@settings(max_examples=300, deadline=None)
def test_any_history_keeps_the_promises(
    moves: list[tuple[str, tuple[int, int], bool, bool]], version: int, at_once: bool, first: int
) -> None:
    """No producer id and epoch is given to two, one outcome for each epoch of markers, and live state is the fold."""
    world = World(version=version, at_once=at_once)
    world.at(first)
    given_to: dict[tuple[int, int], str] = {}
    newest = (1000, first)
    for what, (id_off, epoch_off), bumps, is_known in moves:
        now = world.state() if "x" in world.shard.ids else None
        pid, epoch = (now.producer_id, now.epoch) if is_known and now else (newest[0] + id_off, newest[1] + epoch_off)
        match what:
            case "init":
                answer = world.init()
                if answer.startswith("0 "):
                    assert answer not in given_to, "a plain init gives what nobody had"
                    given_to[_pair(answer)] = what
            case "init named":
                answer = world.init(pid, epoch) if pid >= 0 and epoch >= 0 else ""
            case "add":
                answer = world.add(pid, epoch, bumps=bumps)
                assert answer != "0" or (pid, epoch) == (world.state().producer_id, world.state().epoch)
            case "commit" | "abort":
                answer = world.end(pid, epoch, what == "commit", bumps=bumps)
            case "markers":
                answer = ""
                world.markers()
            case "restart":
                answer = ""
                world.restart()
            case _:
                answer = ""
                world.advance(45_000)
        if answer.startswith("0 "):
            pair = _pair(answer)
            assert pair[1] <= LAST_EPOCH
            assert pair[0] > newest[0] or (pair[0] == newest[0] and pair[1] >= newest[1]), "epochs only rise"
            newest = pair
    outcomes: dict[tuple[int, int], set[bool]] = {}
    for ending in world.markers_of:
        outcomes.setdefault((ending.producer_id, ending.epoch), set()).add(ending.committed)
    if version == 2 and all(bumps for _, _, bumps, _ in moves):
        assert all(len(decided) == 1 for decided in outcomes.values())


def _pair(answer: str) -> tuple[int, int]:
    producer_id, epoch = answer.split()[1].split("/")
    return int(producer_id), int(epoch)
