"""Assignments of consumer groups to and from their records."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.consumer.assignment_records import current_value, member_state, target_partitions, target_value
from kohort.coordinator.consumer.reconciliation import FREE, MemberState, Reconciliation, reconcile
from kohort.coordinator.records import current_record, parse, target_record
from kohort.wire.schemas.group_records import ConsumerGroupCurrentMemberAssignmentValue, CurrentTopicPartitions

A, B = b"a" * 16, b"b" * 16
UNREVOKED = Reconciliation.UNREVOKED_PARTITIONS
partitions = st.tuples(st.sampled_from([A, B]), st.integers(0, 20))
owned = st.dictionaries(partitions, st.integers(0, 50))


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(st.integers(0, 50), st.integers(0, 50), st.sampled_from(list(Reconciliation)), owned, owned)
def test_members_come_back(
    epoch: int, previous: int, state: Reconciliation, assigned: dict[tuple[bytes, int], int], more: dict
) -> None:
    revoking = {p: e for p, e in more.items() if p not in assigned} if state == UNREVOKED else {}
    member = MemberState(epoch, previous, state, assigned, revoking)
    _, value = parse(current_record("g", "m", current_value(member))) or (None, None)
    assert member_state(value) == member


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(st.frozensets(partitions))
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
    member = member_state(stored(7, 5, (3, 4)))
    assert member == MemberState(5, 4, UNREVOKED, {}, {(A, 1): 3, (A, 2): 4})
    target = frozenset({(A, 1)})
    for report, epoch in ((None, 5), ([(A, 2)], 5), ([], 6)):
        after = reconcile(member, target_epoch=6, target=target, owned=report, current_epoch_of=lambda _: FREE)
        assert after.member_epoch == epoch
    assert after.assigned == {(A, 1): 6}
