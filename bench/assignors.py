"""Assignors: milliseconds for a thousand members and ten thousand partitions, and how many partitions move.

Everyone is subscribed to everything: ten topics of a thousand partitions, then one of ten thousand. Measured are the
first assignment, the same again, one member more, one fewer. Racks and lags are drawn from a fixed seed. The best of
several rounds. A last row has members that each subscribe to five of fifty topics, which is the hardest case.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec, MemberSpec, TopicSpec

ROUNDS = 5
MEMBERS = 1000
RACKS = ("a", "b", "c")


def topics_of(count: int, partitions: int) -> list[TopicSpec]:
    chance = random.Random(848)
    return [
        TopicSpec(
            topic_id=number.to_bytes(16, "big"),
            name=f"topic-{number:02}",
            partitions=partitions,
            racks=tuple(frozenset(chance.sample(RACKS, 2)) for _ in range(partitions)),
            lag=tuple(int(chance.paretovariate(1) * 1000) for _ in range(partitions)),
        )
        for number in range(count)
    ]


def group_of(
    members: Sequence[int], topics: Sequence[TopicSpec], some: int, owned: Mapping[str, Assignment]
) -> GroupSpec:
    """Each member subscribed to `some` of the topics."""
    ids = [topic.topic_id for topic in topics]
    specs = {}
    for number in members:
        name = f"member-{number:04}"
        subscribed = ids if some == len(ids) else random.Random(number).sample(ids, some)
        specs[name] = MemberSpec(name, None, RACKS[number % 3], tuple(subscribed), owned.get(name, {}))
    return GroupSpec(specs, {topic.topic_id: topic for topic in topics})


def measure(assignor: Assignor, group: GroupSpec) -> tuple[float, Mapping[str, Assignment]]:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = assignor.assign(group)
        best = min(best, time.perf_counter() - start)
    return best * 1000, result


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    return sum(
        len(set(partitions).difference(before.get(member, {}).get(topic, ())))
        for member, assignment in after.items()
        for topic, partitions in assignment.items()
    )


def main() -> None:
    everyone = list(range(MEMBERS))
    cases = {
        "fresh": everyone,
        "again": everyone,
        "joins": [*everyone, MEMBERS],
        "leaves": [n for n in everyone if n != 500],
    }
    print(f"{'assignor':9} {'topics':>12} " + " ".join(f"{case:>16}" for case in cases) + "   (ms, partitions moved)")
    for count, partitions, some in ((10, 1000, 10), (1, 10_000, 1), (50, 200, 5)):
        topics = topics_of(count, partitions)
        for assignor in BUILT_IN.values():
            owned: Mapping[str, Assignment] = {}
            row = []
            for case, members in cases.items():
                took, result = measure(assignor, group_of(members, topics, some, owned))
                row.append(f"{took:9.1f} {moved(owned, result):6}")
                owned = result if case == "fresh" else owned
            print(f"{assignor.name:9} {f'{some}/{count}x{partitions}':>12} " + " ".join(row), flush=True)
