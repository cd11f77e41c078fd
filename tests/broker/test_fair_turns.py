"""The budget of a turn: what does not fit waits in a queue in which connections take turns."""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import commit_request, committed, consumer_beat, consumer_join, heartbeat_request, stable
from wire_driver import START_MS, Connection, Wire, batch, fetch_request, produce_request, values_of, with_topic

from kohort.broker.ready import COSTLY, OVER, REPEATS, REQUESTS_BETWEEN, WITHIN
from kohort.broker.turn import Closed, Send, TaskDone, Turn, Unread
from kohort.broker.waits import fetch_waits
from kohort.coordinator.events import PatternsResolved
from kohort.coordinator.shard import DEADLINES
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic

ASK = ApiVersionsRequest(client_software_name="asks", client_software_version="1"), 3


def short_turn(wire: Wire, *arrived: Any, requests: int, over: int = OVER) -> list[Connection]:
    """The connections that a turn with a budget of so many requests answers, in order. `over`: OVER or COSTLY, what the
    edge says then."""
    left = requests

    def time_is_up() -> int:
        nonlocal left
        left -= 1
        return over if left < 0 else WITHIN

    turn: Turn = wire.broker.step(arrived, wire.now, time_is_up)
    wire.end(turn)
    return [wire.connections[sent.connection] for sent in turn.releases if isinstance(sent, Send)]


def test_connections_take_turns() -> None:
    wire = Wire()
    a, b, c = (wire.connect() for _ in range(3))
    frames = [a.frame(*ASK) for _ in range(5)] + [b.frame(*ASK), b.frame(*ASK), c.frame(*ASK)]
    assert short_turn(wire, *frames, requests=2) == [a, a]
    assert wire.broker.busy
    assert short_turn(wire, requests=4) == [a, b, c, a]
    assert short_turn(wire, b.frame(*ASK), requests=10) == [b, a, b]
    assert not wire.broker.busy


def test_what_waits_goes_before_what_arrives() -> None:
    wire = Wire()
    first, waiting, *others = (wire.connect() for _ in range(6))
    assert short_turn(wire, first.frame(*ASK), waiting.frame(*ASK), requests=1) == [first]
    arrived = [other.frame(*ASK) for other in others]
    assert short_turn(wire, *arrived, requests=3) == [waiting, *others[:2]]
    assert short_turn(wire, first.frame(*ASK), requests=3) == [*others[2:], first]


def test_repeated_requests_that_wait_need_no_handler() -> None:
    wire = Wire()
    member, busy = wire.connect(), wire.connect()
    joined = stable(member)
    for _ in range(3):  # the answer is kept
        member.send(heartbeat_request(joined), 3)
        assert member.take().error_code == 0
    handled = wire.broker._last_request_id
    assert short_turn(wire, busy.frame(*ASK), member.frame(heartbeat_request(joined), 3), requests=1) == [busy]
    assert short_turn(wire, requests=1) == [member]
    assert member.take().error_code == 0
    assert wire.broker._last_request_id == handled + 1, "that of the other connection"


def test_several_repeated_requests_are_one_share() -> None:
    wire = Wire()
    first, member, busy = (wire.connect() for _ in range(3))
    joined = stable(member)
    for _ in range(3):  # the answer is kept
        member.send(heartbeat_request(joined), 3)
        assert member.take().error_code == 0
    beats = [member.frame(heartbeat_request(joined), 3) for _ in range(REPEATS + 2)]
    assert short_turn(wire, first.frame(*ASK), *beats, busy.frame(*ASK), requests=1) == [first]
    assert short_turn(wire, requests=2) == [*[member] * REPEATS, busy]
    assert short_turn(wire, member.frame(*ASK), requests=1) == [member, member, member], "then one that needs a handler"


def test_requests_for_a_later_turn_are_told_from_parked_ones() -> None:
    wire = Wire()
    first, waiting = wire.connect(), wire.connect()
    assert short_turn(wire, first.frame(*ASK), waiting.frame(*ASK), requests=1) == [first]
    assert wire.broker.waiting.bytes_of(waiting.id) > 0
    assert wire.broker.waiting.is_ready(waiting.id)
    short_turn(wire, Unread(waiting.id, unread=True), requests=0)
    assert not wire.broker.waiting.is_ready(waiting.id), "the client does not read"
    assert not wire.broker.waiting.is_ready(first.id), "nothing waits"


def test_after_a_large_answer_others_go_first() -> None:
    """Clients that fetch much wait for others, and their answers do not keep those of others waiting."""
    client = with_topic()
    wire, quick = client.wire, client.wire.connect()
    client.produced(produce_request("t", encode_batch([NewRecord(None, bytes(200_000), 1)])))
    large = [wire.connect() for _ in range(3)]
    fetch = fetch_request("t"), 11
    for reader in large:
        assert short_turn(wire, reader.frame(*fetch), requests=10) == [reader]
    arrived = [*(reader.frame(*fetch) for reader in large), quick.frame(*ASK)]
    assert short_turn(wire, *arrived, requests=10) == [quick]
    assert short_turn(wire, quick.frame(*ASK), requests=10) == [large[0], quick], "one of them begins the next turn"
    assert short_turn(wire, requests=10) == large[1:]
    assert not wire.broker.busy


def test_answers_of_a_turn_are_bounded() -> None:
    client = with_topic()
    wire, other = client.wire, client.wire.connect()
    for number in range(2_000):
        client.create_topic(f"{number:0240}")
    ask = MetadataRequest(topics=None), 9
    size = len(wire.broker.step([client.frame(*ask)], wire.now).releases[0].whole)
    client.awaited.clear()
    frames = [client.frame(*ask) for _ in range(60)]
    turns = [short_turn(wire, *frames, other.frame(*ASK), requests=10**9)]
    while wire.broker.busy:
        turns.append(short_turn(wire, requests=10**9))
    assert len(turns) == 4
    assert all(turn.count(client) <= 8_388_608 // size + 1 for turn in turns)
    assert other in turns[0], "long answers do not go before it"
    assert sum(map(len, turns)) == 61


def test_who_does_not_read_is_not_served() -> None:
    wire = Wire()
    deaf, other = wire.connect(), wire.connect()
    frames = [deaf.frame(*ASK) for _ in range(4)]
    assert short_turn(wire, *frames, requests=2) == [deaf, deaf]
    assert short_turn(wire, Unread(deaf.id, unread=True), other.frame(*ASK), requests=10) == [other]
    assert not wire.broker.busy
    assert short_turn(wire, Unread(deaf.id, unread=False), requests=10) == [deaf, deaf]


def test_questions_of_a_closed_connection_are_dropped_and_its_records_are_kept() -> None:
    client = with_topic()
    wire, asking = client.wire, client.wire.connect()
    frames = [asking.frame(*ASK) for _ in range(50)]
    writes = [client.frame(produce_request("t", batch("a"), acks=0), 9) for _ in range(3)]
    assert short_turn(wire, *frames, *writes, requests=1) == [asking]
    assert short_turn(wire, Closed(asking.id), Closed(client.id), requests=10) == []
    assert not wire.broker.busy
    [partition] = wire.partitions("t")
    assert partition.end_offset == 3


def test_a_deadline_waits_for_requests_that_came_before_it() -> None:
    wire = Wire()
    member, busy = wire.connect(), wire.connect()
    joined = stable(member)
    wire.now += 10_001
    frames = [busy.frame(*ASK) for _ in range(3)]
    assert short_turn(wire, *frames, member.frame(heartbeat_request(joined), 3), requests=1) == [busy]
    while wire.broker.busy:
        short_turn(wire, requests=1)
    assert member.take().error_code == 0


def test_a_long_answer_is_made_in_steps() -> None:
    client = with_topic()
    wire, other = client.wire, client.wire.connect()
    asked = tuple(ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(10_000))
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=asked),))
    assert short_turn(wire, client.frame(request, 7), client.frame(*ASK), requests=10) == []
    assert short_turn(wire, other.frame(*ASK), requests=10) == [other]
    flood = [other.frame(*ASK) for _ in range(40)]
    assert short_turn(wire, *flood, requests=60) == [other] * 27, "16, then 32 steps of the long answer, then 11"
    while wire.broker.busy:
        short_turn(wire, requests=1_000)
    [topic] = client.take().topics
    assert [row.partition_index for row in topic.partitions] == list(range(10_000))
    assert client.take().error_code == 0, "the next request's answer comes after it"


def test_an_answer_is_not_made_to_its_end_for_a_closed_connection() -> None:
    client = with_topic()
    asked = tuple(ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(10_000))
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=asked),))
    assert short_turn(client.wire, client.frame(request, 7), requests=10) == []
    assert short_turn(client.wire, Closed(client.id), requests=10) == []
    assert not client.wire.broker.busy


def test_of_a_closed_connection_changes_are_made_and_nothing_else() -> None:
    """What has arrived counts: a producer with acks=0 and a member that leaves may close without waiting."""
    wire = Wire()
    leaving, other = wire.connect(), wire.connect()
    other.create_topic("t")
    for member in ("leaves", "stays"):
        assert leaving.ask(consumer_join(member), 1).error_code == 0
    handled = wire.broker._last_request_id
    frames = [
        leaving.frame(MetadataRequest(topics=None), 9),
        leaving.frame(produce_request("t", batch("x"), acks=0), 9),
        leaving.frame(consumer_beat("stays", 1), 1),
        leaving.frame(consumer_beat("leaves", -1), 1),
    ]
    assert short_turn(wire, *frames, Closed(leaving.id), requests=0) == []
    assert short_turn(wire, requests=10) == []
    assert wire.broker._last_request_id == handled + 2, "the produce and the leave"
    assert other.values("t") == [b"x"]
    assert set(wire.shard().consumers.groups["g"].members) == {"stays"}


def test_of_a_closed_connection_only_the_first_commit_is_made() -> None:
    """The client repeats the others over its next connection, and goes on from there."""
    wire = Wire()
    gone, back, other = (wire.connect() for _ in range(3))
    other.create_topic("t")
    commits = [gone.frame(commit_request(offset), 7) for offset in (1, 2, 3)]
    assert short_turn(wire, *commits, Closed(gone.id), requests=0) == []
    assert short_turn(wire, back.frame(commit_request(4), 7), requests=1) == []
    assert short_turn(wire, requests=10) == [back]
    assert committed(other) == 4


def test_a_produce_with_an_answer_is_not_repeated_for_a_client_that_has_gone() -> None:
    wire = Wire()
    gone, other = wire.connect(), wire.connect()
    other.create_topic("t")
    wanted = (("a", 1), ("b", 1), ("c", 0))
    frames = [gone.frame(produce_request("t", batch(value), acks=acks), 9) for value, acks in wanted]
    assert short_turn(wire, *frames, Closed(gone.id), requests=0) == []
    assert short_turn(wire, requests=10) == []
    assert other.values("t") == [b"a", b"c"]


def test_a_closed_connection_takes_its_turn() -> None:
    wire = Wire()
    gone, other = wire.connect(), wire.connect()
    other.create_topic("t")
    frames = [gone.frame(produce_request("t", batch("x"), acks=0), 9) for _ in range(8)]
    assert short_turn(wire, *frames, Closed(gone.id), requests=2) == []
    assert short_turn(wire, other.frame(*ASK), requests=2) == [other]
    assert short_turn(wire, requests=8) == []
    other.take()
    assert len(other.values("t")) == 8


def test_large_fetches_share_while_others_wait() -> None:
    """Alone a fetch gets what it asks for. Of many that wait each gets a part, and its client fetches again."""
    wire = Wire()
    clients = [wire.connect() for _ in range(40)]
    clients[0].create_topic("t")
    for _ in range(30):
        clients[0].produce("t", b"x" * 100_000)
    request = fetch_request("t", most=2_000_000)
    frames = [client.frame(request, 11) for client in clients]
    short_turn(wire, *frames, requests=1)
    wire.step()
    sizes = [sum(map(len, filter(None, values_of(client.take())))) for client in clients]
    assert sizes[0] > 1_500_000, "nobody waited yet"
    assert max(sizes[1:8]) <= 262_144
    assert all(sizes)


def test_who_uses_up_a_turn_comes_after_the_others() -> None:
    wire = Wire()
    costly, other, another = (wire.connect() for _ in range(3))
    frames = [costly.frame(*ASK) for _ in range(4)]
    assert short_turn(wire, *frames, requests=1, over=COSTLY) == [costly]
    waiting = [client.frame(*ASK) for client in (other, another, other)]
    assert short_turn(wire, *waiting, requests=10) == [other, another, other], "their answers do not wait for it"
    assert short_turn(wire, other.frame(*ASK), requests=0, over=COSTLY) == [costly], "it has a turn of its own"
    assert short_turn(wire, requests=10) == [other]
    assert short_turn(wire, requests=0, over=COSTLY) == [costly]
    assert short_turn(wire, requests=10) == [costly]
    assert short_turn(wire, costly.frame(*ASK), other.frame(*ASK), requests=10) == [costly, other], (
        "it is as others again"
    )


def test_who_uses_up_turns_is_not_forgotten() -> None:
    wire = Wire()
    costly, *others = (wire.connect() for _ in range(REQUESTS_BETWEEN + 3))
    assert short_turn(wire, costly.frame(*ASK), costly.frame(*ASK), requests=1, over=COSTLY) == [costly]
    answered = [client for other in others for client in short_turn(wire, other.frame(*ASK), requests=1)]
    assert answered[0] is not costly
    assert costly in answered


def test_what_a_turn_appends_is_bounded() -> None:
    client = with_topic(message_max_bytes=4_000_000)
    clients = [client, *(client.wire.connect() for _ in range(3))]
    data = encode_batch([NewRecord(None, bytes(1_500_000), START_MS)])
    frames = [one.frame(produce_request("t", data), 9) for one in clients]
    assert short_turn(client.wire, *frames, requests=100) == clients[:2], "2 MB are exceeded by the second"
    assert short_turn(client.wire, requests=100) == clients[2:]


def test_small_requests_go_before_large_ones() -> None:
    wire = Wire()
    busy, *others = (wire.connect() for _ in range(4))
    large = MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"topic-{n}") for n in range(400))), 9
    frames = [busy.frame(*ASK), *(other.frame(*large) for other in others), busy.frame(*ASK), others[0].frame(*ASK)]
    assert short_turn(wire, *frames, requests=1) == [busy]
    assert short_turn(wire, requests=1) == [busy]
    wire.step()
    assert [len(other.responses) for other in others] == [2, 1, 1]


def test_requests_of_tools_go_after_those_of_clients() -> None:
    wire = Wire()
    busy, tool, client = (wire.connect() for _ in range(3))
    frames = [busy.frame(*ASK), tool.frame(ListGroupsRequest(), 4), client.frame(*ASK)]
    assert short_turn(wire, *frames, requests=1) == [busy]
    assert short_turn(wire, requests=1) == [client]
    assert short_turn(wire, requests=9) == [tool]


def test_long_answers_begin_when_nobody_waits() -> None:
    wire = Wire()
    busy, *many, client = (wire.connect() for _ in range(5))
    everything = MetadataRequest(topics=None), 9
    for number in range(100):
        busy.create_topic(f"topic-{number}")
    frames = [busy.frame(*ASK), *(one.frame(*everything) for one in many), client.frame(*ASK)]
    assert short_turn(wire, *frames, requests=1) == [busy]
    assert short_turn(wire, requests=4) == [client]
    wire.step()
    assert all(one.take() for one in many)


def test_outcomes_of_tasks_leave_time_for_requests() -> None:
    client = with_topic()
    wire = client.wire
    done = [TaskDone(0, PatternsResolved(number, ())) for number in range(3)]
    asked: list[object] = []
    ask = wire.broker.state.ask
    wire.broker.state.ask = lambda shard, event: (asked.append(event), ask(shard, event))  # type: ignore[method-assign]
    assert (short_turn(wire, *done, client.frame(*ASK), requests=0), len(asked)) == ([], 0)
    assert (short_turn(wire, client.frame(*ASK), requests=1), len(asked)) == ([client], 0)
    assert (short_turn(wire, requests=1), len(asked)) == ([], 1), "every second turn is theirs while requests wait"
    assert (short_turn(wire, requests=1), len(asked)) == ([client], 1)
    wire.step()
    assert len(asked) == 3


def test_woken_fetches_do_not_use_up_all_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_waits, "TURN_WORK", 1)
    client = with_topic()
    wire, other = client.wire, client.wire.connect()
    readers = [wire.connect() for _ in range(3)]
    for reader in readers:
        reader.send(fetch_request("t", max_wait_ms=60_000), 11)
    assert short_turn(wire, client.frame(produce_request("t", batch("v")), 9), requests=10) == [client]
    assert short_turn(wire, other.frame(*ASK), requests=0) == readers[:1]
    assert short_turn(wire, requests=10) == [other]
    assert short_turn(wire, requests=10) == readers[1:2]
    assert short_turn(wire, requests=10) == readers[2:], "no request waits"


def test_outcomes_and_woken_fetches_have_turns_beside_clients_with_large_answers() -> None:
    """Each turn begins with a large answer, and quick requests follow."""
    client = with_topic()
    client.create_topic("quiet")
    client.produced(produce_request("t", encode_batch([NewRecord(None, bytes(200_000), 1)])))
    wire, large, quick, waits = client.wire, *(client.wire.connect() for _ in range(3))
    asked: list[object] = []
    ask = wire.broker.state.ask
    wire.broker.state.ask = lambda shard, event: (asked.append(event), ask(shard, event))  # type: ignore[method-assign]
    short_turn(wire, *[large.frame(fetch_request("t"), 11) for _ in range(20)], requests=1)
    for offset in range(4):
        waiting = waits.frame(fetch_request("quiet", offset, max_wait_ms=60_000), 11)
        appended = client.frame(produce_request("quiet", batch("v")), 9)
        done = TaskDone(0, PatternsResolved(0, ()))
        turns = [short_turn(wire, done, waiting, appended, quick.frame(*ASK), requests=10)]
        turns += [short_turn(wire, quick.frame(*ASK), requests=10) for _ in range(3)]
        assert len(asked) == offset + 1
        assert [waits in answered for answered in turns].count(True) == 1
        assert [large in answered for answered in turns].count(True) >= 2
        assert [quick in answered for answered in turns].count(True) >= 3


def test_members_that_expire_in_the_same_moment_leave_time_for_others() -> None:
    client = with_topic(offsets_topic_num_partitions=50)
    wire = client.wire
    groups = [f"group-{n}" for n in range(20)]
    for group in groups:
        client.ask(consumer_join("m", "t", group=group), 1)
    wire.now += 10 * wire.config.group_consumer_session_timeout_ms
    members = [wire.shard(group).hard.consumers.groups[group].members for group in groups]
    assert short_turn(wire, requests=1) == []
    expired = sum(not one for one in members)
    assert 0 < expired < len(groups) // 2
    assert short_turn(wire, client.frame(*ASK), requests=2) == []
    assert short_turn(wire, requests=2) == [client], "requests go between"
    wire.step()
    assert not any(members)


def test_members_of_one_group_that_expire_in_the_same_moment_leave_time_for_others() -> None:
    client = with_topic()
    wire = client.wire
    for number in range(3 * DEADLINES):
        client.ask(consumer_join(f"m-{number}", "t"), 1)
    wire.now += 10 * wire.config.group_consumer_session_timeout_ms
    members = wire.shard("g").hard.consumers.groups["g"].members
    assert short_turn(wire, requests=1) == []
    assert len(members) >= DEADLINES
    assert short_turn(wire, client.frame(*ASK), requests=2) == []
    assert short_turn(wire, requests=2) == [client], "requests go between"
    wire.step()
    assert not members
