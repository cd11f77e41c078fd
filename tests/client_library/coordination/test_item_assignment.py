"""The owners of items: even, sticky, and never two owners in one round."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.client.coordination.held_items import Change, HeldItems
from kohort.client.coordination.item_assignment import Worker, divide

NAMES = [f"w{n}" for n in range(6)]


def evenly(count: int) -> dict[str, float]:
    return {f"i{n:03}": 1.0 for n in range(count)}


def settle(
    weights: Mapping[str, float],
    holding: dict[str, HeldItems],
    capacities: Mapping[str, float],
    tokens: dict[str, int] | None = None,
) -> int:
    """Rounds until nothing moves any more; returns how many items moved. `tokens`: the last token of each item."""
    moved = 0
    tokens = {} if tokens is None else tokens
    first = max(tokens.values(), default=0) + 1
    for generation in range(first, first + 100):
        workers = {name: Worker(capacities.get(name, 1.0), held.claims()) for name, held in holding.items()}
        given_out = divide(weights, workers)
        owners = [item for held in holding.values() for item in held.claims()]
        changes = {name: holding[name].assigned(generation, items) for name, items in given_out.items()}
        owned = [item for held in holding.values() for item in held.claims()]
        assert len(owned) == len(set(owned)), "two owners"
        assert len(owners) == len(set(owners))
        for change in changes.values():
            assert all(token > tokens.get(item, 0) for item, token in change.begun.items())
            tokens |= change.begun
        moved += sum(len(change.begun) for change in changes.values())
        if not any(change.begun or change.ended for change in changes.values()):
            return moved
        for name, change in changes.items():
            for item in change.ended:
                assert holding[name].released(item)
    raise AssertionError("it never settles")


def loads(weights: Mapping[str, float], holding: Mapping[str, HeldItems]) -> dict[str, float]:
    return {name: sum(weights[item] for item in held.held) for name, held in holding.items()}


def test_a_newcomer_gets_its_share_and_no_more_moves() -> None:
    weights = evenly(12)
    holding = {"a": HeldItems(), "b": HeldItems()}
    assert settle(weights, holding, {}) == 12
    holding["c"] = HeldItems()
    assert settle(weights, holding, {}) == 4
    assert loads(weights, holding) == {"a": 4, "b": 4, "c": 4}
    del holding["a"]
    assert settle(weights, holding, {}) == 4
    assert settle(weights, holding, {}) == 0


def test_weights_and_capacities() -> None:
    weights = {"huge": 10.0, **evenly(10)}
    holding = {"a": HeldItems(), "b": HeldItems()}
    settle(weights, holding, {})
    assert loads(weights, holding) == {"a": 10.0, "b": 10.0}
    holding = {"small": HeldItems(), "large": HeldItems()}
    settle(evenly(12), holding, {"large": 3.0})
    assert loads(evenly(12), holding) == {"small": 3.0, "large": 9.0}


def test_an_item_that_moves_is_nobodys_until_it_is_given_up() -> None:
    held = Worker(claims={"x": 7, "y": 7})
    assert divide({"x": 1, "y": 1}, {"a": held, "b": Worker()}) == {"a": ["y"], "b": []}
    assert divide({"x": 1, "y": 1}, {"a": Worker(claims={"y": 7}), "b": Worker()}) == {"a": ["y"], "b": ["x"]}


def test_of_two_claims_the_latest_counts_and_dropped_items_go() -> None:
    workers = {"a": Worker(claims={"x": 3, "gone": 3}), "b": Worker(claims={"x": 5})}
    assert divide({"x": 1}, workers) == {"a": [], "b": ["x"]}


def test_holdings_keep_their_token_and_give_up_first() -> None:
    holdings = HeldItems()
    assert holdings.assigned(3, ["x", "y"]) == Change({"x": 3, "y": 3}, [])
    assert holdings.assigned(4, ["y", "z"]) == Change({"z": 4}, ["x"])
    assert holdings.claims() == {"x": 3, "y": 3, "z": 4}
    # An item assigned again while it is given up still leaves, and returns in a later round.
    assert holdings.assigned(5, ["x", "y", "z"]) == Change({}, [])
    assert holdings.released("x")
    assert not holdings.released("x")
    assert holdings.assigned(6, ["x", "y", "z"]) == Change({"x": 6}, [])
    assert holdings.claims() == {"x": 6, "y": 3, "z": 4}
    assert sorted(holdings.lost()) == ["x", "y", "z"]
    # The group counted the claims of the lost items, so the items that it kept for this worker have no owner.
    assert holdings.assigned(7, ["y", "z"]) == Change({"y": 7, "z": 7}, [], again=True)
    assert holdings.claims() == {"y": 7, "z": 7}
    assert holdings.assigned(8, ["y"]) == Change({}, ["z"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_in_any_history_loads_are_even_and_tokens_grow(data: st.DataObject) -> None:
    """Workers come and go, items too; after each change the group settles."""
    weights = evenly(data.draw(st.integers(0, 20)))
    holding: dict[str, HeldItems] = {"w0": HeldItems()}
    tokens: dict[str, int] = {}
    for _ in range(data.draw(st.integers(1, 5))):
        match data.draw(st.sampled_from(["join", "die", "items"])):
            case "join":
                holding.setdefault(data.draw(st.sampled_from(NAMES)), HeldItems())
            case "die" if len(holding) > 1:
                del holding[data.draw(st.sampled_from(sorted(holding)))]
            case "items":
                weights = evenly(data.draw(st.integers(0, 20)))
        settle(weights, holding, {}, tokens)
        counts = [len(held.held) for held in holding.values()]
        assert sum(counts) == len(weights)
        assert max(counts) - min(counts) <= 1


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), st.floats(0.001, 1000), max_size=30),
    st.dictionaries(st.sampled_from(NAMES), st.floats(0.1, 10), min_size=1),
)
def test_any_weights_settle_and_no_single_move_would_help(
    weights: dict[str, float], capacities: dict[str, float]
) -> None:
    holding = {name: HeldItems() for name in capacities}
    settle(weights, holding, capacities)
    per_unit = {name: load / capacities[name] for name, load in loads(weights, holding).items()}
    least = min(per_unit, key=lambda name: (per_unit[name], name))
    for name, held in holding.items():
        for item in held.held:
            after = per_unit[least] + weights[item] / capacities[least]
            assert name == least or after >= per_unit[name] * (1 - 1e-6)
