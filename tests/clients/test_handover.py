"""Gradual hand-over and the initial delay, with confluent-kafka's consumers in processes of their own."""

from __future__ import annotations

import pytest
from group import consumer_group

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
PARTITIONS = 6
SERVER = {
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_initial_rebalance_delay_ms": 4_000,
    "group_consumer_handover_max_partitions": 1,
    "group_consumer_handover_interval_ms": 3_000,
}


def test_partitions_move_gradually_to_a_newcomer_and_at_once_from_a_leaver(bootstrap: str, unique: str) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a = group.start("a")
        group.wait_assigned([6], a)
        b = group.start("b")
        # Three partitions, one every three seconds: six seconds lie between the first and the last.
        group.wait(lambda: len(b.assigned) == 1, "one partition for b")
        assert group.wait_assigned([3, 3], a, b, timeout=40) > 4
        assert [len(assigned) for assigned in b.assignments if assigned] == [1, 2, 3]
        assert [len(assigned) for assigned in a.assignments if assigned] == [6, 5, 4, 3]
        a.close()
        assert group.wait_assigned([6], b, timeout=20) < 5
        assert [len(assigned) for assigned in b.assignments if assigned][-1] == 6
        group.close()
        assert not group.errors()


def test_the_first_member_does_not_get_everything(bootstrap: str, unique: str) -> None:
    with consumer_group(bootstrap, unique, PARTITIONS) as group:
        a, b = group.share([3, 3], "a", "b")
        assert max(len(assigned) for worker in (a, b) for assigned in worker.assignments) == 3
        group.close()
