"""The lines that turns cause in the server's log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from raw_kafka import RawKafka

from kohort.broker.turn import Complaint
from kohort.client.cluster import Cluster
from kohort.server import turns
from kohort.server.turns import COMPLAIN_AGAIN_S, MOST_DAMAGES, _BrokerLog
from kohort.testing import KohortServer
from kohort.wire.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest


def test_topics_and_fenced_transactions_are_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    initialise = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    with (
        caplog.at_level(logging.INFO, "kohort"),
        KohortServer() as server,
        Cluster(server.bootstrap_servers) as cluster,
        RawKafka(server.bootstrap_servers) as raw,
    ):
        for number in range(15):
            cluster.create_topic(f"t{number}", 2)
        raw.call(FindCoordinatorRequest(key_type=1, coordinator_keys=("x",)))
        producer = raw.call(initialise)
        asked = AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=(AddPartitionsToTxnTopic(name="t0", partitions=(0, 1)),),
        )
        [added] = raw.call(AddPartitionsToTxnRequest(transactions=(asked,))).results_by_transaction
        assert {result.partition_error_code for result in added.topic_results[0].results_by_partition} == {0}
        assert raw.call(initialise).producer_epoch > producer.producer_epoch
    created = [record for record in caplog.records if "topic created" in record.getMessage()]
    who = "by_principal=User:ANONYMOUS by_client_id=kohort by_host=/127.0.0.1"
    assert created[0].getMessage() == f"topic created topic=t0 partitions=2 replicas=1 {who}"
    assert {record.levelname for record in created} == {"INFO"}
    assert len(created) == 10, "further lines of the same event are left out for some seconds"
    [fenced] = [record.getMessage() for record in caplog.records if "transaction fenced" in record.getMessage()]
    assert f"transactional_id=x producer_id={producer.producer_id}" in fenced
    assert "partitions=2" in fenced


def test_the_level_and_the_limits_of_a_running_server_change(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    logger = logging.getLogger("kohort")
    caplog.set_level(logging.INFO, "kohort")  # the fixture restores the level
    directory = tmp_path / "data"

    def change(raw: RawKafka, *values: tuple[str, str]) -> None:
        configs = tuple(AlterableConfig(name=name, config_operation=0, value=value) for name, value in values)
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        answer = raw.call(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
        assert answer.responses[0].error_code == 0

    with KohortServer(data_dir=directory) as server, RawKafka(server.bootstrap_servers) as raw:
        change(raw, ("log.level", "warning"), ("max.connections", "1"))
        assert logger.level == logging.WARNING
        with RawKafka(server.bootstrap_servers) as waiting:
            waiting.ask_later(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
            change(raw, ("max.connections", "2"))
            assert waiting.answer().error_code == 0
        change(raw, ("log.level", "info"))
        assert logger.level == logging.INFO
        change(raw, ("log.level", "error"))
    assert any(line.startswith('broker configs changed broker=all changes="log.level: ') for line in caplog.messages)
    logger.setLevel(logging.INFO)
    with KohortServer(data_dir=directory):
        assert logger.level == logging.ERROR, "the level survives a restart"


def test_lines_about_damage_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may ask for each offset of a damaged batch."""
    now, lines = 0.0, []
    monkeypatch.setattr(turns.time, "monotonic", lambda: now)
    monkeypatch.setattr(turns.log, "error", lambda _, what: lines.append(what))
    broker_log = _BrokerLog()
    for _ in range(2):
        for offset in range(10 * MOST_DAMAGES):
            broker_log.complaint(Complaint("damaged data", f"t-0 cannot be read at offset {offset}"))
    assert lines == [f"t-0 cannot be read at offset {offset}" for offset in range(MOST_DAMAGES)]
    now = COMPLAIN_AGAIN_S
    broker_log.complaint(Complaint("damaged data", "t-0 cannot be read at offset 0"))
    assert lines[MOST_DAMAGES:] == ["t-0 cannot be read at offset 0"]
    assert len(broker_log._damage_logged_at) == 1
