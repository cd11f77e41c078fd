"""Random histories of a few groups and clients, with crashes that lose the turn under way.

After each step the invariants hold. After each turn and each crash, live hard state equals the replay of the log and
the replay of the compacted log.
"""

from __future__ import annotations

from typing import Any

from history_world import CLIENTS, GROUPS, PRODUCERS, HistoryWorld, act, histories, play, some
from hypothesis import given
from hypothesis import strategies as st

from kohort.config import Config
from kohort.conformance.play.requests import request
from kohort.coordinator.classic.group import Phase
from kohort.coordinator.classic.group_record import value_of
from kohort.coordinator.events import Record, Reply, TopicsDeleted
from kohort.coordinator.records import parse
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import GenerationKey
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

CONFIG = Config(
    group_max_size=3,
    group_max_pending_members=2,
    group_initial_rebalance_delay_ms=1000,
    group_storm_rebalance_delay_ms=1500,
    group_max_former_groups=0,
    offsets_retention_minutes=1,
)
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",))


class Known:
    """The state of a group's client."""

    def __init__(self, group: str, name: str) -> None:
        self.group = group
        self.name = name
        self.instance = name if name in "st" else None
        self.forget()

    def forget(self) -> None:
        self.wants = "join"
        """The next request of a well-behaved client."""
        self.member_id = ""
        self.generation = -1
        self.members: tuple[str, ...] = ()
        self.protocols = PROTOCOLS[1]

    def fields(self) -> dict[str, Any]:
        """Of a member's requests."""
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }


class World(HistoryWorld):
    config = CONFIG

    def __init__(self) -> None:
        self.clients = {(group, name): Known(group, name) for group in GROUPS for name in CLIENTS}
        self.announced = dict.fromkeys(GROUPS, 0)
        self.reserved = dict.fromkeys(GROUPS, 0)
        self.assigned: dict[tuple[str, int, str], bytes] = {}
        super().__init__()

    def end_turn(self) -> None:
        for record in self.turn_records:
            key, value = (parse(record) if isinstance(record, Record) else None) or (None, None)
            if isinstance(key, GenerationKey) and key.group and value is not None:
                assert value.generation > self.reserved[key.group], "a generation is taken twice"
                self.reserved[key.group] = value.generation
        super().end_turn()

    def learn(self, client: tuple[Known, Any] | None, reply: Reply) -> None:
        if client is None:
            return
        known, asked = client
        group, body = known.group, reply.body
        match body:
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                known.member_id = body.member_id
            case JoinGroupResponse(error_code=0):
                assert self.announced[group] <= body.generation_id <= self.reserved[group], "a generation goes back"
                self.announced[group] = body.generation_id
                known.member_id = body.member_id
                known.generation = body.generation_id
                known.members = tuple(member.member_id for member in body.members)
                known.wants = "sync"
            case SyncGroupResponse(error_code=0):
                place = (group, asked.generation_id, known.name)
                assert self.assigned.setdefault(place, body.assignment) == body.assignment, "assigned twice"
                known.wants = "heartbeat"
            case JoinGroupResponse() | SyncGroupResponse() | HeartbeatResponse() if body.error_code:
                known.wants = "join"
                if body.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    known.forget()

    # -- what may happen

    def join(self, group: str, name: str, protocols: int, version: int, forget: bool) -> None:
        known = self.clients[group, name]
        if forget:
            known.forget()
        known.protocols = PROTOCOLS[protocols]
        body = request(
            "JoinGroup",
            group_id=group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=(0, 3000, 10_000)[len(name) * protocols % 3],
            member_id=known.member_id,
            group_instance_id=known.instance if version >= 5 else None,
            protocol_type="consumer",
            protocols=[{"name": protocol, "metadata": b"\0\0\0\0\0\0"} for protocol in known.protocols],
        )
        self.ask((known, body), body, version)

    def sync(self, group: str, name: str) -> None:
        known = self.clients[group, name]
        assignments = [
            {"member_id": member, "assignment": f"{member} {self.last_request}".encode()} for member in known.members
        ]
        body = request("SyncGroup", **known.fields(), assignments=assignments)
        self.ask((known, body), body, 4)

    def heartbeat(self, group: str, name: str, hold_ms: int) -> None:
        known = self.clients[group, name]
        body = request("Heartbeat", **known.fields())
        self.ask((known, body), body, 4, hold_ms)

    def leave(self, group: str, name: str) -> None:
        known = self.clients[group, name]
        identity = {"member_id": known.member_id, "group_instance_id": known.instance}
        body = request("LeaveGroup", group_id=group, members=[identity])
        self.ask((known, body), body, 5)

    def commit(self, group: str, name: str, topic: str, simple: bool) -> None:
        known = self.clients[group, name]
        partition = {"partition_index": 0, "committed_offset": self.last_request}
        body = request(
            "OffsetCommit",
            group_id=group,
            generation_id_or_member_epoch=-1 if simple else known.generation,
            member_id="" if simple else known.member_id,
            group_instance_id=None if simple else known.instance,
            topics=[{"name": topic, "partitions": [partition]}],
        )
        self.ask((known, body), body, 9)

    def commit_as(self, group: str, name: str, topic: str, producer_id: int) -> None:
        """In a transaction, for a member that may not be one any more."""
        fields = self.clients[group, name].fields()
        del fields["group_id"]
        self.commit_pending_offset(group, topic, producer_id, **fields)

    def cooperate(self, group: str, names: tuple[str, ...], turns: int) -> None:
        """Clients that do what they should, turn by turn, a second each."""
        for turn in range(turns):
            for name in names:
                known = self.clients[group, name]
                if any(client is not None and client[0] is known for client in self.open.values()):
                    continue
                match known.wants:
                    case "join":
                        self.join(group, name, PROTOCOLS.index(known.protocols), 9, False)
                    case "sync":
                        self.sync(group, name)
                    case _:
                        self.heartbeat(group, name, turn % 3 * 900)
                        self.commit(group, name, "t", False)
                self.end_turn()
            self.advance(1000)
            self.end_turn()

    def topic_deleted(self, topic: str) -> None:
        self.step(TopicsDeleted((topic,)))

    def crash(self) -> None:
        super().crash()
        hard = self.shard.hard
        self.log.check(hard)
        groups = self.shard.running.groups
        assert set(groups) == set(hard.groups)
        for group_id, group in groups.items():
            if group.phase is not Phase.PREPARING:
                assert value_of(group) == hard.groups[group_id]


join = act("join", GROUPS, CLIENTS, (1, 1, 1, 0, 2, 3), (3, 5, 9), (False, True))
action = st.one_of(
    *[join] * 3,
    *[act("sync", GROUPS, CLIENTS)] * 2,
    act("heartbeat", GROUPS, CLIENTS, (0, 500, 10_000)),
    act("answer_held", range(4)),
    act("leave", GROUPS, CLIENTS),
    act("commit", GROUPS, CLIENTS, "tu", (False, True)),
    act("commit_as", GROUPS, CLIENTS, "tu", PRODUCERS),
    act("commit_pending_offset", GROUPS, "tu", PRODUCERS),
    act("marker", PRODUCERS, (False, True)),
    act("delete", GROUPS),
    act("vanish", range(4)),
    act("advance", (0, 500, 1000, 3000, 7000)),
    act("late", (1000, 6000, 30_000)),
    act("sweep"),
    act("topic_deleted", "tu"),
    act("move"),
    *[act("cooperate", GROUPS, some(3), range(1, 13))] * 3,
    act("crash"),
    *[act("end_turn")] * 3,
)


@histories(300)
@given(st.lists(action, min_size=5, max_size=40))
def test_histories(actions: list[tuple[Any, ...]]) -> None:
    world = World()
    play(world, actions)
    world.silence()


@histories(60)
@given(st.lists(action, max_size=20), some(3))
def test_a_group_of_well_behaved_clients_becomes_stable(actions: list[tuple[Any, ...]], names: tuple[str, ...]) -> None:
    """Whatever came before: once only these ask, and nothing fails any more, they share the group in bounded time."""
    world = World()
    play(world, actions)
    world.end_turn()
    world.cooperate("g", names, 60)
    group = world.shard.running.groups["g"]
    assert group.phase is Phase.STABLE
    assert sorted(group.members) == sorted(world.clients["g", name].member_id for name in names)
    assert {world.clients["g", name].wants for name in names} == {"heartbeat"}
