"""The promises of the answer to a fetch that names its member.

An answer must fit the member's durable state before the turn, after it, or in between, also for a fetch that has waited
for long.

| partition | promise |
| --- | --- |
| ok | the member owns it, since the epoch of the request or earlier |
| 110 | the member does not own it |
| 113 | the member owns it, but only since a later epoch |
| 25, 69 | there is no such member |
"""

from __future__ import annotations

from kohort.simulator.checks.consumer_checks import ConsumerFacts
from kohort.simulator.checks.consumer_ledger import Durable, Has, Partition
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.fetch import FetchRequest, FetchResponse


def promised_by_fetch(facts: ConsumerFacts, group: Durable, request: FetchRequest, response: FetchResponse) -> None:
    """`group`: the durable state after the turn."""
    member = request.as_member
    states = facts.states.get(member.member_id, [])
    stays = (
        member.member_id in facts.before.members
        and member.member_id in group.members
        and member.member_id not in facts.went
    )
    if not response.fenced:
        raise facts.broken("a fetch that names its member is fenced", f"{member}")
    for topic in response.responses:
        for result in topic.partitions:
            place = (topic.topic_id, result.partition_index)
            has = [_owns(state, place) for state in states]
            may = [_may_read(state, place, member.member_epoch) for state in states]
            promise = ""
            match result.error_code:
                case ErrorCode.NONE if not any(may):
                    promise = "only owners read a partition"
                case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.STALE_MEMBER_EPOCH if stays and may and all(may):
                    promise = "owners read"
                case ErrorCode.FENCED_MEMBER_EPOCH if stays and has and all(has):
                    promise = "an owner with an old epoch gets 113"
                case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_ID_NOT_FOUND if stays:
                    promise = "a member is known"
            if promise:
                raise facts.broken(promise, f"{member}, {place}: {result.error_code}; it has {states}")


def _owns(state: Has, place: Partition) -> bool:
    return state.epoch >= 0 and place in state.all


def _may_read(state: Has, place: Partition, epoch: int) -> bool:
    return _owns(state, place) and state.all[place] <= epoch <= state.epoch
