"""`kohort transactions`, and what `topics describe` and `groups describe` say of open transactions: against a scripted
broker. tests/peers/test_transaction_tools.py has real ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
import yaml
from run_command import Ran, Terminal
from scripted_broker import topic
from transaction_broker import Producer, Transaction, TransactionBroker
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.cli.connect import complete_transactions
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import describe_configs, offset_fetch
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.describe_producers import DescribeProducersRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.list_transactions import ListTransactionsRequest
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest
from kohort.wire.schemas.write_txn_markers import WriteTxnMarkersRequest

Run = Callable[..., Ran]
PAYMENTS = "payments-1"
SETTINGS = describe_configs.DescribeConfigsResponse(
    results=(
        describe_configs.DescribeConfigsResult(
            error_code=0, error_message=None, resource_type=2, resource_name="orders", configs=()
        ),
    )
)


@pytest.fixture
def broker() -> Iterator[TransactionBroker]:
    """`payments-1` is open in both partitions of `orders`, for a minute."""
    with TransactionBroker(topic("orders", 1, 1)) as running:
        running.script[DescribeConfigsRequest] = SETTINGS
        an_hour_ago = int(time.time() * 1000) - 3_600_000
        running.transactions[PAYMENTS] = Transaction(
            900, started_ms=an_hour_ago, timeout_ms=7_200_000, partitions=(("orders", 0), ("orders", 1))
        )
        running.producers["orders", 0] = [Producer(900, start=120, last_timestamp=an_hour_ago)]
        running.producers["orders", 1] = [Producer(900, start=7, last_timestamp=an_hour_ago)]
        running.ends = {("orders", 0): (120, 140), ("orders", 1): (7, 9)}
        yield running


@pytest.fixture
def hanging(broker: TransactionBroker) -> TransactionBroker:
    """As `broker`, but nobody knows the transaction that is open in orders-0; payments-1 is open in orders-1 alone."""
    broker.producers["orders", 0][0].producer_id = 901
    broker.transactions[PAYMENTS].partitions = (("orders", 1),)
    return broker


@pytest.fixture
def kohort(broker: TransactionBroker) -> Run:
    def run(*arguments: str, answer: str | None = None, code: int = 0) -> Ran:
        """`answer`: what is typed on the terminal; without one there is no terminal."""
        runner = CliRunner(env={"KOHORT_BOOTSTRAP_SERVER": broker.address})
        with pytest.MonkeyPatch.context() as patch:
            if answer is not None:
                patch.setattr("kohort.cli.confirmation.sys", Terminal)
            result = runner.invoke(app, arguments, input=answer)
        ran = Ran(result.exit_code, result.stdout, result.stderr)
        assert ran.code == code, f"{ran}\n{result.exception}"
        return ran

    return run


def words(line: str) -> list[str]:
    return line.split()


# -- list


def test_list(kohort: Run, broker: TransactionBroker) -> None:
    broker.transactions["other"] = Transaction(2, "CompleteCommit")
    heading, first, second = kohort("transactions", "list").out.splitlines()
    assert words(heading) == ["TRANSACTIONAL-ID", "PRODUCER-ID", "STATE", "COORDINATOR"]
    assert words(first) == ["other", "2", "CompleteCommit", "1"]
    assert words(second) == [PAYMENTS, "900", "Ongoing", "1"]
    row = {"transactional_id": PAYMENTS, "producer_id": 900, "state": "Ongoing", "coordinator": 1}
    filters = ["--state", "ongoing", "--producer-id", "900"]
    assert json.loads(kohort("transactions", "list", *filters, "-o", "json").out) == [row]
    assert yaml.safe_load(kohort("transactions", "list", *filters, "-o", "yaml").out) == [row]


def test_a_list_by_age_has_open_transactions_only(kohort: Run, broker: TransactionBroker) -> None:
    kohort("transactions", "list", "--open-for", "1h30m", "--pattern", "pay.*")
    kohort("transactions", "list", "--open-for", "5m", "--state", "PrepareAbort")
    first, second = broker.seen(ListTransactionsRequest)
    assert (first.duration_filter, first.transactional_id_pattern) == (5_400_000, "pay.*")
    assert first.state_filters == ("Ongoing", "PrepareCommit", "PrepareAbort")
    assert (second.duration_filter, second.state_filters) == (300_000, ("PrepareAbort",))


def test_ids_are_completed(broker: TransactionBroker) -> None:
    class Context:
        params = {"bootstrap_server": broker.address}

    broker.transactions["other"] = Transaction(2)
    assert complete_transactions(Context(), "pay") == [PAYMENTS]  # type: ignore[arg-type]


def test_a_bad_pattern_names_its_option(kohort: Run, broker: TransactionBroker) -> None:
    broker.errors[ListTransactionsRequest] = ErrorCode.INVALID_REGULAR_EXPRESSION
    ran = kohort("transactions", "list", "--pattern", "(", code=2)
    assert ran.err == "Error: Invalid value for '--pattern': '(' is no regular expression of RE2\n"


@pytest.mark.parametrize("given", ["abc", "-1", "9223372036854775808", ""])
def test_a_bad_producer_id(kohort: Run, given: str) -> None:
    ran = kohort("transactions", "list", "--producer-id", given, code=2)
    told = f"{given!r} is no producer id; a producer id is a whole number"
    assert ran.err == f"Error: Invalid value for '--producer-id': {told}\n"


# -- describe


def test_describe(kohort: Run, broker: TransactionBroker) -> None:
    ran = kohort("transactions", "describe", PAYMENTS, "nobody", code=1)
    state, producer, heading, first, second = ran.out.splitlines()
    assert state.startswith(f"{PAYMENTS}: Ongoing for 1 h, times out at ")
    assert state.endswith(" (time-out 2 h)")
    assert producer == f"  producer 900, epoch 2; coordinator {broker.address} (1)"
    assert words(heading) == ["TOPIC", "PARTITION", "START-OFFSET", "LAST-STABLE-OFFSET", "LOG-END-OFFSET"]
    assert [words(first), words(second)] == [["orders", "0", "120", "120", "140"], ["orders", "1", "7", "7", "9"]]
    assert ran.err == "kohort: transactional id nobody does not exist\n"


def test_a_description_for_programs(kohort: Run, broker: TransactionBroker) -> None:
    (found,) = json.loads(kohort("transactions", "describe", PAYMENTS, "-o", "json").out)
    assert found.pop("open_for_ms") >= 3_600_000
    assert found.pop("started_ms") == broker.transactions[PAYMENTS].started_ms
    row = {"topic": "orders", "partition": 1, "start_offset": 7, "last_stable_offset": 7, "log_end_offset": 9}
    assert found.pop("partitions")[1] == row
    assert found == {
        "transactional_id": PAYMENTS,
        "state": "Ongoing",
        "producer_id": 900,
        "producer_epoch": 2,
        "coordinator": {"id": 1, "address": broker.address},
        "timeout_ms": 7_200_000,
        "aborts": [],
    }


ABORT = {"transactional_id": PAYMENTS, "producer_id": 900, "producer_epoch": 1, "at_ms": 1_795_000_000_000}
TIMED_OUT = ABORT | {
    "number": 1,
    "what": "timed out",
    "open_for_ms": 61_000,
    "timeout_ms": 60_000,
    "partitions_count": 3,
    "partitions": {"orders": [0, 1]},
}
FENCED = ABORT | {
    "number": 2,
    "what": "fenced",
    "open_for_ms": 500,
    "timeout_ms": 60_000,
    "partitions_count": 1,
    "partitions": {"orders": [1]},
    "client_id": "app",
    "host": "/10.0.0.7",
}


def test_what_the_coordinator_aborted(kohort: Run, broker: TransactionBroker) -> None:
    broker.transactions[PAYMENTS].aborts = (TIMED_OUT, FENCED)
    heading, *lines = kohort("transactions", "describe", PAYMENTS).out.splitlines()[-3:]
    assert heading == "  Aborted by the coordinator"
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ABORT["at_ms"] / 1000))
    assert [line.strip() for line in lines] == [
        f"{at}  timed out after 1 min 1 s (time-out 1 min); producer 900, epoch 1; orders[0-1] and 1 more partition",
        f"{at}  fenced after 500 ms: client app at /10.0.0.7 asked for the id; producer 900, epoch 1; orders[1]",
    ]
    assert "fenced" in kohort("transactions", "describe", PAYMENTS, "--last", "1").out.splitlines()[-1]
    assert "Aborted" not in kohort("transactions", "describe", PAYMENTS, "-n", "0").out
    (found,) = json.loads(kohort("transactions", "describe", PAYMENTS, "-o", "json").out)
    assert found["aborts"] == [TIMED_OUT, FENCED]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("CompleteAbort", "CompleteAbort, no transaction is open"),
        ("PrepareCommit", "PrepareCommit for 1 h, 2 partitions without marker"),
    ],
)
def test_states(kohort: Run, broker: TransactionBroker, state: str, told: str) -> None:
    """A transaction that hangs in a partition may be in any closed state here: a line points to the search."""
    broker.transactions[PAYMENTS].state = state
    out = kohort("transactions", "describe", PAYMENTS).out
    assert out.startswith(f"{PAYMENTS}: {told}\n")
    hint = "  if a partition has one open nevertheless, it hangs: kohort transactions find-hanging\n"
    assert (hint in out) == (state == "CompleteAbort")


def test_a_transaction_of_a_deleted_topic(kohort: Run, broker: TransactionBroker) -> None:
    broker.transactions[PAYMENTS].partitions = (("gone", 3),)
    assert words(kohort("transactions", "describe", PAYMENTS).out.splitlines()[-1]) == ["gone", "3", "-", "-", "-"]


# -- find-hanging


def test_nothing_hangs(kohort: Run) -> None:
    assert kohort("transactions", "find-hanging").out == "2 partitions: 0 hanging transactions\n"
    assert json.loads(kohort("transactions", "find-hanging", "-o", "json").out) == []


def test_what_hangs_is_shown_with_the_command_that_aborts_it(kohort: Run, hanging: TransactionBroker) -> None:
    heading, row, total, advice = kohort("transactions", "find-hanging", "--topic", "orders").out.splitlines()
    columns = ["TOPIC", "PARTITION", "START-OFFSET", "PRODUCER-ID", "EPOCH", "LAST-WRITE", "TRANSACTIONAL-ID"]
    assert words(heading) == columns
    assert words(row) == ["orders", "0", "120", "901", "2", "1", "h", "ago", "-"]
    assert total == "2 partitions: 1 hanging transaction"
    command = advice.partition(": kohort ")[2]
    assert kohort(*command.split(), "--yes").out.splitlines()[-1].startswith("aborted the transaction in orders-0")
    assert kohort("transactions", "find-hanging").out == "2 partitions: 0 hanging transactions\n"


def test_what_was_written_lately_does_not_hang_yet(kohort: Run, hanging: TransactionBroker) -> None:
    young = "not checked: 1 open transaction with a write in the last 15 min; --idle-for TIME checks more recent ones"
    assert kohort("transactions", "find-hanging", "--idle-for", "2h").out.splitlines() == [
        "2 partitions: 0 hanging transactions",
        "not checked: 2 open transactions with a write in the last 2 h; --idle-for TIME checks more recent ones",
    ]
    hanging.producers["orders", 1][0].last_timestamp = int(time.time() * 1000)
    assert kohort("transactions", "find-hanging").out.splitlines()[-3:-1] == [
        "2 partitions: 1 hanging transaction",
        young,
    ]
    (found,) = json.loads(kohort("transactions", "find-hanging", "--idle-for", "30m", "-o", "json").out)
    assert (found["topic"], found["partition"], found["transactional_id"]) == ("orders", 0, None)
    assert json.loads(kohort("transactions", "find-hanging", "--idle-for", "2h", "-o", "json").out) == []


def test_partitions_that_were_not_searched_are_a_failure(kohort: Run, broker: TransactionBroker) -> None:
    broker.script[MetadataRequest] = broker.metadata(topic("orders", 1, -1))
    ran = kohort("transactions", "find-hanging", "--topic", "missing", "--topic", "orders", code=1)
    assert ran.out == "1 partition: 0 hanging transactions\n"
    assert ran.err.splitlines() == [
        "kohort: topic missing does not exist; not searched",
        "kohort: orders-1 has no leader; not searched",
    ]


def test_topics_that_the_user_may_not_describe(kohort: Run, broker: TransactionBroker) -> None:
    hidden = msgspec.structs.replace(topic("secret"), error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    broker.script[MetadataRequest] = broker.metadata(hidden, topic("orders", 1))
    ran = kohort("transactions", "find-hanging", "--topic", "secret", "--topic", "orders", code=1)
    assert ran.err == "kohort: topic secret: TOPIC_AUTHORIZATION_FAILED: Not authorized for the topic; not searched\n"


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_search_that_saw_no_partition_is_a_failure(kohort: Run, broker: TransactionBroker, output: str) -> None:
    """The metadata of all topics leave out those that the user may not describe, without an error."""
    broker.script[MetadataRequest] = broker.metadata()
    ran = kohort("transactions", "find-hanging", "-o", output, code=1)
    assert "hanging" not in ran.out
    assert ran.err == (
        "kohort: no partition is visible: the cluster has no topics, or the user may not describe them; "
        "nothing was searched\n"
    )


# -- abort


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((PAYMENTS, "--topic", "orders", "--partition", "0"), f"'{PAYMENTS}' and --topic are given; name "),
        ((PAYMENTS, "--partition", "0"), "of a hanging transaction, not both"),
        (("--topic", "orders"), "--partition is missing beside --topic"),
        (("--partition", "0"), "--topic is missing beside --partition"),
        (("--topic", "orders", "--start-offset", "5"), "--partition is missing beside --start-offset"),
        ((), "name a TRANSACTIONAL-ID, or --topic and --partition of a hanging transaction"),
    ],
)
def test_what_to_abort_is_named_in_one_way(kohort: Run, arguments: tuple[str, ...], told: str) -> None:
    ran = kohort("transactions", "abort", *arguments, "--yes", code=2)
    assert told in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("answer", ["n\n", None], ids=["declined", "no terminal"])
def test_an_abort_without_confirmation_does_nothing(
    kohort: Run, hanging: TransactionBroker, answer: str | None
) -> None:
    code = 1 if answer else 2
    for what in ([PAYMENTS], ["--topic", "orders", "--partition", "0"]):
        ran = kohort("transactions", "abort", *what, answer=answer, code=code)
        assert "abort" in ran.out  # what would happen
        assert ran.err.splitlines()[-1].startswith("kohort: nothing was aborted")
        assert ("add --yes" in ran.err) == (answer is None)
    assert not hanging.seen(InitProducerIdRequest)
    assert not hanging.seen(WriteTxnMarkersRequest)


def test_an_abort_by_id_fences_the_producer(kohort: Run, broker: TransactionBroker) -> None:
    out = kohort("transactions", "abort", PAYMENTS, answer="y\n").out
    assert f"{PAYMENTS}: producer 900, epoch 2, began 1 h ago" in out
    assert "The transaction is aborted in orders[0-1]" in out
    assert "Its producer is fenced" in out
    assert out.splitlines()[-1] == f"aborted the transaction of {PAYMENTS}; the next producer is 900, epoch 4"
    (sent,) = broker.seen(InitProducerIdRequest)
    assert (sent.transactional_id, sent.transaction_timeout_ms) == (PAYMENTS, 7_200_000)


def test_what_ends_while_the_question_waits_is_not_aborted(
    kohort: Run, hanging: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(question: str, **_: object) -> bool:
        hanging.transactions[PAYMENTS].started_ms += 1
        hanging.producers["orders", 0][0].start += 1
        return True

    monkeypatch.setattr("kohort.cli.transactions.abort.typer.confirm", confirm)
    ran = kohort("transactions", "abort", PAYMENTS, answer="", code=1)
    assert ran.err == f"kohort: the transaction of {PAYMENTS} has ended meanwhile; nothing was aborted\n"
    ran = kohort("transactions", "abort", "--topic", "orders", "--partition", "0", answer="", code=1)
    assert ran.err == "kohort: the transaction in orders-0 has ended meanwhile; nothing was aborted\n"
    assert not hanging.seen(InitProducerIdRequest)
    assert not hanging.seen(WriteTxnMarkersRequest)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("Empty", "no transaction is open"),
        ("CompleteCommit", "no transaction is open"),
        ("PrepareCommit", "it is decided, and its end is under way"),
    ],
)
def test_only_an_ongoing_transaction_is_aborted(kohort: Run, broker: TransactionBroker, state: str, told: str) -> None:
    broker.transactions[PAYMENTS].state = state
    ran = kohort("transactions", "abort", PAYMENTS, "--yes", code=1)
    hint = (
        "" if state == "PrepareCommit" else "; to find one that hangs in a partition: kohort transactions find-hanging"
    )
    assert ran.err == f"kohort: {PAYMENTS} is in state {state}: {told}; nothing was aborted{hint}\n"
    assert not broker.seen(InitProducerIdRequest)


def test_an_unknown_id_is_not_created(kohort: Run, broker: TransactionBroker) -> None:
    assert "transactional id paymnts does not exist" in kohort("transactions", "abort", "paymnts", "-y", code=1).err
    assert not broker.seen(InitProducerIdRequest)


def test_a_hanging_transaction_is_aborted_in_its_partition(kohort: Run, hanging: TransactionBroker) -> None:
    ran = kohort("transactions", "abort", "--topic", "orders", "--partition", "0", answer="y\n")
    first, *_, last = ran.out.splitlines()
    subject = "a transaction without known transactional id (producer 901, epoch 2; last write 1 h ago)"
    assert first == f"orders-0: {subject} hangs, open since offset 120"
    assert last == "aborted the transaction in orders-0; readers of committed records go on to offset 140"
    assert len(hanging.seen(WriteTxnMarkersRequest)) == 1


def test_what_a_coordinator_has_is_not_aborted_in_one_partition(kohort: Run, hanging: TransactionBroker) -> None:
    """It could still be committed in the others."""
    ran = kohort("transactions", "abort", "--topic", "orders", "--partition", "1", "--yes", code=1)
    assert f"does not hang: its coordinator has it; use: kohort transactions abort {PAYMENTS}" in ran.err
    assert not hanging.seen(WriteTxnMarkersRequest)


def test_the_choice_of_a_hanging_transaction(kohort: Run, hanging: TransactionBroker) -> None:
    def refused(*arguments: str) -> str:
        return kohort("transactions", "abort", "--yes", "--topic", *arguments, code=1).err

    hanging.producers["orders", 0].append(Producer(902, start=130))
    assert "2 transactions are open in orders-0; name one by --start-offset: 120, 130" in refused(
        "orders", "--partition", "0"
    )
    assert "no transaction begins at offset 5 of orders-0; open ones begin at 120, 130" in refused(
        "orders", "--partition", "0", "--start-offset", "5"
    )
    hanging.producers["orders", 1].clear()
    assert "no transaction is open in orders-1" in refused("orders", "--partition", "1")
    assert "topic orders has no partition 2" in refused("orders", "--partition", "2")
    assert "topic nowhere does not exist" in refused("nowhere", "--partition", "0")
    assert not hanging.seen(WriteTxnMarkersRequest)
    kohort("transactions", "abort", "--yes", "--topic", "orders", "--partition", "0", "--start-offset", "130")
    (sent,) = hanging.seen(WriteTxnMarkersRequest)
    assert sent.markers[0].producer_id == 902


def test_a_refused_marker(kohort: Run, hanging: TransactionBroker) -> None:
    hanging.errors[WriteTxnMarkersRequest] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ran = kohort("transactions", "abort", "--topic", "orders", "--partition", "0", "--yes", code=1)
    assert "cannot abort the transaction in orders-0: CLUSTER_AUTHORIZATION_FAILED" in ran.err


# -- topics describe, groups describe

WAIT_0 = (
    "orders-0: readers of committed records wait at offset 120, 20 offsets before the end, "
    f"for transaction {PAYMENTS} (producer 900, epoch 2; last write 1 h ago)"
)


def test_a_topic_names_what_holds_back_readers(kohort: Run, broker: TransactionBroker) -> None:
    _, heading, first, _, wait, _ = kohort("topics", "describe", "orders").out.splitlines()
    assert words(heading)[-1] == "LAST-STABLE-OFFSET"
    assert words(first)[-2:] == ["140", "120"]
    assert wait == WAIT_0
    broker.producers["orders", 0].append(Producer(902, start=130))
    assert kohort("topics", "describe", "orders").out.splitlines()[-2] == f"{WAIT_0}, and then for 1 other transaction"
    (described,) = json.loads(kohort("topics", "describe", "orders", "-o", "json").out)
    first_partition, _ = described["partitions"]
    assert (first_partition["latest_offset"], first_partition["last_stable_offset"]) == (140, 120)
    found = [(one["transactional_id"], one["producer_id"]) for one in first_partition["open_transactions"]]
    assert found == [(PAYMENTS, 900), (None, 902)]


def test_without_open_transactions_a_topic_is_described_as_before(kohort: Run, broker: TransactionBroker) -> None:
    broker.ends = {("orders", 0): (140, 140), ("orders", 1): (9, 9)}
    out = kohort("topics", "describe", "orders").out
    assert "STABLE" not in out
    assert "committed" not in out
    assert not broker.seen(DescribeProducersRequest)
    (described,) = json.loads(kohort("topics", "describe", "orders", "-o", "json").out)
    assert [one["last_stable_offset"] for one in described["partitions"]] == [140, 9]
    assert [one["open_transactions"] for one in described["partitions"]] == [[], []]


def test_clusters_that_cannot_name_transactions(kohort: Run, broker: TransactionBroker) -> None:
    del broker.script[ListTransactionsRequest]  # as Apache Kafka 2.8
    ran = kohort("topics", "describe", "orders")
    assert "for a transaction without known transactional id (producer 900, epoch 2; last" in ran.out
    assert "open transactions are not named: " in ran.err
    assert "ListTransactions" in ran.err
    del broker.script[DescribeProducersRequest]  # and earlier ones
    ran = kohort("topics", "describe", "orders")
    assert "wait at offset 120, 20 offsets before the end, for a transaction\n" in ran.out
    assert ran.err.count("\n") == 1


def test_users_who_may_not_know_the_transaction(kohort: Run, broker: TransactionBroker) -> None:
    broker.errors[DescribeProducersRequest] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ran = kohort("topics", "describe", "orders")
    assert "wait at offset 120, 20 offsets before the end, for a transaction\n" in ran.out
    assert "TOPIC_AUTHORIZATION_FAILED" in ran.err
    ran = kohort("transactions", "describe", PAYMENTS)
    assert words(ran.out.splitlines()[-1]) == ["orders", "1", "-", "7", "9"]
    assert "first offsets are not shown" in ran.err


def test_the_lag_of_a_group_that_reads_committed_records(kohort: Run, broker: TransactionBroker) -> None:
    group = DescribedGroup(
        error_code=0,
        error_message=None,
        group_id="billing",
        group_state="Empty",
        protocol_type="consumer",
        protocol_data="",
        members=(),
        authorized_operations=0,
    )
    broker.script[DescribeGroupsRequest] = DescribeGroupsResponse(groups=(group,))
    committed = offset_fetch.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=118, metadata="", error_code=0
    )
    topics = (offset_fetch.OffsetFetchResponseTopics(name="orders", partitions=(committed,)),)
    answered = offset_fetch.OffsetFetchResponseGroup(group_id="billing", topics=topics, error_code=0)
    broker.script[OffsetFetchRequest] = offset_fetch.OffsetFetchResponse(groups=(answered,))
    broker.versions[OffsetFetchRequest] = (8, 9)
    _, row, total, wait = kohort("groups", "describe", "billing").out.splitlines()
    assert words(row)[:6] == ["billing", "orders", "0", "118", "140", "22"]
    assert total.endswith("total lag 22")
    assert wait == f"billing: {WAIT_0}; their lag up to there is 2"
    (described,) = json.loads(kohort("groups", "describe", "billing", "-o", "json").out)
    (offset,) = described["offsets"]
    assert (offset["log_end_offset"], offset["last_stable_offset"], offset["lag"]) == (140, 120, 22)
    assert [one["transactional_id"] for one in offset["open_transactions"]] == [PAYMENTS]


def test_lines_fit_a_terminal_of_80_columns(
    kohort: Run, hanging: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.cli.output.terminal_width", lambda: 80)
    monkeypatch.setattr("kohort.cli.groups.wording.terminal_width", lambda: 80)
    shown = [
        kohort(*command).out
        for command in (
            ("transactions", "list"),
            ("transactions", "describe", PAYMENTS),
            ("transactions", "find-hanging"),
            ("topics", "describe", "orders"),
            ("transactions", "abort", PAYMENTS, "--yes"),
            ("transactions", "abort", "--topic", "orders", "--partition", "0", "--yes"),
        )
    ]
    lines = [line for text in shown for line in text.splitlines()]
    assert max(map(len, lines)) <= 80, shown
    assert any(line.endswith("OFFSET") for line in lines)
