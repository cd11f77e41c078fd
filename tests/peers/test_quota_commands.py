"""kafka-configs for quotas at Apache Kafka prints what the file says that `make peers-clients` compares kohort with."""

from __future__ import annotations

import pytest
import quota_commands

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


def test_what_kafka_configs_prints(servers_of_kafka: str, request: pytest.FixtureRequest) -> None:
    printed = quota_commands.run("--bootstrap-server", servers_of_kafka)
    if request.config.getoption("--rewrite"):
        quota_commands.RECORDED.write_text(printed, encoding="utf-8")
    assert printed == quota_commands.RECORDED.read_text(encoding="utf-8")
