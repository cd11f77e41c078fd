"""`sticky` and `cooperative-sticky`: as even as the subscriptions allow, and as few moves as possible.

Members claim the partitions that they had. If two members claim a partition, the claim of the later generation
counts; if both have the same generation, neither claim counts. From there:

1. A partition without an owner goes to the subscribed member that has the fewest.
2. As long as a member can be relieved, one partition after the other moves: to a member with at least two fewer,
   directly or over a chain of members that each pass one on. When no such chain is left, no assignment is more even
   (Harvey, Ladner, Lovász and Tamir, Semi-matchings for bipartite graphs, 2003).

If all members subscribe to the same topics, every chain has one step, so that each member's share is computed.

`cooperative-sticky` members keep reading their partitions while the group rebalances. So a partition that has to move
is given to no member at first. Its owner sees that it has lost it, gives it up and rejoins; then it is free.

The user data are those of StickyAssignor.java (the partitions and the generation) and CooperativeStickyAssignor.java
(the generation; the partitions are in the subscription).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

from kohort.client.assignors.spec import (
    NO_GENERATION_ID,
    Assignor,
    Claim,
    Consumer,
    Division,
    TopicPartition,
    subscribed,
)
from kohort.wire.codec import decode_prefix, encode
from kohort.wire.embedded import by_topic
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.assignor_user_data import StickyTopicPartitions, StickyUserData
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription

Held = dict[str, list[TopicPartition]]


def divide_sticky(partitions: Mapping[str, int], consumers: Sequence[Consumer]) -> Division:
    """Even first, then sticky. The result does not depend on the order of the members."""
    ranked = sorted(consumers, key=lambda consumer: consumer.rank)
    wanted = subscribed(partitions, ranked)
    owners = _owners(ranked, partitions)
    if len({consumer.topics for consumer in ranked}) == 1:
        return _by_share(wanted, owners, ranked)
    return _by_chains(wanted, owners, ranked)


def divide_cooperatively(partitions: Mapping[str, int], consumers: Sequence[Consumer]) -> Division:
    """The same, without the partitions that another member has to give up first."""
    divided = divide_sticky(partitions, consumers)
    owned = {consumer.member_id: set(consumer.owned) for consumer in consumers}
    read = set().union(*owned.values())
    return {
        member_id: [partition for partition in mine if partition in owned[member_id] or partition not in read]
        for member_id, mine in divided.items()
    }


def _owners(ranked: Sequence[Consumer], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """The owners of the partitions that still exist and that their owner still subscribes to."""
    newest: dict[TopicPartition, int] = {}
    claimants: dict[TopicPartition, list[Consumer]] = {}
    for consumer in ranked:
        generation = NO_GENERATION_ID if consumer.claim.generation is None else consumer.claim.generation
        for partition in dict.fromkeys(consumer.claim.partitions):
            if partition not in newest or generation > newest[partition]:
                newest[partition], claimants[partition] = generation, [consumer]
            elif generation == newest[partition]:
                claimants[partition].append(consumer)
    return {
        partition: claiming[0].member_id
        for partition, claiming in claimants.items()
        if len(claiming) == 1
        and partition[0] in claiming[0].topics
        and 0 <= partition[1] < partitions.get(partition[0], 0)
    }


def _held(owners: Mapping[TopicPartition, str], ranked: Sequence[Consumer]) -> Held:
    held: Held = {consumer.member_id: [] for consumer in ranked}
    for partition in sorted(owners):
        held[owners[partition]].append(partition)
    return held


# -- all members subscribe to the same topics


def _by_share(
    wanted: Sequence[TopicPartition], owners: Mapping[TopicPartition, str], ranked: Sequence[Consumer]
) -> Division:
    share, longer = divmod(len(wanted), len(ranked))
    held = _held(owners, ranked)
    for mine in held.values():
        if len(mine) > share and longer:
            longer -= 1
            del mine[share + 1 :]
        else:
            del mine[share:]
    kept = {partition for mine in held.values() for partition in mine}
    least = [(len(held[consumer.member_id]), place) for place, consumer in enumerate(ranked)]
    heapq.heapify(least)
    for partition in wanted:
        if partition not in kept:
            load, place = least[0]
            held[ranked[place].member_id].append(partition)
            heapq.heapreplace(least, (load + 1, place))
    return held


# -- subscriptions differ


def _by_chains(
    wanted: Sequence[TopicPartition], owners: Mapping[TopicPartition, str], ranked: Sequence[Consumer]
) -> Division:
    held = _held(owners, ranked)
    readers = {topic: [consumer.member_id for consumer in ranked if topic in consumer.topics] for topic, _ in wanted}
    # Partitions with few readers first: the others leave more ways to even out the loads.
    for partition in sorted((p for p in wanted if p not in owners), key=lambda p: (len(readers[p[0]]), p)):
        held[min(readers[partition[0]], key=lambda member_id: len(held[member_id]))].append(partition)
    _even_out(held, readers)
    return held


def _even_out(held: Held, readers: Mapping[str, Sequence[str]]) -> None:
    """Busiest members first. A member that cannot be relieved stays so, because no later move reaches it."""
    unsettled = list(held)
    while unsettled:
        load = max(len(held[member_id]) for member_id in unsettled)
        busiest = [member_id for member_id in unsettled if len(held[member_id]) == load]
        came = _reach(busiest, held, readers)
        end = min(came, key=lambda member_id: len(held[member_id]), default="")
        if not came or len(held[end]) > load - 2:
            # The members that they reach cannot be relieved either: they reach no others.
            settled = {*busiest, *came}
            unsettled = [member_id for member_id in unsettled if member_id not in settled]
            continue
        while end in came:
            giver, partition = came[end]
            held[giver].remove(partition)
            held[end].append(partition)
            end = giver


def _reach(
    busiest: Sequence[str], held: Held, readers: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, TopicPartition]]:
    """The members that can get a partition from these, directly or over others; each with giver and partition on a
    shortest chain."""
    came: dict[str, tuple[str, TopicPartition]] = {}
    seen: set[str] = set()
    sources = set(busiest)
    queue = deque(busiest)
    while queue:
        giver = queue.popleft()
        # One partition of each topic: the last, because a member's own partitions come first.
        for topic, partition in {partition[0]: partition for partition in held[giver]}.items():
            if topic in seen:
                continue
            seen.add(topic)
            for taker in readers[topic]:
                if taker not in sources and taker not in came:
                    came[taker] = (giver, partition)
                    queue.append(taker)
    return came


# -- user data


def _sticky_user_data(claim: Claim) -> bytes | None:
    """None for a member that never had an assignment."""
    if claim.generation is None:
        return None
    rows = tuple(StickyTopicPartitions(topic=t, partitions=p) for t, p in by_topic(sorted(claim.partitions)))
    return encode(StickyUserData(previous_assignment=rows, generation=claim.generation), 1)


def _sticky_claim(subscription: ConsumerProtocolSubscription) -> Claim:
    data = subscription.user_data
    if not data:
        return Claim()
    for version in (1, 0):  # the data carry no version; version 1 is longer
        try:
            said, _ = decode_prefix(StickyUserData, version, data)
        except ProtocolError:
            continue
        had = tuple((row.topic, partition) for row in said.previous_assignment for partition in row.partitions)
        return Claim(had, said.generation if version == 1 else None)
    return Claim()


def _cooperative_user_data(claim: Claim) -> bytes | None:
    generation = NO_GENERATION_ID if claim.generation is None else claim.generation
    return generation.to_bytes(4, "big", signed=True)


def _cooperative_claim(subscription: ConsumerProtocolSubscription) -> Claim:
    """Older subscriptions have no field for the generation, so that it is in the user data."""
    owned = tuple((row.topic, partition) for row in subscription.owned_partitions for partition in row.partitions)
    if subscription.generation_id >= 0:
        return Claim(owned, subscription.generation_id)
    data = subscription.user_data
    return Claim(owned, int.from_bytes(data[:4], "big", signed=True) if data and len(data) >= 4 else None)


STICKY = Assignor("sticky", divide_sticky, False, _sticky_user_data, _sticky_claim)
COOPERATIVE_STICKY = Assignor(
    "cooperative-sticky", divide_cooperatively, True, _cooperative_user_data, _cooperative_claim
)
