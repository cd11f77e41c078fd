"""Why a group is as it is: the stories of its rebalances, and the state of the rebalance that is running.

Only kohort keeps a journal. The request is a tagged field of DescribeGroups, which other brokers skip; their answer
lacks the explanation then, and `NoJournal` is raised. Stories and states are JSON documents, described in
`kohort.coordinator.journal.story` and `kohort.coordinator.classic.status`; they are returned unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kohort.client.admin.groups import GroupDescription, consumers_instead, described
from kohort.client.errors import BadAnswer, KafkaError
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import Router
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

FIRST_VERSION = 5
"""The first version of DescribeGroups with tagged fields."""

Document = dict[str, Any]


class NoJournal(KafkaError):
    """The group's coordinator shows no journal: it is not kohort, or an older version of it, or strict; or the user may
    not DESCRIBE the cluster."""

    def __init__(self, address: str) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the coordinator at {address} shows no journal of its groups: it is not kohort, or a kohort with "
            "compatibility=kafka, or this user may not DESCRIBE the cluster",
        )


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """A group's past and present, as the coordinator knows it. Instants are milliseconds by the server's clock."""

    group: GroupDescription
    """In state "Dead" if there is no such group; it may still have stories."""
    now_ms: int
    loaded_ms: int | None
    """When the coordinator loaded the group, if it did so since the server's start."""
    status: Document | None
    """The present phase, and each member's state in it; None if there is no such group."""
    rebalance: Document | None
    """The story of the rebalance that is running."""
    stories: tuple[Document, ...]
    """The newest stories, the newest last; includes the rebalance that is running."""
    keeps_offsets: bool = False
    """Whether the journal has stories of committed offsets that were changed from outside."""


def explain_group(router: Router, group_id: str, last: int) -> GroupExplanation:
    def ask(connection: Connection) -> GroupExplanation:
        if connection.version_of(DescribeGroupsRequest) < FIRST_VERSION:
            raise NoJournal(connection.address)
        request = DescribeGroupsRequest(groups=(group_id,), explain_last=max(last, 0))
        row = connection.request(request, DescribeGroupsResponse).groups[0]
        [group] = consumers_instead(connection, [described(row, group_id, router.coordinator(group_id))])
        explanation = explanation_of(row, group, connection.address)
        if explanation is None:
            raise NoJournal(connection.address)
        return explanation

    return router.at_coordinator(group_id, ask)


def explanation_of(row: DescribedGroup, group: GroupDescription, address: str) -> GroupExplanation | None:
    """The explanation in a row of DescribeGroups; None if the broker gave none. Raises BadAnswer."""
    if not row.explanation:
        return None
    try:
        explanation = json.loads(row.explanation)
        stories = tuple(json.loads(story) for story in row.stories)
    except ValueError as error:
        raise BadAnswer(address, f"an explanation that is no JSON: {error}") from None
    return GroupExplanation(
        group,
        explanation["now_ms"],
        explanation.get("loaded_ms"),
        explanation.get("status"),
        explanation.get("rebalance"),
        stories,
        explanation.get("keeps_offsets", False),
    )
