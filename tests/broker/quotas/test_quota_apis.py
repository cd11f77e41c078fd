"""DescribeClientQuotas and AlterClientQuotas, the records behind them, and which quota is a client's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from acl_driver import Secured
from quota_driver import (
    ACCEPTED,
    BAD_FILTERS,
    CONNECTION,
    FETCH,
    MUTATION,
    PRODUCE,
    REFUSED,
    REFUSED_HERE,
    REQUEST,
    Limited,
    entry,
    quota_change,
)

from kohort.broker.authorization import Operation, Resource
from kohort.broker.quotas.entities import Entity, Quotas
from kohort.storage.memory import MemoryStorage
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest
from kohort.wire.schemas.describe_client_quotas import DescribeClientQuotasRequest

INVALID = 42


@pytest.mark.conformance("Q1", "Q7")
@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(version: int) -> None:
    limited = Limited()
    alice: dict[str, Any] = {"user": "alice", "client_id": None}
    changes = [entry((PRODUCE, 1e6), (REQUEST, 12.5), **alice), entry((CONNECTION, 10), ip="10.0.0.1")]
    assert limited.alter(*changes, version=version) == [(0, None), (0, None)]
    assert limited.described(version=version) == {
        (("client-id", None), ("user", "alice")): {PRODUCE: 1e6, REQUEST: 12.5},
        (("ip", "10.0.0.1"),): {CONNECTION: 10},
    }
    assert limited.alter(entry((PRODUCE, None), (FETCH, None), **alice)) == [(0, None)]
    assert limited.alter(entry((CONNECTION, None), ip="10.0.0.1")) == [(0, None)]
    assert limited.described() == {(("client-id", None), ("user", "alice")): {REQUEST: 12.5}}


@pytest.mark.conformance("Q1")
@pytest.mark.parametrize(("change", "message"), [*REFUSED, *REFUSED_HERE])
def test_what_cannot_be_is_refused_and_leaves_the_others_alone(change: Any, message: str) -> None:
    limited = Limited()
    assert limited.alter(change, entry((MUTATION, 0.5), client_id="c")) == [(INVALID, message), (0, None)]
    assert limited.described() == {(("client-id", "c"),): {MUTATION: 0.5}}


@pytest.mark.conformance("Q1")
def test_the_largest_and_other_values() -> None:
    assert [Limited().alter(change) for change in ACCEPTED] == [[(0, None)]] * len(ACCEPTED)


@pytest.mark.conformance("Q1")
def test_an_entity_with_a_bad_value_keeps_all_its_quotas() -> None:
    limited = Limited()
    limited.set(PRODUCE, 1, user="a")
    [(error, _)] = limited.alter(entry((PRODUCE, 5), (FETCH, -1), user="a"))
    assert error == INVALID
    assert limited.described() == {(("user", "a"),): {PRODUCE: 1}}


@pytest.mark.conformance("Q1")
def test_an_entity_that_is_named_twice() -> None:
    """As in Kafka, the first change is made, and the result is an error."""
    limited = Limited()
    change = entry((PRODUCE, 1), user="a", client_id="c")
    again = entry((PRODUCE, 2), client_id="c", user="a")
    assert limited.alter(change, again) == [
        (INVALID, "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=a})")
    ]
    assert limited.described() == {(("client-id", "c"), ("user", "a")): {PRODUCE: 1}}


def test_nothing_is_changed_that_is_only_validated() -> None:
    limited = Limited()
    assert limited.alter(entry((PRODUCE, 1), user="a"), validate_only=True) == [(0, None)]
    assert limited.alter(entry((PRODUCE, 0.0), user="a"), validate_only=True)[0][0] == INVALID
    assert limited.described() == {}


def test_the_number_of_entities_has_a_limit() -> None:
    limited = Limited(quotas_max=1)
    limited.set(PRODUCE, 1, user="a")
    assert limited.alter(entry((PRODUCE, 1), user="b")) == [(44, "1 entities have quotas: quotas.max")]
    limited.set(PRODUCE, 2, user="a")
    limited.set(PRODUCE, None, user="a")
    limited.set(PRODUCE, 1, user="b")


@pytest.mark.conformance("Q1")
def test_quotas_survive_restarts() -> None:
    storage = MemoryStorage()
    limited = Limited(storage)
    limited.set(PRODUCE, 1000, user='a "quoted", name', client_id=None)
    limited.set(CONNECTION, 5, ip=None)
    limited.set(FETCH, 7, user="gone")
    limited.set(FETCH, None, user="gone")
    before = limited.described()
    again = Limited(storage)
    assert again.described() == before
    assert len(before) == 2
    quotas = again.wire.broker.state.catalog.quotas
    assert (quotas.on, quotas.on_connections, quotas.counts_time) == (True, True, False)


@pytest.mark.conformance("Q7")
def test_filters() -> None:
    limited = Limited()
    for names in ({"user": "a"}, {"user": None}, {"user": "a", "client_id": "c"}, {"client_id": None}):
        limited.set(PRODUCE, 1, **names)
    limited.set(CONNECTION, 1, ip="::1")

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> set[Any]:
        return set(limited.described(*components, strict=strict))

    user_a, default_user = (("user", "a"),), (("user", None),)
    both, default_client = (("client-id", "c"), ("user", "a")), (("client-id", None),)
    assert len(found()) == 5
    assert found(strict=True) == set()
    assert found(("user", 0, "a")) == {user_a, both}
    assert found(("user", 0, "a"), strict=True) == {user_a}
    assert found(("user", 1, None)) == {default_user}
    assert found(("user", 2, None)) == {user_a, both, default_user}
    assert found(("user", 2, None), ("client-id", 2, None)) == {both}
    assert found(("client-id", 1, None)) == {default_client}
    assert found(("ip", 2, None)) == {(("ip", "::1"),)}
    assert found(("user", 0, "")) == set()


@pytest.mark.conformance("Q7")
@pytest.mark.parametrize(("components", "error", "message"), BAD_FILTERS)
def test_filters_that_make_no_sense(components: Any, error: int, message: str) -> None:
    found = Limited().described(*components)
    assert found[0] == error
    assert message in found[1]


PRECEDENCE: list[dict[str, str | None]] = [
    {"user": "u", "client_id": "c"},
    {"user": "u", "client_id": None},
    {"user": "u"},
    {"user": None, "client_id": "c"},
    {"user": None, "client_id": None},
    {"user": None},
    {"client_id": "c"},
    {"client_id": None},
]


@pytest.mark.conformance("Q1")
def test_the_most_specific_quota_counts() -> None:
    """Of each pair of entities, and each kind of quota for itself."""

    def entity(names: dict[str, str | None]) -> Entity:
        return Entity.of({kind.replace("_", "-"): name for kind, name in names.items()})

    for first, second in itertools.combinations(PRECEDENCE, 2):
        quotas = Quotas()
        quotas.put(entity(second), {PRODUCE: 2, FETCH: 3})
        quotas.put(entity(first), {PRODUCE: 1})
        found, other = quotas.find(PRODUCE, "u", "c"), quotas.find(FETCH, "u", "c")
        assert found is not None
        assert other is not None
        assert (found.bound, other.bound) == (1, 3)
        assert (found.user, found.client) == ("u" if "user" in first else None, "c" if "client_id" in first else None)
        assert quotas.find(MUTATION, "u", "c") is None
        for names in (first, second):
            quotas.remove(entity(names).record_name)
        assert not quotas.on
        assert quotas.find(PRODUCE, "u", "c") is None


@pytest.mark.conformance("Q1", "A8")
def test_who_may_see_and_change_quotas() -> None:
    secured = Secured()
    client = secured.connect("alice")
    change, question = quota_change(PRODUCE, 1, user="a"), DescribeClientQuotasRequest(components=(), strict=False)
    [refused] = client.ask(change, 1).entries
    assert (refused.error_code, [part.entity_name for part in refused.entity]) == (31, ["a"])
    assert client.ask(question, 1).error_code == 31
    secured.allow("User:alice", Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)
    assert client.ask(question, 1).error_code == 0
    assert client.ask(change, 1).entries[0].error_code == 31
    secured.allow("User:alice", Operation.ALTER_CONFIGS, Resource.CLUSTER)
    assert client.ask(change, 1).entries[0].error_code == 0
    assert secured.root.ask(AlterClientQuotasRequest(entries=(), validate_only=False), 0).entries == ()
