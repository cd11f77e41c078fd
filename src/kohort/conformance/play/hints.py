"""What is known of a scenario before it is played: which requests are answered at once, and which after which command.

A server does not tell a client that it parks a request, so the player waits for the answers that are due. Hints only
shorten the waiting: the player also finds unexpected and missing answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse


@dataclass(slots=True)
class Hints:
    at_once: set[int] = field(default_factory=set)
    """Requests that are answered when they come."""
    answered: list[set[int]] = field(default_factory=list)
    """Requests that are answered by the end of a command."""
    elapsed_ms: list[int] = field(default_factory=list)
    fires_late: set[int] = field(default_factory=set)
    """Commands at whose end, or just before, a deadline fires."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The generation or member epoch that a request was answered with."""
    departs_at: int = -1
    """The command after which the two servers have different states, and the reason."""
    departs_by: str = ""
    local: dict[int, str] = field(default_factory=dict)
    """Commands whose answers alone differ, and why."""
    exact_epochs: bool = False
    """Whether both servers count from the same first epoch."""
    labels: dict[str, str] = field(default_factory=dict)
    """The names, in the run over sockets, of member ids that servers make."""


def epoch_of(answer: JoinGroupResponse | ConsumerGroupHeartbeatResponse) -> int:
    return answer.generation_id if isinstance(answer, JoinGroupResponse) else answer.member_epoch


def label(labels: dict[str, str], name: str, number: int, member_id: str) -> None:
    """The name of a member id: the client and the request whose answer had the id."""
    labels.setdefault(member_id, f"{name}#{number}")


def as_json(hints: Hints) -> dict[str, Any]:
    """What a run against one server needs of the hints."""
    return {
        "at_once": sorted(hints.at_once),
        "answered": [sorted(numbers) for numbers in hints.answered],
        "elapsed_ms": hints.elapsed_ms,
        "fires_late": sorted(hints.fires_late),
        "epochs": {str(number): epoch for number, epoch in hints.epochs.items()},
        "labels": hints.labels,
    }


def from_json(found: Mapping[str, Any]) -> Hints:
    return Hints(
        at_once=set(found["at_once"]),
        answered=[set(numbers) for numbers in found["answered"]],
        elapsed_ms=list(found["elapsed_ms"]),
        fires_late=set(found["fires_late"]),
        epochs={int(number): epoch for number, epoch in found["epochs"].items()},
        labels=dict(found["labels"]),
    )
