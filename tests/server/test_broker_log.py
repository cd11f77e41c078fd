"""The lines that turns cause in the server's log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from raw_kafka import RawKafka

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest


def test_topics_and_refused_transactions_are_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "kohort"),
        KohortServer() as server,
        Cluster(server.bootstrap_servers) as cluster,
        RawKafka(server.bootstrap_servers) as raw,
    ):
        for number in range(15):
            cluster.create_topic(f"t{number}", 2)
        assert raw.call(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)).error_code == 53
    created = [record for record in caplog.records if "topic created" in record.getMessage()]
    assert created[0].getMessage() == "topic created topic=t0 partitions=2 replicas=1"
    assert {record.levelname for record in created} == {"INFO"}
    assert len(created) == 10, "further lines of the same event are left out for some seconds"
    [refused] = [record for record in caplog.records if "transactional" in record.getMessage()]
    assert refused.levelname == "WARNING"
    assert "kohort does not serve transactions" in refused.getMessage()
    assert "transactional_id=x client_id=raw" in refused.getMessage()


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
        with RawKafka(server.bootstrap_servers) as refused:
            assert refused.is_closed
        change(raw, ("max.connections", "2"))
        with RawKafka(server.bootstrap_servers) as second:
            assert second.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).error_code == 0
        change(raw, ("log.level", "info"))
        assert logger.level == logging.INFO
        change(raw, ("log.level", "error"))
    assert "broker configs changed broker=all names=log.level" in caplog.messages
    logger.setLevel(logging.INFO)
    with KohortServer(data_dir=directory):
        assert logger.level == logging.ERROR, "the level survives a restart"
