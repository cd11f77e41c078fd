"""One sequence of commands against one server, over raw connections; each command yields its normalised answer.

A word that begins a command names a method `do_…` of `Stage`; then come its arguments, then options (`name=value`).
Actors are clients with a connection of their own. They remember their answers (member id, epoch, partitions), so that
a command need not repeat these: `beat a` is a join for an actor without an epoch, and otherwise a heartbeat without
changes. `a.0` is the first partition that `a` was assigned; servers may differ in which partition this is.

Groups and topics have short names here and carry the name of the sequence on the server, so sequences do not meet.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kohort.client.wire.blocking_connection import Connection
from kohort.conformance.play.administration import AdministrationCommands
from kohort.conformance.play.broker import Address, Check, Ended, NotServed, fields_apart, response_of, unchecked
from kohort.conformance.play.frames import Options
from kohort.conformance.play.printing import counted, printed
from kohort.conformance.play.requests import (
    POLL_S,
    WAIT_S,
    alter_request,
    create_topics,
    delete_topics,
    grow_topics,
    request,
    subscription,
    wait_for,
    wait_until_known,
)
from kohort.conformance.play.transactions import TransactionCommands
from kohort.wire.embedded import assignment_bytes, assignment_in, by_topic
from kohort.wire.schemas.join_group import JoinGroupResponse

GROUPS = ("g", "h", "k", "m")
REBALANCE_IN_PROGRESS = 27


@dataclass(slots=True)
class Actor:
    """A client and the state from its answers."""

    name: str
    connection: Connection
    member_id: str
    epoch: int = 0
    told: list[tuple[str, int]] = field(default_factory=list)
    is_classic: bool = False
    group: str = "g"


class Stage(TransactionCommands, AdministrationCommands):
    def __init__(self, address: Address, sequence: str, check: Check = unchecked) -> None:
        super().__init__(address, sequence)
        self._check = check
        self._actors: dict[str, Actor] = {}
        self._ids: dict[str, bytes] = {}
        self._names: dict[Any, str] = {self._real(name): name for name in GROUPS}
        self._leads: dict[str, int] = {}
        self._partition_counts: dict[str, int] = {}
        self._probes = 0
        self._is_named = False
        """True if the command names the version of its request."""
        self.lowered: set[str] = set()
        """Fields that only one of two versions has: the version of this broker's answers or of the recorded ones."""
        self._configured: dict[str, set[str]] = {}
        self._controller = self._connect("control")

    def close(self) -> None:
        for actor in self._actors.values():
            actor.connection.close()
        self._close_producers()
        self._controller.close()

    def forget(self) -> None:
        """Delete the settings of groups, and end open transactions."""
        self._check = unchecked
        for group, names in self._configured.items():
            self._control(alter_request(self._real(group), dict.fromkeys(names)), 1)
        self._abort_all()

    def run(self, command: str) -> list[str]:
        """The answer to a command, in lines; none for a command that only prepares something."""
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        self._is_named = "v" in options
        try:
            return getattr(self, f"do_{verb.replace('-', '_')}")(names, options) or []
        except (NotServed, Ended):
            raise
        except Exception as error:
            raise AssertionError(f"{self._sequence}: {command!r} failed: {error!r}") from error

    def _connect(self, client_id: str) -> Connection:
        return self._broker.connect(client_id)

    def _actor(self, name: str) -> Actor:
        if name not in self._actors:
            self._actors[name] = Actor(name, self._connect(name), name)
            self._names.setdefault(name, name)
        return self._actors[name]

    def _ask(self, connection: Connection, message: Any, version: int) -> Any:
        self._check()
        version = self._version(type(message), version)
        return connection.request(message, response_of(type(message)), version=version)

    def _version(self, request: type, wanted: int) -> int:
        used = self._broker.version(request, wanted, self._is_named)
        if used != wanted:
            self.lowered |= fields_apart(request, used, wanted)
        return used

    def _control(self, message: Any, version: int) -> Any:
        """A request that no member sends."""
        return self._ask(self._controller, message, version)

    def _show(self, message: Any, group: str = "g") -> list[str]:
        return printed(message, self._names, self._leads.get(group, 0))

    def _epoch(self, text: str | None, actor: Actor | None, group: str) -> int:
        """A number of the sequence, or `+1` and `~1` for one more or less than the actor knows; in this server's
        count."""
        known = actor.epoch if actor is not None else -1
        if text is None:
            return known
        if text[0] in "+~":
            return known + int(text[1:]) * (1 if text[0] == "+" else -1)
        number = int(text)
        return number + self._leads.get(group, 0) if number > 0 else number

    # -- topics

    def do_topic(self, words: list[str], options: Options) -> None:
        """`topic t=3 u=1`."""
        for name, topic_id in create_topics(self._control, self._counts(options), self._broker.node_id).items():
            alias = name.removeprefix(f"{self._sequence}.")
            self._ids[alias] = topic_id
            self._names |= {topic_id: alias, name: alias}
        self._wait_until_known(options)

    def do_grow(self, words: list[str], options: Options) -> None:
        grow_topics(self._control, self._counts(options))
        self._wait_until_known(options)

    def do_drop(self, words: list[str], options: Options) -> None:
        delete_topics(self._control, map(self._place, words))
        self._wait_until_known(dict.fromkeys(words, "0"))

    def _counts(self, options: Options) -> dict[str, int]:
        return {self._place(name): int(count) for name, count in options.items()}

    def _wait_until_known(self, counts: Options) -> None:
        """Wait until the coordinators have the present topics."""
        self._partition_counts |= {name: int(count) for name, count in counts.items()}
        wanted = {(self._ids[name], index) for name, count in self._partition_counts.items() for index in range(count)}
        self._probes += 1
        names = tuple(map(self._place, self._partition_counts))
        wait_until_known(self._control, f"{self._sequence}.probe{self._probes}.", names, wanted, self._broker.named)

    # -- the consumer protocol

    def do_beat(self, words: list[str], options: Options) -> list[str]:
        """`beat a [epoch= topics= regex= owned= rebalance= assignor= instance= rack= id= group= v=]`."""
        actor = self._actor(words[0])
        return self._show(self._beat(actor, options), options.get("group", actor.group))

    def do_ack(self, words: list[str], options: Options) -> list[str]:
        """A heartbeat that reports the actor's partitions: those of its last assignment."""
        return self.do_beat(words, {"owned": "told", **options})

    def do_leave(self, words: list[str], options: Options) -> list[str]:
        return self.do_beat(words, {"epoch": "-1", **options})

    def do_away(self, words: list[str], options: Options) -> list[str]:
        return self.do_beat(words, {"epoch": "-2", **options})

    def _beat(self, actor: Actor, options: Options) -> Any:
        group = options.get("group", actor.group)
        epoch = self._epoch(options.get("epoch"), actor, group)
        joins = {"topics": "t", "owned": "none", "rebalance": "30000"}
        given = {**(joins if epoch == 0 else {}), **options}
        heartbeat = request(
            "ConsumerGroupHeartbeat",
            group_id=self._real(group),
            member_id=self._member_id(given.get("id"), actor),
            member_epoch=epoch,
            instance_id=given.get("instance"),
            rack_id=given.get("rack"),
            rebalance_timeout_ms=int(given.get("rebalance", -1)),
            subscribed_topic_names=self._topic_names(given.get("topics")),
            subscribed_topic_regex=self._pattern(given.get("regex")),
            server_assignor=given.get("assignor"),
            topic_partitions=self._owned(given.get("owned"), actor),
        )
        answer = self._ask(actor.connection, heartbeat, int(given.get("v", 1)))
        if answer.error_code == 0:
            if epoch == 0:
                self._leads.setdefault(group, answer.member_epoch - 1)
            self._remember(actor, answer, given)
        return answer

    def _remember(self, actor: Actor, answer: Any, given: Options) -> None:
        actor.is_classic = False
        actor.epoch = max(answer.member_epoch, 0)
        actor.group = given.get("group", actor.group)
        if answer.member_id:
            actor.member_id = answer.member_id
            self._names[actor.member_id] = actor.name
        if answer.member_epoch < 0:
            actor.told = []
        if answer.assignment is not None:
            actor.told = sorted(
                (self._names.get(row.topic_id, "?"), index)
                for row in answer.assignment.topic_partitions
                for index in row.partitions
            )

    def _member_id(self, given: str | None, actor: Actor) -> str:
        if given is None:
            return actor.member_id
        return self._actors[given].member_id if given in self._actors else given

    def _identity(self, actor: Actor, options: Options) -> dict[str, Any]:
        """The fields of a classic member in SyncGroup and Heartbeat."""
        group = options.get("group", actor.group)
        return {
            "group_id": self._real(group),
            "generation_id": self._epoch(options.get("epoch"), actor, group),
            "member_id": self._member_id(options.get("id"), actor),
            "group_instance_id": options.get("instance"),
        }

    def _topic_names(self, given: str | None) -> tuple[str, ...] | None:
        if given in (None, "null"):
            return None
        return tuple(self._place(name) for name in given.split(",")) if given not in ("", "none") else ()

    def _pattern(self, given: str | None) -> str | None:
        return given.replace("^", f"{self._sequence}\\.") if given not in (None, "null") else None

    def _owned(self, given: str | None, actor: Actor) -> list[dict[str, Any]] | None:
        if given in (None, "null"):
            return None
        chosen = {"none": [], "told": actor.told}.get(given)
        topics = by_topic(self._partitions(given.split(",")) if chosen is None else chosen)
        return [{"topic_id": self._ids[name], "partitions": of} for name, of in topics]

    def _partitions(self, words: Iterable[str]) -> Iterator[tuple[str, int]]:
        """`t:0`, or `a.0` for the first partition that an actor was assigned."""
        for word in words:
            if "." in word:
                name, _, number = word.partition(".")
                topic, index = self._actors[name].told[int(number)]
                self._names["partition_index", index] = word
                yield topic, index
            else:
                topic, _, number = word.partition(":")
                yield topic, int(number)

    # -- until it is quiet, or so far

    def do_settle(self, words: list[str], options: Options) -> list[str]:
        """All actors heartbeat until the group is stable and no answer has changes; `settle t=4`: and until that many
        partitions are assigned."""
        deadline = time.monotonic() + WAIT_S
        wanted = {name: int(count) for name, count in options.items() if name != "group"}
        quiet = 0
        while quiet < 3:
            members = [actor for actor in self._actors.values() if actor.epoch > 0]
            before = [(actor.epoch, actor.told) for actor in members]
            problems = [line for actor in members for line in self._go_on(actor)]
            total = [topic for actor in members for topic, _ in actor.told]
            settled = before == [(actor.epoch, actor.told) for actor in members] and not problems
            settled = settled and all(total.count(name) == count for name, count in wanted.items())
            state = self._described(members[0].group if members else "g").group_state
            quiet = quiet + 1 if settled and state in ("Stable", "Empty") else 0
            if time.monotonic() > deadline:
                return ["does not settle", *problems]
            time.sleep(POLL_S)
        return [
            f"{actor.name} epoch={actor.epoch - self._leads.get(actor.group, 0)} {counted(actor.told)}"
            for actor in members
        ]

    def _go_on(self, actor: Actor) -> list[str]:
        answer = self._heartbeat(actor, {}) if actor.is_classic else self._beat(actor, {"owned": "told"})
        if actor.is_classic and answer.error_code == REBALANCE_IN_PROGRESS:
            self._send_join(actor, {})
            if self._receive_join(actor).error_code == 0:
                self._sync(actor, {})
            return []
        return [f"{actor.name} {line}" for line in self._show(answer)] if answer.error_code else []

    def _described(self, group: str) -> Any:
        return self._control(request("ConsumerGroupDescribe", group_ids=[self._real(group)]), 1).groups[0]

    def do_until(self, words: list[str], options: Options) -> None:
        """`until members=1`, `until state=Stable`: by ConsumerGroupDescribe, of a classic group by DescribeGroups."""

        def is_so() -> bool:
            group = self._described("g")
            if group.error_code:
                group = self._control(request("DescribeGroups", groups=[self._real("g")]), 6).groups[0]
            found = {"members": str(len(group.members)), "state": group.group_state}
            return options.items() <= found.items()

        wait_for(is_so, f"the group has never {options}")

    def do_forget(self, words: list[str], options: Options) -> None:
        """The client disconnects and its state is dropped."""
        self._actors.pop(words[0]).connection.close()

    def do_hear(self, words: list[str], options: Options) -> None:
        """`hear a 500`: heartbeats until the answer has this interval: the group's configs are in force."""
        actor, interval_ms = self._actor(words[0]), int(words[1])
        wait_for(lambda: self._beat(actor, {}).heartbeat_interval_ms <= interval_ms, "the interval stays as it was")

    def do_count(self, words: list[str], options: Options) -> None:
        """`count c 3`: c's epoch counts as 3 from here on, where servers have counted differently."""
        actor = self._actor(words[0])
        self._leads[actor.group] = actor.epoch - int(words[1])

    # -- the classic protocol

    def do_join(self, words: list[str], options: Options) -> list[str]:
        """`join c [id= v= instance= type= protocols= group=] [&]`; & does not await it."""
        actor = self._actor(words[0])
        if not actor.is_classic:
            actor.is_classic, actor.member_id, actor.epoch = True, "", 0
        self._send_join(actor, options)
        return [] if "&" in words else self.do_joined(words, options)

    def do_joined(self, words: list[str], options: Options) -> list[str]:
        """The answer to `join c &`."""
        return self._show(self._receive_join(self._actor(words[0])))

    def _send_join(self, actor: Actor, options: Options) -> None:
        owned = ((self._place(name), of) for name, of in by_topic(actor.told))
        metadata = subscription([self._place("t")], owned)
        protocols = options.get("protocols", "range").split(",")
        join = request(
            "JoinGroup",
            group_id=self._real(options.get("group", actor.group)),
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self._member_id(options.get("id"), actor),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[{"name": name, "metadata": metadata} for name in protocols],
        )
        actor.connection.send(join, version=self._version(type(join), int(options.get("v", 9))))

    def _receive_join(self, actor: Actor) -> Any:
        answer = actor.connection.receive(JoinGroupResponse)
        if answer.member_id:
            actor.member_id = answer.member_id
            self._names[answer.member_id] = actor.name
        if answer.error_code == 0:
            self._leads.setdefault(actor.group, 0)
            actor.epoch = answer.generation_id
        return answer

    def do_sync(self, words: list[str], options: Options) -> list[str]:
        """`sync c [c=t:0,t:1 d=t:2] [epoch= instance=]`: the leader's assignment by member."""
        return self._show(self._sync(self._actor(words[0]), options))

    def _sync(self, actor: Actor, options: Options) -> Any:
        def given(words: str) -> bytes:
            return assignment_bytes(
                (self._place(name), of) for name, of in by_topic(self._partitions(words.split(",")))
            )

        assignments = [
            {"member_id": self._actors[name].member_id, "assignment": given(words)}
            for name, words in options.items()
            if name in self._actors
        ]
        of_consumers = {"protocol_type": "consumer", "protocol_name": "range"}
        sync = request("SyncGroup", **self._identity(actor, options), **of_consumers, assignments=assignments)
        answer = self._ask(actor.connection, sync, 5)
        if answer.error_code == 0:
            rows = assignment_in(answer.assignment) or {}
            actor.told = sorted((self._names.get(topic, "?"), index) for topic, of in rows.items() for index in of)
        return answer

    def do_heartbeat(self, words: list[str], options: Options) -> list[str]:
        return self._show(self._heartbeat(self._actor(words[0]), options))

    def _heartbeat(self, actor: Actor, options: Options) -> Any:
        return self._ask(actor.connection, request("Heartbeat", **self._identity(actor, options)), 4)

    def do_depart(self, words: list[str], options: Options) -> list[str]:
        """LeaveGroup."""
        actor = self._actor(words[0])
        member = {
            "member_id": self._member_id(options.get("id"), actor),
            "group_instance_id": options.get("instance"),
        }
        leave = request("LeaveGroup", group_id=self._real(options.get("group", actor.group)), members=[member])
        answer = self._ask(actor.connection, leave, 5)
        if not answer.error_code and not any(row.error_code for row in answer.members):
            actor.epoch, actor.told = 0, []
        return self._show(answer)

    # -- offsets

    def do_commit(self, words: list[str], options: Options) -> list[str]:
        """`commit a t:0 [offset= v= epoch= id= instance= group=]`; `commit nobody t:0` is no member's."""
        actor = self._actors.get(words[0])
        content = {
            "committed_offset": int(options.get("offset", 5)),
            "committed_leader_epoch": int(options.get("leader", -1)),
            "committed_metadata": options.get("metadata", ""),
        }
        commit = request(
            "OffsetCommit",
            group_id=self._real(options.get("group", actor.group if actor else "g")),
            generation_id_or_member_epoch=self._epoch(options.get("epoch"), actor, options.get("group", "g")),
            member_id=self._member_id(options.get("id"), actor) if actor else options.get("id", ""),
            group_instance_id=options.get("instance"),
            topics=[
                topic | {"partitions": [{"partition_index": index} | content for index in of]}
                for topic, of in self._topics(words[1:])
            ],
        )
        connection = actor.connection if actor else self._controller
        return self._show(self._ask(connection, commit, int(options.get("v", 10))))

    def _topics(self, words: Iterable[str]) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
        """For each topic its name and id, and its partitions."""
        for topic, of in by_topic(self._partitions(words)):
            yield {"name": self._place(topic), "topic_id": self._ids.get(topic, b"\x07" * 16)}, of

    def do_fetch(self, words: list[str], options: Options) -> list[str]:
        """`fetch [t:0 …] [v= id= epoch= group=]`, of all topics without any named."""
        topics = [topic | {"partition_indexes": of} for topic, of in self._topics(words)]
        member, group = options.get("id"), options.get("group", "g")
        row = {
            "group_id": self._real(group),
            "member_id": self._actors[member].member_id if member in self._actors else member,
            "member_epoch": self._epoch(options.get("epoch"), self._actors.get(member or ""), group),
            "topics": topics if words else None,
        }
        fetch = request("OffsetFetch", groups=[row], require_stable="stable" in options)
        return self._show(self._control(fetch, int(options.get("v", 10))))

    def do_delete_offsets(self, words: list[str], options: Options) -> list[str]:
        topics = [
            {"name": self._place(topic), "partitions": [{"partition_index": index} for index in of]}
            for topic, of in by_topic(self._partitions(words))
        ]
        group = self._real(options.get("group", "g"))
        return self._show(self._control(request("OffsetDelete", group_id=group, topics=topics), 0))
