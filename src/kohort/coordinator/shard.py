"""One shard of the group coordinator: it owns one partition of `__consumer_offsets` and the groups that hash to it.

`step` decides and collects effects. Records reach the hard state only through `apply`: the caller applies the records
of a step right after it, and those of the log at a start, so live and replayed state are the same.

A shard serves requests between Loaded and Unloaded. Before Loaded its log is being replayed: requests get 14, but a
heartbeat succeeds and a SyncGroup gets 27, because clients treat 14 there as fatal (S11, H9). After Unloaded its
coordinator is another broker: requests get 16.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from kohort.config import Config
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.classic.checks import founds
from kohort.coordinator.classic.group import Group, Phase
from kohort.coordinator.classic.requests import ClassicGroups
from kohort.coordinator.classic.responses import described_classic_group, refusal, undescribed
from kohort.coordinator.classic.status import RebalanceStatus, status_of
from kohort.coordinator.consumer.lifecycle import ConsumerGroups
from kohort.coordinator.consumer.responses import described, state_name, undescribed_consumer_group
from kohort.coordinator.consumer.soft_state import DEADLINES_OF_CONSUMERS, LONG_DEADLINES
from kohort.coordinator.events import (
    AnswerHeld,
    AssignmentMade,
    Client,
    DeadlineReached,
    Effects,
    Event,
    ExpireOffsets,
    GroupConfigsChanged,
    GroupOffsetsDeleted,
    GroupRequested,
    Loaded,
    Millis,
    PatternsResolved,
    Reply,
    RequestAbandoned,
    Restored,
    ServerPaused,
    ShareStatesDeleted,
    TopicOffsetsDeleted,
    TopicsChanged,
    TopicsDeleted,
    Unloaded,
)
from kohort.coordinator.hard_state import AnyRecord, HardState
from kohort.coordinator.invariants import check
from kohort.coordinator.offsets.former_groups import FormerGroups
from kohort.coordinator.offsets.offsets import Offsets
from kohort.coordinator.offsets.ownership_fence import Fence, every, fetch_fence
from kohort.coordinator.offsets.repeated_commit import RepeatedCommit
from kohort.coordinator.offsets.transactional import TransactionalOffsets
from kohort.coordinator.records import OffsetRecords, Place
from kohort.coordinator.restored import restored_entries, restored_records
from kohort.coordinator.settings.group_settings import SettingsOfGroups
from kohort.coordinator.share_groups import responses as share_responses
from kohort.coordinator.share_groups.checks import of_other_protocol
from kohort.coordinator.share_groups.lifecycle import ShareGroups
from kohort.coordinator.share_groups.states import STATES
from kohort.coordinator.share_groups.targets import SESSION as SHARE_SESSION
from kohort.coordinator.soft_state import DEADLINES_OF_MEMBERS, Key, Running
from kohort.coordinator.state_machine import LogName
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import share_group_describe as share_describe
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kohort.wire.schemas.consumer_group_describe import DescribedConsumerGroup
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kohort.wire.schemas.describe_groups import DescribedGroup
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.list_groups import ListedGroup
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest
from kohort.wire.schemas.txn_offset_commit import TxnOffsetCommitRequest


def partition_for(group_id: str, shards: int) -> int:
    """The shard of a group, as in Kafka."""
    return shard_of_hash(java_hash(group_id), shards)


def java_hash(text: str, value: int = 0) -> int:
    """Java's String.hashCode over UTF-16 units, unsigned; `value`: that of a text before."""
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def shard_of_hash(value: int, shards: int) -> int:
    if value >= 0x80000000:
        value = 0 if value == 0x80000000 else 0x100000000 - value
    return value % shards


DEADLINES = 50
"""How many deadlines are served in one step: some ten milliseconds. Thousands of members may expire in the same moment;
the others are due at once."""
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def while_loading(body: Any) -> ErrorCode:
    match body:
        case HeartbeatRequest():
            return ErrorCode.NONE
        case SyncGroupRequest():
            return ErrorCode.REBALANCE_IN_PROGRESS
        case _:
            return LOADING


def _keeps_answers(event: Event) -> bool:
    """Commits only postpone sessions. A deadline that is reached counts when it is served: most were postponed."""
    if isinstance(event, GroupRequested):
        return isinstance(event.body, OffsetCommitRequest | TxnOffsetCommitRequest)
    return isinstance(event, DeadlineReached)


def _awaits_member(key: Key) -> bool:
    return key[0] in DEADLINES_OF_MEMBERS or key[0] in DEADLINES_OF_CONSUMERS or key[0] == SHARE_SESSION


class Shard:
    """The `StateMachine` of the group coordinator."""

    def __init__(self, index: int, config: Config, assignors: Mapping[str, Assignor] = BUILT_IN) -> None:
        self.log = LogName("__consumer_offsets", index)
        self.index = index
        self.hard = HardState()
        self.running = Running(self.hard, config.deviations, config.group_max_total_bytes)
        """For reading: queries, checkers, tests."""
        self._config = config
        self._groups = ClassicGroups(config, self.hard, self.running)
        self.settings = SettingsOfGroups(config)
        self.consumers = ConsumerGroups(config, self.hard, self.running, self.settings, assignors)
        self.shares = ShareGroups(config, self.hard, self.running, self.settings)
        self._offsets = Offsets(config, self.hard, self.running, self.settings)
        self._former_groups = FormerGroups(config, self.hard, self.running)
        self._transactional = TransactionalOffsets(config, self.hard, self.running, self.settings, self._offsets)
        self.unavailable: ErrorCode = LOADING
        """The error of all requests; NONE while the shard serves them."""
        self.version = 0
        """Raised by every step that can change the answer to a repeated heartbeat or commit (steady_answer.py)."""

    # -- the contract

    def step(self, event: Event, now: Millis) -> Effects:
        groups, consumers = self._groups, self.consumers
        self.running.member_bytes.now = now
        if not _keeps_answers(event):
            self.version += 1
        if not self.unavailable:
            self._former_groups.forget_if_large()
        match event:
            case GroupRequested():
                self._request(event, now)
            case DeadlineReached():
                for _ in range(DEADLINES):
                    key = self.running.deadlines.pop_due(now)
                    if key is None:
                        break
                    self.version += 1
                    self._part_of(key).deadline_reached(key, now)
                    if key[0] in LONG_DEADLINES or key[0] == STATES:
                        break
            case RequestAbandoned():
                if consumers.holds.holds(event.request_id):
                    consumers.holds.abandon(event.request_id)
                else:
                    groups.abandon(event.request_id, now)
            case AnswerHeld():
                if consumers.holds.holds(event.request_id):
                    consumers.holds.request_behind(event.request_id, now)
                else:
                    groups.answer_held(event.request_id)
            case TopicsChanged():
                consumers.topics_are(event.topics, event.names)
                self.shares.topics_are(event.topics)
                if not self.unavailable:
                    consumers.topics_changed(now, event.names)
                    self.shares.topics_changed(now, event.names)
            case GroupConfigsChanged():
                former = self.settings.put(event.group_id, event.overrides)
                if not self.unavailable:
                    consumers.settings_changed(event.group_id, former, now)
            case AssignmentMade() if not self.unavailable:
                consumers.assignment_made(event, now)
            case PatternsResolved() if not self.unavailable:
                consumers.patterns_resolved(event, now)
            case ShareStatesDeleted():
                self.shares.shrink(event.group_id, now)
            case ServerPaused():
                self._give_time(event, now)
            case TopicsDeleted():
                self._offsets.topics_deleted(event.topics)
            case GroupOffsetsDeleted():
                self._offsets.gone_with_group(event)
            case TopicOffsetsDeleted():
                self._offsets.gone_with_topics(event)
            case ExpireOffsets():
                self._offsets.expire(now)
                self._former_groups.forget()
                consumers.expire()
            case Loaded():
                groups.load(now)
                consumers.load(now)
                self.shares.load(now)
                self.unavailable = ErrorCode.NONE
            case Unloaded():
                consumers.unload()
                groups.unload()
                self.unavailable = ErrorCode.NOT_COORDINATOR
            case Restored():
                self.running.out.records += restored_records(self.hard, event, now)
                self.running.out.journal += restored_entries(self.hard, event)
        if self.running.unseen and self.running.out.records:
            self.running.unseen.clear()
        return self.running.out.emptied()

    def take_heartbeat(self, group_id: str, member_id: str, generation_id: int, now: Millis) -> SteadyAnswer | None:
        """`step` for the heartbeat of a dynamic member whose only effects are its answer, an error or none, and a later
        end of the session. None for any other: nothing was done, and it takes the step. `next_deadline` gets no
        earlier."""
        if self.unavailable or group_id in self.hard.consumers.groups:
            return None
        return self._stamped(self._groups.take_heartbeat(group_id, member_id, generation_id, now))

    def take_consumer_heartbeat(self, event: GroupRequested, now: Millis) -> SteadyAnswer | None:
        """The same for a ConsumerGroupHeartbeat, whatever its request id; its answer is an interval."""
        return None if self.unavailable else self._stamped(self.consumers.heartbeats.take(event, now))

    def take_commit(self, commit: RepeatedCommit, now: Millis) -> SteadyAnswer | None:
        """`step` for a repeated commit that is accepted whole; `commit_records` is to follow. None for any other:
        nothing was done, and it takes the step."""
        return None if self.unavailable else self._stamped(self._offsets.take_commit(commit, now))

    def take_from_outside(self, commit: RepeatedCommit, client: Client, offsets: Sequence[int], now: Millis) -> bool:
        """Whether the journal need not be told of a repeated commit of no member. Otherwise it takes the step."""
        return self._offsets.changes.take_repeated(commit, client, offsets, now)

    def commit_records(self, commit: RepeatedCommit, offsets: Sequence[int], now: Millis) -> OffsetRecords:
        """The records of a commit that `take_commit` accepted at this version."""
        self.consumers.holds.committed(commit.group_id, commit.request.member_id, now)
        self.running.unseen.clear()
        return commit.records(offsets, now)

    def _stamped(self, answer: SteadyAnswer | None) -> SteadyAnswer | None:
        if answer is not None and answer.lasts:
            answer.version = self.version
        return answer

    def apply(self, record: AnyRecord, timestamp: Millis) -> None:
        self.hard.apply(record)

    def next_deadline(self) -> Millis | None:
        return self.running.deadlines.next()

    @property
    def expires_more(self) -> bool:
        """The last ExpireOffsets has left some for the next one."""
        return self._offsets.expires_more

    def validate(self) -> None:
        """Check what holds between two events. Raises AssertionError; for tests and the simulator."""
        check(self.running, self.consumers.shared, self.hard, serving=not self.unavailable)

    def _part_of(self, key: Key) -> ClassicGroups | ConsumerGroups | ShareGroups:
        """What a deadline belongs to."""
        kind = key[0].partition(" ")[0]
        return self.consumers if kind == "consumer" else self.shares if kind == "share" else self._groups

    def _request(self, event: GroupRequested, now: Millis) -> None:
        if self.unavailable:
            error = while_loading(event.body) if self.unavailable is LOADING else self.unavailable
            self.running.out.replies.append(Reply(event.request_id, refusal(event, error)))
            return
        shares = self.hard.shares.groups
        if shares and getattr(event.body, "group_id", "") in shares and (error := of_other_protocol(event.body)):
            self.running.out.replies.append(Reply(event.request_id, refusal(event, error)))
            return
        mixed = self.consumers.mixed.group(event.body)
        match event.body:
            case HeartbeatRequest() if mixed is not None:
                self.consumers.mixed.heartbeat(mixed, event, now)
            case HeartbeatRequest():
                self._groups.heartbeat(event, now)
            case OffsetCommitRequest():
                self.consumers.holds.committed(event.body.group_id, event.body.member_id, now)
                self._offsets.commit(event, now)
            case TxnOffsetCommitRequest():
                self._transactional.commit(event, self.consumers.topics, now)
            case ConsumerGroupHeartbeatRequest():
                self.consumers.heartbeats.heartbeat(event, now)
            case JoinGroupRequest() if mixed is not None:
                self.consumers.mixed.join(mixed, event, now)
            case JoinGroupRequest():
                self._delete_empty_consumer_group(event.body)
                self._groups.joins.join(event, now)
            case SyncGroupRequest() if mixed is not None:
                self.consumers.mixed.sync(mixed, event, now)
            case SyncGroupRequest():
                self._groups.sync(event, now)
            case LeaveGroupRequest() if mixed is not None:
                self.consumers.mixed.leave(mixed, event, now)
            case LeaveGroupRequest():
                self._groups.leave(event, now)
            case OffsetDeleteRequest():
                self._offsets.delete(event)
            case DeleteGroupsRequest():
                self._delete_groups(event)
            case ShareGroupHeartbeatRequest():
                self.shares.heartbeats.heartbeat(event, now)
            case AlterShareGroupOffsetsRequest():
                self.shares.alter_offsets(event, now)
            case DeleteShareGroupOffsetsRequest():
                self.shares.delete_offsets(event, now)
            case _:
                raise TypeError(f"no group API takes {type(event.body).__name__}")

    def _give_time(self, event: ServerPaused, now: Millis) -> None:
        """The time in which the server answered nobody is not the members' silence (docs/decisions/0012)."""
        were_due = self.running.deadlines.lengthen(event.lost_ms, _awaits_member, now)
        for group_id in dict.fromkeys(key[1] for key in were_due):
            if (consumers := self.consumers.groups.get(group_id)) is not None:
                self.consumers.note_pause(consumers, event)
            elif (group := self.running.groups.get(group_id)) is not None:
                self.running.out.note(group, "server paused", event.why, waited_ms=event.lost_ms)

    def _delete_empty_consumer_group(self, request: JoinGroupRequest) -> None:
        """Delete a consumer group without members if this join creates a classic one (J34)."""
        group = self.consumers.groups.get(request.group_id)
        if group is not None and founds(request, self._config):
            self.consumers.delete(group, "it becomes a classic group")

    def _delete_groups(self, event: GroupRequested) -> None:
        results = []
        for group_id in dict.fromkeys(event.body.groups_names):
            group = self.running.groups.get(group_id)
            consumers = self.consumers.groups.get(group_id)
            shares = self.shares.groups.get(group_id)
            has_members = group is not None and group.phase is not Phase.EMPTY
            if shares is not None:
                error = ErrorCode.NON_EMPTY_GROUP if shares.members else ErrorCode.NONE
                if not error:
                    self.shares.delete(shares)
            elif group is None and consumers is None and not self.hard.has_offsets(group_id):
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif has_members or (consumers is not None and consumers.members):
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                error = ErrorCode.NONE
                self._offsets.delete_first(group_id, event.client)
                if group is not None:
                    self.running.delete(group, "asked for")
                if consumers is not None:
                    self.consumers.delete(consumers, "asked for")
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        self.running.out.replies.append(Reply(event.request_id, DeleteGroupsResponse(results=tuple(results))))

    # -- queries

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        version: int,
        fits: Callable[[int], bool],
        *,
        stable: bool = False,
        offsets: Mapping[Place, OffsetCommitValue] | None = None,
    ) -> Generator[int, None, OffsetFetchResponseGroup | None]:
        """See `Offsets.fetch`."""
        if self.unavailable:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=self.unavailable)
        if request.group_id in self.shares.groups:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return (yield from self._offsets.fetch(request, version, fits, stable=stable, offsets=offsets))

    def fetch_fence(self, group_id: str, member_id: str, epoch: int) -> Fence:
        """Which partitions this member of a consumer group may fetch now."""
        if self.unavailable:
            return every(self.unavailable)
        return fetch_fence(self.consumers.groups.get(group_id), member_id, epoch)

    def describe(self, group_id: str, version: int) -> Generator[int, None, DescribedGroup]:
        """In steps; each yields the memory of its part. Changes between two steps may show in the answer."""
        if self.unavailable:
            return undescribed(self.unavailable, group_id)
        group = self._seen(group_id)
        if group is None and self.hard.has_offsets(group_id) and group_id not in self.consumers.groups:
            group = Group(group_id)
        if group is None:
            if version < 6:
                return undescribed(ErrorCode.NONE, group_id, Phase.DEAD.value)
            is_other = group_id in self.consumers.groups or group_id in self.shares.groups
            message = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
            return undescribed(ErrorCode.GROUP_ID_NOT_FOUND, group_id, Phase.DEAD.value, message)
        return (yield from described_classic_group(group))

    def describe_consumer_group(self, group_id: str) -> Generator[int, None, DescribedConsumerGroup]:
        """As `describe`."""
        error, message = self.unavailable, None
        group = self.consumers.groups.get(group_id)
        if not error and group is not None:
            return (yield from described(group, self.consumers.topics, self.consumers.targets.assignor_name(group)))
        if not error:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
            is_other = group_id in self.running.groups or self.hard.has_offsets(group_id)
            is_other |= group_id in self.shares.groups
            unknown = f"Group {group_id} is not a consumer group." if is_other else f"Group {group_id} not found."
            message = unknown if group_id else None
        return undescribed_consumer_group(error, group_id, message)

    def describe_share_group(self, group_id: str) -> share_describe.DescribedGroup:
        error, message = self.unavailable, None
        group = self.shares.groups.get(group_id)
        if not error and group is not None:
            return share_responses.described_share_group(group, self.shares.topics)
        if not error:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
            unknown = f"Group {group_id} is not a share group."
            message = unknown if self.shares.is_other(group_id) else f"Group {group_id} not found."
        return share_responses.undescribed_share_group(error, group_id, message)

    def _seen(self, group_id: str) -> Group | None:
        """The classic group, if answers show it."""
        group = self.running.groups.get(group_id)
        is_unseen = group is not None and group_id in self.running.unseen and group.phase is Phase.EMPTY
        return None if is_unseen else group

    def rebalance_status(self, group_id: str, now: Millis) -> RebalanceStatus | None:
        """Which members are awaited, and for how long; None if the group does not exist."""
        consumers = self.consumers.groups.get(group_id)
        if consumers is not None:
            return self.consumers.status_of(consumers, now)
        return status_of(self.running, group_id, now)

    def list_groups(self, states_filter: tuple[str, ...], types_filter: tuple[str, ...]) -> list[ListedGroup]:
        states = {state.lower() for state in states_filter}
        types = {kind.lower() for kind in types_filter}
        listed = []
        if not types or "consumer" in types:
            for consumers in self.consumers.groups.values():
                state = state_name(consumers)
                if not states or state.lower() in states:
                    listed.append(_listed(consumers.group_id, "consumer", state, "consumer"))
        if not types or "share" in types:
            found = [(name, share_responses.state_name(one)) for name, one in self.shares.groups.items()]
            wanted = [(name, state) for name, state in found if not states or state.lower() in states]
            listed += [_listed(name, "share", state, "share") for name, state in wanted]
        if types and "classic" not in types:
            return listed
        for group_id in dict.fromkeys([*self.running.groups, *self.hard.offsets, *self.hard.pending.groups]):
            if group_id in self.consumers.groups:
                continue
            group = self._seen(group_id)
            if group is None:
                if group_id in self.running.unseen:
                    continue
                group = Group(group_id)
            if not states or group.phase.value.lower() in states:
                listed.append(_listed(group_id, group.protocol_type or "", group.phase.value, "classic"))
        return listed


def _listed(group_id: str, protocol_type: str, state: str, group_type: str) -> ListedGroup:
    return ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=group_type)
