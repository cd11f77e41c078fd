"""The commands' output about subscriptions by regular expression."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from consumer_member import ConsumerMember
from run_command import Kohort

from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with KohortServer() as running:
        yield running.bootstrap_servers


def test_a_pattern_is_described_and_explained(kohort: Kohort, bootstrap: str, unique: str) -> None:
    kohort("topics", "create", f"{unique}-a", "--partitions", "2")
    member = ConsumerMember(bootstrap, unique, "a", subscribed_topic_regex=f"{unique}-.*")
    deadline = time.monotonic() + 20
    while member.count() < 2:
        assert time.monotonic() < deadline, "its topics are found"
        member.heartbeat(acknowledges=True)
    heading, row, _ = kohort("groups", "describe", unique, "--members").out.splitlines()
    assert heading.split()[-1] == "PATTERN"
    assert row.split()[-1] == f"{unique}-.*"
    [document] = json.loads(kohort("groups", "describe", unique, "--members", "-o", "json").out)
    assert document["members"][0]["pattern"] == f"{unique}-.*"
    assert f"topics matched: {unique}-.*: +{unique}-a" in kohort("groups", "explain", unique).out
    member.leave()
