"""Quotas at Apache Kafka: its answers are those that the tests of kohort's broker expect, and kafka-configs prints what
the file says with which `make peers-clients` compares kohort.
"""

from __future__ import annotations

import pytest
import quota_commands
from quota_driver import ACCEPTED, BAD_FILTERS, REFUSED, REFUSED_HERE, filtered
from raw_kafka import RawKafka

from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


def test_what_kafka_configs_prints(servers_of_kafka: str, request: pytest.FixtureRequest) -> None:
    printed = quota_commands.run("--bootstrap-server", servers_of_kafka)
    if request.config.getoption("--rewrite"):
        quota_commands.RECORDED.write_text(printed, encoding="utf-8")
    assert printed == quota_commands.RECORDED.read_text(encoding="utf-8")


def test_what_is_refused(servers_of_kafka: str) -> None:
    with RawKafka(servers_of_kafka) as raw:
        for change, expected in [
            *REFUSED,
            *((change, None) for change, _ in REFUSED_HERE),
            *((c, None) for c in ACCEPTED),
        ]:
            [result] = raw.call(AlterClientQuotasRequest(entries=(change,), validate_only=True)).entries
            assert (result.error_code, result.error_message) == (42 if expected else 0, expected), change


def test_filters_that_make_no_sense(servers_of_kafka: str) -> None:
    with RawKafka(servers_of_kafka) as raw:
        for filter, error, message in BAD_FILTERS:
            answer = raw.call(filtered(filter))
            assert answer.error_code == error, filter
            assert message in answer.error_message
            assert answer.entries is None
        answer = raw.call(filtered([("user", 0, "")]))
        assert (answer.error_code, answer.error_message, answer.entries) == (0, "", ())
