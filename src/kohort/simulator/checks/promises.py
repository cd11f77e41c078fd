"""The promises of an answer, checked against the durable state and the facts about the group.

The checks run when the answer leaves the server, after the commit of its turn. The order of events within a turn is
unknown here, so a check relies only on what holds before and after the turn; a later turn shows what one turn hides.

| answer | promise |
| --- | --- |
| JoinGroup ok | the generation is durably taken, is in force, never goes back, has one leader and one member list |
| SyncGroup ok | the durable record of this generation has exactly this assignment for this member |
| OffsetCommit ok | the offset is in the log; its sender is a member of the generation in force, or the group is empty |
| OffsetFetch ok | the offsets are durable |
| Heartbeat, Leave ok | the sender is a member |
| 25, 82 | the member was removed or fenced, and the journal said so |
| 22 | the generation is not the one in force |
| any success | not for a former member |
"""

from __future__ import annotations

from typing import Any

from kohort.simulator.checks.facts import GroupFacts, Told
from kohort.simulator.checks.ledger import Fold, Ledger
from kohort.simulator.world.world import Millis
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import GroupMetadataKey
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

OK = ErrorCode.NONE
MEMBERS_ONLY = (OK, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.MEMBER_ID_REQUIRED)
"""Errors that only a member can get, since the server checks membership first."""


def promised_by_join(
    facts: GroupFacts, ledger: Ledger, fold: Fold, request: JoinGroupRequest, response: JoinGroupResponse, now: Millis
) -> None:
    if request.member_id:
        _check_alive(facts, request.member_id, response.error_code, "JoinGroup")
    if response.error_code != OK:
        return
    name, generation = facts.name, response.generation_id
    if generation > fold.generations.get(name, 0):
        raise facts.broken("no reply before durability", f"generation {generation} is announced, not taken")
    if generation < facts.announced:
        raise facts.broken("generations only rise", f"{generation} after {facts.announced}")
    if not facts.unsettled and generation not in facts.generations:
        raise facts.broken("an announced generation is in force", f"{generation}, not {sorted(facts.generations)}")
    facts.announced = max(facts.announced, generation)
    facts.admit(response.member_id, request.group_instance_id, request.session_timeout_ms, now)
    for member in response.members:
        if member.group_instance_id is not None:
            facts.instance_of[member.member_id] = member.group_instance_id
    identities = frozenset(facts.identity(m.member_id) for m in response.members) if response.members else None
    _check_told(facts, generation, Told(facts.identity(response.leader), response.protocol_name or "", identities))
    if request.group_instance_id is not None and not facts.unsettled:
        _check_taken_over(facts, ledger, fold, response)


def _check_taken_over(facts: GroupFacts, ledger: Ledger, fold: Fold, response: JoinGroupResponse) -> None:
    """A static member that returns to a stable group durably holds its instance id (J30)."""
    stored = fold.groups.get(facts.name)
    if stored is None or stored.generation != response.generation_id or not stored.members:
        return
    values = [value for key, value in ledger.written if isinstance(key, GroupMetadataKey) and key.group == facts.name]
    for value in [*values, stored]:
        if value is not None and any(member.member_id == response.member_id for member in value.members):
            return
    raise facts.broken("no reply before durability", f"{response.member_id} took over, the log does not know")


def _check_told(facts: GroupFacts, generation: int, told: Told) -> None:
    first = facts.told.setdefault(generation, told)
    if told.identities is not None and first.identities is None:
        first.identities = told.identities
    # Which ids belong to static members may have become known since.
    first.leader = facts.identity(first.leader)
    first.identities = None if first.identities is None else frozenset(map(facts.identity, first.identities))
    same = told.leader == first.leader and told.protocol == first.protocol
    if not same or (told.identities is not None and told.identities != first.identities):
        raise facts.broken("a generation is never used twice", f"generation {generation}: was {first}, is {told}")


def promised_by_sync(
    facts: GroupFacts, ledger: Ledger, fold: Fold, request: SyncGroupRequest, response: SyncGroupResponse, now: Millis
) -> None:
    _check_alive(facts, request.member_id, response.error_code, "SyncGroup")
    if response.error_code != OK:
        return
    _seen(facts, request.member_id, now)
    name = facts.name
    values = [value for key, value in ledger.written if isinstance(key, GroupMetadataKey) and key.group == name]
    # A sync answered before a static twin took over in the same turn is in the log unchanged.
    for value in [*values, fold.groups.get(name), ledger.groups_before.get(name)]:
        if value is not None and value.generation == request.generation_id:
            for member in value.members:
                if member.member_id == request.member_id and member.assignment == response.assignment:
                    return
    raise facts.broken(
        "no reply before durability",
        f"{request.member_id} was assigned {response.assignment!r} in generation {request.generation_id}, "
        f"the log says {fold.groups.get(name)}",
    )


def promised_by_heartbeat(facts: GroupFacts, request: HeartbeatRequest, error: int, now: Millis) -> None:
    _check_alive(facts, request.member_id, error, "Heartbeat")
    if error in (OK, ErrorCode.REBALANCE_IN_PROGRESS):
        _seen(facts, request.member_id, now)
        if not facts.unsettled and request.generation_id not in facts.generations:
            raise facts.broken("old generations are refused", f"a heartbeat of {request.generation_id}")


def promised_by_leave(facts: GroupFacts, request: LeaveGroupRequest, response: LeaveGroupResponse) -> None:
    if request.members:
        for member in response.members:
            if member.member_id:
                _check_alive(facts, member.member_id, member.error_code, "LeaveGroup")
    elif response.error_code == OK:
        _check_alive(facts, request.member_id, response.error_code, "LeaveGroup")


def promised_by_commit(
    facts: GroupFacts,
    ledger: Ledger,
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    names: dict[bytes, str],
    now: Millis,
) -> None:
    errors = [partition.error_code for topic in response.topics for partition in topic.partitions]
    generation = request.generation_id_or_member_epoch
    by_member = generation >= 0
    for error in errors:
        if by_member and error != ErrorCode.ILLEGAL_GENERATION:  # 22 is also the error for absent groups (O2)
            _check_alive(facts, request.member_id, error, "OffsetCommit")
    if OK not in errors:
        return
    if by_member:
        _check_committer(facts, request, now)
    elif not facts.unsettled and facts.phase not in ("Empty", "Dead") and len(facts.generations) == 1:
        raise facts.broken("only members commit", "generation -1 on a live group")
    if lost := ledger.lost(request, response, names):
        raise facts.broken("no reply before durability", lost)


def _check_committer(facts: GroupFacts, request: OffsetCommitRequest, now: Millis) -> None:
    generation = request.generation_id_or_member_epoch
    _seen(facts, request.member_id, now)
    if facts.unsettled:
        return
    if generation not in facts.generations:
        raise facts.broken(
            "old generations are refused", f"a commit of {generation}, in force {sorted(facts.generations)}"
        )
    if facts.quiet and facts.phase == "CompletingRebalance":
        raise facts.broken("no member commits between join and sync", f"{request.member_id} in {generation}")
    if request.member_id not in facts.members and request.member_id not in facts.joined:
        raise facts.broken("only members commit", f"{request.member_id} never learned of its membership")


def _check_alive(facts: GroupFacts, member_id: str, error: int, what: str) -> None:
    why = facts.gone.get(member_id)
    if why is not None and error in MEMBERS_ONLY:
        raise facts.broken("a removed member never succeeds", f"{what} of {member_id} ({why}) is answered {error}")


def _seen(facts: GroupFacts, member_id: str, now: Millis) -> None:
    member = facts.members.get(member_id)
    if member is not None:
        member.last_seen = max(member.last_seen, now)


def check_refusal(facts: GroupFacts, request: Any, error: int) -> None:
    """25, 82 and 22 need a reason. Runs after the turn's journal entries, which have the reasons."""
    if facts.unsettled or error not in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
    ):
        return
    _check_fenced_is_told(facts, request, error)
    member = facts.members.get(request.member_id)
    if member is None or member.instance_id != getattr(request, "group_instance_id", None):
        return
    if error == ErrorCode.ILLEGAL_GENERATION:
        _check_generation_refused(facts, request)
        return
    if isinstance(request, OffsetCommitRequest) and request.generation_id_or_member_epoch < 0:
        return
    raise facts.broken(
        "no member is removed without a reason", f"{type(request).__name__} of {request.member_id} is answered {error}"
    )


def _check_fenced_is_told(facts: GroupFacts, request: Any, error: int) -> None:
    """A request with an instance id that another member holds must get 82: with 25 its sender would rejoin and fence
    that member."""
    instance = getattr(request, "group_instance_id", None)
    holder = facts.instances.get(instance) if instance is not None else None
    if error == ErrorCode.FENCED_INSTANCE_ID or not facts.quiet or not request.member_id or holder is None:
        return
    if holder != request.member_id and holder in facts.members:
        raise facts.broken(
            "a fenced member gets the fencing error",
            f"{type(request).__name__} of {request.member_id}, {instance} is {holder}, answer {error}",
        )


def _check_generation_refused(facts: GroupFacts, request: Any) -> None:
    asked = getattr(request, "generation_id", None)
    if asked is None:
        asked = request.generation_id_or_member_epoch
    if facts.generations == {asked}:
        raise facts.broken(
            "a generation is in force until the next begins",
            f"{type(request).__name__} of generation {asked} is answered 22",
        )
