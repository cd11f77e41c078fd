"""Groups for the assignors' tests: written down in a line a member, or drawn by Hypothesis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations

from hypothesis import strategies as st

from kohort.coordinator.assignors.spec import Assignment, GroupSpec, MemberSpec, TopicId, TopicSpec

RACKS = ("east", "north", "west")
REPLICAS = [frozenset(racks) for count in range(3) for racks in combinations(RACKS, count)]
OWNED = st.lists(st.integers(0, 9), min_size=1, max_size=8, unique=True).map(sorted).map(tuple)


def topic_id(name: str) -> TopicId:
    return name.encode().ljust(16, b"\0")


def topic_name(topic: TopicId) -> str:
    return topic.rstrip(b"\0").decode()


def topic(name: str, partitions: int, **more: object) -> TopicSpec:
    return TopicSpec(topic_id(name), name, partitions, **more)  # type: ignore[arg-type]


def written(text: str) -> Assignment:
    """`t1:0,2 t2:1` as an assignment."""
    parts = [part.split(":") for part in text.split()]
    return {topic_id(name): tuple(int(number) for number in numbers.split(",")) for name, numbers in parts}


def printed(assignment: Assignment) -> str:
    return " ".join(
        f"{topic_name(topic)}:{','.join(map(str, numbers))}" for topic, numbers in sorted(assignment.items())
    )


def group_of(topics: str, members: str) -> GroupSpec:
    """Topics as `t1=3 t2=5`; a member a line: `id[@instance] subscribed topics | what it owns`."""
    specs = {}
    for line in members.strip().splitlines():
        head, _, owned = line.partition("|")
        name, *subscribed = head.split()
        member_id, _, instance = name.partition("@")
        topics_of = tuple(topic_id(name) for name in subscribed)
        specs[member_id] = MemberSpec(member_id, instance or None, None, topics_of, written(owned))
    pairs = [pair.split("=") for pair in topics.split()]
    return GroupSpec(specs, {topic_id(name): topic(name, int(count)) for name, count in pairs})


def with_owned(group: GroupSpec, owned: Mapping[str, Assignment]) -> GroupSpec:
    """The group after its members got this assignment."""
    members = {
        member_id: dataclasses.replace(member, owned=owned.get(member_id, {}))
        for member_id, member in group.members.items()
    }
    return GroupSpec(members, group.topics)


def without(group: GroupSpec, *gone: str) -> GroupSpec:
    return GroupSpec({name: member for name, member in group.members.items() if name not in gone}, group.topics)


def partitions_of(assignment: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}


def sizes(result: Mapping[str, Assignment]) -> dict[str, int]:
    return {member_id: sum(map(len, assignment.values())) for member_id, assignment in result.items()}


def owners_of(group: GroupSpec, assigned: Mapping[str, Assignment]) -> dict[tuple[TopicId, int], str]:
    """The owners, as far as they may own; if two members claim a partition, the first one."""
    owners: dict[tuple[TopicId, int], str] = {}
    for member_id in sorted(group.members):
        for topic, number in sorted(partitions_of(assigned.get(member_id, {}))):
            known = group.topics.get(topic)
            if known is not None and 0 <= number < known.partitions and topic in group.members[member_id].topics:
                owners.setdefault((topic, number), member_id)
    return owners


def is_near(group: GroupSpec, member_id: str, topic: TopicId, number: int) -> bool:
    rack, spec = group.members[member_id].rack, group.topics[topic]
    replicas = spec.racks[number] if spec.racks else frozenset()
    leader = spec.leader_racks[number] if spec.leader_racks else None
    return rack is not None and (rack in replicas or rack == leader)


def near_ones(group: GroupSpec, result: Mapping[str, Assignment]) -> int:
    return sum(
        is_near(group, m, topic, n) for m, assignment in result.items() for topic, n in partitions_of(assignment)
    )


@st.composite
def topics_drawn(draw: st.DrawFn, name: str, most: int, lag: bool = False) -> TopicSpec:
    count = draw(st.integers(0, most))

    def each(values: st.SearchStrategy[object]) -> tuple[object, ...]:
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    racks = each(st.sampled_from(REPLICAS)) if draw(st.booleans()) else ()
    leaders = each(st.sampled_from([None, *RACKS])) if draw(st.booleans()) else ()
    lags = (
        each(st.sampled_from([0, 1, 50, 700, 2_000, 3_000, 7_777, 20_000, 50_000]))
        if lag and draw(st.booleans())
        else None
    )
    return topic(name, count, racks=racks, leader_racks=leaders, lag=lags)


@st.composite
def groups(
    draw: st.DrawFn,
    *,
    alike: bool | None = None,
    members: int = 7,
    topics: int = 4,
    partitions: int = 9,
    lag: bool = False,
) -> GroupSpec:
    """Members with anything as what they own: of others, of topics that are gone, of partitions that never were.

    `alike`: whether all members have the same subscription; None leaves it to chance.
    """
    names = [f"t{number}" for number in range(1, draw(st.integers(1, topics)) + 1)]
    specs = {topic_id(name): draw(topics_drawn(name, partitions, lag)) for name in names}
    known = [topic_id(name) for name in [*names, "gone"]]
    subscriptions = st.lists(st.sampled_from(known), unique=True).map(tuple)
    same = draw(subscriptions) if (draw(st.booleans()) if alike is None else alike) else None
    owned = st.dictionaries(st.sampled_from(known), OWNED, max_size=3)
    result = {}
    for number in range(draw(st.integers(1, members))):
        result[f"m{number}"] = MemberSpec(
            f"m{number}",
            draw(st.sampled_from([None, None, f"i{9 - number}"])),
            draw(st.sampled_from([None, *RACKS])),
            same if same is not None else draw(subscriptions),
            draw(owned),
        )
    return GroupSpec(result, specs)
