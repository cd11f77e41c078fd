"""DescribeAcls, CreateAcls, DeleteAcls. Without an authorizer they answer SECURITY_DISABLED, as in Kafka.

Any broker takes them. An ACL that is there already is created again with success, and changes nothing. The filters of a
DeleteAcls are compared with the ACLs that were there when the request began, so one ACL may be in several results.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kohort.broker.change_log import tell_change
from kohort.broker.messages import shortened
from kohort.broker.request import ROW_BYTES, ROWS, RequestContext, in_steps
from kohort.broker.security.acls import Acl, AclFilter, problem_of
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kohort.wire.schemas.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kohort.wire.schemas.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured on the broker"


@in_steps
def describe_acls(
    state: BrokerState, request: DescribeAclsRequest, context: RequestContext
) -> Generator[int, None, DescribeAclsResponse]:
    if state.acl_authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=())
    wanted = _filter(request)
    if wanted.problem is not None:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=wanted.problem, resources=())
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in (yield from _matching(state, wanted, list(state.catalog.acls.by_id.items()))).values():
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    resources = tuple(
        DescribeAclsResource(resource_type=resource, resource_name=name, pattern_type=pattern, acls=tuple(acls))
        for (resource, name, pattern), acls in found.items()
    )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=resources)


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _matching(
    state: BrokerState, wanted: AclFilter, present: list[tuple[str, Acl]]
) -> Generator[int, None, dict[str, Acl]]:
    found: dict[str, Acl] = {}
    size = 0
    for at, (acl_id, acl) in enumerate(present, 1):
        if wanted.matches(acl):
            found[acl_id] = acl
            size += ROW_BYTES
        if at % ROWS == 0:
            yield size
            size = 0
    return found


@in_steps
def create_acls(
    state: BrokerState, request: CreateAclsRequest, context: RequestContext
) -> Generator[int, None, CreateAclsResponse]:
    results: list[AclCreationResult] = []
    for creation in request.creations:
        results.append(_created(state, creation, context))
        if len(results) % ROWS == 0:
            yield ROWS * ROW_BYTES
    return CreateAclsResponse(results=tuple(results))


def _created(state: BrokerState, creation: AclCreation, context: RequestContext) -> AclCreationResult:
    if state.acl_authorizer is None:
        return _refused(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    acl = Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
    problem = problem_of(acl)
    if problem is not None:
        return _refused(ErrorCode.INVALID_REQUEST, shortened(problem))
    if acl not in state.catalog.acls:
        if len(state.catalog.acls) >= state.config.acls_max:
            return _refused(ErrorCode.POLICY_VIOLATION, f"There are {state.config.acls_max} ACLs: acls.max")
        state.create_acl(acl)
        tell_change(state, context, "acl created", acl=str(acl))
    return AclCreationResult(error_code=ErrorCode.NONE, error_message=None)


def _refused(error: ErrorCode, message: str) -> AclCreationResult:
    return AclCreationResult(error_code=error, error_message=message)


@in_steps
def delete_acls(
    state: BrokerState, request: DeleteAclsRequest, context: RequestContext
) -> Generator[int, None, DeleteAclsResponse]:
    results: list[DeleteAclsFilterResult] = []
    present = list(state.catalog.acls.by_id.items())
    gone: dict[str, None] = {}
    for asked in request.filters:
        if results:
            yield ROW_BYTES
        if state.acl_authorizer is None:
            results.append(_failed(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER))
            continue
        wanted = _filter(asked)
        if wanted.problem is not None:
            results.append(_failed(ErrorCode.INVALID_REQUEST, wanted.problem))
            continue
        found = yield from _matching(state, wanted, present)
        gone.update(dict.fromkeys(found))
        results.append(
            DeleteAclsFilterResult(
                error_code=ErrorCode.NONE, error_message=None, matching_acls=tuple(map(_deleted, found.values()))
            )
        )
    for at, acl_id in enumerate(gone, 1):
        deleted = state.delete_acl(acl_id)
        if deleted is not None:
            tell_change(state, context, "acl deleted", acl=str(deleted))
        if at % ROWS == 0:
            yield 0
    return DeleteAclsResponse(filter_results=tuple(results))


def _failed(error: ErrorCode, message: str) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=())


def _deleted(acl: Acl) -> Any:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
