"""The decisions by ACLs are those of Apache Kafka's StandardAuthorizer. More of them: `make peers-acls`."""

from __future__ import annotations

import acl_decisions
import pytest

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


@pytest.mark.conformance("A2", "A3", "A4")
def test_decisions_are_those_of_kafka() -> None:
    lines = acl_decisions.runs(4_000, 1)
    decisions = acl_decisions.of_kohort(lines)
    assert min(decisions.count("A"), decisions.count("D")) > 500, "both outcomes are tried"
    assert acl_decisions.differences(4_000, 1) == []
