"""DescribeAcls, CreateAcls, DeleteAcls, and the records of ACLs."""

from __future__ import annotations

import pytest
from acl_driver import ALLOW, DENY, MATCH, PREFIXED, Secured, acl
from wire_driver import Wire

from kohort.broker.authorization import Operation, Resource
from kohort.broker.security.acls import Acl
from kohort.config import AUTHORIZER, ConfigError, load
from kohort.wire.errors import ErrorCode

_O, _R = Operation, Resource
MANY = [
    acl(name="a", principal="User:x", operation=_O.READ),
    acl(name="a", principal="User:y", operation=_O.WRITE, host="10.0.0.1"),
    acl(name="b", pattern=PREFIXED, operation=2, permission=DENY),
    acl(resource=_R.GROUP, name="*", principal="User:x", operation=_O.READ),
    acl(resource=_R.CLUSTER, name="kafka-cluster", operation=_O.DESCRIBE),
    acl(resource=_R.TRANSACTIONAL_ID, name="tx", operation=_O.TWO_PHASE_COMMIT),
]


@pytest.mark.conformance("A6")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_listed_and_deleted(version: int) -> None:
    secured = Secured()
    assert secured.create(*MANY, version=version) == [(0, None)] * len(MANY)
    assert secured.all() == MANY
    found = secured.listed(resource_type_filter=2, resource_name_filter="a", version=version).resources
    assert [len(one.acls) for one in found] == [2], "the ACLs of a pattern are together"
    deleted = secured.delete({"principal_filter": "User:x"}, {"resource_name_filter": "a"}, version=version)
    names = [[one.resource_name for one in result.matching_acls] for result in deleted.filter_results]
    assert names == [["a", "*"], ["a", "a"]], "an ACL that two filters match is in both results"
    assert secured.all() == [MANY[2], *MANY[4:]]


@pytest.mark.conformance("A6")
def test_a_repeated_acl_is_a_success_and_changes_nothing() -> None:
    secured = Secured()
    assert secured.create(MANY[0], MANY[0]) == [(0, None), (0, None)]
    version, end = secured.wire.broker.state.authorizer.version, secured.wire.broker.state.topics.version
    assert secured.create(MANY[0]) == [(0, None)]
    assert secured.all() == MANY[:1]
    assert secured.wire.broker.state.authorizer.version == version
    assert secured.wire.broker.state.topics.version == end


@pytest.mark.conformance("A6")
def test_a_bad_acl_leaves_the_others_alone() -> None:
    secured = Secured()
    results = secured.create(MANY[0], acl(name=""), acl(host="10.0.0.0/77"), MANY[1])
    assert [error for error, _ in results] == [0, 42, 42, 0]
    assert results[1][1] == "Resource name should not be empty"
    assert secured.all() == MANY[:2]


@pytest.mark.conformance("A6")
def test_filters() -> None:
    secured = Secured()
    secured.create(*MANY, acl(name="bcd"), acl(name="*"))
    found = secured.listed(resource_type_filter=2, resource_name_filter="bcd", pattern_type_filter=MATCH)
    assert sorted(one.resource_name for one in found.resources) == ["*", "b", "bcd"]
    assert secured.listed(resource_type_filter=99).error_code == ErrorCode.INVALID_REQUEST
    failed = secured.delete({"operation": 77}, {"resource_name_filter": "bcd"}).filter_results
    assert [one.error_code for one in failed] == [42, 0]
    assert len(failed[1].matching_acls) == 1


def test_there_are_so_many_acls() -> None:
    secured = Secured(acls_max=2)
    assert [error for error, _ in secured.create(*MANY[:3])] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert secured.create(MANY[1]) == [(0, None)], "it is there"


def test_acls_are_there_after_a_restart() -> None:
    secured = Secured()
    secured.create(*MANY)
    secured.delete({"principal_filter": "User:y"})
    kept = secured.all()
    again = Secured(secured.wire.restarted(authorizer_class_name=AUTHORIZER, super_users="User:root"))
    assert again.all() == kept == [MANY[0], *MANY[2:]]
    rights = again.wire.broker.state.acl_authorizer
    assert rights is not None
    assert rights.version > 0


@pytest.mark.conformance("A1")
def test_without_an_authorizer_the_apis_are_disabled() -> None:
    secured = Secured(Wire())
    disabled = ErrorCode.SECURITY_DISABLED
    assert secured.listed().error_code == disabled
    assert secured.create(MANY[0]) == [(disabled, "No Authorizer is configured on the broker")]
    assert [one.error_code for one in secured.delete({}).filter_results] == [disabled]


@pytest.mark.conformance("A1")
def test_acls_of_a_log_do_nothing_without_an_authorizer() -> None:
    secured = Secured()
    secured.create(acl(name="*", operation=2, permission=DENY))
    wire = secured.wire.restarted()
    wire.connect().create_topic("t")


def test_settings() -> None:
    config = load({"authorizer.class.name": AUTHORIZER, "super.users": "User:a; User:b", "acls.max": "7"}, environ={})
    assert (config.authorizer_class_name, config.super_users, config.acls_max) == (AUTHORIZER, "User:a; User:b", 7)
    assert load({"authorizer.class.name": "", "super.users": ""}, environ={}).authorizer_class_name == ""
    for settings, message in (
        ({"authorizer.class.name": "com.example.Mine"}, "authorizer.class.name is"),
        ({"super.users": "User:a"}, "super.users is given, but no authorizer"),
        ({"allow.everyone.if.no.acl.found": "true"}, "allow.everyone.if.no.acl.found is given, but no authorizer"),
        ({"authorizer.class.name": AUTHORIZER, "super.users": "bob"}, "super.users names 'bob'"),
    ):
        with pytest.raises(ConfigError, match=message):
            load(settings, environ={})


def test_names_cannot_break_the_log() -> None:
    secured = Secured()
    secured.create(Acl(2, "a\nb\x1b[31m", 3, "User:é", "*", 3, ALLOW))
    [line] = [dict(notice.values)["acl"] for notice in secured.wire.notices if notice.what == "acl created"]
    assert line == "allow User:\\xe9 read on topic a\\nb\\x1b[31m"
