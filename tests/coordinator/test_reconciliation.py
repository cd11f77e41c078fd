"""Reconciliation, case by case: the cases of Kafka's CurrentAssignmentBuilderTest (4.3), and some that it lacks.

A case is a member, a target, the rest of the heartbeat, and the member after it. Topics are A and B; `A=1 2@7` are
partitions 1 and 2, the latter owned since epoch 7 (default: 10; for new partitions the target's).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.consumer.assignment_records import current_value, member_state, target_partitions, target_value
from kohort.coordinator.consumer.reconciliation import FREE, MemberState, Reconciliation, TopicPartition, reconcile
from kohort.coordinator.records import current_record, parse, target_record
from kohort.wire.schemas.group_records import ConsumerGroupCurrentMemberAssignmentValue, CurrentTopicPartitions

TOPICS = {"A": b"a" * 16, "B": b"b" * 16}
STABLE, UNREVOKED, UNRELEASED = Reconciliation


def partitions(text: str) -> dict[TopicPartition, int]:
    result = {}
    for part in text.split(";"):
        topic, _, numbers = part.strip().partition("=")
        for number in numbers.split():
            partition, _, epoch = number.partition("@")
            result[TOPICS[topic], int(partition)] = int(epoch or 10)
    return result


def member(state: Reconciliation, epochs: str, assigned: str, revoking: str = "") -> MemberState:
    """`epochs`: the present and the previous epoch."""
    epoch, previous = map(int, epochs.split())
    return MemberState(epoch, previous, state, partitions(assigned), partitions(revoking))


def step(
    before: MemberState, epoch: int, target: str, *, owned: str | None, taken: str, topics: str, changed: bool = False
) -> MemberState:
    others = partitions(taken)
    return reconcile(
        before,
        target_epoch=epoch,
        target=frozenset(partitions(target)),
        owned=None if owned is None else list(partitions(owned)),
        current_epoch_of=lambda partition: others.get(partition, FREE),
        subscribed={TOPICS[topic] for topic in topics},
        subscription_changed=changed,
    )


ALL = "A=0 1 2 3 4 5 6 7 8 9; B=0 1 2 3 4 5 6 7 8 9"
START = "A=1 2 3; B=4 5 6"
# name: before, target epoch, target, owned, partitions that others own, subscribed, after
CASES = {
    "stable, and the new target has the same": (
        member(STABLE, "10 10", START), 11, START, None, ALL, "AB",
        member(STABLE, "11 10", START),
    ),
    "stable, and the target has more": (
        member(STABLE, "10 10", START), 11, "A=1 2 3 4; B=4 5 6 7", None, "", "AB",
        member(STABLE, "11 10", "A=1 2 3 4@11; B=4 5 6 7@11"),
    ),
    "stable, and the target has others": (
        member(STABLE, "10 10", START), 11, "A=2 3 4; B=5 6 7", None, "", "AB",
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"),
    ),
    "stable, and what the target has more is with others": (
        member(STABLE, "10 10", START), 11, "A=1 2 3 4; B=4 5 6 7", None, ALL, "AB",
        member(UNRELEASED, "11 10", START),
    ),
    "stable, and what must go is not owned any more": (
        member(STABLE, "10 10", START), 11, "A=1 2 3; B=4 5 7", "", "B=0 1 2 3 4 5 6 7", "AB",
        member(UNRELEASED, "11 10", "A=1 2 3; B=4 5"),
    ),
    "revoked, and done": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 11, "A=2 3; B=5 6", "A=2 3; B=5 6", "", "AB",
        member(STABLE, "11 10", "A=2 3; B=5 6"),
    ),
    "revoked, and more must go: the old epoch still": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 12, "A=3; B=6", "A=2 3; B=5 6", "", "AB",
        member(UNREVOKED, "10 10", "A=3; B=6", "A=2; B=5"),
    ),
    "revoked at the target's epoch, and more must go": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 10, "A=3; B=6", "A=2 3; B=5 6", "", "AB",
        member(UNREVOKED, "10 10", "A=3; B=6", "A=2; B=5"),
    ),
    "revoked, and what comes is with others": (
        member(UNREVOKED, "11 10", "A=2 3; B=5 6"), 11, "A=2 3 4; B=5 6 7", "A=2 3; B=5 6", ALL, "AB",
        member(UNRELEASED, "11 11", "A=2 3; B=5 6"),
    ),
    "revoked, and one of them is the target's again": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=4"), 12, "A=2 3 4; B=5 6 7", "A=2 3; B=5 6",
        "A=2 3 4; B=5 6", "AB",
        member(STABLE, "12 10", "A=2 3 4@12; B=5 6 7@12"),
    ),
    "waited, and a new target has no more than it owns": (
        member(UNRELEASED, "11 11", "A=2 3; B=5 6"), 12, "A=2 3; B=5 6", None, ALL, "AB",
        member(STABLE, "12 11", "A=2 3; B=5 6"),
    ),
    "waited, and it is free": (
        member(UNRELEASED, "11 11", "A=2 3; B=5 6"), 11, "A=2 3 4; B=5 6 7", None, "", "AB",
        member(STABLE, "11 11", "A=2 3 4@11; B=5 6 7@11"),
    ),
    "waited, and a new target takes some away": (
        member(UNRELEASED, "11 11", "A=2 3; B=5 6"), 12, "A=3; B=6", None, ALL, "AB",
        member(UNREVOKED, "11 11", "A=3; B=6", "A=2; B=5"),
    ),
    "a new target, of which a topic is not subscribed any more and not owned": (
        member(STABLE, "10 10", START), 11, START, "B=4 5 6", "", "B",
        member(STABLE, "11 10", "B=4 5 6"),
    ),
    "a new target, of which a topic is not subscribed any more but owned": (
        member(STABLE, "10 10", START), 11, START, START, "", "B",
        member(UNREVOKED, "10 10", "B=4 5 6", "A=1 2 3"),
    ),
    # Beyond Kafka's list.
    "stable and nothing reported: what must go is asked for": (
        member(STABLE, "10 9", START), 11, "A=1 2 3", None, "", "AB",
        member(UNREVOKED, "10 10", "A=1 2 3", "B=4 5 6"),
    ),
    "waited, and one of two is free": (
        member(UNRELEASED, "11 10", "A=2"), 11, "A=2 3 4", None, "A=4", "AB",
        member(UNRELEASED, "11 10", "A=2 3@11"),
    ),
    "a partition keeps the epoch at which it was got": (
        member(STABLE, "10 10", "A=1@3 2@7"), 12, "A=1 2 3", None, "", "AB",
        member(STABLE, "12 10", "A=1@3 2@7 3@12"),
    ),
    "also while it is revoked": (
        member(STABLE, "10 10", "A=1@3 2@7"), 12, "A=1", "A=1 2", "", "AB",
        member(UNREVOKED, "10 10", "A=1@3", "A=2@7"),
    ),
    "a partition that comes back is got anew": (
        member(UNREVOKED, "10 10", "A=1@3", "A=2@7"), 12, "A=1 2", "A=1", ALL, "AB",
        member(STABLE, "12 10", "A=1@3 2@12"),
    ),
    "a first member": (
        MemberState(), 1, "A=0 1", "", "", "AB",
        member(STABLE, "1 0", "A=0@1 1@1"),
    ),
    "a newcomer, for whom nothing is free": (
        MemberState(), 5, "A=0 1", "", ALL, "AB",
        member(UNRELEASED, "5 0", ""),
    ),
    "a newcomer with an empty target": (
        MemberState(), 5, "", "", "", "AB",
        member(STABLE, "5 0", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("changed", [False, True])
def test_cases(case: str, changed: bool) -> None:
    """No case depends on whether this heartbeat changed the subscription: a new target counts with it anyway."""
    before, epoch, target, owned, taken, topics, after = CASES[case]
    assert step(before, epoch, target, owned=owned, taken=taken, topics=topics, changed=changed) == after


CHANGES = {
    "not owned any more": (
        member(STABLE, "10 10", START), 10, START, "B=4 5 6", "B",
        member(STABLE, "10 10", "B=4 5 6"),
    ),
    "still owned": (
        member(STABLE, "10 10", START), 10, START, START, "B",
        member(UNREVOKED, "10 10", "B=4 5 6", "A=1 2 3"),
    ),
    "nothing reported": (
        member(STABLE, "10 10", START), 10, START, None, "B",
        member(UNREVOKED, "10 10", "B=4 5 6", "A=1 2 3"),
    ),
    "nothing is left": (
        member(STABLE, "10 10", START), 10, START, START, "",
        member(UNREVOKED, "10 10", "", START),
    ),
    "on top of what was to be revoked": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 12, "A=1 3 4; B=6 7", "A=1 2 3; B=4 5 6", "B",
        member(UNREVOKED, "10 10", "B=5 6", "A=1 2 3; B=4"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_unsubscribed_partitions_are_given_up_at_once(case: str) -> None:
    before, epoch, target, owned, topics, after = CHANGES[case]
    assert step(before, epoch, target, owned=owned, taken="", topics=topics, changed=True) == after
    if epoch == before.member_epoch:
        assert step(before, epoch, target, owned=owned, taken="", topics=topics) is before


SAME = {
    "the target has been reached": (member(STABLE, "10 9", START), 10, START, START, ""),
    "nothing is reported": (member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 12, "A=3; B=6", None, ""),
    "one is still owned": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 12, "A=3; B=6", "A=1 2 3; B=5 6", "",
    ),
    "the other is": (
        member(UNREVOKED, "10 10", "A=2 3; B=5 6", "A=1; B=4"), 12, "A=3; B=6", "A=2 3; B=4 5 6", "",
    ),
    "what it waits for is not free": (member(UNRELEASED, "11 11", "A=2 3"), 11, "A=2 3 4", None, ALL),
    "nor before, and the last answer may be lost": (member(UNRELEASED, "11 10", "A=2 3"), 11, "A=2 3 4", "", ALL),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_nothing_has_changed(case: str) -> None:
    before, epoch, target, owned, taken = SAME[case]
    assert step(before, epoch, target, owned=owned, taken=taken, topics="AB") is before
    assert step(before, epoch, target, owned=owned, taken=taken, topics="AB", changed=True) is before


def test_without_a_subscription_the_whole_target_counts() -> None:
    before = member(STABLE, "10 10", START)
    target = frozenset(partitions("A=1; B=4"))
    after = reconcile(before, target_epoch=11, target=target, owned=list(target), current_epoch_of=lambda _: FREE)
    assert after == member(STABLE, "11 10", "A=1; B=4")
    same = replace(before, member_epoch=11)
    again = reconcile(
        same, target_epoch=11, target=target, owned=None, current_epoch_of=lambda _: FREE, subscription_changed=True
    )
    assert again is same


def test_new_partitions_come_in_an_order_that_does_not_depend_on_hashing() -> None:
    after = step(MemberState(), 1, "B=3 1 2; A=9 0", owned="", taken="", topics="AB")
    assert list(after.assigned) == sorted(after.assigned)


# Assignments to and from their records


A, B = TOPICS.values()
any_partition = st.tuples(st.sampled_from([A, B]), st.integers(0, 20))
owned = st.dictionaries(any_partition, st.integers(0, 50))


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(st.integers(0, 50), st.integers(0, 50), st.sampled_from(list(Reconciliation)), owned, owned)
def test_members_come_back(
    epoch: int, previous: int, state: Reconciliation, assigned: dict[tuple[bytes, int], int], more: dict
) -> None:
    revoking = {p: e for p, e in more.items() if p not in assigned} if state == UNREVOKED else {}
    known = MemberState(epoch, previous, state, assigned, revoking)
    _, value = parse(current_record("g", "m", current_value(known))) or (None, None)
    assert member_state(value) == known


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(st.frozensets(any_partition))
def test_targets_come_back(target: frozenset[tuple[bytes, int]]) -> None:
    _, value = parse(target_record("g", "m", target_value(target))) or (None, None)
    assert target_partitions(value) == target


def test_the_bytes_do_not_depend_on_the_order_of_growth() -> None:
    one = MemberState(3, 2, assigned={(B, 0): 3, (A, 7): 1, (A, 2): 3})
    other = MemberState(3, 2, assigned={(A, 2): 3, (A, 7): 1, (B, 0): 3})
    assert current_value(one) == current_value(other)
    assert current_value(one).assigned_partitions == (
        CurrentTopicPartitions(topic_id=A, partitions=(2, 7), assignment_epochs=(3, 1)),
        CurrentTopicPartitions(topic_id=B, partitions=(0,), assignment_epochs=(3,)),
    )


def stored(state: int, epoch: int, epochs: tuple[int, ...] | None) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=4,
        state=state,
        assigned_partitions=(CurrentTopicPartitions(topic_id=A, partitions=(1, 2), assignment_epochs=epochs),),
        partitions_pending_revocation=(),
    )


def test_records_from_before_assignment_epochs() -> None:
    """If the epochs are null, empty or not one for each partition: the member's epoch, and 0 for a static member that
    has left (-2)."""
    for epochs in (None, (), (3,)):
        assert member_state(stored(0, 5, epochs)).assigned == {(A, 1): 5, (A, 2): 5}
        assert member_state(stored(0, -2, epochs)).assigned == {(A, 1): 0, (A, 2): 0}
    assert member_state(stored(0, 5, (3, 4))).assigned == {(A, 1): 3, (A, 2): 4}


def test_a_state_of_a_newer_broker_starts_again_from_nothing() -> None:
    newer = member_state(stored(7, 5, (3, 4)))
    assert newer == MemberState(5, 4, UNREVOKED, {}, {(A, 1): 3, (A, 2): 4})
    target = frozenset({(A, 1)})
    for report, epoch in ((None, 5), ([(A, 2)], 5), ([], 6)):
        after = reconcile(newer, target_epoch=6, target=target, owned=report, current_epoch_of=lambda _: FREE)
        assert after.member_epoch == epoch
    assert after.assigned == {(A, 1): 6}
