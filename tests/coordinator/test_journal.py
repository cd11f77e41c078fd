"""The journal: entries folded into stories, within limits, for any sequence of entries."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.config import Config
from kohort.coordinator.events import JournalEntry, MemberStory, What
from kohort.coordinator.journal.journal import MAX_HAPPENINGS, Journal
from kohort.coordinator.journal.reconciliation_steps import MAX_MEMBERS, MAX_PEERS
from kohort.coordinator.journal.story import LONGEST_TEXT, Story
from kohort.wire.embedded import assignment_bytes

SMALL = Config(journal_max_stories_per_group=3, journal_max_groups=4, journal_max_bytes=65_536)


@pytest.fixture
def journal() -> Journal:
    return Journal(Config())


def assigned(**topics: list[int]) -> bytes:
    return assignment_bytes(((topic, tuple(partitions)) for topic, partitions in topics.items()), b"\x00\x03")


def member(
    name: str, assignment: bytes = b"", joined: int = 0, synced: int = 0, instance: str | None = None
) -> MemberStory:
    return MemberStory(f"{name}-1", instance, name, f"/host-{name}", joined, synced, assignment)


def told(journal: Journal, now: int, *entries: dict[str, object]) -> None:
    journal.tell([JournalEntry(**({"group": "g", "protocol_type": "consumer"} | entry)) for entry in entries], now)  # type: ignore[arg-type]


def stories(journal: Journal, group: str = "g") -> list[Story]:
    return [msgspec.json.decode(data, type=Story) for data in journal.stories(group, 1000)]


def rebalance(
    journal: Journal, now: int, generation: int, cause: dict[str, object], *members: MemberStory, took: int = 0
) -> int:
    """A rebalance from its cause to its end; returns when it ended."""
    told(journal, now, cause, {"what": "rebalance started", "cause": "why", "generation_id": generation - 1})
    now += took
    told(journal, now, {"what": "generation began", "generation_id": generation, "waited_ms": took})
    leader = members[0].member_id if members else ""
    told(
        journal,
        now,
        {"what": "group is stable", "generation_id": generation, "members": members, "member_id": leader},
    )
    return now


JOINED = {"what": "member joined", "member_id": "a-1", "client_id": "a", "host": "/host-a"}


def test_a_rebalance_is_one_story(journal: Journal) -> None:
    told(journal, 1000, JOINED, {"what": "rebalance started", "cause": "a member joined", "member_id": "a-1"})
    (running,) = stories(journal)
    assert (running.number, running.outcome, running.took_ms) == (1, "", None)
    assert running.cause.what == "member joined"
    assert running.cause.client_id == "a"
    told(journal, 1500, JOINED | {"member_id": "b-1", "client_id": "b"})
    told(journal, 4000, {"what": "generation began", "generation_id": 1, "waited_ms": 3000, "cause": "all joined"})
    members = (member("a", assigned(t=[0, 1])), member("b", assigned(t=[2]), joined=500))
    told(journal, 4010, {"what": "group is stable", "generation_id": 1, "members": members, "waited_ms": 10})
    (story,) = stories(journal)
    assert (story.outcome, story.took_ms, story.generation_before, story.generation_after) == ("Stable", 3010, -1, 1)
    assert [(phase.phase, phase.took_ms) for phase in story.phases] == [
        ("PreparingRebalance", 3000),
        ("CompletingRebalance", 10),
    ]
    assert [(h.what, h.after_ms, h.member_id) for h in story.happenings] == [("member joined", 500, "b-1")]
    assert [(m.client_id, m.partitions, m.gained) for m in story.members] == [
        ("a", 2, {"t": [0, 1]}),
        ("b", 1, {"t": [2]}),
    ]
    assert (story.moved, story.taken, story.released, story.partitions_count) == (0, 3, 0, 3)
    assert story.held_up_by == [], "the window ended the phase, not the last to join"


def test_a_story_lists_the_moved_partitions(journal: Journal) -> None:
    rebalance(journal, 0, 1, JOINED, member("a", assigned(t=[0, 1])), member("b", assigned(t=[2, 3])))
    left = {"what": "member left", "member_id": "b-1", "client_id": "b", "cause": "closing"}
    rebalance(journal, 100, 2, left, member("a", assigned(t=[0, 2])), member("c", assigned(t=[3])))
    story = stories(journal)[-1]
    assert (story.cause.what, story.cause.cause) == ("member left", "closing")
    assert (story.moved, story.taken, story.released) == (2, 0, 1)
    assert [(m.client_id, m.gained, m.lost) for m in story.members] == [
        ("a", {"t": [2]}, {"t": [1]}),
        ("c", {"t": [3]}, {}),
    ]
    assert [(m.client_id, m.lost) for m in story.gone] == [("b", {"t": [2, 3]})]


def test_a_static_member_keeps_its_partitions_under_a_new_id(journal: Journal) -> None:
    rebalance(journal, 0, 1, JOINED, member("a", assigned(t=[0]), instance="i"))
    rebalance(journal, 9, 2, JOINED, member("a2", assigned(t=[0]), instance="i"))
    assert (stories(journal)[-1].moved, stories(journal)[-1].gone) == (0, [])


def test_a_story_names_the_member_that_delayed_it(journal: Journal) -> None:
    rebalance(journal, 0, 1, JOINED, member("a"), member("b", joined=2900), member("c", joined=100), took=2900)
    (blamed,) = stories(journal)[-1].held_up_by
    assert (blamed.how, blamed.client_id, blamed.waited_ms) == ("joined last", "b", 2800)
    assert journal.take_delays() == []
    told(journal, 5000, JOINED, {"what": "rebalance started"})
    late = {"what": "member removed", "member_id": "b-1", "client_id": "b", "cause": "late", "waited_ms": 30_000}
    told(journal, 35_000, late, {"what": "generation began", "generation_id": 2, "waited_ms": 30_000})
    silent = {"what": "session expired", "member_id": "a-1", "client_id": "a", "waited_ms": 10_000}
    told(journal, 36_000, silent, {"what": "rebalance started"})
    story = stories(journal)[-2]
    assert story.outcome == "superseded"
    assert [(who.how, who.client_id, who.waited_ms) for who in story.held_up_by] == [
        ("late", "b", 30_000),
        ("session expired", "a", 1_000),
    ]
    assert [(group, delay.client_id) for group, delay in journal.take_delays()] == [("g", "b"), ("g", "a")]
    assert journal.take_delays() == []
    assert stories(journal)[-1].cause.what == "session expired"


def test_entries_that_start_no_rebalance_are_stories_and_repeats_are_added(journal: Journal) -> None:
    for now in range(60):
        told(journal, now, {"what": "offsets deleted", "cause": "1 of them"})
    told(journal, 100, {"what": "group deleted", "cause": "asked for"})
    first, second = stories(journal)
    assert (first.outcome, first.number, len(first.happenings)) == ("noted", 1, MAX_HAPPENINGS)
    assert first.more == {"offsets deleted": 9}
    assert (second.number, second.cause.what) == (2, "group deleted")


def test_changed_offsets_are_stories_of_their_own_during_a_rebalance_too(journal: Journal) -> None:
    told(journal, 0, JOINED, {"what": "rebalance started"})
    deleted = {"what": "offsets deleted", "cause": "1 of them; asked for", "client_id": "operator", "follows": True}
    told(journal, 5, deleted | {"changes": (("t", 0, 7, -1),)})
    told(journal, 6, deleted | {"changes": (("t", 1, 8, -1), ("t", 0, 99, -1))})
    told(journal, 7, deleted | {"changes": (("t", 2, 9, -1),), "follows": False})
    told(journal, 8, {"what": "generation began", "generation_id": 1}, {"what": "group is stable", "generation_id": 1})
    first, second, rebalanced = stories(journal)
    assert (first.number, first.outcome, first.took_ms) == (2, "noted", 1)
    assert first.changed == {"t": [(0, 7, -1), (1, 8, -1)]}, "the first offset of each partition stays"
    assert second.changed == {"t": [(2, 9, -1)]}
    assert (rebalanced.number, rebalanced.outcome, rebalanced.changed) == (1, "Stable", {})


def test_what_goes_on_without_its_beginning_is_no_story(journal: Journal) -> None:
    told(journal, 0, {"what": "offsets changed", "client_id": "spark", "follows": True, "goes_on": True})
    assert stories(journal) == []


def test_a_stop_interrupts(journal: Journal) -> None:
    told(journal, 0, JOINED, {"what": "rebalance started"})
    records = journal.take_changed()
    told(journal, 5, {"what": "group unloaded"})
    assert stories(journal)[-1].outcome == "interrupted"
    again = Journal(Config())
    for record in records:
        again.restore(record.value or b"")
    assert [(story.outcome, story.number) for story in stories(again)] == [("interrupted", 1)]
    told(again, 9, {"what": "group loaded", "members": (member("a", assigned(t=[0])),), "generation_id": 4})
    assert again.loaded_ms("g") == 9
    rebalance(again, 10, 5, JOINED, member("b", assigned(t=[0])))
    assert (stories(again)[-1].number, stories(again)[-1].moved) == (2, 1)


def test_assignments_from_before_a_start_are_decoded_when_they_change(journal: Journal) -> None:
    loaded = (member("a", assigned(t=[0, 1])), member("b", assigned(t=[2])), member("c", assigned(t=[3])))
    told(journal, 0, {"what": "group loaded", "members": loaded, "generation_id": 4})
    after = (member("a", assigned(t=[0, 1])), member("b", assigned(t=[2, 3])))
    rebalance(journal, 10, 5, JOINED, *after)
    story = stories(journal)[-1]
    assert (story.moved, story.taken, story.released, story.partitions_count) == (1, 0, 0, 4)
    assert {m.client_id: (m.partitions, m.gained) for m in story.members} == {"b": (2, {"t": [3]}), "a": (2, {})}


def test_a_dropped_group_has_unknown_former_owners() -> None:
    journal = Journal(Config(journal_max_groups=1))
    rebalance(journal, 0, 1, JOINED, member("a", assigned(t=[0])))
    told(journal, 1, {"what": "group deleted", "group": "other"})
    again = JOINED | {"generation_id": 1}
    rebalance(journal, 2, 2, again, member("a", assigned(t=[0])), member("b", assigned(t=[1])))
    (story,) = stories(journal)
    assert (story.number, story.moved, story.partitions_count) == (1, None, 2)


def test_records_have_one_slot_for_each_kept_story() -> None:
    journal = Journal(SMALL)
    keys = []
    for generation in range(7):
        rebalance(journal, generation, generation, JOINED, member("a"))
        keys += [record.key for record in journal.take_changed()]
    assert keys == [b"g#1", b"g#2", b"g#0", b"g#1", b"g#2", b"g#0", b"g#1"]
    assert [story.number for story in stories(journal)] == [5, 6, 7]


def test_stories_of_other_protocols_have_the_sizes_of_assignments(journal: Journal) -> None:
    told(journal, 0, JOINED, {"what": "rebalance started"})
    stable = {"what": "group is stable", "protocol_type": "connect", "members": (member("a", b"xyz"),)}
    told(journal, 1, stable)
    (story,) = stories(journal)
    assert (story.moved, story.members[0].assignment_bytes) == (None, 3)


TEXTS = st.sampled_from(["", "a-1", "b-1", "x" * 1000, "é\n\x00"])
MILLIS = st.integers(-5, 2**40)
MEMBERS = st.builds(
    MemberStory,
    member_id=TEXTS,
    instance_id=st.none() | TEXTS,
    client_id=TEXTS,
    host=TEXTS,
    joined_after_ms=MILLIS,
    synced_after_ms=MILLIS,
    assignment=st.sampled_from([b"", b"x", assigned(t=[0, 1]), assigned(t=[1], u=[5]), assigned(t=[1, 1])]),
)
WHATS = st.sampled_from(get_args(What))
ENTRIES = st.builds(
    JournalEntry,
    group=st.sampled_from("abcdefgh"),
    what=WHATS,
    cause=TEXTS,
    generation_id=st.integers(-1, 10),
    member_id=TEXTS,
    instance_id=st.none() | TEXTS,
    client_id=TEXTS,
    host=TEXTS,
    waited_ms=MILLIS,
    protocol_type=st.sampled_from(["", "consumer", "connect"]),
    members=st.lists(MEMBERS, max_size=4).map(tuple),
    changes=st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 5), MILLIS, MILLIS), max_size=3).map(tuple),
    follows=st.booleans(),
    goes_on=st.booleans(),
)


@settings(deadline=None, database=None)
@given(st.lists(st.tuples(st.lists(ENTRIES, max_size=6), st.integers(0, 1000), st.booleans()), max_size=30))
def test_any_sequence_is_taken_and_bounded(steps: list[tuple[list[JournalEntry], int, bool]]) -> None:
    journal, now = Journal(SMALL), 1000
    topic: dict[bytes, bytes] = {}
    for entries, passed, restart in steps:
        now += passed
        journal.tell(entries, now)
        for record in journal.take_changed():
            assert record.value is not None
            topic.pop(record.key, None)
            topic[record.key] = record.value
        journal.take_delays()
        check_bounds(journal)
        if restart:
            journal = Journal(SMALL)
            for value in topic.values():
                journal.restore(value)
            check_bounds(journal)
    assert len(topic) <= 8 * SMALL.journal_max_stories_per_group
    for value in topic.values():
        story = msgspec.json.decode(value, type=Story)
        assert len(story.cause.member_id) <= LONGEST_TEXT


def check_bounds(journal: Journal) -> None:
    assert len(journal._groups) <= SMALL.journal_max_groups
    kept = [data for group in journal._groups.values() for data in group.stories]
    assert journal._bytes == sum(map(len, kept)) <= SMALL.journal_max_bytes
    for name, group in journal._groups.items():
        assert len(group.stories) <= SMALL.journal_max_stories_per_group
        found = stories(journal, name)
        assert all(story.group == name for story in found)
        assert all(story.outcome for story in found[:-1])
        assert (group.open is not None) == (bool(found) and not found[-1].outcome)


# -- consumer groups: one story from the first epoch to the last target, with its members' steps


def happened(journal: Journal, now: int, what: str, member: str = "", epoch: int = 2, **fields: object) -> None:
    told(journal, now, {"what": what, "generation_id": epoch, "assignment_epoch": 1, "member_id": member} | fields)


def started(journal: Journal, now: int, member: str = "b", epoch: int = 2) -> None:
    known = {"generation_id": epoch, "assignment_epoch": 1, "member_id": member}
    cause = {"what": "rebalance started", "cause": "a member joined"}
    told(journal, now, {"what": "member joined"} | known, cause | known)


def has(name: str, *partitions: int) -> MemberStory:
    return MemberStory(name, None, name, "/h", assignment=assigned(t=list(partitions)))


def stable(journal: Journal, now: int, *members: MemberStory, epoch: int = 2) -> None:
    happened(journal, now, "group is stable", epoch=epoch, assignment_epoch=epoch, members=members)


def test_the_steps_of_a_member_that_gives_up_partitions(journal: Journal) -> None:
    started(journal, 0, "a", epoch=1)
    stable(journal, 0, has("a", 0, 1), has("c", 2, 3), epoch=1)
    started(journal, 1000)
    happened(journal, 2000, "target made", assignment_epoch=2, protocol="uniform")
    happened(journal, 2000, "told to revoke", "a", partitions=1, pushed=True)
    happened(journal, 2010, "waits for partitions", "b", partitions=2, peers=("a", "c"))
    happened(journal, 2030, "revoked", "a", partitions=1)
    happened(journal, 2040, "got partitions", "b", partitions=1, pushed=True, peers=("c",))
    happened(journal, 6000, "told to revoke", "c", partitions=1)
    (running,) = stories(journal)[1:]
    assert (running.outcome, [m.member_id for m in running.members]) == ("", ["a", "b", "c"])
    happened(journal, 6100, "revoked", "c", partitions=1)
    happened(journal, 6110, "got partitions", "b", partitions=1, pushed=True)
    stable(journal, 6110, has("a", 0), has("b", 1, 2), has("c", 3))
    story = stories(journal)[-1]
    assert (story.group_type, story.outcome, story.took_ms) == ("consumer", "Stable", 5110)
    assert (story.generation_before, story.generation_after, story.assignment_epoch) == (1, 2, 2)
    assert [(p.phase, p.took_ms) for p in story.phases] == [("Assigning", 1000), ("Reconciling", 4110)]
    assert (story.pushed, story.polled, story.moved) == (3, 1, 2)
    steps = {member.member_id: member.steps for member in story.members}
    a, b, c = steps["a"], steps["b"], steps["c"]
    assert (a.revoked, a.told_after_ms, a.told_by, a.revoked_after_ms) == (1, 1000, "push", 1030)
    assert (c.told_after_ms, c.told_by, c.revoked_after_ms) == (5000, "heartbeat", 5100)
    assert (b.got, b.got_after_ms, b.got_by, b.waited_after_ms) == (2, 5110, "push", 1010)
    assert (b.waited_ms, b.waited_for) == (4100, ["a", "c"])
    (blamed,) = story.held_up_by
    assert (blamed.how, blamed.member_id, blamed.waited_ms) == ("gave up late", "c", 100)


def test_the_time_between_two_requests_to_give_up_does_not_count(journal: Journal) -> None:
    started(journal, 0, "a", epoch=1)
    stable(journal, 0, has("a", 0, 1), epoch=1)
    started(journal, 0)
    for now in (0, 5000):
        happened(journal, now, "told to revoke", "a", partitions=1, pushed=True)
        happened(journal, now, "waits for partitions", "b", partitions=1, peers=("a",))
        happened(journal, now + 20, "revoked", "a", partitions=1)
        happened(journal, now + 30, "got partitions", "b", partitions=1, pushed=True)
    stable(journal, 5030, has("b", 0, 1))
    story = stories(journal)[-1]
    a, b = story.gone[0].steps, story.members[0].steps
    assert (a.times, a.revoked, a.told_after_ms, a.revoked_after_ms, a.gave_up_in_ms) == (2, 2, 0, 5020, 20)
    assert (b.got, b.got_after_ms, b.waited_after_ms, b.waited_ms) == (2, 5030, 0, 60)
    assert [(who.how, who.waited_ms) for who in story.held_up_by] == [("gave up late", 20)]


def test_an_epoch_raised_during_a_rebalance_is_the_same_story(journal: Journal) -> None:
    started(journal, 0)
    happened(journal, 0, "target made", assignment_epoch=2)
    started(journal, 50, "d", epoch=3)
    happened(journal, 60, "target made", assignment_epoch=3)
    stable(journal, 100, has("b", 0), has("d", 1), epoch=3)
    (story,) = stories(journal)
    assert (story.generation_before, story.generation_after, story.took_ms) == (1, 3, 100)
    assert [(h.what, h.member_id, h.after_ms) for h in story.happenings] == [("member joined", "d", 50)]
    assert [p.phase for p in story.phases] == ["Assigning", "Reconciling"]


def test_a_silent_member_holds_up_only_members_that_wait_for_its_partitions(journal: Journal) -> None:
    started(journal, 0)
    happened(journal, 10, "told to revoke", "a", partitions=1)
    happened(journal, 4000, "session expired", "c", waited_ms=45_000)
    assert journal.take_delays() == []
    happened(journal, 5010, "session expired", "a", waited_ms=45_000)
    assert [(delay.member_id, delay.waited_ms) for _, delay in journal.take_delays()] == [("a", 5000)]


def test_a_stop_keeps_the_steps_that_were_taken(journal: Journal) -> None:
    started(journal, 0)
    happened(journal, 10, "told to revoke", "a", partitions=1)
    happened(journal, 20, "group unloaded")
    (story,) = stories(journal)
    assert (story.outcome, [m.member_id for m in story.members]) == ("interrupted", ["a"])
    happened(journal, 30, "revoked", "a", partitions=1)
    assert len(stories(journal)) == 1, "a step without a story is none"


def test_delays_and_limits_of_a_story(journal: Journal) -> None:
    started(journal, 0)
    happened(journal, 0, "held back", cause="assignment interval", waited_ms=1000)
    happened(journal, 1000, "held back", cause="gradual hand-over", waited_ms=500, partitions=7)
    for number in range(MAX_MEMBERS + 10):
        peers = tuple(f"p{peer}" for peer in range(50))
        happened(journal, 1001, "waits for partitions", f"m{number}", partitions=1, peers=peers)
        happened(journal, 1002, "got partitions", f"m{number}", partitions=1)
    (story,) = stories(journal)
    assert [(h.why, h.for_ms, h.partitions) for h in story.held_back] == [
        ("assignment interval", 1000, 0),
        ("gradual hand-over", 500, 7),
    ]
    assert (len(story.members), story.polled) == (MAX_MEMBERS, MAX_MEMBERS + 10)
    assert all(m.steps is not None and len(m.steps.waited_for) == MAX_PEERS for m in story.members)
