"""The decision by ACLs: against an oracle of the rules, and with the values of Kafka's StandardAuthorizerTest."""

from __future__ import annotations

import ipaddress
import random
import time
from typing import Any

import pytest
from acl_driver import ALLOW, DENY, LITERAL, MATCH, PREFIXED, acl, acls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.authorization import Operation, Principal, Resource
from kohort.broker.security import authorizer as module
from kohort.broker.security.acls import OPERATIONS, Acl, AclFilter, Entry, Host, problem_of
from kohort.broker.security.authorizer import NO_ACL, NO_MATCH, SUPER_USER, AclAuthorizer, Rights, Rule

_O, _R = Operation, Resource
HOST = "127.0.0.1"


def decided(authorizer: AclAuthorizer, user: str, *asked: tuple[Operation, Resource, str], host: str = HOST) -> str:
    """A letter for each: A allowed, D denied."""
    return "".join("A" if authorizer.allows(Principal(user), host, *one) else "D" for one in asked)


# -- the values of Kafka's StandardAuthorizerTest


@pytest.mark.conformance("A3")
def test_what_an_allow_implies() -> None:
    foo = {"name": "foo_", "pattern": PREFIXED, "principal": "User:bob"}

    def allows(does: Operation, asked: Operation, permission: int) -> bool:
        rules = acls_of(acl(**foo, operation=does, permission=permission))
        return AclAuthorizer(rules, allow_everyone=True).allows(Principal("bob"), HOST, asked, _R.TOPIC, "foo_bar")

    for does in (_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER):
        assert allows(does, _O.DESCRIBE, ALLOW)
    assert not allows(_O.CREATE, _O.DESCRIBE, ALLOW)
    for does in (_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS):
        assert allows(does, _O.DESCRIBE_CONFIGS, ALLOW)
    assert not allows(_O.READ, _O.DESCRIBE_CONFIGS, ALLOW)
    for does in (_O.READ, _O.WRITE, _O.DELETE, _O.ALTER):
        rules = acls_of(acl(**foo, operation=does, permission=DENY), acl(**foo, operation=_O.DESCRIBE))
        assert AclAuthorizer(rules).allows(Principal("bob"), HOST, _O.DESCRIBE, _R.TOPIC, "foo_bar")
        assert not AclAuthorizer(rules).allows(Principal("bob"), HOST, does, _R.TOPIC, "foo_bar")


@pytest.mark.conformance("A2")
def test_allow_everyone_if_no_acl_is_found() -> None:
    rules = acls_of(acl(name="topic1", principal="User:Alice", operation=_O.READ))
    asked = (_O.READ, _R.TOPIC, "topic1"), (_O.READ, _R.TOPIC, "topic2")
    assert decided(AclAuthorizer(rules, allow_everyone=True), "Bob", *asked) == "DA"
    assert decided(AclAuthorizer(rules), "Bob", *asked) == "DD"


@pytest.mark.conformance("A2")
def test_deny_has_precedence_with_operation_all() -> None:
    authorizer = AclAuthorizer(
        acls_of(
            acl(name="foo", principal="User:alice", operation=2, permission=DENY),
            acl(name="foo", pattern=PREFIXED, principal="User:alice", operation=_O.READ),
            acl(name="foo", operation=2, permission=DENY),
            acl(name="foo", pattern=PREFIXED, operation=_O.DESCRIBE),
        )
    )
    foo = [(does, _R.TOPIC, "foo") for does in (_O.WRITE, _O.READ, _O.DESCRIBE)]
    assert decided(authorizer, "alice", *foo, (_O.READ, _R.TOPIC, "foobar")) == "DDDA"
    others = [(_O.DESCRIBE, _R.TOPIC, "foobaz"), (_O.READ, _R.TOPIC, "foobaz")]
    assert decided(authorizer, "bob", *foo, *others) == "DDDAD"


@pytest.mark.conformance("A3")
def test_operation_all() -> None:
    authorizer = AclAuthorizer(
        acls_of(
            acl(name="foo", operation=2),
            acl(name="bar", pattern=PREFIXED, principal="User:alice", operation=2),
            acl(name="baz", principal="User:bob", operation=2),
        )
    )
    write_foo, describe_baz = (_O.WRITE, _R.TOPIC, "foo"), (_O.DESCRIBE, _R.TOPIC, "baz")
    assert decided(authorizer, "alice", write_foo, (_O.DESCRIBE_CONFIGS, _R.TOPIC, "bar"), describe_baz) == "AAD"
    assert decided(authorizer, "bob", write_foo, (_O.READ, _R.TOPIC, "bar"), describe_baz) == "ADA"
    assert decided(authorizer, "malory", write_foo, (_O.WRITE, _R.TOPIC, "bar"), (_O.READ, _R.TOPIC, "baz")) == "ADD"


@pytest.mark.conformance("A3")
def test_hosts() -> None:
    one, two = "192.168.1.1", "192.168.1.2"
    authorizer = AclAuthorizer(
        acls_of(
            acl(name="foo", principal="User:alice", host=one, operation=_O.READ, permission=DENY),
            acl(name="foo", principal="User:alice", operation=_O.READ),
            acl(name="bar", principal="User:bob", host=two, operation=_O.READ),
            acl(name="bar", host=HOST, operation=_O.DESCRIBE),
        )
    )
    asked = (_O.READ, _R.TOPIC, "foo"), (_O.READ, _R.TOPIC, "bar"), (_O.DESCRIBE, _R.TOPIC, "bar")
    expected = {("alice", HOST): "ADA", ("alice", one): "DDD", ("alice", two): "ADD"}
    expected |= {("bob", HOST): "DDA", ("bob", one): "DDD", ("bob", two): "DAA"}
    for (user, host), letters in expected.items():
        assert decided(authorizer, user, *asked, host=host) == letters, (user, host)


@pytest.mark.conformance("A2")
def test_many_acls() -> None:
    authorizer = AclAuthorizer(
        acls_of(
            acl(name="green2", operation=_O.READ),
            acl(name="green", pattern=PREFIXED, principal="User:bob", operation=_O.READ),
            acl(name="betamax4", principal="User:bob", operation=_O.READ),
            acl(name="betamax", principal="User:bob", operation=_O.READ),
            acl(name="beta", pattern=PREFIXED, operation=_O.READ),
            acl(name="alpha", pattern=PREFIXED, operation=_O.READ),
            acl(name="alp", pattern=PREFIXED, principal="User:bob", operation=_O.READ, permission=DENY),
            acl(resource=_R.GROUP, name="*", principal="User:bob", operation=_O.WRITE),
            acl(resource=_R.GROUP, name="wheel", operation=_O.WRITE, permission=DENY),
        )
    )
    assert decided(authorizer, "bob", (_O.READ, _R.TOPIC, "green1"), (_O.WRITE, _R.GROUP, "wheel")) == "AD"
    asked = (_O.READ, _R.TOPIC, "alpha"), (_O.WRITE, _R.GROUP, "arbitrary"), (_O.READ, _R.TOPIC, "ala")
    assert decided(authorizer, "bob", *asked) == "DAD"
    rule = authorizer.rule(Principal("bob"), HOST, *asked[0])
    assert rule.acl is not None
    assert str(rule.acl) == "deny User:bob read on prefixed topic alp"


@pytest.mark.conformance("A2")
def test_super_users_are_asked_first() -> None:
    authorizer = AclAuthorizer(acls_of(acl(name="*", operation=2, permission=DENY)), ("User:root",))
    asked = _O.READ, _R.TOPIC, "t"
    assert authorizer.rule(Principal("root"), HOST, *asked) is SUPER_USER
    assert decided(authorizer, "root", asked) == "A"
    assert decided(authorizer, "Root", asked) == "D"
    assert authorizer.allows_any(Principal("root"), HOST, _O.WRITE, _R.TOPIC)


def test_networks_and_addresses_in_several_forms() -> None:
    authorizer = AclAuthorizer(
        acls_of(
            acl(name="v4", host="10.1.0.0/16", operation=_O.READ),
            acl(name="v6", host="0:0:0:0:0:0:0:1", operation=_O.READ),
            acl(name="net6", host="fd00::/8", operation=_O.READ),
        )
    )
    for name, host, letter in (
        ("v4", "10.1.255.3", "A"),
        ("v4", "::ffff:10.1.2.3", "A"),
        ("v4", "10.2.0.1", "D"),
        ("v4", "a path", "D"),
        ("v6", "::1", "A"),
        ("net6", "fd12::5", "A"),
        ("net6", "10.1.0.1", "D"),
    ):
        assert decided(authorizer, "a", (_O.READ, _R.TOPIC, name), host=host) == letter, (name, host)


def test_the_rule_tells_why() -> None:
    authorizer = AclAuthorizer(acls_of(acl(name="t", principal="User:a", operation=_O.READ)))
    assert authorizer.rule(Principal("b"), HOST, _O.READ, _R.TOPIC, "t") is NO_MATCH
    assert authorizer.rule(Principal("b"), HOST, _O.READ, _R.TOPIC, "u") is NO_ACL


# -- any name (the cases of Kafka's AuthorizerTest, testAuthorizeByResourceType…)


@pytest.mark.conformance("A4")
@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        ([], False),
        ([acl(name="foo")], True),
        ([acl(name="foo", host="192.168.3.1")], False),
        ([acl(name="foo", operation=_O.READ)], False),
        ([acl(name="foo", operation=2)], True),
        ([acl(name="foo"), acl(name="*", permission=DENY)], False),
        ([acl(name="*"), acl(name="*", permission=DENY)], False),
        ([acl(name="*"), acl(name="f", pattern=PREFIXED, permission=DENY)], True),
        ([acl(name="foo"), acl(name="foo", permission=DENY)], False),
        ([acl(name="foo"), acl(name="foo", permission=DENY), acl(name="bar")], True),
        ([acl(name="foo"), acl(name="fo", pattern=PREFIXED, permission=DENY)], False),
        ([acl(name="fo", pattern=PREFIXED), acl(name="fo", permission=DENY)], True),
        ([acl(name="fo", pattern=PREFIXED), acl(name="fo", pattern=PREFIXED, permission=DENY)], False),
        ([acl(name="fo", pattern=PREFIXED), acl(name="foo", pattern=PREFIXED, permission=DENY)], True),
        ([acl(name="foo", principal="User:other")], False),
        ([acl(name="foo"), acl(name="foo", principal="User:other", permission=DENY)], True),
        ([acl(name="foo"), acl(name="*", permission=DENY, operation=_O.READ)], True),
    ],
)
def test_any_name(entries: list[Acl], allowed: bool) -> None:
    assert AclAuthorizer(acls_of(*entries)).allows_any(Principal("a"), HOST, _O.WRITE, _R.TOPIC) is allowed


# -- the oracle


def oracle(entries: list[Acl], user: str, host: str, operation: int, name: str, *, everyone: bool) -> bool:
    """The rules A2 and A3 by brute force, written apart from the code under test."""
    about = []
    for one in entries:
        if one.pattern == LITERAL and one.name in (name, "*"):
            about.append(one)
        if one.pattern == PREFIXED and name.startswith(one.name):
            about.append(one)

    def is_me(one: Acl) -> bool:
        if one.principal not in ("User:*", f"User:{user}"):
            return False
        if "/" in one.host:
            return ipaddress.ip_address(host) in ipaddress.ip_network(one.host)
        return one.host in ("*", host)

    def covers(one: Acl) -> bool:
        implied = {8: {3, 4, 6, 7, 8}, 10: {10, 11}}.get(operation, {operation})
        if one.permission == DENY:
            implied = {operation}
        return one.operation == 2 or one.operation in implied

    if any(one.permission == DENY and is_me(one) and covers(one) for one in about):
        return False
    if any(one.permission == ALLOW and is_me(one) and covers(one) for one in about):
        return True
    return everyone and not about


NAMES = ["a", "ab", "abc", "abd", "b", "*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "10.1.0.1"]
ENTRY = st.builds(
    acl,
    resource=st.just(_R.TOPIC),
    name=st.sampled_from(NAMES),
    pattern=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:*", "User:a", "User:b"]),
    host=st.sampled_from(["*", *HOSTS[:2], "10.0.0.0/24"]),
    operation=st.sampled_from(sorted(OPERATIONS)),
    permission=st.sampled_from([ALLOW, DENY, ALLOW]),
)


@pytest.mark.conformance("A2")
@settings(max_examples=300, deadline=None)
@given(st.lists(ENTRY, max_size=8, unique=True), st.data(), st.booleans())
def test_decisions_are_those_of_the_oracle(entries: list[Acl], data: st.DataObject, everyone: bool) -> None:
    rules = acls_of()
    authorizer = AclAuthorizer(rules, allow_everyone=everyone)
    present: list[Acl] = []
    for at, entry in enumerate(entries):  # the ACLs change between decisions, which must not be kept for longer
        rules.put(str(at), entry)
        present.append(entry)
        if len(present) > 2 and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(present))
            present.remove(gone)
            rules.remove(str(entries.index(gone)))
        for _ in range(4):
            user, host = data.draw(st.sampled_from("abc")), data.draw(st.sampled_from(HOSTS))
            operation, name = data.draw(st.sampled_from(list(Operation))), data.draw(st.sampled_from([*NAMES, "abcd"]))
            expected = oracle(present, user, host, operation, name, everyone=everyone)
            for _ in "twice":
                assert authorizer.allows(Principal(user), host, operation, _R.TOPIC, name) is expected


# -- filters and checks


@pytest.mark.conformance("A6")
def test_a_filter_that_matches_finds_what_applies() -> None:
    entries = [
        acl(name="orders"),
        acl(name="ord", pattern=PREFIXED),
        acl(name="*"),
        acl(name="orders", pattern=PREFIXED),
        acl(name="x", pattern=PREFIXED),
        acl(resource=_R.GROUP, name="orders"),
    ]

    def found(**fields: object) -> list[int]:
        wanted = AclFilter(**fields)  # type: ignore[arg-type]
        return [at for at, entry in enumerate(entries) if wanted.matches(entry)]

    assert found() == [0, 1, 2, 3, 4, 5]
    assert found(resource=_R.TOPIC, name="orders", pattern=MATCH) == [0, 1, 2, 3]
    assert found(resource=_R.TOPIC, name="orders") == [0, 3]
    assert found(name="orders", pattern=LITERAL) == [0, 5]
    assert found(name="orders", pattern=PREFIXED) == [3]
    assert found(name="*", pattern=LITERAL) == [2]
    assert found(principal="User:other") == []
    assert found(host="*", operation=_O.WRITE, permission=ALLOW) == [0, 1, 2, 3, 4, 5]
    assert found(operation=2) == []


@pytest.mark.conformance("A6")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, None),
        ({"resource": 1}, "Invalid resourceType ANY"),
        ({"resource": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern": 2}, "Invalid patternType MATCH"),
        ({"pattern": 1}, "Invalid patternType ANY"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 0}, "Invalid operation UNKNOWN"),
        ({"permission": 1}, "Invalid permissionType ANY"),
        ({"name": ""}, "Resource name should not be empty"),
        ({"resource": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource": 4, "name": "kafka-cluster"}, None),
        ({"principal": "bob"}, "expected a string in format principalType:principalName but got bob"),
        ({"host": ""}, "Host should not be empty"),
        ({"host": "10.0.0.0/99"}, "Invalid CIDR notation 10.0.0.0/99"),
        ({"host": "10.0.0.0/8"}, None),
    ],
)
def test_what_cannot_be_created(fields: dict[str, object], problem: str | None) -> None:
    assert problem_of(acl(**fields)) == problem  # type: ignore[arg-type]


# -- cost


def test_a_decision_looks_at_what_matches_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    real = module.Rights.rule

    def counting(rights: Rights, *asked: Any) -> Rule:
        nonlocal looked
        looked += 1
        return real(rights, *asked)

    monkeypatch.setattr(module.Rights, "rule", counting)
    rules = acls_of(*(acl(name=f"topic-{n}", principal=f"User:u{n}") for n in range(1000)))
    authorizer = AclAuthorizer(rules)
    entries = sum(len(found) for found in rules.patterns_for(_R.TOPIC, "topic-7"))
    assert entries == 1
    for _ in range(100):
        assert authorizer.allows(Principal("u7"), HOST, _O.WRITE, _R.TOPIC, "topic-7")
    assert looked == 1, "a kept decision is not made again"
    rules.remove("7")
    assert not authorizer.allows(Principal("u7"), HOST, _O.WRITE, _R.TOPIC, "topic-7")
    assert looked == 2


def test_networks_are_compared_once_for_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    real = Entry.is_from

    def counting(entry: Entry, host: Host) -> bool:
        nonlocal compared
        compared += 1
        return real(entry, host)

    monkeypatch.setattr(Entry, "is_from", counting)
    networks = [acl(name="*", principal="User:*", host=f"10.{n}.0.0/16", permission=DENY) for n in range(250)]
    authorizer = AclAuthorizer(acls_of(*networks, acl(name="*", principal="User:*")))
    for n in range(100):
        assert authorizer.allows(Principal("a"), HOST, _O.WRITE, _R.TOPIC, f"topic-{n}")
        assert not authorizer.allows(Principal("a"), "10.7.8.9", _O.WRITE, _R.TOPIC, f"topic-{n}")
    assert compared == 2 * 251


def test_acls_that_come_and_go_cost_the_same_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes are counted by their length, and an entry is found by its ACL."""
    rules = acls_of(*(acl(name=f"p{n:04}", pattern=PREFIXED) for n in range(300)))
    of_type = rules._types[_R.TOPIC]
    assert of_type.lengths == (5,)
    with monkeypatch.context() as patch:
        patch.setattr("builtins.sorted", None)
        rules.put("another", acl(name="p9999", pattern=PREFIXED))
        rules.put("a host", acl(name="p9999", pattern=PREFIXED, host="10.0.0.1"))
        rules.put("a name", acl(name="literal"))
        rules.remove("another")
    rules.put("longer", acl(name="p99999", pattern=PREFIXED))
    assert of_type.lengths == (6, 5)
    rules.remove("longer")
    rules.remove("a host")
    assert of_type.lengths == (5,)
    for acl_id in list(rules.by_id):
        rules.remove(acl_id)
    assert (of_type.lengths, of_type.prefixed, of_type.literal) == ((), {}, {})


def test_a_decision_about_all_resources_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = acls_of(acl(name="*", principal="User:*"))
    authorizer = AclAuthorizer(rules)
    assert authorizer.allows_all(Principal("a"), HOST, _O.WRITE, _R.TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr(rules, "entries_about", None)
        assert authorizer.allows_all(Principal("a"), HOST, _O.WRITE, _R.TOPIC)
    rules.put("deny", acl(name="secret", principal="User:a", permission=DENY))
    assert not authorizer.allows_all(Principal("a"), HOST, _O.WRITE, _R.TOPIC)


def test_kept_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 10)
    monkeypatch.setattr(module, "MOST_RIGHTS", 3)
    authorizer = AclAuthorizer(acls_of(acl(name="t", pattern=PREFIXED)))
    for n in range(100):
        assert authorizer.allows(Principal("a"), HOST, _O.WRITE, _R.TOPIC, f"t{n}")
    rights = authorizer.rights(Principal("a"), HOST)
    assert sum(map(len, rights._kept.values())) <= 10
    for n in range(10):
        authorizer.rights(Principal(f"u{n}"), HOST)
        assert len(authorizer._rights) <= 3


def test_a_kept_decision_costs_a_microsecond() -> None:
    """The limit is 5 times what is promised, because the machine is shared."""
    rules = acls_of(*(acl(name=f"topic-{n}", principal=f"User:u{n}") for n in range(1000)))
    authorizer = AclAuthorizer(rules)
    rights = authorizer.rights(Principal("u7"), HOST)
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(1000):
            rights.allows(_O.WRITE, _R.TOPIC, "topic-7")
        best = min(best, (time.perf_counter() - begin) / 1000)
    assert best < 5e-6, f"{best * 1e6:.2f} µs"


def test_random_sets_are_deterministic() -> None:
    """The same ACLs in another order give the same decisions."""
    chance = random.Random(7)
    entries = [acl(name=chance.choice(NAMES), pattern=chance.choice([3, 4]), permission=chance.choice([2, 3]),
                   operation=chance.choice(sorted(OPERATIONS))) for _ in range(30)]  # fmt: skip
    unique = list(dict.fromkeys(entries))
    asked = [(operation, _R.TOPIC, name) for operation in Operation for name in NAMES]
    first = decided(AclAuthorizer(acls_of(*unique)), "a", *asked)
    assert decided(AclAuthorizer(acls_of(*reversed(unique))), "a", *asked) == first
