"""The lines that turns cause in the server's log."""

from __future__ import annotations

import logging

import pytest
from raw_kafka import RawKafka

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
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
