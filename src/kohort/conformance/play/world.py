"""The commands of scenario files, over sockets: one world is one run of one file against one server.

Differences from the in-process world: `advance` waits, scaled; `topics` creates, grows and deletes; `expire` waits for
the server's own sweep; `resolved` for its look at the topics. Groups and topics carry a prefix on the server, so that
runs do not meet, and member ids that a server made are called by the name of their client, so that answers of two
servers can be compared. Commands may name ids, generations and epochs as they are in process (`id=i-1`, `gen=2`): they
are sent as this server's. Every answer is printed under the command after which it came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kohort.conformance.play.broker import Address, Check, broker_of, fields_apart, unchecked
from kohort.conformance.play.commands import Commands, Name, duration
from kohort.conformance.play.consumer_client import Topic, text_of
from kohort.conformance.play.hints import Hints, epoch_of, label
from kohort.conformance.play.printing import printed
from kohort.conformance.play.raw_socket import Answer, Wire, ready
from kohort.conformance.play.requests import (
    alter_request,
    changed,
    create_topics,
    delete_topics,
    grow_topics,
    wait_until_known,
)
from kohort.wire.codec import encode
from kohort.wire.embedded import assignment_bytes, assignment_in, subscription_of
from kohort.wire.schema import NO_UUID, schema_of
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic

MADE_UP = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
CHECK_S = 0.25
"""A wait is interrupted this often, to see whether the run has to end."""
PARKED_S = 2.5
"""After so many seconds of a scenario, a missing answer is not late: only this server parked the request."""


class Names(dict[Any, str]):
    """The server's name of something, and its name in the scenario. Ids without a number in the scenario yet are shown
    without a number."""

    def get(self, real: Any, default: Any = None) -> Any:
        if real in self:
            return self[real]
        return MADE_UP.sub("-?", real) if isinstance(real, str) and real == default else default


@dataclass(frozen=True)
class Patience:
    """How long a world waits, in seconds."""

    answer: float = 5.0
    """The time to wait for an answer that should come. If the answer does not come, a session may end meanwhile. So
    all waits take as long."""
    parked: float = 0.08
    """The wait after which a request is certainly parked."""
    late: float = 0.15
    """Added to a wait that a deadline ends, because clocks are real."""
    sweep: float = 1.6
    """Wait until expired offsets have been removed."""
    measured: bool = False
    """True if the run measures how late the server and this process are."""


class WireWorld(Commands):
    def __init__(
        self,
        address: Address,
        prefix: str,
        hints: Hints,
        factor: float = 1.0,
        shared: Mapping[str, Topic] | None = None,
        patience: Patience | None = None,
        exact: bool = True,
        restart: Callable[[Mapping[str, str]], Address] | None = None,
        shared_prefix: str = "",
        check: Check = unchecked,
    ) -> None:
        """`shared`: topics that other runs use too; their names on the server begin with `shared_prefix`. `restart`
        starts the server again, with these settings besides its own. `check` is called during waits."""
        super().__init__()
        self.address = address
        self._prefix = prefix
        self._hints = hints
        self._factor = factor
        self._patience = patience or Patience()
        self._exact = exact
        self._restart = restart
        self._check = check
        self._wires: dict[str, list[Wire]] = {}
        self._open: dict[int, tuple[Name, str, Wire]] = {}
        self._number = 0
        self._command = 0
        self._group = ""
        self._told: list[tuple[int, str, Any, str]] = []
        """The answers after the command: the request's number, its client, the answer and its group."""
        self._joined: list[tuple[int, Name, JoinGroupResponse]] = []
        """Answers to JoinGroups that arrived. Of two answers to one client, the answer to the later request counts,
        in any order of arrival over its two connections."""
        self._names = Names()
        """This server's name of something, and its name in the scenario."""
        self._labels: dict[str, str] = {}
        self._leads: dict[str, int] = {}
        """The difference between this server's epochs of a group and those in process."""
        self._groups_of: dict[int, str] = {}
        self._probes = 0
        self._is_named = False
        """True if the command names the version of its request."""
        self.lowered: set[str] = set()
        """Fields that only one of two versions has: the version of this server's answers or of the recorded ones."""
        self._seen: set[str] = set()
        """Names of topics that exist or existed."""
        self._configured: dict[str, dict[str, str]] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._shared = shared
        self._topic_prefix = prefix if shared is None else shared_prefix
        for name, spec in (shared or {}).items():
            self._topic_ids[name] = spec.topic_id
            self._names[spec.topic_id] = name
        self._parked_s = 0.0
        """How long the last request was waited for and then counted as parked: the next wait is shorter by it."""
        self.late_s = 0.0
        """All delays so far, of answers that were due at once and of waits that took too long. Each one brings the end
        of a session nearer to the next command."""

    # -- running

    def play(self, commands: Sequence[str]) -> list[list[str]]:
        """The answers after each command, as lines."""
        transcript = []
        try:
            for command in commands:
                transcript.append(self.step(command))
        finally:
            self.close()
        return transcript

    def forget_settings(self) -> None:
        """Delete the settings that commands have given to groups."""
        self._check = unchecked
        for group, names in self._configured.items():
            self._query(alter_request(self._real(group), dict.fromkeys(names)), 1)

    def close(self) -> None:
        for wires in self._wires.values():
            for wire in wires:
                wire.close()
        self._wires.clear()

    def step(self, command: str) -> list[str]:
        self._told, self._joined = [], []
        self._is_named = " v=" in command
        self._group = next((word for word in command.split()[1:2] if "=" not in word), "")
        self.run(self._as_here(command))
        expected = self._hints.answered[self._command]
        self._pump_until(lambda: not (expected & self._open.keys()), self._patience.answer)
        self._pump(0.0)
        for _, who, body in sorted(self._joined, key=lambda one: one[0]):
            self._learn(who, body)
        self._command += 1
        told = sorted(self._told, key=lambda one: one[0])
        return [line for _, what, body, group in told for line in self._printed(what, body, group)]

    def _as_here(self, command: str) -> str:
        """The request with this server's generations and epochs; no epoch becomes 0, with which a member joins."""
        lead = self._leads.get(self._group, 0)
        options = "gen" if command.startswith("commit ") else "gen|epoch"

        def here(found: re.Match[str]) -> str:
            number = int(found[2]) + lead
            return f" {found[1]}={number if found[1] == 'gen' else max(number, 1)}"

        return re.sub(rf" ({options})=(?!0)(\d+)\b", here, command)

    # -- asking

    def _ask(self, who: Name, version: int, body: Any, hold_ms: int = 0, software: str = "") -> None:
        version = self._version(type(body), version)
        self._number += 1
        number = self._number
        self._groups_of[number] = getattr(body, "group_id", self._group)
        wire = self._wire(who.name)
        api = schema_of(type(body)).name.removesuffix("Request")
        who.parked = number
        self._open[number] = (who, api, wire)
        wire.send(number, self._as_sent(body), version)
        is_at_once = number in self._hints.at_once
        began = time.monotonic()
        self._pump_until(
            lambda: number not in self._open, self._patience.answer if is_at_once else self._patience.parked
        )
        took = time.monotonic() - began
        if is_at_once and took < PARKED_S * self._factor:
            self.late_s += took
        self._parked_s = 0.0 if is_at_once else took

    def _query(self, request: Any, version: int) -> Any:
        """A request that is always answered at once, and that no member sends."""
        self._check()
        version = self._version(type(request), version)
        return self._wire("operator").call(request, version)

    def _version(self, request: type, wanted: int) -> int:
        used = broker_of(self.address).version(request, wanted, self._is_named)
        if used != wanted:
            self.lowered |= fields_apart(request, used, wanted)
        return used

    def _wire(self, name: str) -> Wire:
        """A connection of that client without a waiting request."""
        known = self._wires.setdefault(name, [])
        for wire in known:
            if wire.is_idle:
                return wire
        known.append(Wire(self.address, name))
        return known[-1]

    def _pump_until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done() and (left := deadline - time.monotonic()) > 0:
            self._receive(left)

    def _pump(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        left = seconds
        while left >= 0:
            self._receive(left)
            left = deadline - time.monotonic()
        self.late_s -= left

    def _receive(self, timeout_s: float) -> None:
        self._check()
        timeout_s = min(timeout_s, CHECK_S)
        waiting = [wire for wires in self._wires.values() for wire in wires if wire.waits]
        if not waiting:
            time.sleep(timeout_s)
            return
        for wire in ready(waiting, timeout_s):
            for answer in wire.receive():
                self._answered(answer)

    def _answered(self, answer: Answer) -> None:
        who, api, _ = self._open.pop(answer.number)
        if who.parked == answer.number:
            who.parked = None
        self._told.append((answer.number, f"{who.name} {api}", answer.body, self._groups_of[answer.number]))
        if answer.body is not None:
            self._note(who, answer)
            self._learn(who, answer.body)
            if isinstance(answer.body, JoinGroupResponse):
                self._joined.append((answer.number, who, answer.body))

    def _note(self, who: Name, answer: Answer) -> None:
        """Ids that the server made, and what its epochs are ahead."""
        body, group = answer.body, self._groups_of[answer.number]
        made = body.member_id if isinstance(body, JoinGroupResponse | ConsumerGroupHeartbeatResponse) else ""
        if made not in ("", None, who.name):
            label(self._labels, who.name, answer.number, made)
            self._names[made] = self._labels[made]
        has_epoch = isinstance(body, JoinGroupResponse | ConsumerGroupHeartbeatResponse) and not body.error_code
        if answer.number in self._hints.epochs and has_epoch and epoch_of(body) > 0:
            lead = 0 if self._hints.exact_epochs else epoch_of(body) - self._hints.epochs[answer.number]
            self._leads.setdefault(group, lead)

    def _printed(self, what: str, body: Any, group: str) -> list[str]:
        if body is None:
            return [f"{what} the connection is closed"]
        first, *more = printed(body, self._names, self._leads.get(group, 0), exact=self._exact)
        return [f"{what} {first}", *(f"    {line}" for line in more)]

    def _show(self, what: str, body: Any) -> None:
        self._told.append((self._number + 1, what, body, self._group))

    # -- as this server knows it

    def _real(self, group: str) -> str:
        if not group:
            return ""
        real = broker_of(self.address).named(self._prefix + group)
        self._names[real] = group
        return real

    def _topic(self, name: str) -> str:
        self._names[self._topic_prefix + name] = name
        return self._topic_prefix + name

    def _pattern(self, regex: str) -> str:
        if not regex or not self._topic_prefix:
            return regex
        real = f"{self._topic_prefix.replace('.', '[.]')}(?:{regex})"
        self._names[real] = regex
        return real

    def _member(self, member_id: str) -> str:
        """The id that this server made where the one in process is named."""
        called = self._hints.labels.get(member_id)
        ids = [real for real, text in self._labels.items() if text == called]
        return ids[0] if ids else member_id

    def _ms(self, milliseconds: int) -> int:
        """A duration in the time of this run. If it is a little off a full second, it stays a little off."""
        if milliseconds <= 0 or milliseconds > 10**12:
            return milliseconds
        scaled = milliseconds * self._factor
        return int(scaled) if scaled == int(scaled) or milliseconds % 1000 > 500 else int(scaled) + 1

    def _as_sent(self, message: Any) -> Any:
        """The message with this server's names, ids and durations."""
        if isinstance(message, JoinGroupRequestProtocol):
            return changed(message, metadata=self._subscription(message.metadata))
        fields = {name: self._value_as_sent(name, getattr(message, name)) for name in message.__struct_fields__}
        if {"name", "topic_id"} <= fields.keys():
            fields["topic_id"] = self._topic_ids.get(message.name, NO_UUID)
        return changed(message, **fields)

    def _value_as_sent(self, field: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._value_as_sent(field, item) for item in value)
        if isinstance(value, msgspec.Struct):
            return self._as_sent(value)
        match field:
            case _ if value is None:
                return None
            case "group_id" | "groups_names":
                return self._real(value)
            case "member_id":
                return self._member(value)
            case "name" | "topic" | "topics" | "subscribed_topic_names":
                return self._topic(value)
            case "subscribed_topic_regex":
                return self._pattern(value)
            case "session_timeout_ms" | "rebalance_timeout_ms" | "retention_time_ms":
                return self._ms(value)
            case "assignment":
                return self._assignment(value)
            case _:
                return value

    def _subscription(self, data: bytes) -> bytes:
        found = subscription_of(data) if data[:1] == b"\0" else None
        return data if found is None else data[:2] + encode(self._as_sent(found), int.from_bytes(data[:2], "big"))

    def _assignment(self, data: bytes) -> bytes:
        rows = assignment_in(data) if data[:1] == b"\0" else None
        if rows is None:
            return data
        plain = assignment_bytes(rows.items())
        return assignment_bytes((self._topic(topic), of) for topic, of in rows.items()) + data[len(plain) :]

    # -- commands that are done otherwise than in process

    def do_config(self, **settings: str) -> None:
        """Nothing to do: the servers were started with these settings."""

    def do_advance(self, by: str) -> None:
        self._pump(max(0.0, duration(by) * self._factor / 1000 - self._parked_s))
        self._parked_s = 0.0
        expected = self._hints.answered[self._command]
        if self._command in self._hints.fires_late and not expected & self._open.keys():
            self._pump(self._patience.late)

    def do_expire(self) -> None:
        self._pump(self._patience.sweep)

    def do_resolved(self) -> None:
        self._pump(self._patience.late)

    def do_restart(self, **settings: str) -> None:
        """Parked requests are lost. The scenario continues when all groups are loaded again."""
        assert self._restart is not None
        self.close()
        for who, _, _ in self._open.values():
            who.parked = None
        self._open.clear()
        self.address = self._restart({name.replace("_", "."): value for name, value in settings.items()})
        known = self.topics.present if self._shared is None else self._shared
        self._wait_until_known({name: spec.partitions for name, spec in known.items()})

    def do_vanish(self, group: str, name: str) -> None:
        who = self.client(group, name)
        _, _, wire = self._open.pop(who.parked)
        who.parked = None
        wire.close()
        self._pump(self._patience.parked)

    def _await_joins(self, group: str, names: tuple[str, ...]) -> None:
        waits = self._hints.elapsed_ms[self._command] * self._factor / 1000 + self._patience.answer
        self._pump_until(lambda: not any(self.client(group, name).parked for name in names), waits)

    def do_describe(self, group: str, v: str = "6") -> None:
        request = DescribeGroupsRequest(groups=(self._real(text_of(group)),))
        self._show("described", self._query(request, int(v)))

    def do_describe_consumer(self, group: str, v: str = "1") -> None:
        request = ConsumerGroupDescribeRequest(
            group_ids=(self._real(text_of(group)),), include_authorized_operations=False
        )
        self._show("described", self._query(request, int(v)))

    def do_list(self, states: str = "", types: str = "", v: str = "5") -> None:
        version = int(v)
        request = ListGroupsRequest(
            states_filter=tuple(filter(None, states.split(","))) if version >= 4 else (),
            types_filter=tuple(filter(None, types.split(","))) if version >= 5 else (),
        )
        answer = self._query(request, version)
        mine = tuple(row for row in answer.groups if row.group_id in self._names or not row.group_id)
        self._show("listed", changed(answer, groups=mine))

    def _fetch(self, request: OffsetFetchRequestGroup, version: int) -> None:
        sent = self._as_sent(request)
        whole = OffsetFetchRequest(groups=(sent,))
        if version < 8:
            topics = sent.topics and tuple(
                OffsetFetchRequestTopic(name=row.name, partition_indexes=row.partition_indexes) for row in sent.topics
            )
            whole = OffsetFetchRequest(group_id=sent.group_id, topics=topics)
        self._show("fetched", self._query(whole, version))

    def do_group_config(self, group: str, **overrides: str) -> None:
        scaled = {
            name: str(self._ms(int(value))) if name.endswith(".ms") else value for name, value in overrides.items()
        }
        known = self._configured.get(group, {})
        gone = dict.fromkeys(known.keys() - scaled.keys())
        self._configured[group] = scaled
        answer = self._query(alter_request(self._real(group), scaled | gone), 1)
        assert not answer.responses[0].error_code, answer
        self._pump(self._patience.late)

    # -- topics

    def do_topics(self, **partitions: str) -> None:
        wanted = {name: int(count) for name, count in partitions.items()}
        if self._shared is not None:
            self.topics.present = {name: self._shared[name] for name in wanted}
            return
        has = {name: spec.partitions for name, spec in self.topics.present.items()}
        new = {self._topic(name): count for name, count in wanted.items() if name not in has}
        if new:
            for real, topic_id in create_topics(self._query, new, broker_of(self.address).node_id).items():
                name = real.removeprefix(self._prefix)
                self._topic_ids[name] = topic_id
                self._names[topic_id] = name
        grown = {self._topic(name): count for name, count in wanted.items() if count > has.get(name, count)}
        if grown:
            grow_topics(self._query, grown)
        self._delete([name for name in has if name not in wanted])
        self._wait_until_known(wanted)
        self.topics.present = {
            name: Topic(self._topic_ids[name], self._topic(name), count) for name, count in wanted.items()
        }

    def do_topics_deleted(self, *topics: str) -> None:
        self._delete(topics)
        self._wait_until_known(
            {name: spec.partitions for name, spec in self.topics.present.items() if name not in topics}
        )

    def _delete(self, names: Sequence[str]) -> None:
        if names:
            delete_topics(self._query, map(self._topic, names))

    def _wait_until_known(self, counts: Mapping[str, int]) -> None:
        """Until the coordinator knows the topics as they are now: the member of another group is given all of them."""
        names = tuple(map(self._topic, self._seen | counts.keys()))
        self._seen |= counts.keys()
        wanted = {(self._topic_ids[name], index) for name, count in counts.items() for index in range(count)}
        self._probes += 1
        named = broker_of(self.address).named
        wait_until_known(self._query, f"{self._prefix}probe{self._probes}.", names, wanted, named)
