"""Which worker gets which item: the leader's part of `client/coordination/sharding.py`, without IO.

Every worker claims the items that it holds, with its tokens. An item that one worker holds is never given to another in
the same round: its holder has to give it up, and asks for another round when it has. So a hand-over takes two rounds,
and an item has one owner in every round. An item without a claim is given to a worker at once.

The aim is the same load for a unit of capacity everywhere. An item stays with its holder unless moving it makes the two
loads more equal. Free items go, heaviest first, to the worker with the least load. Loads of equal items differ by one
at most. Only weights and names decide, so that the same claims give the same result on every leader.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

SLACK = 1e-9
"""Gains below this, as a part of the loads, are rounding."""


@dataclass(frozen=True, slots=True)
class Worker:
    capacity: float = 1.0
    claims: Mapping[str, int] = field(default_factory=dict)
    """The items that it holds or has not given up yet, with their tokens."""


def divide(weights: Mapping[str, float], workers: Mapping[str, Worker]) -> dict[str, list[str]]:
    """The items that each worker may work on until the next round, by worker, in order of their names.

    A holder has to give up a claimed item that is missing in its list. `weights` and capacities are above 0.
    """
    holders = _holders(weights, workers)
    target = _target(weights, {name: worker.capacity for name, worker in workers.items()}, holders)
    now: dict[str, list[str]] = {name: [] for name in sorted(workers)}
    for item in sorted(target):
        if holders.get(item, target[item]) == target[item]:
            now[target[item]].append(item)
    return now


def _holders(weights: Mapping[str, float], workers: Mapping[str, Worker]) -> dict[str, str]:
    """The holder of each item. If several workers claim an item, the newest token counts; the other claims are out of
    date."""
    latest: dict[str, tuple[int, str]] = {}
    for name, worker in workers.items():
        for item, token in worker.claims.items():
            if item in weights:
                latest[item] = max(latest.get(item, (token, name)), (token, name))
    return {item: name for item, (_, name) in latest.items()}


def _target(
    weights: Mapping[str, float], capacities: Mapping[str, float], holders: Mapping[str, str]
) -> dict[str, str]:
    """The owner that each item should have in the end."""
    having: dict[str, dict[str, float]] = {name: {} for name in sorted(capacities)}
    for item in sorted(holders):
        having[holders[item]][item] = weights[item]
    loads = {name: sum(items.values()) / capacities[name] for name, items in having.items()}
    queue = [(load, name) for name, load in loads.items()]
    heapq.heapify(queue)
    for item in sorted(weights.keys() - holders.keys(), key=lambda item: (-weights[item], item)):
        load, name = heapq.heappop(queue)
        having[name][item] = weights[item]
        loads[name] = load + weights[item] / capacities[name]
        heapq.heappush(queue, (loads[name], name))
    _even_out(having, loads, capacities)
    return {item: name for name, items in having.items() for item in items}


def _even_out(having: dict[str, dict[str, float]], loads: dict[str, float], capacities: Mapping[str, float]) -> None:
    """Move items to the worker with the least load, as long as that helps."""
    for _ in range(sum(map(len, having.values()))):
        order = sorted(loads, key=lambda name: (loads[name], name))
        least = order[0]
        for most in reversed(order[1:]):
            item = _best_move(having[most], loads[most], loads[least], capacities[most], capacities[least])
            if item is not None:
                weight = having[most].pop(item)
                having[least][item] = weight
                loads[most] -= weight / capacities[most]
                loads[least] += weight / capacities[least]
                break
        else:
            return


def _best_move(items: Mapping[str, float], most: float, least: float, giving: float, getting: float) -> str | None:
    """The item whose move leaves the larger of the two loads smallest; None where every move leaves it as large."""
    best, found = most - SLACK * (most + least), None
    for item, weight in items.items():
        larger = max(most - weight / giving, least + weight / getting)
        if larger < best:
            best, found = larger, item
    return found
