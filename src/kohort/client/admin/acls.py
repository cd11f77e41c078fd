"""ACLs: create, list and delete them.

They are sent to the controller, since brokers with ZooKeeper change ACLs there only; kohort's brokers take them all.
Codes are those of Kafka's protocol: see `RESOURCES`, `OPERATIONS`, `PATTERNS` and `PERMISSIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kohort.client.admin.topics import controller
from kohort.client.errors import check
from kohort.client.wire.routing import Router
from kohort.wire.schemas.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kohort.wire.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from kohort.wire.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse

ANY = 1
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5, "delegation-token": 6, "user": 7}
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "create-tokens": 13,
    "describe-tokens": 14,
    "two-phase-commit": 15,
}
SUPPORTED = {
    "topic": ("read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs"),
    "group": ("read", "delete", "describe", "describe-configs", "alter-configs"),
    "cluster": (
        "create",
        "alter",
        "describe",
        "cluster-action",
        "describe-configs",
        "alter-configs",
        "idempotent-write",
    ),
    "transactional-id": ("write", "describe", "two-phase-commit"),
    "delegation-token": ("describe",),
    "user": ("create-tokens", "describe-tokens"),
}
"""The operations of each resource, besides all (Kafka's AclEntry.supportedOperations)."""
PATTERNS = {"literal": LITERAL, "prefixed": PREFIXED}
PERMISSIONS = {"deny": DENY, "allow": ALLOW}


@dataclass(frozen=True, slots=True)
class AclBinding:
    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None and ANY stand for all. The pattern MATCH finds all patterns that apply to `name`."""

    resource: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY


def _filter(wanted: AclFilter) -> dict[str, Any]:
    """The fields of a filter in a request."""
    return {
        "resource_type_filter": wanted.resource,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def list_acls(router: Router, wanted: AclFilter) -> tuple[AclBinding, ...]:
    request = DescribeAclsRequest(**_filter(wanted))

    def attempt() -> DescribeAclsResponse:
        answer = router.any_connection().request(request, DescribeAclsResponse)
        check(answer.error_code, "cannot list ACLs", answer.error_message)
        return answer

    return tuple(
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in router.retrying(attempt).resources
        for acl in resource.acls
    )


def create_acls(router: Router, acls: Sequence[AclBinding]) -> None:
    creations = tuple(
        AclCreation(
            resource_type=acl.resource,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    )

    def attempt() -> None:
        answer = controller(router).request(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in answer.results:
            check(result.error_code, "cannot create the ACL", result.error_message)

    router.retrying(attempt)


def delete_acls(router: Router, wanted: AclFilter) -> tuple[AclBinding, ...]:
    one = DeleteAclsFilter(**_filter(wanted))

    def attempt() -> DeleteAclsResponse:
        answer = controller(router).request(DeleteAclsRequest(filters=(one,)), DeleteAclsResponse)
        for result in answer.filter_results:
            check(result.error_code, "cannot delete ACLs", result.error_message)
            for acl in result.matching_acls:
                check(acl.error_code, "cannot delete an ACL", acl.error_message)
        return answer

    return tuple(
        AclBinding(
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for result in router.retrying(attempt).filter_results
        for acl in result.matching_acls
    )
