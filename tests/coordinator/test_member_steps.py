"""The story of a consumer group's rebalance: one from the first epoch to the last target, with its members' steps."""

from __future__ import annotations

import msgspec

from kohort.config import Config
from kohort.coordinator.events import JournalEntry, MemberStory
from kohort.coordinator.journal.journal import Journal
from kohort.coordinator.journal.reconciliation_steps import MAX_MEMBERS, MAX_PEERS
from kohort.coordinator.journal.story import Story
from kohort.wire.codec import encode
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
)


def told(journal: Journal, now: int, what: str, member: str = "", epoch: int = 2, **fields: object) -> None:
    base = {"group": "g", "what": what, "generation_id": epoch, "assignment_epoch": 1, "protocol_type": "consumer"}
    if member:
        base |= {"member_id": member, "client_id": f"client-{member}", "host": "/h"}
    journal.tell([JournalEntry(**(base | fields))], now)  # type: ignore[arg-type]


def started(journal: Journal, now: int, member: str = "b", epoch: int = 2) -> None:
    entries = [
        JournalEntry(group="g", what=what, generation_id=epoch, assignment_epoch=1, member_id=member, cause=cause)
        for what, cause in (("member joined", ""), ("rebalance started", "a member joined"))
    ]
    journal.tell(entries, now)  # type: ignore[arg-type]


def has(member: str, *partitions: int) -> MemberStory:
    rows = ConsumerProtocolAssignmentResponseTopicPartition(topic="t", partitions=partitions)
    data = b"\x00\x00" + encode(ConsumerProtocolAssignment(assigned_partitions=(rows,)), 0)
    return MemberStory(member, None, f"client-{member}", "/h", assignment=data)


def stable(journal: Journal, now: int, *members: MemberStory, epoch: int = 2) -> None:
    told(journal, now, "group is stable", epoch=epoch, assignment_epoch=epoch, members=members)


def stories(journal: Journal) -> list[Story]:
    return [msgspec.json.decode(data, type=Story) for data in journal.stories("g", 1000)]


def test_the_steps_of_a_member_that_gives_up_partitions() -> None:
    journal = Journal(Config())
    started(journal, 0, "a", epoch=1)
    stable(journal, 0, has("a", 0, 1), has("c", 2, 3), epoch=1)
    started(journal, 1000)
    told(journal, 2000, "target made", assignment_epoch=2, protocol="uniform")
    told(journal, 2000, "told to revoke", "a", partitions=1, pushed=True)
    told(journal, 2010, "waits for partitions", "b", partitions=2, peers=("a", "c"))
    told(journal, 2030, "revoked", "a", partitions=1)
    told(journal, 2040, "got partitions", "b", partitions=1, pushed=True, peers=("c",))
    told(journal, 6000, "told to revoke", "c", partitions=1)
    (running,) = stories(journal)[1:]
    assert (running.outcome, [m.member_id for m in running.members]) == ("", ["a", "b", "c"])
    told(journal, 6100, "revoked", "c", partitions=1)
    told(journal, 6110, "got partitions", "b", partitions=1, pushed=True)
    stable(journal, 6110, has("a", 0), has("b", 1, 2), has("c", 3))
    story = stories(journal)[-1]
    assert (story.group_type, story.outcome, story.took_ms) == ("consumer", "Stable", 5110)
    assert (story.generation_before, story.generation_after, story.assignment_epoch) == (1, 2, 2)
    assert [(p.phase, p.took_ms) for p in story.phases] == [("Assigning", 1000), ("Reconciling", 4110)]
    assert (story.pushed, story.polled, story.moved) == (3, 1, 2)
    steps = {member.member_id: member.steps for member in story.members}
    a, b, c = steps["a"], steps["b"], steps["c"]
    assert a is not None
    assert (a.revoked, a.told_after_ms, a.told_by, a.revoked_after_ms) == (1, 1000, "push", 1030)
    assert c is not None
    assert (c.told_after_ms, c.told_by, c.revoked_after_ms) == (5000, "heartbeat", 5100)
    assert b is not None
    assert (b.got, b.got_after_ms, b.got_by, b.waited_after_ms) == (2, 5110, "push", 1010)
    assert (b.waited_ms, b.waited_for) == (4100, ["a", "c"])
    (blamed,) = story.held_up_by
    assert (blamed.how, blamed.member_id, blamed.waited_ms) == ("gave up late", "c", 100)


def test_the_time_between_two_requests_to_give_up_does_not_count() -> None:
    journal = Journal(Config())
    started(journal, 0, "a", epoch=1)
    stable(journal, 0, has("a", 0, 1), epoch=1)
    started(journal, 0)
    for now in (0, 5000):
        told(journal, now, "told to revoke", "a", partitions=1, pushed=True)
        told(journal, now, "waits for partitions", "b", partitions=1, peers=("a",))
        told(journal, now + 20, "revoked", "a", partitions=1)
        told(journal, now + 30, "got partitions", "b", partitions=1, pushed=True)
    stable(journal, 5030, has("b", 0, 1))
    story = stories(journal)[-1]
    a, b = story.gone[0].steps, story.members[0].steps
    assert a is not None
    assert b is not None
    assert (a.times, a.revoked, a.told_after_ms, a.revoked_after_ms, a.gave_up_in_ms) == (2, 2, 0, 5020, 20)
    assert (b.got, b.got_after_ms, b.waited_after_ms, b.waited_ms) == (2, 5030, 0, 60)
    assert [(who.how, who.waited_ms) for who in story.held_up_by] == [("gave up late", 20)]


def test_an_epoch_raised_during_a_rebalance_is_the_same_story() -> None:
    journal = Journal(Config())
    started(journal, 0)
    told(journal, 0, "target made", assignment_epoch=2)
    started(journal, 50, "d", epoch=3)
    told(journal, 60, "target made", assignment_epoch=3)
    stable(journal, 100, has("b", 0), has("d", 1), epoch=3)
    (story,) = stories(journal)
    assert (story.generation_before, story.generation_after, story.took_ms) == (1, 3, 100)
    assert [(h.what, h.member_id, h.after_ms) for h in story.happenings] == [("member joined", "d", 50)]
    assert [p.phase for p in story.phases] == ["Assigning", "Reconciling"]


def test_a_silent_member_holds_up_only_members_that_wait_for_its_partitions() -> None:
    journal = Journal(Config())
    started(journal, 0)
    told(journal, 10, "told to revoke", "a", partitions=1)
    told(journal, 4000, "session expired", "c", waited_ms=45_000)
    assert journal.take_delays() == []
    told(journal, 5010, "session expired", "a", waited_ms=45_000)
    assert [(delay.member_id, delay.waited_ms) for _, delay in journal.take_delays()] == [("a", 5000)]


def test_a_stop_keeps_the_steps_that_were_taken() -> None:
    journal = Journal(Config())
    started(journal, 0)
    told(journal, 10, "told to revoke", "a", partitions=1)
    told(journal, 20, "group unloaded")
    (story,) = stories(journal)
    assert (story.outcome, [m.member_id for m in story.members]) == ("interrupted", ["a"])
    told(journal, 30, "revoked", "a", partitions=1)
    assert len(stories(journal)) == 1, "a step without a story is none"


def test_delays_and_limits_of_a_story() -> None:
    journal = Journal(Config())
    started(journal, 0)
    told(journal, 0, "held back", cause="assignment interval", waited_ms=1000)
    told(journal, 1000, "held back", cause="gradual hand-over", waited_ms=500, partitions=7)
    for number in range(MAX_MEMBERS + 10):
        peers = tuple(f"p{peer}" for peer in range(50))
        told(journal, 1001, "waits for partitions", f"m{number}", partitions=1, peers=peers)
        told(journal, 1002, "got partitions", f"m{number}", partitions=1)
    (story,) = stories(journal)
    assert [(h.why, h.for_ms, h.partitions) for h in story.held_back] == [
        ("assignment interval", 1000, 0),
        ("gradual hand-over", 500, 7),
    ]
    assert (len(story.members), story.polled) == (MAX_MEMBERS, MAX_MEMBERS + 10)
    assert all(m.steps is not None and len(m.steps.waited_for) == MAX_PEERS for m in story.members)
