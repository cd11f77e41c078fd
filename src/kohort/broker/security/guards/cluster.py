"""The guards of APIs about the cluster, about ACLs, and about configs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from kohort.broker.authorization import Operation, Resource
from kohort.broker.handlers.config_resources import BROKER, GROUP, TOPIC
from kohort.broker.handlers.inspection import BROKER_LOGGER, CLIENT_METRICS
from kohort.broker.messages import changed
from kohort.broker.request import ROW_BYTES, ROWS
from kohort.broker.security.guards.ask import Ask, Guard, Narrowed, Refused, Verdict
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import alter_configs, describe_configs, elect_leaders, incremental_alter_configs
from kohort.wire.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
)
from kohort.wire.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kohort.wire.schemas.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kohort.wire.schemas.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from kohort.wire.schemas.describe_acls import DescribeAclsResponse
from kohort.wire.schemas.describe_client_quotas import DescribeClientQuotasResponse
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kohort.wire.schemas.describe_log_dirs import DescribeLogDirsResponse
from kohort.wire.schemas.describe_quorum import DescribeQuorumResponse
from kohort.wire.schemas.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from kohort.wire.schemas.list_config_resources import ListConfigResourcesResponse
from kohort.wire.schemas.list_partition_reassignments import ListPartitionReassignmentsResponse

_O, _R = Operation, Resource
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TEXT = DENIED.message


def everybody(ask: Ask, request: Any) -> Verdict:
    """Nothing is asked."""
    return None


def on_cluster(operation: Operation, answer: Callable[[Any], Any]) -> Guard:
    """For requests that need one operation on the cluster. `answer` makes the refusal."""

    def guard(ask: Ask, request: Any) -> Verdict:
        return None if ask.may_cluster(operation) else Refused(answer(request))

    return guard


# -- ACLs


def _no_creations(request: CreateAclsRequest) -> CreateAclsResponse:
    result = AclCreationResult(error_code=DENIED, error_message=TEXT)
    return CreateAclsResponse(results=(result,) * len(request.creations))


def _no_deletions(request: DeleteAclsRequest) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=DENIED, error_message=TEXT, matching_acls=())
    return DeleteAclsResponse(filter_results=(result,) * len(request.filters))


describe_acls: Guard = on_cluster(
    _O.DESCRIBE, lambda request: DescribeAclsResponse(error_code=DENIED, error_message=TEXT, resources=())
)
create_acls: Guard = on_cluster(_O.ALTER, _no_creations)
delete_acls: Guard = on_cluster(_O.ALTER, _no_deletions)


# -- the cluster


def describe_cluster(ask: Ask, request: DescribeClusterRequest) -> Verdict:
    if not request.include_cluster_authorized_operations:
        return None
    return Narrowed(request, partial(_with_operations, ask))


def _with_operations(ask: Ask, answer: DescribeClusterResponse) -> DescribeClusterResponse:
    if answer.error_code:
        return answer
    return changed(answer, cluster_authorized_operations=ask.cluster_operations())


def _not_elected(request: elect_leaders.ElectLeadersRequest) -> elect_leaders.ElectLeadersResponse:
    return elect_leaders.ElectLeadersResponse(
        error_code=DENIED,
        replica_election_results=tuple(
            elect_leaders.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    elect_leaders.PartitionResult(partition_id=index, error_code=DENIED, error_message=TEXT)
                    for index in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        ),
    )


elect: Guard = on_cluster(_O.ALTER, _not_elected)
describe_log_dirs: Guard = on_cluster(
    _O.DESCRIBE, lambda request: DescribeLogDirsResponse(error_code=DENIED, results=())
)
describe_quorum: Guard = on_cluster(
    _O.DESCRIBE, lambda request: DescribeQuorumResponse(error_code=DENIED, error_message=TEXT, topics=())
)
list_partition_reassignments: Guard = on_cluster(
    _O.DESCRIBE, lambda request: ListPartitionReassignmentsResponse(error_code=DENIED, error_message=TEXT, topics=())
)
describe_user_scram_credentials: Guard = on_cluster(
    _O.DESCRIBE, lambda request: DescribeUserScramCredentialsResponse(error_code=DENIED, error_message=TEXT, results=())
)


def _no_changes_of_users(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(one.name for one in request.deletions), *(one.name for one in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=DENIED, error_message=TEXT) for user in users
        )
    )


alter_user_scram_credentials: Guard = on_cluster(_O.ALTER, _no_changes_of_users)
describe_client_quotas: Guard = on_cluster(
    _O.DESCRIBE_CONFIGS,
    lambda request: DescribeClientQuotasResponse(error_code=DENIED, error_message=TEXT, entries=None),
)


def _no_changes_of_quotas(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=tuple(
            EntryData(error_code=DENIED, error_message=TEXT, entity=entry.entity) for entry in request.entries
        )
    )


alter_client_quotas: Guard = on_cluster(_O.ALTER_CONFIGS, _no_changes_of_quotas)
list_config_resources: Guard = on_cluster(
    _O.DESCRIBE_CONFIGS, lambda request: ListConfigResourcesResponse(error_code=DENIED, config_resources=())
)


# -- configs

ON = {
    TOPIC: (_R.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    GROUP: (_R.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    **dict.fromkeys((BROKER, BROKER_LOGGER, CLIENT_METRICS), (_R.CLUSTER, DENIED)),
}
"""By type of config resource: where its operation is asked, and the error."""


def _of_configs(operation: Operation, field: str, answered: str, row: Callable[[Any, ErrorCode], Any]) -> Guard:
    def guard(ask: Ask, request: Any) -> Generator[int, None, Verdict]:
        kept: list[Any] = []
        refused: dict[tuple[int, str], Any] = {}
        resources: Sequence[Any] = getattr(request, field)
        for at, wanted in enumerate(resources, 1):
            resource, error = ON.get(wanted.resource_type, (None, ErrorCode.NONE))
            if resource is None or _may(ask, operation, resource, wanted.resource_name):
                kept.append(wanted)
            else:
                refused[wanted.resource_type, wanted.resource_name] = row(wanted, error)
            if at % ROWS == 0:
                yield ROWS * ROW_BYTES
        if not refused:
            return None
        return Narrowed(changed(request, **{field: tuple(kept)}), partial(_finished, answered, refused))

    return guard


def _may(ask: Ask, operation: Operation, resource: Resource, name: str) -> bool:
    return ask.may_cluster(operation) if resource is _R.CLUSTER else ask.may(operation, resource, name)


def _finished(answered: str, refused: dict[tuple[int, str], Any], answer: Any) -> Any:
    kept = tuple(row for row in getattr(answer, answered) if (row.resource_type, row.resource_name) not in refused)
    return changed(answer, **{answered: (*kept, *refused.values())})


def _undescribed(wanted: Any, error: ErrorCode) -> describe_configs.DescribeConfigsResult:
    return describe_configs.DescribeConfigsResult(
        error_code=error,
        error_message=error.message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=(),
    )


def _unaltered(response: type[Any], wanted: Any, error: ErrorCode) -> Any:
    return response(
        error_code=error,
        error_message=error.message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
    )


configs_described: Guard = _of_configs(_O.DESCRIBE_CONFIGS, "resources", "results", _undescribed)
configs_altered: Guard = _of_configs(
    _O.ALTER_CONFIGS, "resources", "responses", partial(_unaltered, alter_configs.AlterConfigsResourceResponse)
)
configs_changed: Guard = _of_configs(
    _O.ALTER_CONFIGS,
    "resources",
    "responses",
    partial(_unaltered, incremental_alter_configs.AlterConfigsResourceResponse),
)
