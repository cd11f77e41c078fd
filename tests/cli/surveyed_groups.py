"""Groups and surveys that tests write down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kohort.client.admin.explanations import GroupExplanation
from kohort.client.admin.groups import Committed, GroupDescription, GroupMember
from kohort.client.admin.lag import PartitionLag
from kohort.client.admin.survey import Survey, SurveyedGroup

TOPIC = "orders"


def member(client: str, *partitions: int, host: str = "/10.0.0.1", topic: str = TOPIC, **fields: Any) -> GroupMember:
    """A member that has these partitions of a topic and subscribes to it."""
    given = {
        "member_id": f"{client}-11112222",
        "group_instance_id": None,
        "client_id": client,
        "host": host,
        "metadata": b"",
        "assignment": b"",
        "subscribed": (topic,),
        "assigned": {topic: partitions} if partitions else {},
    }
    return GroupMember(**{**given, **fields})  # type: ignore[arg-type]


def surveyed(
    name: str = "billing",
    offsets: Mapping[int, int | Committed] | None = None,
    *members: GroupMember,
    state: str | None = None,
    topic: str = TOPIC,
    stories: list[dict[str, Any]] | None = None,
    now_ms: int = 0,
    status: dict[str, Any] | None = None,
    error: str = "",
    **fields: Any,
) -> SurveyedGroup:
    """`offsets` by partition of the topic. With `stories` the coordinator keeps a journal."""
    given = {
        "group_id": name,
        "state": state or ("Stable" if members else "Empty"),
        "protocol_type": "consumer",
        "protocol": "range" if members else "",
        "members": members,
        "coordinator": 1,
        "type": "classic",
    }
    group = GroupDescription(**{**given, **fields})  # type: ignore[arg-type]
    committed = {
        (topic, index): offset if isinstance(offset, Committed) else Committed(offset)
        for index, offset in (offsets or {}).items()
    }
    explanation = None
    if stories is not None:
        explanation = GroupExplanation(group, now_ms, None, status, None, tuple(stories))
    return SurveyedGroup(group, committed, explanation, error)


def survey(seconds: float, ends: Mapping[int, int], *groups: SurveyedGroup, topic: str = TOPIC) -> Survey:
    """`seconds` since the first survey."""
    return Survey(
        {one.group.group_id: one for one in groups},
        {(topic, index): end for index, end in ends.items()},
        at_ms=1_700_000_000_000 + round(seconds * 1000),
        offsets_s=1000.0 + seconds,
        ends_s=1000.0 + seconds,
        has_journal=any(one.explanation is not None for one in groups),
    )


def told(one: SurveyedGroup, ends: Mapping[int, int], ages_ms: Mapping[int, int]) -> SurveyedGroup:
    """The group at a server that tells its lags."""
    lags = {
        place: PartitionLag(offset, ends[place[1]], ends[place[1]], ages_ms.get(place[1]))
        for place, offset in one.committed.items()
    }
    return replace(one, lags=lags, as_of_ms=0)


def story(number: int, started_ms: int, what: str, client: str = "", **fields: Any) -> dict[str, Any]:
    """A story that has ended after 100 ms, by what a client did."""
    who = {"client_id": client, "member_id": f"{client}-11112222", "host": "/10.0.0.1"} if client else {}
    cause = {"what": what, **who, **fields.pop("cause", {})}
    return {
        "number": number,
        "started_ms": started_ms,
        "cause": cause,
        "outcome": "Stable",
        "took_ms": 100,
        **fields,
    }
