"""A shard with a clock, clients and a log, driven by lines of text; what happens is printed.

Members have short names. A name's first JoinGroup carries no member id. The shard's answer is remembered, so that the
next request of that name carries the id and the generation that a client would send. Ids are `client-nonce`, the
nonce a counter. Requests go in their newest version unless `v=` says otherwise.

    config group_max_size=2                      before the first request
    join GROUP NAME [instance=I] [session=10s] [rebalance=30s] [protocols=range:T1+T2,sticky:T1] [type=consumer] [id=X]
    sync GROUP NAME [assign=a:bytes,b:bytes] [gen=N]        heartbeat GROUP NAME [gen=N] [id=X] [instance=I] [hold=2s]
    leave GROUP NAME... | instance=I             group GROUP a b c           a stable group of members a, b, c
    commit GROUP NAME|- TOPIC-0=5[:metadata] [gen=N] [retention=1h]         fetch GROUP all|TOPIC-0
    delete-offsets GROUP TOPIC-0                 delete GROUP...            describe GROUP      list [states=] [types=]
    answer-held GROUP NAME                       another request stands behind its held heartbeat
    loading                                      first: the shard is not loaded until `load`
    vanish NAME                                  the connection of its parked request is gone
    advance 3s    expire    topics-deleted TOPIC    unload    load    restart [after=5s] [back=1m]

Of the consumer protocol (consumer_world.py). A heartbeat says what a client would say: all of it with epoch 0, later
what has changed. It knows the epoch and the partitions of its last answer, unless that was lost.

    assignors plugin uniform                     first: those that serve, the default first
    topics t=3 u=2                               all topics that there are
    beat GROUP NAME [epoch=N] [topics=t+u] [owned=t:0+1|none|null] [assignor=A] [instance=I] [rack=R] [rebalance=30s]
         [hold=2s] [id=X] [regex=R] [lost=yes]
    tell-steps                                   the journal's entries of each member's way to the target too
    describe-consumer GROUP                      commit and fetch take the member's epoch: fetch GROUP all as=NAME
    group-config GROUP consumer.assignor=range   its own settings, all of them; +5m is an instant from now
    resolved [fails=yes]                         the patterns that were asked for are compared with the topics
    made GROUP [fails=why] [lag=t:100+5,u:0]     the target that was asked for is made, by what is known of the topics
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from consumer_world import (
    catalog_of,
    describe_answer,
    describe_consumer_group,
    describe_consumer_record,
    describe_description,
)
from history_world import ReplayedLog

from kohort.broker.messages import changed
from kohort.config import Config, preset
from kohort.conformance.play.commands import LONG, Commands, Name, duration, text_of
from kohort.coordinator.assignors.check import assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.uniform import UniformAssignor
from kohort.coordinator.events import (
    STEPS,
    AnswerHeld,
    AssignmentAsked,
    AssignmentMade,
    Client,
    DeadlineReached,
    Event,
    ExpireOffsets,
    GroupConfigsChanged,
    GroupRequested,
    JournalEntry,
    Loaded,
    PatternsAsked,
    PatternsResolved,
    Reply,
    RequestAbandoned,
    RequestId,
    Task,
    TopicsChanged,
    TopicsDeleted,
    Unloaded,
)
from kohort.coordinator.patterns.regex import search
from kohort.coordinator.records import parse
from kohort.coordinator.settings.group_settings import HOLD
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import Topics
from kohort.wire.codec import decode, encode
from kohort.wire.embedded import assignment_in
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import schema_of
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.delete_groups import DeleteGroupsResponse
from kohort.wire.schemas.group_records import GenerationKey, GroupMetadataKey, OffsetCommitKey
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupResponse
from kohort.wire.schemas.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kohort.wire.schemas.offset_delete import OffsetDeleteResponse
from kohort.wire.schemas.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kohort.wire.schemas.sync_group import SyncGroupResponse

T = TypeVar("T")

OF_MEMBERS = ("session", "pending", "hold")
"""Deadlines of a member; the others are the group's."""

DETAILS = STEPS | {"target made", "held back"}
"""Entries of consumer groups that repeat what the records say."""


def fetched_offsets(shard: Shard, request: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
    return cast(OffsetFetchResponseGroup, returned(shard.fetch_offsets(request, version, lambda size: True)))


def returned(steps: Generator[int, None, T]) -> T:
    """What is returned after all steps."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return cast(T, done.value)


class Plugin(UniformAssignor):
    """Stands for an assignor of another package."""

    name = "plugin"


ASSIGNORS = {**BUILT_IN, "plugin": Plugin()}


def assigned_text(data: bytes) -> str:
    found = assignment_in(data) if data[:1] == b"\0" else None
    if found is None:
        return data.decode(errors="replace")
    return "@" + "/".join(f"{topic}:{'+'.join(map(str, indexes))}" for topic, indexes in found.items())


class ShardWorld(Commands):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.settings: dict[str, Any] = {}
        self.assignors = ASSIGNORS
        self.log = ReplayedLog()
        self.asked: dict[RequestId, tuple[Name, str, int]] = {}
        self.last_request = 0
        self.nonces = 0
        self.printed: list[str] = []
        self.tasks: list[tuple[Shard, Task]] = []
        """The shard's open requests for work."""
        self.quiet = False
        self.loading = False
        self.tells_steps = False
        self.catalog = Topics()
        self.overrides: dict[str, dict[str, str]] = {}
        self._shard: Shard | None = None

    @property
    def shard(self) -> Shard:
        if self._shard is None:
            self._shard = Shard(0, Config(**preset(self.settings)), self.assignors)
            if not self.loading:
                self._step(Loaded())
        return self._shard

    # -- commands

    def do_assignors(self, *names: str) -> None:
        self.assignors = {name: ASSIGNORS[name] for name in names}

    def do_config(self, **settings: str) -> None:
        assert self._shard is None, "config stands before the first request"
        self.settings.update((name, _setting(name, value)) for name, value in settings.items())

    def do_loading(self) -> None:
        assert self._shard is None, "loading stands before the first request"
        self.loading = True

    def do_tell_steps(self) -> None:
        self.tells_steps = True

    def do_answer_held(self, group: str, name: str) -> None:
        request_id = self.client(group, name).parked
        assert request_id is not None, f"no request of {name} is parked"
        self._step(AnswerHeld(request_id))

    def do_group(self, group: str, *names: str, **options: str) -> None:
        """Its making is not printed."""
        self.quiet = True
        super().do_group(group, *names, **options)
        self.quiet = False

    def _await_joins(self, group: str, names: tuple[str, ...]) -> None:
        while any(self.client(group, name).parked for name in names):
            self._advance_to(self.shard.next_deadline())

    def do_topics(self, **partitions: str) -> None:
        self.catalog = catalog_of(self.topics, {name: int(count) for name, count in partitions.items()})
        self._step(TopicsChanged(self.catalog))

    def do_describe_consumer(self, group: str, v: str = "") -> None:
        found = returned(self.shard.describe_consumer_group(text_of(group)))
        text = f"described {group}{_error(found.error_code)} {found.group_state!r}"
        self._print(text + (f" message={found.error_message!r}" if found.error_message else ""))
        if not found.error_code:
            for line in describe_description(found, self.topics):
                self._print(line)

    def do_group_config(self, group: str, **overrides: str) -> None:
        values = {k: str(self.now + duration(v[1:])) if v.startswith("+") else v for k, v in overrides.items()}
        self.overrides[text_of(group)] = values
        self._step(GroupConfigsChanged(text_of(group), values))

    def do_resolved(self, fails: str = "") -> None:
        asked = [(shard, task) for shard, task in self.tasks if isinstance(task, PatternsAsked)]
        assert asked, "nobody has asked for topics that match"
        shard, task = asked[0]
        self.tasks.remove((shard, task))
        outcome = PatternsResolved(task.number, (None,) * len(task.asked)) if fails else search(task)
        if shard is self.shard:
            self._step(outcome)

    def do_made(self, group: str, fails: str = "", lag: str = "") -> None:
        shard, task = next(
            task for task in self.tasks if isinstance(task[1], AssignmentAsked) and task[1].group_id == group
        )
        self.tasks.remove((shard, task))
        lags = {name: numbers.split("+") for name, _, numbers in (part.partition(":") for part in lag.split(","))}
        topics = {
            topic_id: replace(spec, lag=tuple(map(int, lags[spec.name])) if spec.name in lags else None)
            for topic_id, spec in task.spec.topics.items()
        }
        result = assigned(ASSIGNORS[task.assignor], replace(task.spec, topics=topics))
        if shard is self.shard:
            self._step(AssignmentMade(group, task.epoch, task.assignor, fails or result))

    def _fetch(self, request: OffsetFetchRequestGroup, version: int) -> None:
        found = fetched_offsets(self.shard, request, version)
        parts = [
            f"{t.name}-{p.partition_index}={p.committed_offset}"
            + (f" epoch={p.committed_leader_epoch}" if p.committed_leader_epoch != -1 else "")
            + (f" metadata={p.metadata!r}" if p.metadata else "")
            + _error(p.error_code)
            for t in found.topics
            for p in t.partitions
        ]
        group = request.group_id or "''"
        self._print(f"fetched {group}{_error(found.error_code)}: {', '.join(parts) or 'nothing'}")

    def do_describe(self, group: str, v: str = "6") -> None:
        found = returned(self.shard.describe(text_of(group), int(v)))
        text = f"described {group}{_error(found.error_code)} {found.group_state} type={found.protocol_type!r}"
        text += f" protocol={found.protocol_data!r} operations={found.authorized_operations}"
        if found.error_message:
            text += f" message={found.error_message!r}"
        self._print(text)
        for member in found.members:
            self._print(
                f"    {member.member_id} instance={member.group_instance_id} client={member.client_id}"
                f" host={member.client_host} metadata={len(member.member_metadata)} bytes"
                f" assignment={assigned_text(member.member_assignment)}"
            )

    def do_list(self, states: str = "", types: str = "", v: str = "") -> None:
        found = self.shard.list_groups(tuple(filter(None, states.split(","))), tuple(filter(None, types.split(","))))
        listed = [f"{g.group_id} {g.group_state} {g.protocol_type!r} {g.group_type}" for g in found]
        self._print(f"listed: {', '.join(listed) or 'nothing'}")

    def do_vanish(self, group: str, name: str) -> None:
        who = self.client(group, name)
        assert who.parked is not None, f"{name} has nothing parked"
        request_id, who.parked = who.parked, None
        del self.asked[request_id]
        self._step(RequestAbandoned(request_id))

    def do_advance(self, by: str) -> None:
        self._advance_to(self.now + duration(by))

    def do_expire(self) -> None:
        self._step(ExpireOffsets())

    def do_topics_deleted(self, *topics: str) -> None:
        self._step(TopicsDeleted(topics))

    def do_unload(self) -> None:
        self._step(Unloaded())

    def do_load(self) -> None:
        self._step(Loaded())

    def do_restart(self, back: str = "0s", after: str = "0s", **settings: str) -> None:
        """A crash: soft state and parked requests are lost. Meanwhile time passes, or the clock is set back."""
        self.now += duration(after) - duration(back)
        self.settings.update((name, _setting(name, value)) for name, value in settings.items())
        for who, _, _ in self.asked.values():
            who.parked = None
        self.asked.clear()
        self._shard = Shard(0, Config(**preset(self.settings)), self.assignors)
        for record in self.log.records:
            self._shard.apply(record, self.now)
        if self.catalog.by_name:
            self._step(TopicsChanged(self.catalog))
        for group, overrides in self.overrides.items():
            self._step(GroupConfigsChanged(group, overrides))
        self._step(Loaded())

    # -- machinery

    def _advance_to(self, when: int) -> None:
        while (deadline := self.shard.next_deadline()) is not None and deadline <= when:
            self.now = max(self.now, deadline)
            self._step(DeadlineReached())
        self.now = when

    def _ask(self, who: Name, version: int, body: Any, hold_ms: int = 0, software: str = "") -> None:
        schema = schema_of(type(body))
        api = schema.name.removesuffix("Request")
        # Values that have no encoding never reach the shard.
        body = decode(type(body), version, encode(body, version))
        if isinstance(body, OffsetCommitRequest):
            body = self._with_topic_ids(body)
        self.last_request += 1
        request_id = RequestId(self.last_request)
        self.asked[request_id] = (who, api, version)
        nonce = ""
        if isinstance(body, JoinGroupRequest) or (isinstance(body, ConsumerGroupHeartbeatRequest) and not version):
            self.nonces += 1
            nonce = str(self.nonces)
        who.parked = request_id
        client = Client(who.name, "/10.0.0.1", software)
        self._step(GroupRequested(request_id, version, client, body, nonce, hold_ms))

    def _with_topic_ids(self, request: OffsetCommitRequest) -> OffsetCommitRequest:
        """The commit as the broker passes it on: each existing topic with its name and its id."""
        present = self.topics.present
        topics = (
            changed(topic, topic_id=present[topic.name].topic_id) if topic.name in present else topic
            for topic in request.topics
        )
        return changed(request, topics=tuple(topics))

    def _step(self, event: Event) -> None:
        shard = self.shard
        effects = shard.step(event, self.now)
        for record in effects.records:
            shard.apply(record, self.now)
        self.log.extend(effects.records)
        self._check(shard)
        self._tell(effects.journal)
        for record in effects.records:
            key, value = parse(record) or (None, None)
            self._print(f"record {describe_consumer_record(key, value, self.topics) or describe_record(key, value)}")
        for reply in effects.replies:
            self._reply(reply)
        for task in effects.tasks:
            self.tasks.append((shard, task))
            if isinstance(task, PatternsAsked):
                asked = (f"{text} among {len(names)}" for text, names in task.asked)
                self._print(f"asked for topics that match {', '.join(asked)}")
                continue
            self._print(f"asked for a target of {task.group_id} at epoch {task.epoch} by {task.assignor}")
        for group in effects.holds_over:
            self._print(f"the hold of {group} is taken back")
            self.overrides[group] = {k: v for k, v in self.overrides[group].items() if k not in HOLD}
            self._step(GroupConfigsChanged(group, self.overrides[group]))

    def _tell(self, entries: Sequence[JournalEntry]) -> None:
        for entry in entries:
            if self.tells_steps or entry.what not in DETAILS:
                self._print(describe_entry(entry))

    def _check(self, shard: Shard) -> None:
        shard.validate()
        self.log.check(shard.hard)

    def _reply(self, reply: Reply) -> None:
        who, api, version = self.asked.pop(reply.request_id)
        if who.parked == reply.request_id:
            who.parked = None
        body = decode(type(reply.body), version, encode(reply.body, version))
        self._learn(who, body)
        if isinstance(body, ConsumerGroupHeartbeatResponse):
            lost = " (lost)" if who.loses_answer else ""
            what = describe_answer(body, self.topics)
            if body.error_code:
                what = f"{_error(body.error_code)}" + (f": {body.error_message}" if body.error_message else "")
            self._print(f"reply {who.name} beat{lost}{what}")
            return
        self._print(f"reply {who.name} {api}{describe_response(body)}")

    def _print(self, text: str) -> None:
        if not self.quiet:
            self.printed.append(f"{self.now / 1000:.3f} {text.replace(LONG, 'LONG')}")

    # -- what the world looks like

    def describe(self) -> list[str]:
        groups = self.shard.running
        lines = []
        for group_id in sorted(groups.groups):
            group = groups.groups[group_id]
            members = []
            for member in group.members.values():
                marks = "*" if member.member_id == group.leader else ""
                marks += " joined" if member.join is not None else ""
                marks += " syncing" if member.sync is not None else ""
                marks += " held" if member.heartbeat is not None else ""
                marks += " (away)" if (member.join or member.sync) not in (None, *groups.parked) else ""
                members.append(member.member_id + marks)
            members += [f"{member_id} pending" for member_id in group.pending]
            lines.append(f"{group_id} {group.phase.value}({group.generation_id}) [{', '.join(members)}]")
            lines += self._deadlines(group_id)
        shared = self.shard.consumers.shared
        for group_id, consumers in sorted(self.shard.consumers.groups.items()):
            held = [member.member_id for member in shared.of(consumers).members.values() if member.held is not None]
            lines += describe_consumer_group(consumers, held, self.topics)
            lines += self._deadlines(group_id, "consumer ")
        return lines

    def _deadlines(self, group_id: str, prefix: str = "") -> list[str]:
        """A line with the deadlines of a group, if it has any."""
        deadlines = [
            f"{kind.removeprefix(prefix)}{f' {member}' if member and (prefix or kind in OF_MEMBERS) else ''}"
            f" {due / 1000:.3f}"
            for (kind, of, member), due in self.shard.running.deadlines.items()
            if of == group_id and kind.startswith(prefix)
        ]
        return [f"    deadlines: {', '.join(deadlines)}"] if deadlines else []


def _setting(name: str, text: str) -> Any:
    kind = type(getattr(Config(), name))
    return kind(int(text)) if kind in (bool, int) else text


def _error(code: int) -> str:
    return f" error={code} {ErrorCode(code).name}" if code else ""


def describe_entry(entry: JournalEntry) -> str:
    """In brief: the record has the other members and their partitions."""
    member = f" {entry.member_id}" if entry.member_id else ""
    cause = f" ({entry.cause})" if entry.cause else ""
    waited = f" after {entry.waited_ms / 1000:.3f}s" if entry.waited_ms >= 0 else ""
    late = [
        f"{m.member_id} joined {m.joined_after_ms / 1000:.3f}s"
        + (f" synced {m.synced_after_ms / 1000:.3f}s" if m.synced_after_ms >= 0 else "")
        for m in entry.members
        if m.joined_after_ms > 0 or m.synced_after_ms > 0
    ]
    waits = f" waited for {', '.join(late)}" if late else ""
    steps = _describe_step(entry) if entry.what in DETAILS else ""
    return f"journal {entry.group}({entry.generation_id}): {entry.what}{member}{waited}{cause}{waits}{steps}"


def _describe_step(entry: JournalEntry) -> str:
    target = f" target={entry.assignment_epoch} by {entry.protocol}" if entry.what == "target made" else ""
    count = f" partitions={entry.partitions}" if entry.partitions else ""
    peers = f" of {','.join(entry.peers)}" if entry.peers else ""
    return target + count + peers + (" pushed" if entry.pushed else "")


def describe_record(key: Any, value: Any) -> str:
    match key:
        case GroupMetadataKey():
            if value is None:
                return f"group {key.group} deleted"
            members = [f"{m.member_id}={assigned_text(m.assignment)}" for m in value.members]
            return (
                f"group {key.group} generation={value.generation} type={value.protocol_type!r}"
                f" protocol={value.protocol} leader={value.leader} members=[{' '.join(members)}]"
            )
        case GenerationKey():
            name = key.group or "of forgotten groups"
            return f"generation {name} {value.generation if value is not None else 'deleted'}"
        case OffsetCommitKey():
            if value is None:
                return f"offset {key.group} {key.topic}-{key.partition} deleted"
            expires = f" expires={value.expire_timestamp / 1000:.3f}" if value.expire_timestamp >= 0 else ""
            return f"offset {key.group} {key.topic}-{key.partition}={value.offset}{expires}"
    raise AssertionError(key)


def describe_response(body: Any) -> str:
    match body:
        case JoinGroupResponse():
            text = f"{_error(body.error_code)} generation={body.generation_id} protocol={body.protocol_name!r}"
            text += f" leader={body.leader!r} id={body.member_id!r}"
            if body.protocol_type is not None:
                text += f" type={body.protocol_type}"
            if body.skip_assignment:
                text += " skip_assignment"
            members = [m.member_id + (f"/{m.group_instance_id}" if m.group_instance_id else "") for m in body.members]
            return f"{text} members=[{' '.join(members)}]"
        case SyncGroupResponse():
            return f"{_error(body.error_code)} assignment={assigned_text(body.assignment)!r}"
        case HeartbeatResponse():
            return _error(body.error_code) or " ok"
        case LeaveGroupResponse():
            members = [f"{m.member_id!r}/{m.group_instance_id}{_error(m.error_code)}" for m in body.members]
            return f"{_error(body.error_code)} members=[{', '.join(members)}]"
        case OffsetCommitResponse() | OffsetDeleteResponse():
            error = _error(getattr(body, "error_code", 0))
            parts = [
                f"{t.name}-{p.partition_index}{_error(p.error_code) or ' ok'}"
                for t in body.topics
                for p in t.partitions
            ]
            return f"{error} {', '.join(parts)}"
        case DeleteGroupsResponse():
            return " " + ", ".join(f"{r.group_id}{_error(r.error_code) or ' ok'}" for r in body.results)
    raise AssertionError(body)
